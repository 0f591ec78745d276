"""What Python code can do to a tensor while it is captured: operators, attributes, methods,
indexing, calls of torch functions.

In: proxies as they lie on the virtual stack. Out: proxies again; the recorder has the nodes.
Every torch callable goes through `call_torch`: a special handler, else a row of `anyshape.ops`,
else `eager_call` (a row made on the fly).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import DTYPE_OF_TORCH, TORCH_OF_DTYPE, device_text
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.numpy_scalars import number_beside_tensor
from anyshape.capture.heap.quiet_classes import bare_name, class_entry, mro_of, namespace_of
from anyshape.capture.heap.values import PROXIES, ScalarValue, SizeValue, TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.scalar_contents import are_all_positions
from anyshape.capture.sizes import numbers
from anyshape.capture.tensors import indexing, torchmap
from anyshape.capture.tensors.leaves import has_that_flag, no_grad_fn
from anyshape.capture.tensors.replaced_data import count_write, data_replaced, where_it_lies
from anyshape.capture.tensors.views import views
from anyshape.ir.dtypes import DType, bool_, int64, uint8
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ops import OPS
from anyshape.ops.layout import numel

Handler = Callable[["RecordingDomain", tuple[Any, ...], dict[str, Any]], Any]


class SizeTuple(tuple[Any, ...]):
    """`x.shape` with symbols in it: to the program it is a `torch.Size`."""

    __slots__ = ()

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> type:
        return torch.Size

    def numel(self) -> Any:
        total: Any = 1
        for size in self:
            total = total * size
        return total


SizeTuple.__name__ = "torch.Size"  # by which C code names it in errors
ATEN_INTEGERS = range(-(2**63), 2**64)
"""The numbers that a `Scalar` of ATen holds: an int64 or a uint64."""


# ---- values in both directions -------------------------------------------------------------------
def _dtype(dtype: torch.dtype) -> DType:
    if dtype not in DTYPE_OF_TORCH:
        raise broken(
            "operator-unknown", what=str(dtype), why="no value of this dtype is understood"
        )
    return DTYPE_OF_TORCH[dtype]


def to_arg(domain: RecordingDomain, value: Any) -> Any:
    """A value of the virtual stack as an argument of a node."""
    kind = type(value)
    if kind is TensorValue or kind is SizeValue:
        return value.value if kind is TensorValue else value.expr
    if kind is ScalarValue:
        if isinstance(value.scalar, (Scalar, ScalarInput)):
            return value.scalar
        return Scalar("bool", "value", (value.scalar,))
    if kind is int and value not in ATEN_INTEGERS:
        raise broken("operator-raises", what=hex(value), why="int too big to convert")
    if value is None or kind in (int, float, bool, str, complex):
        return value
    if isinstance(value, torch.Tensor):
        return domain.lift(value).value
    if isinstance(value, (tuple, list)):
        return tuple(to_arg(domain, item) for item in domain.seen(value))
    if kind is slice:
        return slice(*(to_arg(domain, part) for part in (value.start, value.stop, value.step)))
    number = number_beside_tensor(value)
    return _noun(value) if number is None else number


def named_device(device: torch.device) -> str:
    """As in types of tensors; breaks where this torch makes no tensors there."""
    try:
        return device_text(device)
    except RuntimeError:  # the base of NotImplementedError
        raise broken("operator-raises", what=str(device), why="no tensors are made on it") from None


def _noun(value: Any) -> Any:
    """One of torch's nouns (a dtype, a device, ...) as an argument of a node."""
    if isinstance(value, torch.dtype):
        return _dtype(value)
    if isinstance(value, torch.device):
        return named_device(value)
    if isinstance(value, torch.memory_format):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.layout):
        if value is not torch.strided:
            raise broken("tensor-subclass", f"tensor that is not strided ({value})")
        return None
    if value is Ellipsis:
        return value
    raise broken(
        "unknown-call", f"a torch function with a {bare_name(type(value))} among its arguments"
    )


def _keyword(domain: RecordingDomain, name: str, value: Any) -> Any:
    """``device="cuda"`` is the current device, as capture names it."""
    named = name == "device" and type(value) in (str, int)
    return to_arg(domain, torch.device(value) if named else value)


