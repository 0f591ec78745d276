"""A function that has defaults is itself, whichever way the program comes by it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.capture.by_reference import same


def by_itself() -> tuple[Callable[..., Any], list[Any]]:
    def program(x: Tensor, h: Any, k: Any = (0,)) -> Any:
        if h is None:
            return x * k[0]
        h.seen = x.shape[0]
        return h is program, getattr(program, "seen", None), h(x, None, (3,)), h(x, None)

    def other(x: Tensor, h: Any, k: Any = (1,)) -> Any:
        return x + k[0]

    return program, [program, other, program, other]


def in_containers() -> tuple[Callable[..., Any], list[Any]]:
    def made(scale: int) -> Callable[..., Any]:
        def scaled(x: Tensor, k: Any = (2,)) -> Any:
            return x * scale * k[0]

        return scaled

    first, second = made(1), made(2)
    table, names, kept = {first: 3, second: 5}, [second, first], frozenset([first])

    def program(x: Tensor, h: Any) -> Any:
        known = h in kept, h in table, table.get(h, 0), names.count(h), {first: 1}.get(h)
        return h(x) * table.get(h, 7), known, [k for k in table if k is h] == [h], len({*names, h})

    return program, [first, second, made(3), first, made(1)]


def of_a_class() -> tuple[Callable[..., Any], list[Any]]:
    class Thing:
        @staticmethod
        def alone(x: Tensor, k: Any = (3,)) -> Any:
            return x * k[0]

        @classmethod
        def of_all(cls, x: Tensor, k: Any = (4,)) -> Any:
            return x * k[0]

        def of_one(self, x: Tensor, k: Any = (5,)) -> Any:
            return x * k[0]

    thing = Thing()

    def program(x: Tensor, h: Any) -> Any:
        found = h is Thing.alone, h == Thing.of_all, h == thing.of_one, thing.alone is h
        return h(x) + Thing.alone(x), found, getattr(h, "__func__", None) is Thing.of_one

    return program, [Thing.alone, Thing.of_all, thing.of_one, Thing.alone]


def in_partials() -> tuple[Callable[..., Any], list[Any]]:
    calls = [0]

    def scaled(x: Tensor, *, k: Any = calls) -> Any:
        k[0] += 1
        return x * k[0]

    kept = functools.partial(scaled)

    def program(x: Tensor, h: Any) -> Any:
        return h.func is scaled, kept.func is h.func, h(x) + kept(x) + scaled(x), calls[0]

    return program, [functools.partial(scaled), kept, functools.partial(scaled, k=[5])]


PROGRAMS = {made.__name__: made for made in (by_itself, in_containers, of_a_class, in_partials)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("breaks", [1_000_000, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_one_object(name: str, breaks: int) -> None:
    (plain, wanted), (program, given) = PROGRAMS[name](), PROGRAMS[name]()
    fast = anyshape.compile(program, options={"fallback": "error", "break_every": breaks})
    for rows, (expected, handed) in enumerate(zip(wanted, given, strict=True)):
        x = torch.rand(rows, 2)
        same(fast(x, handed), plain(x, expected))


def test_its_defaults_are_those_of_the_call() -> None:
    """Functions made anew, of one code; one has more defaults than parameters."""

    def made(*defaults: Any, named: Any = 1) -> Callable[..., Any]:
        def scaled(x: Tensor, k: Any, *, n: Any) -> Any:
            return x * k + n

        scaled.__defaults__, scaled.__kwdefaults__ = defaults, {"n": named}
        return scaled

    fast = anyshape.compile(lambda x, h: (h(x), h.__defaults__[-1]), fullgraph=True)
    x = torch.rand(3)
    for h in (made(2), made(3.5), made(x, named=x), made(0, 1, 4), made(x + 1, named=2)):
        same(fast(x, h), (h(x), h.__defaults__[-1]))


def test_a_function_may_have_defaults_where_another_of_its_code_has_none() -> None:
    def made(*given: Any, **named: Any) -> Callable[..., Any]:
        def h(x: Tensor, k: Any, *, m: Any) -> Any:
            return x * k + m

        h.__defaults__, h.__kwdefaults__ = given or None, named or None
        return h

    def program(x: Tensor, h: Any) -> Any:
        try:
            return h(x)
        except TypeError:
            return x - 1

    fast, x = anyshape.compile(program), torch.arange(2.0)
    for h in (made(), made(m=2), made(3), made(3, m=2), made(), made(4, m=2), made(5, m=1)):
        assert torch.equal(fast(x, h), program(x, h))
