"""Keywords of builtins that are given a size or a number of the call count, or are refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

SIZES = (3, 5, 6, 2, 4, 7)
PROGRAMS: dict[str, Callable[[int], Any]] = {
    "a power of a size modulo": lambda n: (pow(n, 2, mod=7), pow(n, 2, 7)),
    "a power by a size modulo": lambda n: (pow(2, n, mod=5), pow(base=2, exp=n, mod=5)),
    "powers": lambda n: (pow(n, exp=2), pow(base=n, exp=2), pow(n, 2, mod=None)),
    "digits of a size": lambda n: (round(n, ndigits=-1), round(n, ndigits=1), round(number=n)),
    "digits of a float": lambda n: (round(n / 3, ndigits=1), round(number=n / 3, ndigits=2)),
    "no digits": lambda n: (round(n / 3, None), round(n / 3, ndigits=None), round(n, None)),
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    **{
        f.__name__: lambda n, f=f: f(n, x=2)
        for f in (abs, bool, hash, operator.neg, operator.index, operator.truth)
    },
    **{f.__name__: lambda n, f=f: f(n, 2, x=2) for f in (divmod, operator.add, operator.lt)},
    **{f.__name__: lambda n, f=f: f([n], x=2) for f in (any, all)},
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_keywords_count(name: str, fullgraph: bool) -> None:
    fast = anyshape.compile(lambda x: (PROGRAMS[name](x.shape[0]), x + 1), fullgraph=fullgraph)
    for n in SIZES:
        assert repr(fast(torch.zeros(n))[0]) == repr(PROGRAMS[name](n))


@pytest.mark.parametrize("name", REFUSED)
def test_keywords_are_refused(name: str) -> None:
    fast = anyshape.compile(lambda x: (REFUSED[name](x.shape[0]), x + 1))
    for n in SIZES[:2]:
        with pytest.raises(TypeError, match="keyword argument"):
            fast(torch.zeros(n))
