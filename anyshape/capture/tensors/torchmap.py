"""Which row of `anyshape.ops` a torch callable is, and the spellings whose parameters differ from
their row's.

In: a torch function, method or operator with proxies among its arguments. Out: a row's name and
arguments in the row's own form, or a special handler. Built once from the rows' own `torch` and
`spellings` texts, so that adding a row is enough to capture it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import TORCH_OF_DTYPE
from anyshape.ir.graph import TensorType
from anyshape.nouns import frozen
from anyshape.ops import OPS

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def resolve(text: str) -> Any:
    """The object that dotted text names, or None: `resolve("torch.nn.functional.silu")`."""
    roots: Mapping[str, Any] = {"torch": torch}
    head, *rest = text.split(".")
    found = roots.get(head)
    for name in rest:
        if found is None:
            return None
        found = (
            vars(found).get(name)
            if isinstance(found, type) and name in vars(found)
            else getattr(found, name, None)
        )
    return found


def _row_index() -> Mapping[Any, str]:
    index: dict[Any, str] = {}
    spelled: dict[Any, str] = {}
    for name, row in OPS.items():
        for text, table in [(row.torch, index), *((s, spelled) for s in row.spellings)]:
            found = resolve(text)
            if found is not None and callable(found) and not isinstance(found, type):
                table.setdefault(found, name)
    for function, name in spelled.items():
        index.setdefault(function, name)
    for name, row in OPS.items():  # methods whose sizes may be given one by one have no spelling
        method = getattr(torch.Tensor, name, None)
        if method is not None and row.torch in (f"torch.{name}", "anyshape.eager.to"):
            index.setdefault(method, name)
    return MappingProxyType(index)


ROWS: Mapping[Any, str] = _row_index()

# Other names that torch has for a parameter: numpy's, those of its overloads and of its methods.
# A name that the row has itself is that parameter.
ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "axis": ("dim",),
        "axes": ("dim",),
        "axis0": ("dim0",),
        "axis1": ("dim1",),
        "keepdims": ("keepdim",),
        "x": ("input",),
        "self": ("input",),
        "tensor": ("input",),
        "a": ("input",),
        "x2": ("other",),
        "b": ("other",),
        "values": ("other",),
        "value": ("src",),
        "from": ("low",),
        "to": ("high",),
        "element": ("elements",),
        "test_element": ("test_elements",),
        "size": ("shape",),
        "dtype": ("size",),
        "indices": ("indices_or_sections",),
        "sections": ("indices_or_sections",),
        "tensor_indices_or_sections": ("indices_or_sections",),
        "split_size": ("split_size_or_sections",),
        "split_sizes": ("split_size_or_sections",),
        "input2": ("tau",),
        "input3": ("other",),
    }
)


def row_arguments(name: str, fn: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
    """The arguments in the row's own form; None where it has no parameter of such a name."""
    is_method = (
        hasattr(fn, "__objclass__")
        or getattr(torch.Tensor, getattr(fn, "__name__", ""), None) is fn
    )
    form = OPS[name].one_by_one
    if form is not None:
        args = form.given(args, is_method=is_method)
    signature = OPS[name].signature
    known = {parameter.name for parameter in signature.parameters}
    fixed: Kwargs = {}
    for key, value in kwargs.items():
        if key not in known:
            if key in IGNORED:
                continue
            key = next((other for other in ALIASES.get(key, ()) if other in known), "")
            if not key or key in fixed or key in kwargs:
                return None
        fixed[key] = value
    positional = sum(not parameter.keyword_only for parameter in signature.parameters)
    if len(args) > positional:
        extra = [p.name for p in signature.parameters if p.keyword_only]
        if len(args) - positional > len(extra):
            raise TypeError(f"{name} takes {positional} arguments, {len(args)} were given")
        for parameter, value in zip(extra, args[positional:]):
            fixed[parameter] = value
        args = args[:positional]
    return args, fixed


