"""`dir`, `object.__dir__` and `type.__dir__`: what an object and its class have is relied on, and is
listed as C lists it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


class Colour(int, enum.Enum):
    RED = 1


class Season(enum.StrEnum):
    FALL = "autumn"

    @property
    def cold(self) -> bool:
        return True


class Plain:
    __slots__ = ("slot", "__dict__")

    def __init__(self) -> None:
        self.z, self.b = 3, 1


class Asked(Plain):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class WithoutDict:
    __slots__ = ("slot",)


class Number(float):
    pass


OBJECTS: list[Any] = [Colour.RED, Season.FALL, Plain(), Asked(), WithoutDict(), Number(2.0), Plain]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_names_are_those_of_c(obj: Any) -> None:
    def program(x: Tensor, obj: Any) -> Any:
        return x + 1, object.__dir__(obj), dir(obj), type(obj).__dir__(obj)

    fast = anyshape.compile(program, fullgraph=not isinstance(obj, type))
    for _ in range(2):
        assert fast(torch.ones(2), obj)[1:] == program(torch.ones(2), obj)[1:]


def test_names_that_are_set_inside() -> None:
    def program(x: Tensor, obj: Any) -> Any:
        obj.w = 1
        before = object.__dir__(obj)
        del obj.w
        made = Plain()
        made.k = 2  # type: ignore[attr-defined]
        return x + 1, before, object.__dir__(obj), dir(made)

    wanted = program(torch.ones(2), Plain())[1:]
    assert anyshape.compile(program, fullgraph=True)(torch.ones(2), Plain())[1:] == wanted


def of_the_class(kind: Any) -> Any:
    return type.__dir__(kind)


def of_an_object(kind: Any) -> Any:
    return object.__dir__(kind())


def of_an_object_by_dir(kind: Any) -> Any:
    return dir(kind())


def of_the_class_by_dir(kind: Any) -> Any:
    return dir(kind)


@pytest.mark.parametrize(
    "listed", [of_the_class, of_an_object, of_an_object_by_dir, of_the_class_by_dir]
)
def test_a_class_that_has_more_names_later(listed: Callable[[Any], Any]) -> None:
    class Growing:
        pass

    def program(x: Tensor) -> Any:
        return x + 1, listed(Growing)

    fast = anyshape.compile(program)
    assert "later" not in fast(torch.ones(2))[1]
    Growing.later = 3  # type: ignore[attr-defined]
    assert fast(torch.ones(2))[1] == listed(Growing)
