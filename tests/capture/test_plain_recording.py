"""A recording machine: outside objects stay as they are until the effects are replayed, and forks leave no trace.

Every plain program runs under a domain that records but has no proxies; after replaying the log of effects, everything must be as if CPython
had run it. Then once more with a checkpoint in the middle, to which the machine goes back from the end.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from types import CodeType
from typing import Any

import pytest

from anyshape.capture.domain import Domain
from anyshape.capture.frame import Code
from anyshape.capture.machine import Machine
from anyshape.capture.values import Break
from tests.capture.plain import harness

CASES = dict(harness.cases())

CALLS_BACK = "C code calls back into the program, whose write is then real at once"
OUTSIDE = "C code reads or writes state of its own that the heap cannot shadow"
NOT_RECORDED = {
    "slots.hash": CALLS_BACK,
    "slots.conversions": CALLS_BACK,
    "slots.class_slots": CALLS_BACK,
    "slots.copy_slots": CALLS_BACK,
    "exceptions.warnings": OUTSIDE,
    "exceptions.warning_as_error": OUTSIDE,
    "library.thread": CALLS_BACK,
    "generators.asyncio": OUTSIDE,
}

NOT_FORKED = {
    "functions.lru_cache": CALLS_BACK,
    "classes.descriptors": CALLS_BACK,
    "classes.init_subclass": CALLS_BACK,
    "slots.descriptor_slots": CALLS_BACK,
    "control.with_native_manager": "a lock is taken and given back by C code",
    "classes.cached_property": "a lock is taken and given back by C code",
    "library.logging": "a lock is taken and given back by C code",
}
REFUSED = {"fork-iterator"}  # a break in a fork: the domain does without the fork


class Recorder(Domain):
    """Records, and knows no proxies."""

    records = True

    def __init__(self) -> None:
        self.reads: list[tuple[Any, str, Any]] = []

    def read(self, obj: Any, kind: str, key: Any, value: Any) -> Any:
        self.reads.append((obj, kind, key))
        return value


class Pausing(Machine):
    """A machine that breaks once, after a number of instructions."""

    __slots__ = ("countdown", "executed")

    def __init__(self, countdown: int) -> None:
        super().__init__(Recorder())
        self.countdown = countdown
        self.executed = 0

    def decoded(self, code: CodeType) -> Code:
        if code in self.codes:
            return self.codes[code]
        known = super().decoded(code)
        known.instructions = [(counting(handler), arg) for handler, arg in known.instructions]
        return known


NAMESPACE = {"__name__": "anyshape.capture.counting", "Break": Break}
exec(
    """
def counting(handler):
    def counted(machine, frame, arg):
        machine.executed += 1
        if machine.executed == machine.countdown:
            machine.countdown = 0
            raise Break("pause")
        return handler(machine, frame, arg)
    return counted
""",
    NAMESPACE,
)
counting: Any = NAMESPACE["counting"]


def replay(machine: Machine) -> None:
    for effect in machine.heap.effects:
        effect.fn(effect.target, *effect.args, **effect.kwargs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_RECORDED])
def test_recorded_and_replayed_is_as_run_natively(name: str) -> None:
    case = CASES[name]
    native = harness.outcome(case, case.__code__)
    machine = Machine(Recorder())

    def recorded() -> Any:
        result = machine.run(case)
        replay(machine)
        return result

    assert harness.outcome(recorded, case.__code__) == native


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_RECORDED | NOT_FORKED])
def test_going_back_to_the_middle_leaves_no_trace(name: str) -> None:
    case = CASES[name]
    native = harness.outcome(case, case.__code__)
    total = Pausing(0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(BaseException):
        total.run(case)
    middle = 1 + zlib.crc32(name.encode()) % max(total.executed, 1)
    machine = Pausing(middle)

    def forked() -> Any:
        try:
            return machine.run(case)
        except Break as reason:
            assert reason.reason == "pause"
        mark = machine.checkpoint()
        first_try = io.StringIO()
        try:
            with contextlib.redirect_stdout(first_try), contextlib.suppress(Exception):
                machine.resume()
        except Break as refusal:
            assert refusal.reason in REFUSED
        machine.rollback(mark)
        machine.release(mark)
        result = machine.resume()
        replay(machine)
        return result

    assert harness.outcome(forked, case.__code__) == native
