"""What capture and its guards read of objects and classes, no property of the program answers: its
`__dict__`, and what a metaclass says of a class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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


class Attributes(metaclass=Listening):
    def __init__(self, a: int = 1) -> None:
        self.a = a

    @property
    def shown(self) -> int:
        return self.a

    @classmethod
    def made(cls) -> int:
        return 1


class Special(Attributes):
    def __call__(self) -> int:
        return 3

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __add__(self, other: Any) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        return index

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __repr__(self) -> str:
        return "special"


class Entries(dict[str, int], metaclass=Listening):
    pass


class Fixed(tuple[int, ...], metaclass=Listening):
    pass


class Row(list[int], metaclass=Listening):
    pass


class Number(int, metaclass=Listening):
    pass


class Text(str, metaclass=Listening):
    pass


class Failure(Exception, metaclass=Listening):
    pass


def matched(o: Any) -> int:
    match o:
        case Attributes(a=1):
            return 1
        case [_, *_]:
            return 2
        case {}:
            return 3
    return 4


def raised(o: Any) -> Any:
    raise Failure("said")


def within(o: Any) -> Any:
    with o as entered:
        return entered is o


def with_another(o: Any) -> Any:
    o.another = 1
    return o.another


USES: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda o: o.a,
    "none": lambda o: o.zz,
    "a property": lambda o: o.shown,
    "a class method": lambda o: o.made(),
    "set": with_another,
    "instance": lambda o: (isinstance(o, Attributes), isinstance(o, (int, list))),
    "subclass": lambda o: issubclass(type(o), Attributes),
    "text": lambda o: repr(o)[:2],
    "format": lambda o: f"{o}"[:1],
    "length": lambda o: len(o),
    "list": lambda o: [*o],
    "iterated": lambda o: [i for i in o],
    "equal": lambda o: (o == o, o == 3),
    "hash": lambda o: hash(o) and 1,
    "sum": lambda o: o + 1,
    "sum on the right": lambda o: 1 + o,
    "item": lambda o: o[0],
    "contains": lambda o: 1 in o,
    "truth": lambda o: bool(o),
    "call": lambda o: o(),
    "context": within,
    "made": lambda o: [Attributes(2).a, Attributes(3).shown],
    "key": lambda o: {o: 1}[o],
    "searched": lambda o: [1, o].index(1),
    "index": lambda o: [1, 2][o],
    "sorted": lambda o: len(sorted([o])),
    "float": lambda o: float(o),
    "names": lambda o: len(dir(o)),
    "class": lambda o: o.__class__ is type(o),
    "super": lambda o: super(Attributes, o).__init__(),
    "tensor": lambda o: (torch.ones(2) + o).sum().item(),
    "json": lambda o: json.dumps([o]),
    "deleted": lambda o: delattr(o, "a"),
    "matched": matched,
    "raised": raised,
}


@pytest.mark.parametrize("use", USES)
def test_a_metaclass_is_asked_what_cpython_asks_it(use: str) -> None:
    """Of everything else, what `type` keeps is read (`quiet_classes.py`)."""
    for kind in (Attributes, Slotted, Special, Entries, Fixed, Row, Number, Text):

        def program(x: torch.Tensor, obj: Any) -> tuple[torch.Tensor, Any]:
            try:
                return x + 1, USES[use](obj)
            except Exception as error:
                return x + 1, repr(error)

        fast = anyshape.compile(program)
        for _ in range(2):
            ASKED.clear()
            wanted = repr(program(torch.ones(2), kind())[1]), [*ASKED]
            ASKED.clear()
            given = kind()
            assert (repr(fast(torch.ones(2), given)[1]), ASKED) == wanted, kind
        assert fast.stats().internal_errors == 0


def test_what_is_no_class_may_stand_for_one() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (
            x + 1,
            issubclass(Row, int | Text),
            issubclass(Row, int | Row),
            isinstance(3, int | Row),
        )

    fast = anyshape.compile(program)
    assert fast(torch.ones(2))[1:] == (False, True, True)
    assert fast.stats().internal_errors == 0


class Equal(type):
    def __eq__(cls, other: object) -> bool:
        ASKED.append("__eq__")
        return True

    def __hash__(cls) -> int:
        return 1


class Early(Exception, metaclass=Equal):
    pass


class Late(Exception, metaclass=Equal):
    pass


class Top(metaclass=Equal):
    def name(self) -> str:
        return "top"


class Middle(Top):
    def name(self) -> str:
        return "middle"


class Bottom(Middle):
    def name(self) -> str:
        return "bottom, " + super(Middle, self).name()


def caught(classes: Any) -> str:
    try:
        raise Late
    except classes:
        return "early"
    except Late:
        return "late"


EQUAL_USES: dict[str, Callable[[], Any]] = {
    "a class": lambda: caught(Early),
    "a tuple": lambda: caught((ValueError, Early)),
    "super": lambda: Bottom().name(),
}


@pytest.mark.parametrize("use", EQUAL_USES)
def test_classes_that_a_metaclass_calls_equal_are_two(use: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return x + 1, EQUAL_USES[use]()

    fast = anyshape.compile(program)
    ASKED.clear()
    assert fast(torch.ones(2))[1] == program(torch.ones(2))[1]
    assert ASKED == []
    assert fast.stats().internal_errors == 0


class SaysAnotherClass:
    number = 1

    @property
    def __class__(self) -> Any:
        ASKED.append("__class__")
        return int


STANDING = SaysAnotherClass()


def test_a_guard_that_fails_asks_an_object_for_no_class() -> None:
    fast = anyshape.compile(lambda x: x + STANDING.number)
    for number in range(4):
        STANDING.number = number
        ASKED.clear()
        assert torch.equal(fast(torch.ones(2)), torch.ones(2) + number)
        assert not ASKED
