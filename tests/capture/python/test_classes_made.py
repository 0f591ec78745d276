"""Classes that a compiled function makes, and who is told of them: `__set_name__`,
`__init_subclass__`, metaclasses; in one graph, over breaks, with a break after each instruction."""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
from collections.abc import Callable
from typing import Any, ClassVar

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


class Named:
    """It notes who it is told of."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __set_name__(self, owner: type, name: str) -> None:
        self.log.append((owner.__name__, name))


def descriptors_at_every_level() -> Any:
    log: list[Any] = []

    class Meta(type):
        a = Named(log)
        remembered = functools.cached_property(lambda cls: 1)

        class Inner:
            b = Named(log)

    class Made(metaclass=Meta):
        c = Named(log)
        remembered = functools.cached_property(lambda self: log.append("asked") or 2)

        class Inner(metaclass=Meta):
            d = Named(log)

    type("Typed", (Made,), {"e": Named(log)})
    Meta("ByMeta", (), {"f": Named(log)})
    type("MetaTyped", (type,), {"g": Named(log)})
    made = Made()
    return log, made.remembered, made.remembered, _error(lambda: Meta("Bare", (), {}).remembered)


def metaclasses_that_are_called() -> Any:
    log: list[Any] = []

    class Once(type):
        made: ClassVar[dict[Any, Any]] = {}

        def __call__(cls, *args: Any, **named: Any) -> Any:
            log.append((cls.__name__, len(args)))
            if cls not in Once.made:
                Once.made[cls] = super().__call__(*args, **named)
            return Once.made[cls]

    class Meta(type, metaclass=Once):
        pass

    class OfMeta(metaclass=Meta):
        pass

    given: dict[type, tuple[Any, ...]] = {object: (), int: (3,), dict: ({1: 2},), Exception: (1, 2)}
    for base in (object, int, str, list, dict, set, tuple, frozenset, bytearray, Exception):
        of_base = Once("Of" + base.__name__, (base,), {})
        made = of_base(*given.get(base, ([1, 2],)))
        log.append((of_base() is made, type(made) is of_base, list(getattr(made, "args", ()))))
    return log, type(OfMeta).__name__


def a_variable_of_methods_and_frames() -> Any:
    found = []
    state = "before"

    def wrapper() -> type:
        class Setting:
            def act(self, text: str) -> None:
                nonlocal state
                state = text

            def __del__(self) -> None:
                self.act("deleted")

        os.getpid()
        Setting().act("acted")
        found.append(state)
        return Setting

    made = wrapper()
    os.getpid()
    found.append(state)
    made.act(None, "again")  # type: ignore[attr-defined]
    os.getpid()
    return found, state, (lambda: state)()


def attributes_set_behind_a_look() -> Any:
    class Plain:
        kept = 1

    looked = "late" in Plain.__dict__, "kept" in vars(Plain)
    setattr(Plain, "late", 2)
    shown = Plain.__dict__
    found = [name in shown for name in ("kept", "late", "none")]
    del Plain.kept
    return looked, found, shown["late"], "kept" in shown, [name in vars(Plain) for name in shown]


def an_enumeration_of_a_dataclass() -> Any:
    @dataclasses.dataclass
    class Entry:
        number: int

    class Entries(Entry, enum.Enum):
        ONE = 1

    return Entries._member_type_ is Entry, Entries.ONE.value == Entry(1), repr(Entries.ONE)


PROGRAMS = (
    attributes_set_behind_a_look, an_enumeration_of_a_dataclass,
    a_variable_of_methods_and_frames,
    a_cached_property_of_slots, a_cached_property_of_a_metaclass, a_list_of_subclasses,
    an_enumeration, a_made_dataclass, descriptors_at_every_level, metaclasses_that_are_called,
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


def test_a_metaclass_hands_its_arguments_on_to_type() -> None:
    def program(x: torch.Tensor) -> Any:
        class Tagged(type):
            def __init__(cls, name: str, bases: Any, space: Any, **more: Any) -> None:
                super().__init__(name, bases, space)
                cls.tag = name, sorted(more)

            def __new__(cls, name: str, bases: Any, space: Any, **more: Any) -> Any:
                return super().__new__(cls, name, bases, space)

        class First(metaclass=Tagged, more=1):
            held = 3

        said = []
        for given in ((), ("a",), ("a", ()), ("a", (), {}, 4)):
            try:
                said.append(type.__init__(First, *given))
            except TypeError as error:
                said.append(str(error))
        try:
            type.__init__(First, "a", (), {}, more=1)
        except TypeError as error:
            said.append(str(error))
        return x + First.held, str(First.tag), said

    fast = Compiled(program, Options(fullgraph=True), ByReference)
    for rows in (2, 3):
        got, wanted = fast(torch.ones(rows)), program(torch.ones(rows))
        assert got[1:] == wanted[1:] and torch.equal(got[0], wanted[0])