def call_row(domain: RecordingDomain, name: str, *args: Any, **kwargs: Any) -> Any:
    """Records one row and wraps its result; in-place rows give the very tensor that they write."""
    recorder = domain.recorder
    target: Any = None
    if OPS[name].mutates:
        target = args[0] if args else kwargs[OPS[name].mutates[0]]
        lies = where_it_lies(domain, target)
        if lies is not None and args:
            call_row(domain, name, lies, *args[1:], **kwargs)
            count_write(domain, target)
            return target
    made = recorder.call(
        name,
        *(to_arg(domain, a) for a in args),
        **{k: _keyword(domain, k, v) for k, v in kwargs.items()},
    )
    if OPS[name].mutates:
        domain.wrote_tensor(target)
        return target
    result = recorder.wrap(made)
    if OPS[name].alias != "none":
        result = _the_very(result, (*args, *kwargs.values()))
    return _with_names(name, result) if isinstance(result, tuple) else result


def _the_very(result: Any, args: Sequence[Any]) -> Any:
    """Where an expansion gave back an argument itself, the proxy that the program knows it by."""
    if isinstance(result, tuple):
        return tuple([_the_very(part, args) for part in result])
    if type(result) is not TensorValue:
        return result
    for arg in args:
        given = _the_very(result, arg) if isinstance(arg, (tuple, list)) else arg
        if type(given) is TensorValue and given.value is result.value:
            return given
    return result


def _with_names(name: str, results: tuple[Any, ...]) -> tuple[Any, ...]:
    """As torch returns them; a row of more results gives parts of what the function returns."""
    named: Any = RETURN_TYPES.get(name)
    return results if named is None or named.n_fields != len(results) else named(results)


RETURN_TYPES: Mapping[str, type[tuple[Any, ...]]] = {
    name: found
    for name, found in vars(torch.return_types).items()
    if isinstance(found, type) and issubclass(found, tuple)
}
"""By the name of the function whose results have names, as in ``x.max(1).values``."""


# ---- operators -----------------------------------------------------------------------------------
def binary(domain: RecordingDomain, op: str, a: Any, b: Any) -> Any:
    """`a op b` with a tensor among them."""
    if op == "%" and isinstance(a, (str, bytes)):
        raise broken("tensor-data", "text of a tensor")
    if op == "divmod" or not _operand(a) or not _operand(b):
        return NotImplemented
    if op == "**" and not isinstance(a, TensorValue):
        return call_row(domain, "pow", a, b)
    if op in REFLECTED and not isinstance(a, (TensorValue, torch.Tensor)):
        return call_row(domain, REFLECTED[op], b, a)
    return call_row(domain, torchmap.BINARY[op], a, b)


REFLECTED = {"-": "rsub", "/": "rtruediv"}
"""What a number does with a tensor on its right."""


def _operand(value: Any) -> bool:
    cls = type(value)
    if cls in PROXIES or issubclass(cls, torch.Tensor):
        return True
    if any("__torch_function__" in namespace_of(base) for base in mro_of(cls)):
        raise broken("unknown-call", f"an operator that asks {name_of(cls)}.__torch_function__")
    if issubclass(cls, (list, tuple)) and any(
        type(class_entry(cls, name)) is types.FunctionType for name in ("__len__", "__getitem__")
    ):
        raise broken("unknown-call", f"an operator of a tensor that asks {name_of(cls)}.__len__")
    return number_beside_tensor(value) is not None


def inplace(domain: RecordingDomain, op: str, a: Any, b: Any) -> Any:
    """`a op= b` where `a` is a tensor."""
    if not _operand(b):
        return NotImplemented
    name = torchmap.BINARY.get(op, "") + "_"
    if name in OPS and op != "@":
        return call_row(domain, name, a, b)
    if op == "@":
        return binary(domain, op, a, b)
    made = binary(domain, op, a, b)
    return call_row(domain, "copy_", a, made)


def compare(domain: RecordingDomain, op: str, a: Any, b: Any) -> Any:
    """`a op b` elementwise; with anything that is no number, what Python answers."""
    if not _operand(a) or not _operand(b):
        return op == "!=" if op in ("==", "!=") else NotImplemented
    if not isinstance(a, TensorValue) and not isinstance(a, torch.Tensor):
        a, b, op = b, a, SWAPPED[op]
    return call_row(domain, torchmap.COMPARE[op], a, b)


