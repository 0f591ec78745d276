"""`add_note` reads `__notes__`, sets it where there is none, and appends to that list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


class Own(Exception):
    pass


class Listening(Exception):
    """Tells of each access to its notes."""

    @property
    def __notes__(self) -> list[str]:
        self.log.append("read")
        return self.kept

    @__notes__.setter
    def __notes__(self, kept: list[str]) -> None:
        self.log.append("set")
        self.kept = kept


class Deaf(list[str]):
    def append(self, value: Any) -> None:
        raise KeyError(value)


def of_c(x: Tensor) -> Any:
    error = OSError(2, "no such file")
    error.add_note("one")
    error.add_note(f"{x.shape[0]} rows")
    return error.__notes__, str(error)


def of_a_class(x: Tensor) -> Any:
    try:
        try:
            raise Own(3)
        except Own as error:
            error.add_note("one")
            raise
    except Own as error:
        error.add_note("two")
        return vars(error)


def of_a_group(x: Tensor) -> Any:
    try:
        raise ExceptionGroup("several", [ValueError(1)])
    except* ValueError as group:
        group.add_note("one")
        found = group.__notes__
    return found


def of_a_property(x: Tensor) -> Any:
    error = Listening()
    error.log, error.kept = [], []  # type: ignore[attr-defined]
    error.add_note("one")
    return error.kept, error.log  # type: ignore[attr-defined]


def of_a_list_of_its_own(x: Tensor) -> Any:
    error = Own()
    error.__notes__ = Deaf()  # type: ignore[assignment]
    error.add_note("one")
    return [*error.__notes__]


def of_no_list(x: Tensor) -> Any:
    error = Own()
    error.__notes__ = ("one",)  # type: ignore[assignment]
    try:
        error.add_note("two")
    except TypeError as refused:
        return str(refused), error.__notes__
    return None


PROGRAMS = (of_c, of_a_class, of_a_group, of_a_property, of_a_list_of_its_own, of_no_list)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"fullgraph": True}, {"break_every": 1}, {"break_every": 3}])
@pytest.mark.parametrize("program", PROGRAMS)
def test_notes_are_added_as_natively(
    program: Callable[[Tensor], Any], options: dict[str, Any]
) -> None:
    fast = Compiled(program, Options(**options), ByReference)
    for n in (2, 3, 3):
        assert fast(torch.ones(n)) == program(torch.ones(n))
    assert not fast.mistakes
