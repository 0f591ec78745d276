"""Library calls that C can make: which, and what they are handed.

In: a ``Call`` of the program. Out: a ``LibraryCall``, or None where only Python can make it. One
function for each of torch's; it says which stable C function, or which operator of torch's
dispatcher, gives the very bits that the Python line gives, and for which operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyshape.ir.buffers import Buffer, BufferRef, NativeArg, NativeKind, StepArg, TensorArg
from anyshape.ir.dtypes import DType, bfloat16, float16, float32, float64
from anyshape.ir.program import Call, LibraryCall
from anyshape.nouns import replace
from anyshape.schedule.placement import SizesInMemory
from anyshape.symbolic import Dim

LINEAR = "torch.nn.functional.linear"
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
DTYPES: frozenset[DType] = frozenset({float32, float64, bfloat16, float16})

IN_MEMORY = SizesInMemory(
    counting={"torch.nonzero": "anyshape.counted_nonzero"},
    rowwise=frozenset({"torch.mm", LINEAR}),
)
"""For tests: on the CPU, sizes in memory save nothing."""

Buffers = Mapping[str, Buffer]


def library_call(step: Call, buffers: Buffers, kind: str = "cpu") -> LibraryCall | None:
    """The call as C makes it for a kind of device, None where it cannot."""
    write = LIBRARY_CALLS.get(step.function)
    if write is None:
        return None
    used = [buffers[name] for name in step.mentions()]
    on_device = all(b.device.partition(":")[0] == kind for b in used)
    if not on_device or buffers[step.outputs[0]].dtype not in DTYPES:
        return None
    call = write(step, buffers)
    return call if call is None or call.dispatched else of_kind(call, kind)


def of_kind(call: LibraryCall, kind: str) -> LibraryCall:
    """The call of a function as that of a kind of device is named."""
    return replace(call, function=f"aoti_torch_{kind}_{call.function}")


def is_row_major(buffer: Buffer) -> bool:
    """Are the elements dense and in order, whatever the sizes?"""
    expected: Dim = 1
    for size, stride in zip(reversed(buffer.shape), reversed(buffer.strides), strict=True):
        if stride is not expected and stride != expected and size != 1:
            return False
        expected = expected * size
    return True


def _mm(step: Call, buffers: Buffers) -> LibraryCall | None:
    return _product(step, buffers, "mm_out", 2)


def _bmm(step: Call, buffers: Buffers) -> LibraryCall | None:
    return _product(step, buffers, "bmm_out", 3)


def _product(step: Call, buffers: Buffers, function: str, rank: int) -> LibraryCall | None:
    operands = _operands(step, buffers)
    (result,) = (buffers[name] for name in step.outputs)
    if len(operands) != 2 or step.kwargs or not is_row_major(result):
        return None
    if any(len(b.shape) != rank or b.dtype is not result.dtype for b in operands):
        return None
    return LibraryCall(step, function, _tensors(result, *operands))


def _addmm(step: Call, buffers: Buffers) -> LibraryCall | None:
    operands = _operands(step, buffers)
    (result,) = (buffers[name] for name in step.outputs)
    if len(operands) != 3 or set(step.kwargs) - {"beta", "alpha"} or not is_row_major(result):
        return None
    if any(b.dtype is not result.dtype for b in operands):
        return None
    beta, alpha = (step.kwargs.get(name, 1) for name in ("beta", "alpha"))
    if not isinstance(beta, (int, float)) or not isinstance(alpha, (int, float)):
        return None
    args = (*_tensors(result, *operands), ("float", beta), ("float", alpha))
    return LibraryCall(step, "addmm_out", args)


def _linear(step: Call, buffers: Buffers) -> LibraryCall | None:
    """``mm`` with the weight transposed, or ``addmm``: what torch makes of it."""
    operands = _operands(step, buffers)
    (result,) = (buffers[name] for name in step.outputs)
    value, weight, *bias = operands
    rank = len(value.shape)
    if rank < 2 or len(weight.shape) != 2 or any(b.dtype is not result.dtype for b in operands):
        return None
    if not is_row_major(result) or (rank > 2 and not is_row_major(value)) or (bias and rank > 3):
        return None
    if any(len(b.shape) != 1 for b in bias) or step.kwargs:
        return None
    out, left = _as_matrix(result), _whole(value) if rank == 2 else _as_matrix(value)
    right = TensorArg(weight.name, weight.shape[::-1], weight.strides[::-1])
    tensors = (out, *map(_whole, bias), left, right)
    args: tuple[NativeArg, ...] = tuple(("tensor", tensor) for tensor in tensors)
    if not bias:
        return LibraryCall(step, "mm_out", args)
    return LibraryCall(step, "addmm_out", (*args, ("float", 1), ("float", 1)))


def _attention(step: Call, buffers: Buffers) -> LibraryCall | None:
    """The operator by its name: the backend is chosen as eager chooses it."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    defaults: dict[str, StepArg] = {
        "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False,
    }  # fmt: skip
    given = {**defaults, **dict(zip(names, step.args)), **step.kwargs}
    if set(given) != set(names) or given["dropout_p"] != 0:
        return None
    kinds: tuple[NativeKind, ...] = (
        "tensor", "tensor", "tensor", "tensor?", "float", "bool", "float?", "bool",
    )  # fmt: skip
    args = tuple((kind, as_value(given[name], buffers)) for kind, name in zip(kinds, names))
    return LibraryCall(step, "aten::scaled_dot_product_attention", args, dispatched=True)


LIBRARY_CALLS: Mapping[str, Callable[[Call, Buffers], LibraryCall | None]] = {
    "torch.mm": _mm,
    "torch.bmm": _bmm,
    "torch.addmm": _addmm,
    LINEAR: _linear,
    ATTENTION: _attention,
}


def _operands(step: Call, buffers: Buffers) -> list[Buffer]:
    return [buffers[arg.name] for arg in step.args if isinstance(arg, BufferRef)]


def as_value(arg: StepArg, buffers: Buffers) -> StepArg | TensorArg:
    return _whole(buffers[arg.name]) if isinstance(arg, BufferRef) else arg


def _tensors(*buffers: Buffer) -> tuple[NativeArg, ...]:
    return tuple(("tensor", _whole(buffer)) for buffer in buffers)


def _whole(buffer: Buffer) -> TensorArg:
    return TensorArg(buffer.name, buffer.shape, buffer.strides)


def _as_matrix(buffer: Buffer) -> TensorArg:
    """All but the last dimension as one."""
    rows: Dim = 1
    for size in buffer.shape[:-1]:
        rows = rows * size
    columns = buffer.shape[-1]
    return TensorArg(buffer.name, (rows, columns), (columns, 1))
