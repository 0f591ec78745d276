"""`itertools.product` of what branches on data: generators and filters, in the first call and after."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


def large(x: Tensor, values: Sequence[int]) -> Iterator[int]:
    for value in values:
        if (x * value).sum() > 1:
            yield value


def advanced(x: Tensor) -> Any:
    values = large(x, [1, 2, 3])
    return next(values, None), list(itertools.product(values, [1])), list(values)


def branched(x: Tensor) -> Any:
    pairs = itertools.product(large(x, [1, 2, 3]), large(x, [3, 4]))
    return [pair for pair in pairs if (x * pair[0]).sum() > 2]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "first": lambda x: list(itertools.product(large(x, [1, 2, 3]), [5, 6])),
    "second": lambda x: list(itertools.product([5, 6], large(x, [1, 2, 3]))),
    "repeated": lambda x: [a + b for a, b in itertools.product(large(x, [1, 2, 3]), repeat=2)],
    "filters": lambda x: list(
        itertools.product(
            filter(lambda v: (x * v).sum() > 1, [1, 2, 3]),
            filter(lambda v: (x * v).sum() < 1, [1, 2, 3]),
        )
    ),
    "advanced": advanced,
    "branched": branched,
}
CALLS = (torch.full((1,), 0.6), torch.ones(2), torch.zeros(2), torch.full((1,), 0.4))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::anyshape.errors.AnyshapeWarning")
def test_products_of_what_branches_on_data(name: str) -> None:
    for first in CALLS:
        fast = anyshape.compile(PROGRAMS[name])
        for x in (first, *CALLS[::2]):
            assert fast(x) == PROGRAMS[name](x)
