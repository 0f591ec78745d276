"""Loop variables are split while a kernel is grown, and no more when it is written."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import AnyshapeWarning
from anyshape.schedule.indices import Refine, Sizes, split
from anyshape.symbolic import Facts, Space, evaluate


def test_a_settled_loop_variable_is_divided_instead_of_split() -> None:
    space = Space()
    axis = space.fresh("i")
    sizes = Sizes(Facts(space))
    assert axis.symbol is not None
    for extent, shape in ((12, (3, 4)), (6, (2, 3)), (8, (2, 2, 2))):
        extents = {axis.symbol: extent}
        with pytest.raises(Refine):
            split(sizes, extents, axis, shape)
        parts = split(replace(sizes, refines=False), extents, axis, shape)
        for n in range(extent):
            found = [int(evaluate(part, {axis.symbol: n})) for part in parts]
            flat = 0
            for part, size in zip(found, shape, strict=True):
                assert 0 <= part < size
                flat = flat * size + part
            assert flat == n


def turned(x: Tensor) -> Tensor:
    return x.T.contiguous().T.reshape(-1)


def added(x: Tensor) -> Any:
    total = 0
    for value in turned(x).tolist():
        total += value
    return total


def read_beside(x: Tensor) -> Any:
    y = turned(x)
    return [y[i] * 2 + value for i, value in enumerate(y.tolist())]


def grown(x: Tensor) -> Tensor:
    y = turned(x)
    for value in y.tolist():
        y = y + value
    return y


@pytest.mark.parametrize("program", [added, read_beside, grown])
def test_turned_tensors_read_in_a_loop_compile_at_sizes_one(program: Callable[..., Any]) -> None:
    shapes = list(itertools.product((1, 2, 3), repeat=2))
    for first in range(0, len(shapes), 2):
        fast = anyshape.compile(program)
        for shape in shapes[first:] + shapes[:first]:
            x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*E901", category=AnyshapeWarning)
                assert repr(fast(x)) == repr(program(x))
