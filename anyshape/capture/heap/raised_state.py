"""What raising an exception writes to it, read and written as C does: a class of the program may
have a property of such a name, or a `__setattr__`."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from anyshape.capture.heap.quiet_classes import bare_name, class_entry

_FIELDS = vars(BaseException)
ARGS: Any = _FIELDS["args"]
LINKS = ("__context__", "__cause__", "__suppress_context__")
SETTERS: dict[str, Any] = {name: _FIELDS[name].__set__ for name in (*LINKS, "__traceback__")}


def link_of(error: BaseException, name: str) -> Any:
    """One of `LINKS`."""
    return _FIELDS[name].__get__(error)


def traceback_of(error: BaseException) -> TracebackType | None:
    found: TracebackType | None = _FIELDS["__traceback__"].__get__(error)
    return found


def context_of(error: BaseException) -> BaseException | None:
    found: BaseException | None = _FIELDS["__context__"].__get__(error)
    return found


def cause_of(error: BaseException) -> BaseException | None:
    found: BaseException | None = _FIELDS["__cause__"].__get__(error)
    return found


def exceptions_of(error: BaseExceptionGroup[Any]) -> tuple[BaseException, ...]:
    found: tuple[BaseException, ...] = vars(BaseExceptionGroup)["exceptions"].__get__(error)
    return found


def parts_from_the_last(error: BaseExceptionGroup[Any]) -> list[BaseException]:
    return list(reversed(exceptions_of(error)))


def split_by_answers(method: Any, group: BaseExceptionGroup[Any], answers: list[bool]) -> Any:
    """What `split` or `subgroup` gives where the predicate gives these answers, in this order."""
    given = iter(answers)
    return method(group, lambda part: next(given))


def parts_of(error: Any) -> Iterator[Any]:
    """The error and all errors in it; None has none."""
    if error is not None:
        yield error
    if issubclass(type(error), BaseExceptionGroup):
        for inner in exceptions_of(error):
            yield from parts_of(inner)


_ASKED = ("split", "derive", "__notes__", "__getattribute__", "__getattr__")
"""What C asks the class of a group for, where it takes it apart or puts parts together."""


def asks_for(error: Any) -> str | None:
    """What of the program C asks where it splits a group, as text; None: nothing."""
    for part in parts_of(error):
        for name in _ASKED if issubclass(type(part), BaseExceptionGroup) else ():
            if class_entry(type(part), name) is not class_entry(BaseExceptionGroup, name):
                return f"{bare_name(type(part))}.{name}"
    return None


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    SETTERS["__traceback__"](error, traceback)


def set_context(error: BaseException, context: BaseException | None) -> None:
    SETTERS["__context__"](error, context)


def set_cause(error: BaseException, cause: BaseException | None) -> None:
    """No context is shown from then on, as after `raise error from cause`."""
    SETTERS["__cause__"](error, cause)


State = tuple[Any, ...]


def state_of(error: BaseException) -> State:
    """All of it, for `put_back`."""
    return traceback_of(error), *(link_of(error, name) for name in LINKS)


UNRAISED: State = (None, None, None, False)


def put_back(error: BaseException, state: State) -> None:
    """`__suppress_context__` comes last: a cause that is set sets it."""
    for name, value in zip(("__traceback__", *LINKS), state, strict=True):
        SETTERS[name](error, value)
