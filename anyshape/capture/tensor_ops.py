"""What Python code can do to a tensor while it is captured: operators, attributes, methods, indexing, calls of torch functions.

In: proxies as they lie on the virtual stack. Out: proxies again; the recorder has the nodes. Every torch callable goes through
`call_torch`: a special handler, else a row of `anyshape.ops`, else `eager_call` (a row made on the fly).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from anyshape.capture import indexing, numbers, torchmap
from anyshape.capture.breaks import broken
from anyshape.capture.meta import eager_call
from anyshape.capture.tensors import DTYPE_OF_TORCH, TORCH_OF_DTYPE, device_text
from anyshape.capture.values import PROXIES, Break, ScalarValue, SizeValue, TensorValue
from anyshape.ir.graph import TensorType
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ops import OPS
from anyshape.ops.layout import numel
from anyshape.symbolic import Dim, all_of, eq

if TYPE_CHECKING:
    from anyshape.capture.symbolic_domain import SymbolicDomain

Handler = Callable[["SymbolicDomain", tuple[Any, ...], dict[str, Any]], Any]


class SizeTuple(tuple):  # type: ignore[type-arg]
    """`x.shape` with symbols in it: a tuple that also counts its elements."""

    __slots__ = ()

    def numel(self) -> Any:
        total: Any = 1
        for size in self:
            total = total * size
        return total


# ---- values in both directions --------------------------------------------------------------------------------------------------
def to_arg(domain: SymbolicDomain, value: Any) -> Any:
    """A value of the virtual stack as an argument of a node."""
    kind = type(value)
    if kind is TensorValue or kind is SizeValue:
        return value.value if kind is TensorValue else value.expr
    if kind is ScalarValue:
        if isinstance(value.scalar, (Scalar, ScalarInput)):
            return value.scalar
        return Scalar("bool", "value", (value.scalar,))
    if value is None or kind in (int, float, bool, str, complex):
        return value
    if isinstance(value, torch.Tensor):
        return domain.lift(value).value
    if isinstance(value, (tuple, list)):
        return tuple(to_arg(domain, item) for item in value)
    if isinstance(value, torch.dtype):
        return DTYPE_OF_TORCH[value]
    if isinstance(value, torch.device):
        return device_text(value)
    if isinstance(value, torch.memory_format):
        return str(value).removeprefix("torch.")
    if kind is slice:
        return slice(*(to_arg(domain, part) for part in (value.start, value.stop, value.step)))
    if value is Ellipsis:
        return value
    if isinstance(value, (int, float)):
        return value + 0
    if isinstance(value, torch.layout):
        return None
    raise broken("unknown-call", f"a torch function with a {kind.__name__} among its arguments")


def call_row(domain: SymbolicDomain, name: str, *args: Any, **kwargs: Any) -> Any:
    """Records one row and wraps its result; in-place rows give the very tensor that they write."""
    recorder = domain.recorder
    made = recorder.call(
        name,
        *(to_arg(domain, a) for a in args),
        **{k: to_arg(domain, v) for k, v in kwargs.items()},
    )
    if OPS[name].mutates and args:
        domain.wrote_tensor(args[0])
        return args[0]
    return recorder.wrap(made)


# ---- calls ------------------------------------------------------------------------------------------------------------------------
def call_torch(
    domain: SymbolicDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A torch function or method with these arguments; `NotImplemented` if it is not known here."""
    handler = HANDLERS.get(fn)
    if handler is not None:
        made = handler(domain, args, kwargs)
        if made is not NotImplemented:
            return made
    name = torchmap.ROWS.get(fn)
    if name is None:
        return NotImplemented
    if kwargs.get("out") is not None:
        return _with_out(domain, fn, args, kwargs)
    try:
        row_args, row_kwargs = torchmap.row_arguments(name, fn, args, kwargs)
        return call_row(domain, name, *row_args, **row_kwargs)
    except Break as signal:
        if str(signal.context.get("why", "")).endswith("has no row"):
            return (
                NotImplemented
                if isinstance(fn, types.FunctionType)
                else generic_call(domain, fn, args, kwargs)
            )
        raise
    except TypeError as error:
        raise broken("operator-raises", what=name, why=str(error)) from error