SWAPPED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def unary(domain: RecordingDomain, op: str, a: TensorValue) -> Any:
    """`-a`, `~a`, `abs(a)`, and the conversions that read data."""
    if op in torchmap.UNARY:
        return call_row(domain, torchmap.UNARY[op], a)
    if op in ("int", "float", "bool", "index"):
        return read_number(domain, a, op)
    if op == "hash":
        return hash(id(a.value))
    if op == "round":
        raise TypeError("type Tensor doesn't define __round__ method")
    raise broken("tensor-data", f"{op}() of a tensor")


def read_number(domain: RecordingDomain, a: TensorValue, op: str) -> Any:
    """`int(x)`, `float(x)`, `bool(x)`: an item, converted."""
    item = call_row(domain, "item", a)
    if op == "index":
        return item
    return (
        domain.unary(op, item)
        if type(item) in PROXIES
        else {"int": int, "float": float, "bool": bool}[op](item)
    )


# ---- items ---------------------------------------------------------------------------------------
def getitem(domain: RecordingDomain, x: TensorValue, key: Any) -> Any:
    """`x[key]`."""
    view = indexing.getitem(domain.recorder, x.value, index_arg(domain, key))
    return TensorValue(view) if view is not x.value else call_row(domain, "alias", x)


def setitem(domain: RecordingDomain, x: TensorValue, key: Any, new: Any) -> None:
    """`x[key] = new`."""
    indexing.setitem(domain.recorder, x.value, index_arg(domain, key), to_arg(domain, new))
    domain.wrote_tensor(x)


def index_arg(domain: RecordingDomain, key: Any) -> Any:
    """An index with values and expressions instead of proxies."""
    if isinstance(key, tuple):
        return tuple(_index_part(domain, part) for part in domain.seen(key))
    if isinstance(key, list) and any(map(_is_part, domain.seen(key))):
        raise broken("unknown-call", "indexing a tensor with a list that is taken for a tuple")
    return _index_part(domain, key)


def _is_part(item: Any) -> bool:
    """Does torch take a list that holds this for a tuple?"""
    kinds = (slice, list, tuple, TensorValue, torch.Tensor)
    return item is None or item is Ellipsis or isinstance(item, kinds)


def _index_part(domain: RecordingDomain, part: Any) -> Any:
    if isinstance(part, (list, tuple)):
        part = domain.seen(part)
        leaves = list(_leaves(part))
        if not any(isinstance(leaf, torch.Tensor) or type(leaf) in PROXIES for leaf in leaves):
            return list(part)
        kinds = {_kind_of_leaf(domain, leaf) for leaf in leaves}
        dtype = int64 if int64 in kinds else uint8 if uint8 in kinds else bool_
        return to_arg(domain, _index_tensor(domain, part, TORCH_OF_DTYPE[dtype]))
    if isinstance(part, slice):
        part = slice(*(read_index(domain, end) for end in (part.start, part.stop, part.step)))
    return to_arg(domain, part)


def _leaves(part: Any) -> Iterator[Any]:
    if isinstance(part, (list, tuple)):
        for item in part:
            yield from _leaves(item)
    else:
        yield part


def _kind_of_leaf(domain: RecordingDomain, leaf: Any) -> DType:
    """What kind of index the item of a sequence is: a bool, a byte or an integer."""
    if isinstance(leaf, torch.Tensor):
        leaf = domain.lift(leaf)
    if isinstance(leaf, TensorValue):
        kind = leaf.value.tensor
        if all(size == 1 for size in kind.shape) and not (
            kind.dtype.is_floating or kind.dtype.is_complex
        ):
            return kind.dtype if kind.dtype in (bool_, uint8) else int64
    elif numbers.is_int(leaf):
        return bool_ if isinstance(leaf, (bool, ScalarValue)) else int64
    raise broken("unknown-call", f"indexing a tensor with a list of a {bare_name(type(leaf))}")


def _index_tensor(domain: RecordingDomain, part: Any, dtype: torch.dtype) -> Any:
    """A sequence, or one of sequences, as the tensor that it is as an index."""
    if isinstance(part, (list, tuple)):
        made = [_index_tensor(domain, item, dtype) for item in part]
        if len({len(one.value.shape) for one in made}) > 1:
            raise broken("unknown-call", "indexing a tensor with a ragged list")
        return call_row(domain, "stack", tuple(made), 0)
    if isinstance(part, (torch.Tensor, TensorValue)):
        return call_row(domain, "reshape", call_row(domain, "to", part, dtype), ())
    return call_row(domain, "full", (), part, dtype=dtype)


