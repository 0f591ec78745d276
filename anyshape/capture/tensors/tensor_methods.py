"""Calls of torch functions and of tensor methods whose parameters are not their row's own.

In: a torch callable and its arguments as they lie on the virtual stack. Out: proxies, or
`NotImplemented` where it is not known here. `HANDLERS` holds what is no plain row: sizes, casts
that may return their input, queries that Python code branches on, tensors made from numbers.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from anyshape.capture.guards.overlaps import refuse_out
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.numpy_scalars import plain_number
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.values import (
    PROXIES,
    Break,
    Call,
    OpaqueValue,
    ScalarValue,
    SizeValue,
    TensorValue,
)
from anyshape.capture.recording.autocast import without_autocast
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.integers import FLAGS
from anyshape.capture.sizes import beside_numpy, numbers
from anyshape.capture.tensors import (
    aliases,
    argument_forms,
    legacy,
    storage,
    tensor_hooks,
    torch_polyfills,
    torchmap,
)
from anyshape.capture.tensors.casts import (
    adjoint,
    contiguous,
    dropped_cast,
    if_complex,
    moved,
    to_method,
    torch_dtype,
    type_as,
    type_method,
)
from anyshape.capture.tensors.given_back import diff, perhaps_in_place
from anyshape.capture.tensors.indexing import slice_of
from anyshape.capture.tensors.leaves import (
    decided_flag,
    detached_in_place,
    flag_set,
    leaf_made,
    may_make_leaves,
)
from anyshape.capture.tensors.meta import eager_call
from anyshape.capture.tensors.outs import all_or_nothing, into, refuse_drawing_into
from anyshape.capture.tensors.tensor_ops import (
    SizeTuple,
    call_row,
    getitem,
    index_arg,
    setitem,
    shape_of,
)
from anyshape.capture.tensors.views import become, is_a_view, may_become_a_view
from anyshape.ir.graph import TensorType, values_in
from anyshape.ops.layout import (
    numel,
)
from anyshape.ops.rules import dim_of
from anyshape.ops.table import OPS, Pointwise
from anyshape.symbolic import all_of, any_of, eq

Handler = Callable[["RecordingDomain", tuple[Any, ...], dict[str, Any]], Any]


# ---- calls ---------------------------------------------------------------------------------------
def is_known(fn: Any) -> bool:
    """Whether a row or a handler does what a torch function or method does."""
    return fn in HANDLERS or fn in torchmap.ROWS


def call_torch(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A torch function or method with these arguments; `NotImplemented` if it is not known here."""
    handler, name = HANDLERS.get(fn), torchmap.ROWS.get(fn)
    if handler is None and name is None:
        return NotImplemented
    args, kwargs = tuple(map(domain.seen, args)), domain.seen(kwargs)
    argument_forms.refuse_others(fn, args)
    argument_forms.refuse_forms(fn, args, kwargs)
    if fn is not T.type:  # which takes no class
        args = tuple([_dtype_of_class(arg) for arg in args])
        kwargs = {key: _option(domain, key, value) for key, value in kwargs.items()}
    if handler is not requires_grad_method and kwargs.get("requires_grad"):
        return _made_as_leaf(domain, fn, args, kwargs)
    if kwargs.get("pin_memory"):
        return _by_eager(domain, fn, args, kwargs)  # no row makes such tensors
    if handler is not None:
        made = handler(domain, args, kwargs)
        if made is not NotImplemented:
            return made
    if name is None:
        return NotImplemented
    if kwargs.get("out") is not None:
        return _with_out(domain, fn, args, kwargs)
    try:
        form = torchmap.row_arguments(name, fn, args, kwargs)
        if form is None:
            return _by_eager(domain, fn, args, kwargs)
        row_args, row_kwargs = form
        if name in torchmap.IN_PLACE_FLAGS:
            return perhaps_in_place(domain, name, row_args, row_kwargs)
        return call_row(domain, name, *row_args, **row_kwargs)
    except Break as signal:
        if not signal.context.get("row", True):
            return _by_eager(domain, fn, args, kwargs)
        raise
    except TypeError as error:
        raise broken("operator-raises", what=name, why=str(error)) from error


