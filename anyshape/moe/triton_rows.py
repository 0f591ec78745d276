"""What several Triton kernels of this package share: counts on the device, ordering of scores, and
fp8 scaling.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import power_of_two

FP8_MAX = tl.constexpr(448.0)
SMALLEST_MAXIMUM = tl.constexpr(1e-12)
TAKEN_KEY = tl.constexpr(-(2**31))
NAN_KEY = tl.constexpr(-(2**31) + 1)


@triton.jit
def count_rows(valid, rows, VALUES: tl.constexpr, BLOCK: tl.constexpr):
    """How many of `rows` rows count: the sum of the VALUES numbers at `valid`, or all when there
    are none.
    """
    if VALUES == 0:
        return rows
    index = tl.arange(0, BLOCK)
    numbers = tl.load(valid + index, mask=index < VALUES, other=0)
    return tl.minimum(tl.sum(numbers).to(tl.int32), rows)


def count_arguments(valid: Tensor | None, like: Tensor) -> tuple[Tensor, int, int]:
    """(pointer, VALUES, BLOCK) for `count_rows`; `like` stands in for a pointer nobody reads."""
    if valid is None:
        return like, 0, 1
    return valid.contiguous(), valid.numel(), power_of_two(max(1, valid.numel()))


@triton.jit
def once(keys):
    """The same int32 keys. Triton works out a tensor anew for each layout that it is needed in
    where that is cheap, and sums in another order round differently: keys that are compared with
    each other must come from one of them. What a `while` leaves is not worked out twice.
    """
    turn = 0
    while turn < 1:
        keys += turn
        turn += 1
    return keys


@triton.jit
def keys_of(scores):
    """int32 keys that order as the float32 scores do: -0 equals 0, and NaN comes below -inf."""
    bits = (scores + 0.0).to(tl.int32, bitcast=True)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(scores != scores, NAN_KEY, keys)


@triton.jit
def scores_of(keys):
    """The float32 scores that `keys_of` was given."""
    bits = keys ^ ((keys >> 31) & 0x7FFFFFFF)
    return tl.where(keys == NAN_KEY, float("nan"), bits.to(tl.float32, bitcast=True))


@triton.jit
def best_of(keys, columns, BLOCK: tl.constexpr):
    """The column of the largest key of each row, the lowest of several."""
    largest = tl.max(keys, 1)
    return tl.min(tl.where(keys == largest[:, None], columns, BLOCK), 1)


@triton.jit
def row_scale(largest):
    """(multiplier into fp8, scale back) of a row whose largest absolute value is `largest`."""
    largest = tl.maximum(largest, SMALLEST_MAXIMUM)
    return tl.div_rn(FP8_MAX, largest), tl.div_rn(largest, FP8_MAX)


@triton.jit
def largest_of(values):
    """The largest absolute value of float32 `values`, NaN left out."""
    return tl.max(tl.where(values == values, tl.abs(values), 0.0), 0)
