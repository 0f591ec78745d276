"""An iterator that native code made is advanced natively, in every way that advances one: what it
gives in one call says nothing of the next.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import anyshape


@torch.compiler.disable
def sizes(x: torch.Tensor) -> Iterator[int]:
    return (n for n in (x.numel(), 2))


def unpacked(g: Any) -> Any:
    a, b = g
    return b, a


def unpacked_with_rest(g: Any) -> Any:
    a, *rest = g
    return a, rest


def delegated(g: Any) -> Any:
    def outer() -> Any:
        yield from g

    return list(outer())


def stored_in_a_slice(g: Any) -> Any:
    found = [0, 0]
    found[:1] = g
    return found


USES: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda g: tuple(g),
    "list": lambda g: list(g),
    "set": lambda g: sorted(set(g)),
    "frozenset": lambda g: sorted(frozenset(g)),
    "dict": lambda g: dict(enumerate(g)),
    "fromkeys": lambda g: dict.fromkeys(g),
    "sum": lambda g: sum(g),
    "max": lambda g: max(g),
    "sorted": lambda g: sorted(g),
    "any": lambda g: any(n > 5 for n in g),
    "in": lambda g: 9 in g,
    "next": lambda g: next(g),
    "for": lambda g: [n for n in g],
    "star": lambda g: (*g,),
    "star in a set": lambda g: sorted({*g}),
    "star in a call": lambda g: max(*g, 0),
    "the only argument": lambda g: (lambda *a: a)(*g),
    "extend": lambda g: [*[1], *g],
    "zip": lambda g: list(zip(g, "ab")),
    "enumerate": lambda g: list(enumerate(g)),
    "map": lambda g: list(map(str, g)),
    "islice": lambda g: list(itertools.islice(g, 1)),
    "chain": lambda g: list(itertools.chain(g, g)),
    "deque": lambda g: list(collections.deque(g)),
    "Counter": lambda g: dict(collections.Counter(g)),
    "reduce": lambda g: functools.reduce(max, g),
    "fsum": lambda g: math.fsum(g),
    "join": lambda g: ",".join(map(str, g)),
    "bytes": lambda g: bytes(g),
    "unpacked": unpacked,
    "unpacked with rest": unpacked_with_rest,
    "yield from": delegated,
    "a slice": stored_in_a_slice,
}


@pytest.mark.parametrize("use", USES)
def test_what_native_code_iterates_over_is_read_anew(use: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return USES[use](sizes(x))

    fast = anyshape.compile(program)
    for n in (3, 1, 0, 5):
        x = torch.ones(n, 3)
        assert fast(x) == program(x)


def test_torch_func_transforms_see_each_size() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.func.jacrev(lambda row: (row**2).sum(0))(x)

    fast = anyshape.compile(program)
    for n in (3, 1, 2):
        x = torch.randn(n, 3)
        torch.testing.assert_close(fast(x), program(x))
