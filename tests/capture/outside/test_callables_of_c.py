"""What C alone knows of what an object from outside does: another object of the same class is another
one, where it is called and where it is asked for an attribute."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


def remembering(number: int) -> Callable[[], int]:
    @functools.lru_cache
    def made() -> int:
        return number

    return made


def ordinals(text: str) -> int:
    return sum(map(ord, text))


KINDS: dict[str, tuple[list[Any], Callable[[Any], int]]] = {
    "functools.lru_cache": ([remembering(2), remembering(3)], lambda fn: fn()),
    "itemgetter": ([operator.itemgetter(0), operator.itemgetter(1)], lambda fn: fn((5, 6))),
    "attrgetter": ([operator.attrgetter("real"), operator.attrgetter("imag")], lambda fn: fn(7)),
    "methodcaller": (
        [operator.methodcaller("upper"), operator.methodcaller("lower")],
        lambda fn: ordinals(fn("aB")),
    ),
    "methods of a class": ([str.upper, str.lower], lambda fn: ordinals(fn("aB"))),
    "slots of a class": ([int.__add__, int.__mul__], lambda fn: fn(5, 6)),
    "bound slots": ([(1, 2).__len__, (1,).__len__], lambda fn: fn()),
    "bound slots of numbers": ([(2).__add__, (2).__mul__], lambda fn: fn(3)),
    "ufuncs": ([np.add, np.multiply], lambda fn: int(fn(5, 6))),
    "partials of functions of C": (
        [functools.partial(operator.add, 5), functools.partial(operator.mul, 5)],
        lambda fn: fn(6),
    ),
    "properties of functions of C": (
        [property(abs), property(operator.index)],
        lambda held: held.fget(-5) + held.__get__(-7),
    ),
    "parametrized classes": ([list[int], list[str]], lambda of: len(of.__args__[0].__name__)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"fullgraph": True}, {"break_every": 1}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_another_one_of_the_class_does_another_thing(kind: str, options: dict[str, Any]) -> None:
    values, use = KINDS[kind]

    def itself(x: torch.Tensor, value: Any) -> torch.Tensor:
        return x * use(value)

    def held(x: torch.Tensor, value: Any) -> torch.Tensor:
        return x * use(value[0])

    x = torch.ones(2)
    fast = Compiled(itself, Options(**options), ByReference)
    inside = Compiled(held, Options(**options), ByReference)
    for value in (*values, *values):
        assert fast(x, value).tolist() == [use(value)] * 2
        assert inside(x, [value]).tolist() == [use(value)] * 2


class Holder:
    """Has a method of C's of another class."""

    turned: Any = str.upper


def test_another_method_of_c_in_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Compiled(
        lambda x: x * ordinals(Holder.turned("aB")), Options(fullgraph=True), ByReference
    )
    for method in (str.upper, str.lower, str.swapcase, str.upper):
        monkeypatch.setattr(Holder, "turned", method)
        assert fast(torch.ones(1)).item() == ordinals(method("aB"))