# Rows whose function writes into its argument where it is told to.
IN_PLACE_FLAGS = frozenset(
    name for name, row in OPS.items() if any(p.name == "inplace" for p in row.signature.parameters)
)

# Methods by which a tensor becomes a view of itself (`x.t_()`): those that give the view.
IN_PLACE_VIEWS: Mapping[Any, Any] = MappingProxyType(
    {
        vars(torch._C.TensorBase)[f"{key}_"]: method
        for key, method in vars(torch._C.TensorBase).items()
        if OPS.get(ROWS.get(method, ""), OPS["add"]).alias == "view"
        and f"{key}_" in vars(torch._C.TensorBase)
    }
)


def operator_name(operator: Any) -> str:
    """`aten::select` of `torch.ops.aten.select` and of its overloads."""
    return str(getattr(operator, "_qualified_op_name", None) or operator._schema.name)


def functions_of(name: str) -> list[Any]:
    """torch's own functions and methods of an `aten` operator's name: they take its arguments."""
    owners = (torch._C._VariableFunctions, torch.Tensor, torch._C._nn)
    found = [getattr(owner, name, None) for owner in owners]
    return [fn for fn in found if fn is not None and not isinstance(fn, types.FunctionType)]


# What neither changes a result nor its type.
IGNORED = frozenset(
    {"out", "non_blocking", "pin_memory", "layout", "requires_grad", "_stacklevel", "inplace_hint"}
)

# `a op b` with a tensor: (row, row of the reflected or in-place form).
BINARY: Mapping[str, str] = MappingProxyType(
    {
        "+": "add",
        "-": "sub",
        "*": "mul",
        "/": "div",
        "//": "floor_divide",
        "%": "remainder",
        "**": "pow",
        "@": "matmul",
        "&": "bitwise_and",
        "|": "bitwise_or",
        "^": "bitwise_xor",
        "<<": "bitwise_left_shift",
        ">>": "bitwise_right_shift",
    }
)
COMPARE: Mapping[str, str] = MappingProxyType(
    {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
)
UNARY: Mapping[str, str] = MappingProxyType(
    {"-": "neg", "+": "positive", "~": "bitwise_not", "abs": "abs"}
)

# x.float() is x.to(torch.float32).
CASTS: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "float": torch.float32,
        "double": torch.float64,
        "half": torch.float16,
        "bfloat16": torch.bfloat16,
        "long": torch.int64,
        "int": torch.int32,
        "short": torch.int16,
        "char": torch.int8,
        "byte": torch.uint8,
        "bool": torch.bool,
        "cfloat": torch.complex64,
        "cdouble": torch.complex128,
    }
)


@frozen
class LegacyClass:
    """What a tensor of one of `torch.FloatTensor` and its relatives is."""

    dtype: torch.dtype
    device_type: str
    strided: bool

    def is_on(self, device: str) -> bool:
        """Whether it holds strided tensors of this device."""
        return self.strided and device.partition(":")[0] == self.device_type

    def holds(self, kind: TensorType) -> bool:
        """Whether a strided tensor of this type is one."""
        return TORCH_OF_DTYPE[kind.dtype] is self.dtype and self.is_on(kind.device)


def _legacy(cls: Any) -> LegacyClass:
    *_, device = cls.__module__.removesuffix(".sparse").split(".")
    strided = cls.layout is torch.strided
    return LegacyClass(cls.dtype, "cpu" if device in ("torch", "sparse") else device, strided)


LEGACY_CLASSES: Mapping[Any, LegacyClass] = MappingProxyType(
    {cls: _legacy(cls) for cls in torch._tensor_classes}
)
LEGACY_METACLASS = type(torch.FloatTensor)
LEGACY_NAMES: Mapping[str, LegacyClass] = MappingProxyType(
    {f"{cls.__module__}.{cls.__name__}": found for cls, found in LEGACY_CLASSES.items()}
)

Handler = Callable[..., Any]