def read_index(domain: RecordingDomain, part: Any) -> Any:
    """An end of a slice, a size, a stride: a tensor is read as an index."""
    if isinstance(part, torch.Tensor):
        part = domain.lift(part)
    if not isinstance(part, TensorValue):
        return part
    if part.value.dtype.category != "int":  # eager refuses some of them
        raise broken("unknown-call", f"reading a tensor of {part.value.dtype} as an index")
    return read_number(domain, part, "index")


# ---- shapes --------------------------------------------------------------------------------------
def shape_of(domain: RecordingDomain, x: TensorValue) -> Any:
    """`x.shape`: a real `torch.Size` where every size is known."""
    facts = domain.recorder.cx.facts
    dims = [facts.simplify(d) if not isinstance(d, int) else d for d in x.value.shape]
    known = [d for d in dims if isinstance(d, int)]
    if len(known) == len(dims):
        return domain.created(torch.Size(known))
    return domain.created(SizeTuple(numbers.size(d) for d in dims))


SIZE_MAKERS = frozenset(
    {
        *(operator.add, operator.iadd, operator.concat, operator.iconcat),
        *(operator.mul, operator.imul, operator.getitem),
        *(tuple.__add__, tuple.__mul__, tuple.__rmul__, tuple.__getitem__),
    }
)
"""C functions that make a `torch.Size` of one, where its symbols are no proxies."""