def _by_eager(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call in a form that the row does not have: a function of Python is interpreted."""
    if isinstance(fn, types.FunctionType):
        return NotImplemented
    return eager_call(domain, fn, args, kwargs)


def _made_as_leaf(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`torch.zeros(..., requires_grad=True)`: a tensor, made a leaf at once."""
    if kwargs["requires_grad"] is not True or not may_make_leaves(domain):
        return eager_call(domain, fn, args, kwargs)
    plain = {key: value for key, value in kwargs.items() if key != "requires_grad"}
    start = len(domain.recorder.builder.nodes)
    made = call_torch(domain, fn, args, plain)
    new = type(made) is TensorValue and _is_new(domain, made, start)
    if not new or not leaf_made(domain, made):
        domain.functions.left = "beside a leaf of another kind"
        raise broken("python-effect", "requires_grad=True")
    return made


def _is_new(domain: RecordingDomain, x: TensorValue, start: int) -> bool:
    """Whether one of the newest nodes has made it, in memory of its own."""
    builder = domain.recorder.builder
    maker = builder.makers.get(x.value)
    return maker in builder.nodes[start:] and OPS[maker.op].alias == "none"


def _option(domain: RecordingDomain, key: str, value: Any) -> Any:
    if key in FLAGS or key in ("requires_grad", "pin_memory"):
        return decided_flag(domain, value)
    return _dtype_of_class(value)


CLASS_DTYPES = {int: torch.int64, float: torch.float64, bool: torch.bool, complex: torch.complex128}
"""Python's classes where torch expects a dtype."""


def _dtype_of_class(arg: Any) -> Any:
    return CLASS_DTYPES.get(arg, arg) if type(arg) is type else arg


def operator_call(
    domain: RecordingDomain, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`torch.ops.aten.name.overload(...)`: what torch's own function of that name does with these
    arguments; `NotImplemented` where there is none."""
    namespace, _, name = torchmap.operator_name(operator).partition("::")
    if namespace != "aten":
        return NotImplemented
    for fn in torchmap.functions_of(name):
        made = call_torch(domain, fn, args, kwargs)
        if made is not NotImplemented:
            return made
    return call_row(domain, "alias", *args) if name == "alias" else NotImplemented


def _with_out(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    rest = {k: v for k, v in kwargs.items() if k != "out"}
    read = [*values_in(domain.arguments((*args, *rest.values())))]
    row = OPS[torchmap.ROWS[fn]]
    elementwise = isinstance(row.lower, Pointwise)
    for target in values_in(domain.argument(kwargs["out"])):
        if row.random:
            refuse_drawing_into(domain, str(fn), target)
        refuse_out(domain.recorder.builder, str(fn), target, read, elementwise=elementwise)
    with all_or_nothing(domain, kwargs["out"]), without_autocast(domain.recorder):
        return into(domain, fn, call_torch(domain, fn, args, rest), kwargs["out"])


def size_method(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    dim = kwargs.get("dim", rest[0] if rest else None)
    shape = shape_of(domain, x)
    return shape if dim is None else _of_dimension(shape, _int(domain, dim))


def _of_dimension(parts: Any, dim: int) -> Any:
    """The size or stride there; raises what eager does where there is no such dimension."""
    rank = len(parts)
    if not rank:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
            f"but got {dim})"
        )
    return parts[dim]


def _int(domain: RecordingDomain, value: Any) -> int:
    if isinstance(value, SizeValue):
        return domain.recorder.specialize(value.expr, "a dimension")
    return int(value)


def stride_method(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    dim = kwargs.get("dim", rest[0] if rest else None)
    strides = tuple(numbers.size(s) for s in storage.strides_as_eager(domain, x))
    return strides if dim is None else _of_dimension(strides, _int(domain, dim))


def numel_method(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = args[0] if args else kwargs["input"]
    return numbers.size(domain.recorder.cx.facts.simplify(numel(value.value.shape)))


# ---- queries that Python code branches on --------------------------------------------------------
def constant(value: Any) -> Handler:
    return lambda domain, args, kwargs: value


def of_type(query: Callable[[TensorType], Any]) -> Handler:
    def handle(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = args[0] if args else kwargs.get("input")
        if isinstance(value, torch.Tensor):
            value = domain.lift(value)
        return query(value.value.tensor) if isinstance(value, TensorValue) else NotImplemented

    return handle


def is_contiguous(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    plain = torch.contiguous_format
    if kwargs.get("memory_format", args[1] if len(args) > 1 else plain) is not plain:
        raise broken("tensor-attribute", "is_contiguous(memory_format=...)")
    domain.recorder.layouts_read |= bool(domain.recorder.taken)
    domain.recorder.laid[args[0].value] = None
    if aliases.may_be_reshaped_view(domain.recorder, args[0].value):
        storage.way_of(domain.recorder, args[0].value)  # which may lie otherwise than a copy
    kind = args[0].value.tensor
    empty = any_of(*(eq(size, 0) for size in kind.shape))
    return numbers.known_or(domain.recorder, any_of(aliases.is_row_major(kind), empty))


def item(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return call_row(domain, "item", args[0])


def tolist(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A list of items: one specialization for each number of them; a break where data decides
    how many there are."""
    x = args[0]
    recorder = domain.recorder
    why = "the length of tolist()"
    first = [recorder.count(d, why) for d in x.value.shape[:1]]
    shape = first + [recorder.specialize(d, why) for d in x.value.shape[1:]]
    return _nested(domain, _detached(domain, x), shape)


def _detached(domain: RecordingDomain, x: TensorValue) -> TensorValue:
    """What eager reads without autograd, which refuses views of a divided tensor that was written
    since."""
    return call_row(domain, "detach", x) if x.value.tensor.requires_grad else x


def numpy(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise broken("tensor-data", "Tensor.numpy()")


def getitem_method(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return getitem(domain, *args)


def setitem_method(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return setitem(domain, *args)


def slice_operator(
    domain: RecordingDomain,
    x: TensorValue,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Any:
    """`torch.ops.aten.slice`: `x[..., start:end:step]` along one dimension, a slice to autograd
    though it is of everything."""
    part = index_arg(domain, slice(start, end, step))
    dim = dim_of(dim, len(x.value.shape))
    made = slice_of(domain.recorder, x.value, dim, part, "slice")
    return TensorValue(made) if made is not x.value else call_row(domain, "alias", x)


def where(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.where(condition)` alone: the indices where it is true."""
    given = (*args, *kwargs.values())
    return call_row(domain, "nonzero", *given, as_tuple=True) if len(given) == 1 else NotImplemented


def _nested(domain: RecordingDomain, x: TensorValue, shape: list[Any]) -> Any:
    if not shape:
        return call_row(domain, "item", x)
    rows = [
        _nested(domain, call_row(domain, "select", x, 0, i), shape[1:]) for i in range(shape[0])
    ]
    return domain.created(rows)


def histogramdd(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Counts, and a tuple of the edges along each dimension."""
    counts, *edges = call_row(domain, "histogramdd", *args, **kwargs)
    return torch.return_types.histogramdd((counts, tuple(edges)))


def make_tensor(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(data)`: constants are baked in and copied; numbers that are not known yet
    are filled in."""
    data: Any = args[0] if args else kwargs.get("data")
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    if isinstance(data, (SizeValue, ScalarValue)):
        dtype = _dtype_of_number(data) if dtype is None else dtype
        return call_row(domain, "full", (), data, dtype=dtype, device=device)
    if isinstance(data, TensorValue):
        made = call_row(domain, "clone", _detached(domain, data))
        return to_method(domain, (made,), {"dtype": dtype, "device": device})
    if holds_proxy(data):
        parts = [make_tensor(domain, (part,), kwargs) for part in data]
        return call_row(domain, "stack", tuple(parts), 0)
    if not holds_numbers(data):  # an array, say: memory that no guard covers
        raise broken("unknown-call", f"torch.tensor of a {bare_name(type(data))}")
    where = device or domain.recorder.node_modes().default_device
    options: dict[str, Any] = {"dtype": dtype, "device": where}
    with torch.no_grad():
        real = torch.tensor(data, **options)  # unpacked: what it raises is the program's
    fixed = TensorValue(domain.recorder.constant(real, f"torch.tensor({data!r:.60})"))
    copy = call_row(domain, "clone", fixed)
    if real.dtype is torch.bool and not real.shape:
        domain.recorder.contents.hold(copy.value, bool(data))
    return copy


def _dtype_of_number(number: SizeValue | ScalarValue) -> torch.dtype | None:
    """That of a tensor made of it; None for the default dtype."""
    kind = beside_numpy.class_of(number)
    if kind is float:
        return None
    return CLASS_DTYPES.get(kind) or torch.tensor(kind()).dtype  # of numpy's, its own


def holds_proxy(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(holds_proxy(part) for part in data)
    return type(data) in PROXIES


def holds_numbers(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return all(map(holds_numbers, data))
    return plain_number(data) is not None


def as_tensor(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data = args[0] if args else kwargs.get("data")
    if isinstance(data, torch.Tensor):
        data = domain.lift(data)
    if isinstance(data, TensorValue):
        return to_method(
            domain, (data,), {"dtype": kwargs.get("dtype"), "device": kwargs.get("device")}
        )
    return make_tensor(domain, (data,), kwargs)


def requires_grad_method(
    domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    x = args[0]
    wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    if domain.functions.transforms:  # torch refuses it
        raise broken("python-effect", "requires_grad_()")
    wanted = decided_flag(domain, wanted)
    if x.value.tensor.requires_grad == wanted:
        return x
    domain.recorder.choices.refuse_marks(x)
    if not flag_set(domain, x, wanted):
        raise broken("python-effect", "requires_grad_()")
    return x


def detach_in_place(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.detach_()`."""
    x = args[0]
    domain.recorder.choices.refuse_marks(x)
    if not detached_in_place(domain, x):  # autograd is to know who has saved the tensor itself
        made_here = domain.recorder.source_of(x.value) is None
        domain.functions.watched |= made_here and x.value.tensor.requires_grad
        raise broken("python-effect", "detach_()")
    return x


def in_place(view: Any) -> Handler:
    """`x.unsqueeze_(0)`: the very object is the view that ``view`` gives."""

    def handle(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args or not may_become_a_view(domain, args[0]):
            return NotImplemented
        x: TensorValue = args[0]
        domain.recorder.choices.refuse_marks(x)
        made = call_torch(domain, view, args, kwargs)
        if type(made) is TensorValue:
            become(domain, x, made)
        return x if type(made) is TensorValue else NotImplemented

    return handle


def is_a_tensor(value: Any) -> bool:
    unread = type(value) is OpaqueValue and issubclass(value.kind, torch.Tensor)
    return unread or isinstance(value, (TensorValue, torch.Tensor))


def is_same_size(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = (x.value.shape for x in args[:2])
    if len(a) != len(b):
        return False
    return numbers.known_or(domain.recorder, all_of(*(eq(x, y) for x, y in zip(a, b))))


def broadcast_shapes(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = [(s,) if numbers.is_int(s) else tuple(s) for s in args]
    shapes = [[d for d in map(numbers.dim, s) if d is not None] for s in given]
    if list(map(len, shapes)) != list(map(len, given)):
        raise broken("operator-raises", what="broadcast_shapes", why="sizes are whole numbers")
    return SizeTuple(numbers.size(d) for d in domain.recorder.cx.broadcast_shapes(shapes))


def result_type(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from_args = [
        torch.empty((1,) * len(a.value.shape), dtype=torch_dtype(a), device="meta")
        if isinstance(a, TensorValue)
        else a
        for a in args
    ]
    if any(type(a) in PROXIES for a in from_args):
        return NotImplemented
    return torch.result_type(*from_args)


def check_condition(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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


def assert_async(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """On the CPU eager waits for the value: it is a branch, one side of which raises."""
    names = ("input", "assert_msg")
    given = dict(zip(names, args)) | kwargs
    condition, message = given.get("input"), given.get("assert_msg", UNSAID)
    known = given.keys() <= set(names) and len(given) == len(args) + len(kwargs)
    if not known or type(condition) is not TensorValue or type(message) is not str:
        return NotImplemented
    if condition.value.tensor.device != "cpu":
        return NotImplemented
    return Call(torch_polyfills.assert_nonzero, (condition, message or "Assertion is failed"))


def fill_diagonal(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.fill_diagonal_(value)`: a diagonal is a view. One that wraps around is eager's."""
    given = dict(zip(("self", "fill_value", "wrap"), args)) | kwargs
    if given.keys() != {"self", "fill_value"} and given.get("wrap") is not False:
        return NotImplemented
    return Call(torch_polyfills.fill_diagonal_, (args[0], given["fill_value"]))


def _is_inference(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """It depends on the mode that the tensor, or what it is a view of, was made in."""
    raise broken("tensor-attribute", "is_inference()")


UNSAID = "Expected Tensor with single nonzero value, but got zero"
"""What `torch._assert_async` says where the program says nothing."""

T = torch.Tensor
HANDLERS: dict[Any, Handler] = {
    **legacy.HANDLERS,
    T.size: size_method,
    T.as_strided: storage.as_strided,
    torch.as_strided: storage.as_strided,
    **{method: in_place(view) for method, view in torchmap.IN_PLACE_VIEWS.items()},
    torch.as_strided_: in_place(T.as_strided),
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
    T._is_view: is_a_view,
    T.is_conj: constant(False),
    torch.is_conj: constant(False),
    T.is_neg: constant(False),
    T.is_inference: _is_inference,
    torch.is_inference: _is_inference,
    torch.real: if_complex,
    torch.conj: if_complex,
    T.conj: if_complex,
    torch.conj_physical: if_complex,
    T.conj_physical: if_complex,
    torch.resolve_conj: lambda domain, args, kwargs: args[0],
    torch.resolve_neg: lambda domain, args, kwargs: args[0],
    T.resolve_conj: lambda domain, args, kwargs: args[0],
    T.resolve_neg: lambda domain, args, kwargs: args[0],
    T.adjoint: adjoint,
    torch.adjoint: adjoint,
    T.is_same_size: is_same_size,
    T.to: to_method,
    T.type: type_method,
    T.type_as: type_as,
    T.contiguous: contiguous,
    T.view: storage.view,
    T.new: legacy.new,
    T.cpu: moved("cpu", ""),
    T.cuda: moved("cuda", "device non_blocking"),
    T.item: item,
    T.__getitem__: getitem_method,
    T.__setitem__: setitem_method,
    T.tolist: tolist,
    T.numpy: numpy,
    T.fill_diagonal_: fill_diagonal,
    T.requires_grad_: requires_grad_method,
    T.detach_: detach_in_place,
    torch.detach_: detach_in_place,
    T.retain_grad: tensor_hooks.retain_grad,
    T.get_device: of_type(
        lambda t: int(t.device.partition(":")[2] or -1) if t.device != "cpu" else -1
    ),
    torch.diff: diff,
    T.diff: diff,
    torch.where: where,
    torch.tensor: make_tensor,
    torch.histogramdd: histogramdd,
    torch.as_tensor: as_tensor,
    torch.is_tensor: lambda domain, args, kwargs: is_a_tensor(args[0]),
    torch.broadcast_shapes: broadcast_shapes,
    torch.result_type: result_type,
    torch._check: check_condition,
    torch._check_value: check_condition,
    torch._check_index: check_condition,
    torch._assert: check_condition,
    torch._assert_async: assert_async,
    **{getattr(owner, n): f for n, f in storage.SCATTERS.items() for owner in (T, torch)},
    **{getattr(T, name): dropped_cast(dtype) for name, dtype in torchmap.CASTS.items()},
}