def _with_out(
    domain: SymbolicDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    rest = {k: v for k, v in kwargs.items() if k != "out"}
    made = call_torch(domain, fn, args, rest)
    out = kwargs["out"]
    if type(out) is not TensorValue or type(made) is not TensorValue:
        raise broken("unknown-call", f"{fn} with out=")
    if out.value.shape != made.value.shape:
        raise broken("unknown-call", f"{fn} with an out= of another shape")
    return call_row(domain, "copy_", out, made)


def generic_call(
    domain: SymbolicDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A torch callable without a row: typed by torch's own meta kernel, run eagerly inside the graph."""
    return eager_call(domain, fn, args, kwargs)


# ---- operators ----------------------------------------------------------------------------------------------------------------------
def binary(domain: SymbolicDomain, op: str, a: Any, b: Any) -> Any:
    """`a op b` with a tensor among them."""
    if not _operand(a) or not _operand(b):
        return NotImplemented
    if op == "**" and not isinstance(a, TensorValue):
        return call_row(domain, "pow", a, b)
    if op == "divmod":
        return call_row(domain, "floor_divide", a, b), call_row(domain, "remainder", a, b)
    if op == "-" and not isinstance(a, TensorValue):
        return call_row(domain, "rsub", b, a) if "rsub" in OPS else call_row(domain, "sub", a, b)
    return call_row(domain, torchmap.BINARY[op], a, b)


def _operand(value: Any) -> bool:
    return type(value) in PROXIES or isinstance(value, (int, float, complex, torch.Tensor))


def inplace(domain: SymbolicDomain, op: str, a: Any, b: Any) -> Any:
    """`a op= b` where `a` is a tensor."""
    name = torchmap.BINARY.get(op, "") + "_"
    if name in OPS and op != "@":
        return call_row(domain, name, a, b)
    if op == "@":
        return binary(domain, op, a, b)
    made = binary(domain, op, a, b)
    return call_row(domain, "copy_", a, made)


def compare(domain: SymbolicDomain, op: str, a: Any, b: Any) -> Any:
    """`a op b` elementwise; with anything that is no number, what Python answers."""
    if not _operand(a) or not _operand(b):
        return op == "!=" if op in ("==", "!=") else NotImplemented
    if not isinstance(a, TensorValue) and not isinstance(a, torch.Tensor):
        a, b, op = b, a, SWAPPED[op]
    return call_row(domain, torchmap.COMPARE[op], a, b)


SWAPPED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def unary(domain: SymbolicDomain, op: str, a: TensorValue) -> Any:
    """`-a`, `~a`, `abs(a)`, and the conversions that read data."""
    if op in torchmap.UNARY:
        return call_row(domain, torchmap.UNARY[op], a) if op != "+" else a
    if op in ("int", "float", "bool", "index"):
        return read_number(domain, a, op)
    if op == "hash":
        return hash(id(a.value))
    if op == "round":
        return call_row(domain, "round", a)
    raise broken("tensor-data", f"{op}() of a tensor")


def read_number(domain: SymbolicDomain, a: TensorValue, op: str) -> Any:
    """`int(x)`, `float(x)`, `bool(x)`: an item, converted."""
    item = call_row(domain, "item", a)
    if op == "index":
        return item
    return (
        domain.unary(op, item)
        if type(item) in PROXIES
        else {"int": int, "float": float, "bool": bool}[op](item)
    )


# ---- items --------------------------------------------------------------------------------------------------------------------------
def getitem(domain: SymbolicDomain, x: TensorValue, key: Any) -> Any:
    """`x[key]`."""
    view = indexing.getitem(domain.recorder, x.value, index_arg(domain, key))
    return TensorValue(view) if view is not x.value else call_row(domain, "alias", x)


def setitem(domain: SymbolicDomain, x: TensorValue, key: Any, new: Any) -> None:
    """`x[key] = new`."""
    indexing.setitem(domain.recorder, x.value, index_arg(domain, key), to_arg(domain, new))
    domain.wrote_tensor(x)


def index_arg(domain: SymbolicDomain, key: Any) -> Any:
    """An index with values and expressions in the place of proxies."""
    if isinstance(key, tuple):
        return tuple(index_arg(domain, part) for part in key)
    if isinstance(key, list):
        if any(type(part) in PROXIES for part in key):
            raise broken("unknown-call", "indexing a tensor with a list of sizes or tensors")
        return key
    return to_arg(domain, key)


# ---- shapes -------------------------------------------------------------------------------------------------------------------------
def shape_of(domain: SymbolicDomain, x: TensorValue) -> Any:
    """`x.shape`: a real `torch.Size` where every size is known."""
    facts = domain.recorder.cx.facts
    dims = [facts.simplify(d) if not isinstance(d, int) else d for d in x.value.shape]
    if all(isinstance(d, int) for d in dims):
        return domain.created(torch.Size(dims))
    return domain.created(SizeTuple(numbers.size(d) for d in dims))


def size_method(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    dim = kwargs.get("dim", rest[0] if rest else None)
    shape = shape_of(domain, x)
    return shape if dim is None else shape[_int(domain, dim)]


def _int(domain: SymbolicDomain, value: Any) -> int:
    if isinstance(value, SizeValue):
        return domain.recorder.specialize(value.expr, "a dimension")
    return int(value)


def stride_method(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    dim = kwargs.get("dim", rest[0] if rest else None)
    strides = tuple(numbers.size(s) for s in x.value.tensor.strides)
    return strides if dim is None else strides[_int(domain, dim)]


def numel_method(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = args[0] if args else kwargs["input"]
    return numbers.size(domain.recorder.cx.facts.simplify(numel(value.value.shape)))


def length(domain: SymbolicDomain, x: TensorValue) -> Any:
    """`len(x)`."""
    if not x.value.shape:
        raise TypeError("len() of a 0-d tensor")
    return numbers.size(x.value.shape[0])


def iterate(domain: SymbolicDomain, x: TensorValue) -> Any:
    """`iter(x)`: one view for each row; the number of rows becomes known."""
    if not x.value.shape:
        raise TypeError("iteration over a 0-d tensor")
    count = domain.recorder.specialize(x.value.shape[0], "iteration over a tensor")
    return iter([call_row(domain, "select", x, 0, i) for i in range(count)])


# ---- casts and copies -------------------------------------------------------------------------------------------------------------
def cast(domain: SymbolicDomain, x: TensorValue, dtype: torch.dtype) -> Any:
    """`x.to(dtype)`: the very tensor where it has that dtype."""
    if x.value.dtype is DTYPE_OF_TORCH[dtype]:
        return x
    return call_row(domain, "to_dtype", x, dtype)


def to_method(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.to(dtype)`, `x.to(device)`, `x.to(other)`, with copy= and memory_format=."""
    x, *rest = args
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    other = kwargs.get("other")
    copy = kwargs.get("copy", False)
    for position, value in enumerate(rest):
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, (torch.device, str)) or (
            isinstance(value, int) and not isinstance(value, bool)
        ):
            device = value
        elif isinstance(value, (TensorValue, torch.Tensor)):
            other = value
        elif isinstance(value, bool) and position >= 2:
            copy = value
    if other is not None:
        dtype, device = torch_dtype(other), torch_device(other)
    memory_format = kwargs.get("memory_format", torch.preserve_format)
    result = x
    if device is not None and device_text(torch.device(device)) != x.value.tensor.device:
        result = call_row(domain, "to_device", result, torch.device(device))
    if dtype is not None and result.value.dtype is not DTYPE_OF_TORCH[dtype]:
        result = call_row(domain, "to_dtype", result, dtype)
    elif copy and result is x:
        result = call_row(domain, "clone", result)
    if memory_format not in (torch.preserve_format, None):
        result = contiguous(domain, (result,), {"memory_format": memory_format})
    return result


def torch_dtype(value: Any) -> torch.dtype:
    return TORCH_OF_DTYPE[value.value.dtype] if isinstance(value, TensorValue) else value.dtype


def torch_device(value: Any) -> torch.device:
    return (
        torch.device(value.value.tensor.device) if isinstance(value, TensorValue) else value.device
    )


def type_method(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    dtype = kwargs.get("dtype", rest[0] if rest else None)
    if isinstance(dtype, str):
        dtype = torchmap.DTYPE_NAMES.get(dtype)
    if not isinstance(dtype, torch.dtype):
        raise broken("tensor-attribute", "type()")
    return cast(domain, x, dtype)


def type_as(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, other = args
    return to_method(domain, (x,), {"other": other})


def contiguous(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The very tensor where its layout is known to be that already."""
    x, *rest = args
    memory_format = kwargs.get("memory_format", rest[0] if rest else torch.contiguous_format)
    if memory_format is not torch.contiguous_format:
        return call_row(domain, "contiguous", x, memory_format=memory_format)
    made = call_row(domain, "contiguous", x)
    kind: TensorType = x.value.tensor
    if made.value.tensor.strides == kind.strides:
        return x
    return made


def dropped_cast(dtype: torch.dtype) -> Handler:
    def handle(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return cast(domain, args[0], dtype)

    return handle


# ---- queries that Python code branches on -------------------------------------------------------------------------------------------
def constant(value: Any) -> Handler:
    return lambda domain, args, kwargs: value


def of_type(query: Callable[[TensorType], Any]) -> Handler:
    def handle(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = args[0] if args else kwargs.get("input")
        if isinstance(value, torch.Tensor):
            value = domain.lift(value)
        return query(value.value.tensor) if isinstance(value, TensorValue) else NotImplemented

    return handle


def is_contiguous(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    memory_format = kwargs.get(
        "memory_format", args[1] if len(args) > 1 else torch.contiguous_format
    )
    if memory_format is not torch.contiguous_format:
        raise broken("tensor-attribute", "is_contiguous(memory_format=...)")
    kind = args[0].value.tensor
    expected: Dim = 1
    relations = []
    for size, stride in zip(reversed(kind.shape), reversed(kind.strides)):
        if stride != expected and size != 1:
            relations.append(eq(stride, expected))
        expected = expected * size
    return numbers.known_or(domain.recorder, all_of(*relations))


def numel_zero(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return numbers.compare(domain.recorder, "==", numel_method(domain, args, kwargs), 0)


def item(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return call_row(domain, "item", args[0])


def tolist(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A list of items, where the number of elements is known."""
    x = args[0]
    facts = domain.recorder.cx.facts
    shape = [facts.simplify(d) for d in x.value.shape]
    if not all(isinstance(d, int) for d in shape):
        raise broken("tensor-data", "the length of tolist()")
    return _nested(domain, x, shape)


def _nested(domain: SymbolicDomain, x: TensorValue, shape: list[Any]) -> Any:
    if not shape:
        return call_row(domain, "item", x)
    rows = [
        _nested(domain, call_row(domain, "select", x, 0, i), shape[1:]) for i in range(shape[0])
    ]
    return domain.created(rows)


def make_tensor(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(data)`: constants are baked in and copied; numbers that are not known yet are filled in."""
    data = args[0] if args else kwargs.get("data")
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    if isinstance(data, (SizeValue, ScalarValue)):
        if dtype is None:
            dtype = (
                torch.int64
                if isinstance(data, SizeValue)
                else torch.bool
                if data.kind is bool
                else None
            )
        return call_row(domain, "full", (), data, dtype=dtype, device=device)
    if isinstance(data, TensorValue):
        made = call_row(domain, "clone", data)
        return to_method(domain, (made,), {"dtype": dtype, "device": device})
    if _holds_proxy(data):
        parts = [make_tensor(domain, (part,), kwargs) for part in data]
        return call_row(domain, "stack", tuple(parts), 0)
    with torch.no_grad():
        real = torch.tensor(
            data, dtype=dtype, device=device or domain.recorder.node_world().default_device
        )
    fixed = TensorValue(domain.recorder.constant(real, f"torch.tensor({data!r:.60})"))
    return call_row(domain, "clone", fixed)


def _holds_proxy(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(_holds_proxy(part) for part in data)
    return type(data) in PROXIES


def as_tensor(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data = args[0] if args else kwargs.get("data")
    if isinstance(data, torch.Tensor):
        data = domain.lift(data)
    if isinstance(data, TensorValue):
        return to_method(
            domain, (data,), {"dtype": kwargs.get("dtype"), "device": kwargs.get("device")}
        )
    return make_tensor(domain, (data,), kwargs)


def requires_grad_method(
    domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    x = args[0]
    wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    if x.value.tensor.requires_grad == wanted:
        return x
    raise broken("python-effect", "requires_grad_()")


def is_same_size(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = (x.value.shape for x in args[:2])
    if len(a) != len(b):
        return False
    return numbers.known_or(domain.recorder, all_of(*(eq(x, y) for x, y in zip(a, b))))


def broadcast_shapes(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    shapes = [tuple(numbers.dim(d) for d in ((s,) if numbers.is_int(s) else s)) for s in args]
    return SizeTuple(numbers.size(d) for d in domain.recorder.cx.broadcast_shapes(shapes))  # type: ignore[arg-type]


def dtype_query(function: Any) -> Handler:
    """A function of dtypes: a tensor stands for its dtype."""

    def handle(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(type(a) in PROXIES for a in args):
            return NotImplemented
        return function(*args, **kwargs)

    return handle


def result_type(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from_args = [
        torch.empty((1,) * len(a.value.shape), dtype=torch_dtype(a), device="meta")
        if isinstance(a, TensorValue)
        else a
        for a in args
    ]
    if any(type(a) in PROXIES for a in from_args):
        return NotImplemented
    return torch.result_type(*from_args)


def check_condition(domain: SymbolicDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch._check(condition, message)`: a fact from here on, tested where it can be."""
    names = ("cond", "message")
    given = dict(zip(names, args)) | kwargs
    condition = given.get("cond", given.get("condition"))
    if condition is True:
        return None
    if type(condition) in PROXIES:
        known = numbers.condition_of(condition)
        if known is not None:
            domain.require(known, given.get("message"))
            return None
    return NotImplemented


T = torch.Tensor
HANDLERS: dict[Any, Handler] = {
    T.size: size_method,
    T.stride: stride_method,
    T.numel: numel_method,
    T.nelement: numel_method,
    torch.numel: numel_method,
    T.dim: of_type(lambda t: t.rank),
    T.ndimension: of_type(lambda t: t.rank),
    T.element_size: of_type(lambda t: t.dtype.size_bytes),
    T.is_floating_point: of_type(lambda t: t.dtype.is_floating),
    torch.is_floating_point: of_type(lambda t: t.dtype.is_floating),
    T.is_complex: of_type(lambda t: t.dtype.is_complex),
    torch.is_complex: of_type(lambda t: t.dtype.is_complex),
    T.is_signed: of_type(lambda t: t.dtype.signed),
    torch.is_signed: of_type(lambda t: t.dtype.signed),
    T.is_contiguous: is_contiguous,
    T.is_conj: constant(False),
    torch.is_conj: constant(False),
    T.is_neg: constant(False),
    T.is_inference: lambda domain, args, kwargs: domain.recorder.modes.inference,
    torch.is_inference: lambda domain, args, kwargs: domain.recorder.modes.inference,
    T.resolve_conj: lambda domain, args, kwargs: args[0],
    T.resolve_neg: lambda domain, args, kwargs: args[0],
    T.is_same_size: is_same_size,
    T.to: to_method,
    T.type: type_method,
    T.type_as: type_as,
    T.contiguous: contiguous,
    T.cpu: lambda domain, args, kwargs: to_method(domain, args[:1], {"device": "cpu"}),
    T.cuda: lambda domain, args, kwargs: to_method(domain, args[:1], {"device": "cuda"}),
    T.item: item,
    T.tolist: tolist,
    T.requires_grad_: requires_grad_method,
    T.get_device: of_type(
        lambda t: int(t.device.partition(":")[2] or -1) if t.device != "cpu" else -1
    ),
    torch.tensor: make_tensor,
    torch.as_tensor: as_tensor,
    torch.is_tensor: lambda domain, args, kwargs: isinstance(args[0], (TensorValue, torch.Tensor)),
    torch.is_storage: constant(False),
    torch.broadcast_shapes: broadcast_shapes,
    torch.result_type: result_type,
    torch._check: check_condition,  # noqa: SLF001
    torch._check_value: check_condition,  # noqa: SLF001
    torch._check_index: check_condition,  # noqa: SLF001
    torch._assert: check_condition,  # noqa: SLF001
    torch.is_deterministic_algorithms_warn_only_enabled: constant(False),
    **{getattr(T, name): dropped_cast(dtype) for name, dtype in torchmap.CASTS.items()},
}


# ---- attributes -----------------------------------------------------------------------------------------------------------------------
def _device(domain: SymbolicDomain, x: TensorValue) -> Any:
    return torch.device(x.value.tensor.device)


def _row_attribute(name: str) -> Callable[[Any, TensorValue], Any]:
    return lambda domain, x: call_row(domain, name, x)


def _is_leaf(domain: SymbolicDomain, x: TensorValue) -> Any:
    return not x.value.tensor.requires_grad or domain.recorder.source_of(x.value) is not None


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
    "H": _row_attribute("T"),
    "mH": _row_attribute("mT"),
    "real": lambda domain, x: x if not x.value.dtype.is_complex else call_row(domain, "real", x),
    "imag": _row_attribute("imag"),
    "data": _row_attribute("detach"),
    "__class__": lambda domain, x: x.python or torch.Tensor,
}
_MISSING = object()


def attribute(domain: SymbolicDomain, x: TensorValue, name: str) -> Any:
    """`x.name`."""
    if x.attributes is not None and name in x.attributes:
        return x.attributes[name]
    read = ATTRIBUTES.get(name)
    if read is not None:
        return read(domain, x)
    cls = x.python or torch.Tensor
    found = _class_attribute(cls, name)
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


def _class_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return _MISSING


def _instance_attribute(domain: SymbolicDomain, x: TensorValue, name: str) -> Any:
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


def _outside_attribute(domain: SymbolicDomain, x: TensorValue, name: str) -> Any:
    """Properties that only a real tensor has: `grad`, `grad_fn`, `names`, `_version`, ..."""
    if name == "grad_fn" and not x.value.tensor.requires_grad:
        return None
    if name == "grad" and not x.value.tensor.requires_grad:
        return None
    if name in ("_base", "_backward_hooks", "_grad"):
        return None
    raise broken("tensor-attribute", name)


def set_attribute(domain: SymbolicDomain, x: TensorValue, name: str, new: Any) -> None:
    """`x.name = new`: on a tensor made here it stays with it; `requires_grad`, `data` and `grad` break."""
    found = _class_attribute(x.python or torch.Tensor, name)
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


def truth(domain: SymbolicDomain, x: TensorValue) -> Any:
    """`if x:` depends on data, unless the tensor is a constant."""
    raise broken("tensor-branch")
