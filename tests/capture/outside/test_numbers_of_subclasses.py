"""A number or a text whose class is a subclass of the program's: C reads its value wherever it is
used, so that another value is another specialization; no special method of the class is called."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


class Text(str):
    __slots__ = ()


class Octets(bytes):
    pass


class Whole(int):
    pass


class Real(float):
    pass


class Complex(complex):
    pass


MADE: dict[str, tuple[list[Any], list[Callable[[Any], float]]]] = {
    "str": (
        [Text("a"), Text("ab"), Text("a")],
        [lambda t: t == "ab", lambda t: "b" in t, lambda t: {"ab": 1}.get(t, 0)],
    ),
    "bytes": (
        [Octets(b"a"), Octets(b"ab"), Octets(b"a")],
        [lambda t: t == b"ab", lambda t: b"b" in t, sum],
    ),
    "int": (
        [Whole(0), Whole(1), Whole(2)],
        [lambda n: n == 1, lambda n: [5, 6, 7][n], lambda n: {1: 5}.get(n, 0)],
    ),
    "float": ([Real(0.0), Real(-0.0), Real("nan"), Real(1)], [lambda n: n == 1, lambda n: n < 1]),
    "complex": ([Complex(1, 1), Complex(2, 1)], [lambda n: n == 1 + 1j]),
    "deque": (
        [deque([1, 2], maxlen=n) for n in (2, 3, 4, 5)],
        [lambda d: d.append(3) or len(d), lambda d: len(d.copy() * 3)],
    ),
    "cell": ([types.CellType(n) for n in (1, 2)], [lambda cell: cell == types.CellType(2)]),
}
USED = [(kind, index) for kind, (_, uses) in MADE.items() for index in range(len(uses))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "index"), USED)
def test_another_value_gives_another_result(kind: str, index: int) -> None:
    values, uses = MADE[kind]
    use = uses[index]
    fast = Compiled(lambda x, value: x * float(use(value)), Options(), ByReference)
    for value in values:
        copies = [deque(value, value.maxlen) if kind == "deque" else value for _ in range(2)]
        assert fast(torch.ones(1), copies[0]).item() == float(use(copies[1]))


def test_no_special_method_of_the_class_is_called() -> None:
    asked: list[str] = []

    def noted(name: str) -> Any:
        return lambda *args: asked.append(name) or NotImplemented

    names = ["__eq__", "__pos__", "__index__", "__int__", "__str__", "__repr__", "__hash__"]
    for base, first, second in ((int, 1, 2), (str, "a", "b")):
        kind: Any = type("Asked", (base,), {name: noted(name) for name in names})
        fast = Compiled(lambda x, held: (x + 1, held), Options(fullgraph=True), ByReference)
        for value in (kind(first), kind(second), kind(first), object()):
            assert fast(torch.ones(1), value)[1] is value
    assert not asked
