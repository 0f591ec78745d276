"""What C says of attributes that a class of C, or an alias of a class, does not have."""

from __future__ import annotations

import collections
import itertools
import types
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


class Listed(list[int]):
    pass


ASKED: tuple[Any, ...] = (
    *(list, list[int], collections.deque, collections.deque[int], Listed, types.UnionType),
    *(itertools.pairwise, collections.Counter, collections.OrderedDict[int, int], int | str),
    types.GenericAlias(Listed, int),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"break_every": 1}, {"break_every": 3}], ids=str)
@pytest.mark.parametrize("name", ["missing", "__missing__", "__copy__"])
def test_the_attribute_that_is_missing_is_named_as_by_c(name: str, options: Any) -> None:
    def program(x: Tensor) -> Any:
        y, said = x + 1, []
        for asked in ASKED:
            try:
                getattr(asked, name)
            except AttributeError as error:
                said.append((str(error), error.name, error.obj is asked, error.__context__))
        return y * 2, said

    fast = anyshape.compile(program, options=options)
    for _ in range(2):
        assert fast(torch.ones(2))[1] == program(torch.ones(2))[1]
