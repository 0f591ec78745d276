"""Classes that a compiled function makes, and who is told of them: `__set_name__`,
`__init_subclass__`, metaclasses; in one graph, over breaks, with a break after each instruction."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.errors import GraphBreakError
from anyshape.options import Options
from tests.capture.by_reference import ByReference


def _error(do: Callable[[], Any]) -> str:
    try:
        do()
    except (TypeError, RuntimeError) as error:
        return str(error)
    return "none"


def a_cached_property_of_slots() -> Any:
    class Slotted:
        __slots__ = ()

        @functools.cached_property
        def named(self) -> int:
            return 1

    return _error(lambda: Slotted().named), vars(Slotted)["named"].attrname


def a_cached_property_of_a_metaclass() -> Any:
    class Meta(type):
        @functools.cached_property
        def named(cls) -> bool:
            return True

    class Made(metaclass=Meta):
        pass

    return _error(lambda: Made.named), vars(Meta)["named"].attrname


def a_list_of_subclasses() -> Any:
    class Base:
        made: Any = []

        def __init_subclass__(cls, /, tag: Any = None, **kwargs: Any) -> None:
            Base.made.append((cls.__name__, tag))

    class One(Base, tag="x"):
        pass

    class Two(One):
        pass

    return Base.made, Two.__bases__[0] is One


def an_enumeration() -> Any:
    class Kind(enum.Enum):
        A = enum.auto()
        B = 2

    return [member.name for member in Kind], Kind(2) is Kind.B, Kind.__members__["A"].value


def a_made_dataclass() -> Any:
    fields = [("x", int), ("y", int, dataclasses.field(default=3))]
    made = dataclasses.make_dataclass("Made", fields, frozen=True)
    return repr(made(1)), made(1) == made(1, 3), made.__module__


PROGRAMS = (
    a_cached_property_of_slots, a_cached_property_of_a_metaclass, a_list_of_subclasses,
    an_enumeration, a_made_dataclass,
)  # fmt: skip
WAYS: tuple[dict[str, Any], ...] = (
    {"fullgraph": True},
    {"fullgraph": False},
    {"fullgraph": False, "break_every": 1},
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_classes_are_those_of_cpython(program: Callable[[], Any], way: dict[str, Any]) -> None:
    def between(x: torch.Tensor) -> Any:
        y = x + 1
        return program(), y * 2

    wanted, fast = program(), Compiled(between, Options(**way), ByReference)
    for length in (2, 3):
        try:
            assert fast(torch.ones(length))[0] == wanted
        except GraphBreakError:
            assert way["fullgraph"]
