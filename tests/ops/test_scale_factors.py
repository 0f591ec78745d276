"""`interpolate` by a factor: as many elements as eager makes of the rounded product."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.ops.context import NoRow
from anyshape.ops.conv import _scaled
from anyshape.symbolic import Expr, Space, evaluate

FACTORS = (0.1, 0.3, 0.6, 0.7, 1.1, 1.4, 2.3, 1.5, 2, 1 / 3, 2**-0.5)
WAYS = {
    "nearest": {"mode": "nearest"},
    "linear": {"mode": "linear", "align_corners": False},
    "factor computed again": {"mode": "nearest", "recompute_scale_factor": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("factor", FACTORS)
def test_results_are_eagers_at_every_size(factor: float, way: str) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=factor, **WAYS[way])

    programs = (resized, lambda x: resized(x) + 1)  # alone it is laid out by its type
    for program in programs:
        fast = anyshape.compile(program, fullgraph=True)
        for size in (*range(10, 42), 1000):  # 0.6 * 5 is 3.0, and less before it is rounded
            x = torch.randn(2, 3, size)
            assert torch.equal(fast(x), program(x)), size
            assert fast(x).stride() == program(x).stride(), size


def test_a_size_by_a_ratio_is_the_rounded_product() -> None:
    given, known = Space().fresh("s"), 0
    [symbol] = given.symbols
    for below in range(1, 40):
        for above in range(1, 80):
            factor = above / below
            try:
                size = _scaled(given, factor)
            except NoRow:
                continue
            known += 1
            assert isinstance(size, Expr)
            whole = Fraction(above, below).denominator
            for n in (0, 1, 2, 7, whole, 3 * whole, whole * ((1 << 31) // whole), (1 << 31) - 1):
                assert evaluate(size, {symbol: n}) == int(float(n) * factor), (factor, n)
    assert known > 2000
