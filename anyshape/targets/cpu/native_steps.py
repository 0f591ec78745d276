"""Which steps C does in native regions of the CPU.

In: a step of a program. Out: the step as C does it, or None where only Python can.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.dtypes import DType, float32, float64
from anyshape.ir.program import (
    Allocate,
    Assertion,
    Call,
    ExternCall,
    Free,
    Launch,
    LaunchList,
    NativeNested,
    Step,
    View,
)
from anyshape.symbolic import Dim
from anyshape.targets.cpu.library import LINEAR, is_row_major, library_call

BLAS_PRODUCTS = frozenset({"torch.mm", LINEAR})
PRODUCT_DTYPES: frozenset[DType] = frozenset({float32, float64})


def as_native(step: Step, buffers: Mapping[str, Buffer], *, library: bool = True) -> Step | None:
    """The step as C does it, None where it cannot."""
    touched = step.buffers if isinstance(step, Free) else step.mentions()
    if any(name in buffers and buffers[name].device != "cpu" for name in touched):
        return None
    match step:
        case Allocate() | Free() | Launch() | LaunchList() | View() | NativeNested():
            return step
        case Assertion(deferred=False):
            return step
        case ExternCall(function=function) if function in BLAS_PRODUCTS and _is_blas_product(
            step, buffers
        ):
            return step
        case ExternCall() if library:
            return library_call(step, buffers)
    return None


def _is_blas_product(step: Call, buffers: Mapping[str, Buffer]) -> bool:
    references = [arg for arg in step.args if isinstance(arg, BufferRef)]
    operands = [buffers[reference.name] for reference in references]
    result = buffers[step.outputs[0]]
    if any(b.device != "cpu" or b.dtype not in PRODUCT_DTYPES for b in (*operands, result)):
        return False
    if step.kwargs or len({b.dtype for b in (*operands, result)}) > 1:
        return False
    if not is_row_major(result):
        return False
    if step.function == LINEAR:
        return is_row_major(operands[0]) and all(is_row_major(b) for b in operands[1:])
    return all(matrix_layout(operand) is not None for operand in operands)


def _is_less(stride: Dim, size: Dim) -> bool:
    """Do rows overlap, at all sizes? Where only some decide, the call finds out."""
    return isinstance(stride, int) and isinstance(size, int) and stride < size


def matrix_layout(buffer: Buffer) -> tuple[bool, Dim] | None:
    """(transposed, leading dimension) of a matrix that BLAS can read, or None."""
    (rows, columns), (height, width) = buffer.strides, buffer.shape
    if columns == 1 and rows != 0 and not _is_less(rows, width):
        return False, rows
    if rows == 1 and columns != 0 and not _is_less(columns, height):
        return True, columns
    return None
