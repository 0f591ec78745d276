"""`stride()` of what data selects, which may be nothing: an empty index lies row by row only where no
other size is 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyshape

SELECTED: dict[str, Any] = {
    "by one truth": lambda x: x[x.sum() > 1],
    "by rows": lambda x: x[x.sum((1, 2)) > 1],
    "by columns": lambda x: x[:, x.sum((0, 2)) > 1],
    "by a plane": lambda x: x[x.sum(2) > 1],
    "at indices": lambda x: x[torch.nonzero(x.sum((1, 2)))[:, 0]],
    "and copied": lambda x: x[x.sum() > 1].contiguous(),
    "and turned": lambda x: x[x.sum((1, 2)) > 1].mT,
    "and doubled": lambda x: x[x.sum() > 1] * 2,
}


@pytest.mark.parametrize("name", SELECTED)
def test_strides_of_what_data_selects_are_eagers_where_that_is_nothing(name: str) -> None:
    program = lambda x: SELECTED[name](x).stride()
    fast = anyshape.compile(program)
    for shape in ((2, 3, 4), (2, 1, 1), (2, 3, 1), (1, 2, 3)):
        for value in (3, 0):
            for order in ((0, 1, 2), (2, 0, 1)):
                x = torch.full(shape, value).permute(order)
                assert fast(x) == program(x), (shape, order, value)


def test_strides_of_what_data_selects_of_several_elements_need_one_specialization() -> None:
    fast = anyshape.compile(lambda x: x[x.sum() > 1].stride())
    for value in (3, 0):
        assert fast(torch.full((2, 3, 4), value)) == (24, 12, 4, 1)
    assert fast.stats().specializations == 1