def made_of_sizes(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What one of `SIZE_MAKERS` gives; torch's own sizes refuse proxies."""
    sized = [type(arg) is SizeTuple or type(arg) is torch.Size for arg in args]
    made = fn(*[tuple(a) if s else a for a, s in zip(args, sized, strict=True)])
    return as_size(made) if any(sized) and type(made) is tuple else made


def as_size(made: tuple[Any, ...]) -> Any:
    """A tuple of numbers as the `torch.Size` that the program sees."""
    return SizeTuple(made) if any(type(d) in PROXIES for d in made) else torch.Size(made)


def length(domain: RecordingDomain, x: TensorValue) -> Any:
    """`len(x)`."""
    if not x.value.shape:
        raise TypeError("len() of a 0-d tensor")
    return numbers.size(x.value.shape[0])


def iterate(domain: RecordingDomain, x: TensorValue) -> Any:
    """`iter(x)`: the views of `x.unbind()`; the number of rows becomes known."""
    if not x.value.shape:
        raise TypeError("iteration over a 0-d tensor")
    count = domain.recorder.count(x.value.shape[0], "iteration over a tensor")
    rows = call_row(domain, "unbind", x, 0) if count else ()
    recorder = domain.recorder
    if are_all_positions(recorder.builder, x.value):
        for position, row in enumerate(rows):
            recorder.contents.hold(row.value, position)
    return iter(rows)


# ---- attributes ----------------------------------------------------------------------------------
def _device(domain: RecordingDomain, x: TensorValue) -> Any:
    return torch.device(x.value.tensor.device)


def _row_attribute(name: str) -> Callable[[Any, TensorValue], Any]:
    return lambda domain, x: call_row(domain, name, x)


def _is_leaf(domain: RecordingDomain, x: TensorValue) -> Any:
    no_grad_fn(domain, x)
    return True


def _adjoint(row: str) -> Callable[[Any, TensorValue], Any]:
    def read(domain: RecordingDomain, x: TensorValue) -> Any:
        t = x.value.tensor
        if t.dtype.is_complex or (row == "T" and t.rank not in (0, 2)):
            raise broken("unknown-call", "Tensor.H")  # it is conjugated lazily, or refused
        return call_row(domain, row, x) if t.rank else x

    return read


ATTRIBUTES: Mapping[str, Callable[[Any, TensorValue], Any]] = {
    "shape": shape_of,
    "dtype": lambda domain, x: TORCH_OF_DTYPE[x.value.dtype],
    "device": _device,
    "ndim": lambda domain, x: x.value.tensor.rank,
    "layout": lambda domain, x: torch.strided,
    "requires_grad": lambda domain, x: x.value.tensor.requires_grad,
    "is_leaf": _is_leaf,
    "is_cuda": lambda domain, x: x.value.tensor.device.startswith("cuda"),
    "is_cpu": lambda domain, x: x.value.tensor.device == "cpu",
    "is_meta": lambda domain, x: x.value.tensor.device == "meta",
    "is_mps": lambda domain, x: False,
    "is_xpu": lambda domain, x: False,
    "is_xla": lambda domain, x: False,
    "is_mkldnn": lambda domain, x: False,
    "is_sparse": lambda domain, x: False,
    "is_sparse_csr": lambda domain, x: False,
    "is_quantized": lambda domain, x: False,
    "is_nested": lambda domain, x: False,
    "itemsize": lambda domain, x: x.value.dtype.size_bytes,
    "nbytes": lambda domain, x: numbers.size(numel(x.value.shape) * x.value.dtype.size_bytes),
    "T": _row_attribute("T"),
    "mT": _row_attribute("mT"),
    "H": _adjoint("T"),
    "mH": _adjoint("mT"),
    "real": lambda domain, x: x if not x.value.dtype.is_complex else call_row(domain, "real", x),
    "imag": _row_attribute("imag"),
    "data": _row_attribute("data"),
    "__class__": lambda domain, x: x.python or torch.Tensor,
}
_MISSING = object()


def attribute(domain: RecordingDomain, x: TensorValue, name: str) -> Any:
    """`x.name`."""
    if x.attributes is not None and name in x.attributes:
        if domain.functions.section is not None:  # see `later_reads.py`
            domain.functions.left = f"whose backward reads what may have changed by then ({name})"
            raise broken("tensor-attribute", name)
        return x.attributes[name]
    read = ATTRIBUTES.get(name)
    if read is not None:
        return read(domain, x)
    cls = x.python or torch.Tensor
    found = _class_attribute(cls, name, domain.relied.found)
    if isinstance(found, (types.GetSetDescriptorType, property, types.MemberDescriptorType)):
        return _outside_attribute(domain, x, name)
    if found is _MISSING:
        return _instance_attribute(domain, x, name)
    if isinstance(
        found, (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
    ):
        return types.MethodType(found, x)
    if isinstance(found, (classmethod, staticmethod)):
        return found.__get__(None, cls)
    return found


def _class_attribute(
    cls: type, name: str, note: Callable[[type, str, Any], None] = lambda *_: None
) -> Any:
    for base in mro_of(cls):
        found = namespace_of(base).get(name, _MISSING)
        note(base, name, found)
        if found is not _MISSING:
            return found
    return _MISSING


def _instance_attribute(domain: RecordingDomain, x: TensorValue, name: str) -> Any:
    domain.recorder.choices.refuse_identity(x)
    real = domain.recorder.real_tensor(x)
    if real is not None:
        source = domain.recorder.source_of(x.value)
        assert source is not None
        if name in real.__dict__:
            return domain.see(
                domain.recorder.sources.child(source, "attr", name), real.__dict__[name]
            )
        domain.recorder.guard(source, "missing", name)
    raise AttributeError(
        f"'{(x.python or torch.Tensor).__name__}' object has no attribute '{name}'"
    )


def _outside_attribute(domain: RecordingDomain, x: TensorValue, name: str) -> Any:
    """Properties that only a real tensor has: `grad`, `grad_fn`, `names`, `_version`, ..."""
    domain.recorder.choices.refuse_identity(x)
    if name == "grad_fn":
        return no_grad_fn(domain, x)
    if name in ("_backward_hooks", "_grad") and domain.recorder.real_tensor(x) is None:
        if not x.value.tensor.requires_grad:  # nothing has been registered, or retained
            return None
    if name == "_base" and views(domain, x) is False:
        return None
    raise broken("tensor-attribute", name)


def _is_own_data(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    """`x.data -= y` writes where `x` lies, and then assigns `x.data` what it was."""
    if type(new) is not TensorValue or x.value in domain.recorder.replaced.by:
        return False
    maker = domain.recorder.builder.makers.get(new.value)
    return maker is not None and maker.op == "data" and maker.args[0] is x.value


def set_attribute(domain: RecordingDomain, x: TensorValue, name: str, new: Any) -> None:
    """`x.name = new`: on a tensor made here it stays with it; most of what torch defines breaks."""
    found = _class_attribute(x.python or torch.Tensor, name)
    if name == "requires_grad" and has_that_flag(domain, x, new):
        return
    if name == "data" and (_is_own_data(domain, x, new) or data_replaced(domain, x, new)):
        return
    if (
        isinstance(found, (types.GetSetDescriptorType, property))
        or domain.recorder.source_of(x.value) is not None
    ):
        raise broken("python-effect", f"setting {name} of a tensor")
    if domain.recorder.depth:
        raise broken("fork", "setting an attribute of a tensor")
    if x.attributes is None:
        x.attributes = {}
    x.attributes[name] = new
