"""What capture and its guards read of objects and classes, no property of the program answers: its
`__dict__`, and what a metaclass says of a class.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyshape

ASKED: list[str] = []


class Listening(type):
    def __getattribute__(cls, name: str) -> Any:
        ASKED.append(name)
        return type.__getattribute__(cls, name)


class Slotted(metaclass=Listening):
    __slots__ = ("__dict__", "empty")

    def __getattr__(self, name: str) -> Any:
        if name == "empty":
            return 5
        raise AttributeError(name)


class Named(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        ASKED.append("__name__")
        return "another"

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        ASKED.append("__module__")
        return "elsewhere"


class Renamed(metaclass=Named):
    __slots__ = ("__dict__", "empty")


class Telling:
    """Whose `__dict__` is what the program says."""

    def __init__(self) -> None:
        object.__setattr__(self, "a", 1)

    @property
    def __dict__(self) -> dict[str, int]:  # type: ignore[override]
        ASKED.append("__dict__")
        return {"other": 1}


class Refusing(Telling):
    __slots__ = ()

    @property
    def __dict__(self) -> dict[str, int]:  # type: ignore[override]
        raise ValueError("no names")


def missing(obj: Any, name: str) -> Any:
    try:
        return getattr(obj, name)
    except AttributeError as error:
        return str(error)


def written(obj: Any) -> Any:
    obj.a = 3
    return obj.a


def deleted(obj: Any) -> Any:
    try:
        del obj.empty
    except AttributeError as error:
        return type(error)


READS = {
    "empty slot": lambda obj: missing(obj, "empty"),
    "missing": lambda obj: missing(obj, "other"),
    "written": written,
    "deleted": deleted,
    "present": lambda obj: hasattr(obj, "a"),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("kind", (Slotted, Renamed, Telling, Refusing))
def test_guards_ask_no_code_of_the_program(kind: type, name: str) -> None:
    obj, plain, read = kind(), kind(), READS[name]

    def program(x: torch.Tensor, obj: Any) -> tuple[torch.Tensor, Any]:
        return x + 1, read(obj)

    fast = anyshape.compile(program)
    for _ in range(3):
        expected = program(torch.ones(2), plain)[1]
        ASKED.clear()
        assert fast(torch.ones(2), obj)[1] == expected
    assert ASKED == []
    assert fast.stats().internal_errors == 0


def test_an_attribute_behind_a_dict_of_the_program_is_guarded() -> None:
    obj = Telling()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return x + 1, obj.a, hasattr(obj, "later")  # type: ignore[attr-defined]

    fast = anyshape.compile(program)
    for value in (1, 2, 3):
        obj.a = value  # type: ignore[attr-defined]
        assert fast(torch.ones(2))[1:] == (value, False)
    obj.later = 1  # type: ignore[attr-defined]
    assert fast(torch.ones(2))[1:] == (3, True)
