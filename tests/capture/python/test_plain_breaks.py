"""Breaks leave every frame as it was: each native call breaks once, its instruction is stepped natively, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from anyshape.capture.heap.values import Break
from anyshape.capture.interpreter.continuations import Finished
from anyshape.capture.interpreter.domain import Concrete, Domain
from anyshape.capture.python.language import python_machine
from tests.capture.plain import harness

CASES = dict(harness.cases())


class Breaking(Domain):
    """Every native call ends the segment."""

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise Break("native", repr(type(fn)))


def run_in_pieces(case: Any) -> tuple[Any, int]:
    """The result, and the number of breaks; the instruction that broke runs in the concrete domain."""
    breaking, concrete = Breaking(), Concrete()
    machine = python_machine(breaking)
    go_on = lambda: machine.run(case)
    breaks = 0
    while True:
        try:
            return go_on(), breaks
        except Break:
            breaks += 1
            machine.domain = concrete
        try:
            machine.step()
        except Finished as finished:
            return finished.value, breaks
        finally:
            machine.domain = breaking
        go_on = machine.resume


FINALIZED = "a dropped generator is closed by its finalizer, which cannot hand on a break"
NOT_IN_PIECES = {"generators.try_finally_with_yield": FINALIZED}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_IN_PIECES])
def test_program_in_pieces_is_the_program(name: str) -> None:
    case = CASES[name]
    native = harness.outcome(case, case.__code__)
    assert harness.outcome(lambda: run_in_pieces(case)[0], case.__code__) == native


def test_breaks_do_happen() -> None:
    assert run_in_pieces(CASES["values.string_methods"])[1] > 5
