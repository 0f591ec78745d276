"""Groups that C makes where `except*`, `split` and `subgroup` take others apart, and exceptions
that `raise error from Cause` makes: they belong to the segment, and code of the program that C
calls meanwhile runs once in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.dispatch import Compiled
from anyshape.errors import GraphBreakError
from anyshape.options import Options
from tests.capture.by_reference import ByReference

LOG: list[Any] = []


class Counted(Exception):
    def __init__(self) -> None:
        super().__init__("made", len(LOG))
        LOG.append("made")


class Derived(ExceptionGroup[Exception]):
    def derive(self, errors: Any) -> Derived:
        LOG.append(len(errors))
        return Derived("derived", errors)


class Split(ExceptionGroup[Exception]):
    def split(self, wanted: Any) -> Any:
        LOG.append("split")
        return ExceptionGroup.split(self, wanted)


class Noted(ExceptionGroup[Exception]):
    @property
    def __notes__(self) -> Any:
        LOG.append("notes")
        return None


class Matching(type):
    def __subclasscheck__(cls, other: Any) -> bool:
        LOG.append("asked")
        return True


class Matched(Exception, metaclass=Matching):
    pass


def raised(kind: Any = ExceptionGroup) -> None:
    inner = ExceptionGroup("inner", [OSError(3), KeyError(4)])
    raise kind("outer", [ValueError(1), KeyError(2), inner])


def state(error: Any) -> Any:
    return repr(error), getattr(error, "__notes__", None)


def written_behind_except_star(x: Tensor) -> Any:
    try:
        raised()
    except* ValueError as found:
        one = found
    except* KeyError as found:
        two = found
    except* OSError as found:
        three = found
    one.mark, two.exceptions[1].mark = x.shape[0], 2  # type: ignore[attr-defined]
    three.add_note("three")
    parts = one.subgroup(ValueError), two.split(OSError)[1], three.subgroup(OSError)
    return one.__reduce__()[2], two.exceptions[1].__reduce__()[2], [*map(state, parts)]


def written_behind_a_single_one(x: Tensor) -> Any:
    try:
        raise ValueError(3)
    except* ValueError as found:
        one = found
    one.add_note("one")
    return one.__reduce__()[2], state(one.subgroup(ValueError)), len(one.__notes__)


def written_behind_a_new_one(x: Tensor) -> Any:
    try:
        try:
            raised()
        except* ValueError as found:
            found.add_note("noted")
            raise
        except* KeyError:
            raise OSError("new") from None
    except ExceptionGroup as found:
        new = found
    new.add_note("new")
    new.mark = x.shape[0]  # type: ignore[attr-defined]
    return new.__reduce__()[2], state(new.subgroup(OSError))


def by_a_predicate(x: Tensor) -> Any:
    def wanted(error: Any) -> Any:
        LOG.append(type(error).__name__)
        return [1] if isinstance(error, KeyError) else []

    try:
        raised()
    except ExceptionGroup as found:
        group = found
    keys, rest = group.split(wanted)
    keys.add_note(str(x.shape[0]))
    keys.exceptions[1].mark = 1
    inner = group.subgroup(lambda error: getattr(error, "message", "") == "inner")
    try:
        group.subgroup(lambda error: error.args[7])
    except IndexError as error:
        refused = str(error)
    same = group.subgroup(lambda error: True) is group, inner.exceptions[0] is group.exceptions[2]
    none = group.subgroup(lambda error: None)
    return state(keys), keys.exceptions[1].__reduce__()[2], state(rest), refused, same, none


def from_a_class(x: Tensor) -> Any:
    found = []
    for cause in (Counted, KeyError):
        try:
            raise ValueError(1) from cause
        except ValueError as error:
            error.__cause__.mark = 1  # type: ignore[union-attr]
            found.append((str(error.__cause__.__reduce__()), error.__suppress_context__))
    try:
        raise Counted from Counted
    except Counted as error:
        found.append((repr(error), repr(error.__cause__)))
    return found


def by_a_class_with_a_metaclass(x: Tensor) -> Any:
    try:
        try:
            raise ValueError(1)
        except* Matched:
            LOG.append("matched")
    except* ValueError as found:
        group = found
    return state(group)


def taken_apart_by_the_program(x: Tensor, kind: Any) -> Any:
    found: list[Any] = []
    try:
        try:
            raised(kind)
        except* ValueError as group:
            found.append(state(group))
        except* KeyError as group:
            found.append(state(group))
            raise
    except ExceptionGroup as group:
        found.append(state(group))
        found.append(state(group.subgroup(KeyError)))
    return found


def run(fn: Callable[..., Any], *more: Any) -> list[Any]:
    """Three calls, and what each told."""
    LOG.clear()
    return [(fn(torch.ones(n), *more), LOG[:]) for n in (2, 3, 3)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"fullgraph": True}, {"break_every": 1}])
@pytest.mark.parametrize(
    "program",
    [
        *(written_behind_except_star, written_behind_a_single_one, written_behind_a_new_one),
        *(by_a_predicate, from_a_class, by_a_class_with_a_metaclass),
    ],
)
def test_exceptions_that_c_makes_belong_to_the_segment(
    program: Callable[[Tensor], Any], options: dict[str, Any]
) -> None:
    fast = Compiled(program, Options(**options), ByReference)
    assert run(fast) == run(program)
    assert not fast.mistakes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Derived, Split, Noted])
def test_what_a_class_says_of_its_groups_is_asked_in_each_call(kind: Any) -> None:
    fast = Compiled(taken_apart_by_the_program, Options(), ByReference)
    assert run(fast, kind) == run(taken_apart_by_the_program, kind)
    assert not fast.mistakes
    whole = Compiled(taken_apart_by_the_program, Options(fullgraph=True), ByReference)
    with pytest.raises(GraphBreakError, match=kind.__name__):
        whole(torch.ones(2), kind)
