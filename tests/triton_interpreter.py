"""Triton's interpreter for the tests: mended for numpy 2.4, and quicker.

What Triton 3.6 does anew for each launch and each call of a function (it looks through its whole
language) is done once here, and reductions and scans with functions of the kernel's own combine
whole arrays, in a tree, where Triton walks the elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

Semantic = type(interpreter.interpreter_semantic)
Arrays = tuple[np.ndarray, ...]
_patch_tensor = interpreter._patch_lang_tensor
_patch = interpreter._patch_lang
_broadcast_unlike = Semantic.broadcast_impl_value
_dtype_of_scalar = functools.cache(interpreter._get_np_dtype)


def _patch_tensor_with_index(tensor: type, scope: Any) -> None:
    """Triton makes loop bounds with int(array of one element), which numpy 2.4 refuses."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _dtype(kind: Any) -> np.dtype:
    """Triton makes its table anew for each question."""
    return np.dtype(np.uint64) if kind.scalar.is_ptr() else _dtype_of_scalar(kind.scalar)


def _refuse_overflow(self: Any, left: Any, right: Any, operation: Callable[..., object]) -> None:
    """Triton checks integers below 64 bits with a dozen operators of its own."""
    kind = left.type.scalar
    if kind.int_bitwidth >= 64:
        return
    wide = (operand.handle.data.astype(np.int64) for operand in (left, right))
    made = EXACT[operation.__name__](*wide)
    inside = (made >= kind.get_int_min_value()) & (made <= kind.get_int_max_value())
    assert inside.all(), f"an overflow of {kind} in {operation.__name__}"


EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _broadcast(self: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Operands of one shape are as they are."""
    if left.type.is_block() and right.type.is_block():
        if left.type.shape.values == right.type.shape.values:
            return left, right
    return _broadcast_unlike(self, left, right)


class _Everything:
    """A function that sees all of Triton's language, as `_patch_lang` asks it."""

    __globals__ = {"tl": tl, "core": tl.core}


@functools.cache
def _patched() -> object:
    return _patch(_Everything())


def _patch_once(function: Callable[..., object]) -> object:
    """The language stays patched: nothing else is done with it in this process."""
    _patched()
    return interpreter._LangPatchScope()


def _combine(operation: Any, kinds: list[Any], left: Arrays, right: Arrays) -> Arrays:
    """The kernel's own function of two arrays for each operand."""
    made = operation.combine_fn.fn(
        *map(operation.to_tensor, left, kinds), *map(operation.to_tensor, right, kinds)
    )
    tensors = made if isinstance(made, tuple) else (made,)
    return tuple(
        np.reshape(t.handle.data if isinstance(t, tl.core.tensor) else t, l.shape).astype(l.dtype)
        for t, l in zip(tensors, left, strict=True)
    )


def _reduce(self: Any, operands: tuple[Any, ...]) -> list[Any]:
    """Neighbours are combined until one is left; extents are powers of two."""
    kinds = [operand.dtype for operand in operands]
    arrays = tuple(operand.handle.data for operand in operands)
    shape = arrays[0].shape
    if self.axis is None:
        arrays = tuple(array.reshape(-1) for array in arrays)
    axis = self.axis or 0
    arrays = tuple(np.moveaxis(array, axis, -1) for array in arrays)
    while arrays[0].shape[-1] > 1:
        halves = (tuple(array[..., start::2] for array in arrays) for start in (0, 1))
        arrays = _combine(self, kinds, *halves)
    ends = (array[..., 0] for array in arrays)
    if self.keep_dims:
        whole = (1,) * len(shape) if self.axis is None else None
        ends = (e.reshape(whole) if whole else np.expand_dims(e, axis) for e in ends)
    return [self.to_tensor(end if end.shape else end.item(), k) for end, k in zip(ends, kinds)]


def _scan(self: Any, operands: tuple[Any, ...]) -> list[Any]:
    """Each element is combined with that 1, 2, 4... before it."""
    kinds = [operand.dtype for operand in operands]
    arrays = tuple(np.moveaxis(o.handle.data, self.axis, -1) for o in operands)
    for step in _powers_of_two(arrays[0].shape[-1]):
        ends = (
            tuple(array[..., part] for array in arrays)
            for part in (slice(-step), slice(step, None))
        )
        made = _combine(self, kinds, *ends)
        arrays = tuple(np.concatenate((a[..., :step], m), -1) for a, m in zip(arrays, made))
    return [self.to_tensor(np.moveaxis(a, -1, self.axis), k) for a, k in zip(arrays, kinds)]


def _powers_of_two(stop: int) -> Iterator[int]:
    step = 1
    while step < stop:
        yield step
        step *= 2


def _divided(a: Any, b: Any) -> Any:
    """What CUDA's library does quickly."""
    return a / b


def mend() -> None:
    """Before the first kernel is run, in a process with TRITON_INTERPRET=1."""
    interpreter._patch_lang_tensor = _patch_tensor_with_index
    interpreter._patch_lang = _patch_once
    interpreter._get_np_dtype = _dtype
    tl.extra.cuda.libdevice.fast_dividef = _divided  # the interpreter calls no library
    Semantic.binary_op_sanitize_overflow_impl = _refuse_overflow
    Semantic.broadcast_impl_value = _broadcast
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan
