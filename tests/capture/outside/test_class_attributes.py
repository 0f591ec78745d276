"""Attributes of classes from outside that a program writes: settings that a context manager sets
and sets back, counters, caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.capture.by_reference import compiled, same

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Setting:
    value: Any = 1.0

    def __init__(self, value: Any) -> None:
        self.old, self.new = type(self).value, value

    def __enter__(self) -> None:
        type(self).value = self.new

    def __exit__(self, *error: object) -> None:
        type(self).value = self.old


class Fast(Setting):
    pass


class Counted:
    count = 0
    last: Any = None

    def __init__(self) -> None:
        Counted.count += 1
        self.number = Counted.count


class Meta(type):
    seen: list[Any] = []

    @property
    def watched(cls) -> int:
        return 3

    @watched.setter
    def watched(cls, value: int) -> None:
        Meta.seen.append(value)


class Watched(metaclass=Meta):
    pass


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    for cls in (Setting, Fast, Counted, Watched):
        for name in ("value", "scale", "last", "count"):
            if name in vars(cls):
                delattr(cls, name)
    Setting.value, Counted.count, Counted.last = 1.0, 0, None
    del Meta.seen[:]


def within_a_setting(x: Tensor) -> tuple[Any, ...]:
    with Setting(x.shape[0]), Fast(5.0):
        y = x * Setting.value + Fast.value + Fast(1.0).old
    return y, Setting.value, Fast.value


def inherited(x: Tensor) -> tuple[Any, ...]:
    Setting.value = 4
    return x * Fast.value, Fast(1.0).value, hasattr(Fast, "value")


def hidden_and_shown(x: Tensor) -> tuple[Any, ...]:
    Fast.value = 7
    first = Fast.value
    del Fast.value
    return x * first, Fast.value


def counted(x: Tensor) -> tuple[Any, ...]:
    return x * (Counted().number + Counted().number), Counted.count


def kept(x: Tensor) -> Tensor:
    last, Counted.last = Counted.last, x * 2
    return x if last is None else x + last.amax()


def a_function(x: Tensor) -> Tensor:
    Counted.twice = lambda self, x: x * 2  # type: ignore[attr-defined]
    made = Counted().twice(x)
    del Counted.twice
    return made


def set_by_name(x: Tensor) -> tuple[Any, ...]:
    setattr(Counted, "scale", x.shape[1])
    y = x * Counted.scale  # type: ignore[attr-defined]
    delattr(Counted, "scale")
    return y, hasattr(Counted, "scale"), getattr(Counted, "scale", None)


def on_one_side(x: Tensor) -> tuple[Any, ...]:
    if x.shape[0] > 2:
        Setting.value = 8
    return x * Setting.value, Fast.value


CAPTURED = [
    *(within_a_setting, inherited, hidden_and_shown, counted, kept, a_function),
    *(set_by_name, on_one_side),
]


def state() -> list[Any]:
    return [Setting.value, vars(Fast).get("value"), Counted.count, Counted.last]


def outcomes(program: Callable[..., Any]) -> list[Any]:
    return [(program(x), state()) for x in (X, X[:2], X, X[:, :3])]


def begin_again() -> None:
    Setting.value, Counted.count, Counted.last = 1.0, 0, None
    if "value" in vars(Fast):
        del Fast.value


@pytest.mark.parametrize("program", CAPTURED, ids=lambda program: program.__name__)
def test_what_is_written_to_a_class_is_there_behind_the_call(program: Callable[..., Any]) -> None:
    wanted = outcomes(program)
    begin_again()
    found = outcomes(compiled(program))
    for one, other in zip(found, wanted, strict=True):
        same(one, other)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("program", CAPTURED, ids=lambda program: program.__name__)
def test_over_any_break(program: Callable[..., Any], every: int) -> None:
    wanted = outcomes(program)
    begin_again()
    fast = anyshape.compile(program, options={"break_every": every})
    for one, other in zip(outcomes(fast), wanted, strict=True):
        same(one, other)


# ---- what is more than an entry ------------------------------------------------------------------
def by_a_metaclass(x: Tensor) -> tuple[Any, ...]:
    Watched.watched = x.shape[0]
    return x * Watched.watched, list(Meta.seen)


def read_as_a_dict(x: Tensor) -> tuple[Any, ...]:
    Counted.last = 5
    return x * vars(Counted)["last"], Counted.__dict__["last"]


def listed(x: Tensor) -> tuple[Any, ...]:
    Counted.scale = 5  # type: ignore[attr-defined]
    found = "scale" in dir(Counted), "scale" in dir(Counted())
    del Counted.scale  # type: ignore[attr-defined]
    return x + 1, *found, "scale" in dir(Counted)


def a_special_method(x: Tensor) -> Any:
    Counted.__len__ = lambda self: 4  # type: ignore[attr-defined]
    made = x * len(Counted())  # type: ignore[arg-type]
    del Counted.__len__  # type: ignore[attr-defined]
    return made


def not_there(x: Tensor) -> Any:
    try:
        del Counted.nothing  # type: ignore[attr-defined]
    except AttributeError as error:
        return x + 1, str(error)


OTHERS = [by_a_metaclass, read_as_a_dict, listed, a_special_method, not_there]


@pytest.mark.parametrize("program", OTHERS, ids=lambda program: program.__name__)
def test_what_others_see_to_is_left_to_them(program: Callable[..., Any]) -> None:
    wanted = program(X)
    begin_again()
    del Meta.seen[:]
    same(compiled(program, fullgraph=False)(X), wanted)
