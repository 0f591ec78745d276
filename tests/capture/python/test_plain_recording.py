"""A recording machine: outside objects stay as they are until the effects are replayed, and forks leave no trace.

Every plain program runs under a domain that records but has no proxies; after replaying the log of effects, everything must be as if CPython
had run it. Then once more with a checkpoint in the middle, to which the machine goes back from the end.
"""

from __future__ import annotations

import contextlib
import copy
import io
import zlib
from types import CodeType
from typing import Any

import pytest

from anyshape.capture.heap.values import Break
from anyshape.capture.interpreter.domain import Domain
from anyshape.capture.interpreter.frame import Code
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.python.language import PYTHON, python_machine
from tests.capture.plain import harness

CASES = dict(harness.cases())

CALLS_BACK = "C code calls back into the program, whose write is then real at once"
OUTSIDE = "C code reads or writes state of its own that the heap cannot shadow"
SHOWN = "C code shows exceptions, all of which this domain takes for objects from outside"
REFUSED_FOR_GOOD = "a class statement that C code tells the program of ends the segment"
REMEMBERS = "a cache that the program has made calls its function again in each call"
NOT_RECORDED = {
    "functions.lru_cache": REMEMBERS,
    "library.functools": REMEMBERS,
    "as_c_does.groups_that_c_makes_hold_what_they_were_made_of": SHOWN,
    "classes.descriptors": REFUSED_FOR_GOOD,
    "classes.init_subclass": REFUSED_FOR_GOOD,
    "slots.descriptor_slots": REFUSED_FOR_GOOD,
    "slots.hash": CALLS_BACK,
    "slots.conversions": CALLS_BACK,
    "slots.class_slots": CALLS_BACK,
    "slots.copy_slots": CALLS_BACK,
    "exceptions.warnings": OUTSIDE,
    "exceptions.warning_as_error": OUTSIDE,
    "library.thread": CALLS_BACK,
    "library.logging": "the set of handlers, from which some are gone, is written",
    "generators.asyncio": OUTSIDE,
    "exceptions.except_star": SHOWN,
    "exceptions.a_naked_exception_caught_by_except_star_lends_its_group_no_traceback": SHOWN,
    "semantics.a_stack_of_exits_keeps_the_order_of_contexts": SHOWN,
}

NOT_FORKED = {
    "classes.descriptors": CALLS_BACK,
    "classes.init_subclass": CALLS_BACK,
    "slots.descriptor_slots": CALLS_BACK,
    "control.with_native_manager": "a lock is taken and given back by C code",
    "classes.cached_property": "a lock is taken and given back by C code",
    "library.logging": "a lock is taken and given back by C code",
    "library.math_random_heapq": OUTSIDE,  # a generator's state; the compiler breaks before it
}
REFUSED = {"fork"}  # a break in a fork: the domain does without the fork


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
        super().__init__(Recorder(), PYTHON)
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
    machine = python_machine(Recorder())

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


OUTSIDE_STATE: dict[str, Any] = {"rows": [[1], [2]], "names": {"a"}, "count": 0}


def made_here() -> list[Any]:
    return [
        list((1, 2)), [3] + [4], {1: 2}.copy(), OUTSIDE_STATE.copy(), "a b".split(), sorted([3, 1]),
        dict.fromkeys("ab"), [[1]].copy(), [0] * 3, {1} | {2}, list(OUTSIDE_STATE["rows"]),
    ]  # fmt: skip


def found_outside() -> list[Any]:
    return [OUTSIDE_STATE.get("rows"), OUTSIDE_STATE["rows"][0], next(iter(OUTSIDE_STATE.values()))]


def test_what_a_native_call_makes_is_created_and_what_it_finds_is_not() -> None:
    machine = python_machine(Recorder())
    assert all(machine.heap.is_created(value) for value in machine.run(made_here))
    machine = python_machine(Recorder())
    found = machine.run(found_outside)
    assert not any(machine.heap.is_created(value) for value in found)


def changes_outside() -> tuple[Any, ...]:
    OUTSIDE_STATE["count"] += 1
    OUTSIDE_STATE["rows"].append([3])
    OUTSIDE_STATE["rows"][0].append("x")
    first = OUTSIDE_STATE["rows"].pop(0)
    OUTSIDE_STATE["names"].add("b")
    OUTSIDE_STATE["rows"] += [[4]]
    del OUTSIDE_STATE["rows"][0]
    changes_outside.note = len(OUTSIDE_STATE["rows"])
    return first, sorted(OUTSIDE_STATE["names"]), len(OUTSIDE_STATE["rows"]), OUTSIDE_STATE["count"]


def test_outside_objects_stay_until_the_effects_are_replayed() -> None:
    global OUTSIDE_STATE
    fresh = {"rows": [[1], [2]], "names": {"a"}, "count": 0}
    OUTSIDE_STATE = copy.deepcopy(fresh)
    want = changes_outside()
    changed = OUTSIDE_STATE
    del changes_outside.note
    OUTSIDE_STATE = copy.deepcopy(fresh)
    rows = OUTSIDE_STATE["rows"]
    machine = python_machine(Recorder())
    got = machine.run(changes_outside)
    assert fresh == OUTSIDE_STATE
    assert not hasattr(changes_outside, "note")
    replay(machine)
    assert got == want
    assert changed == OUTSIDE_STATE
    assert OUTSIDE_STATE["rows"] is rows
    assert changes_outside.note == 2


class Module:
    """An outside object with attributes, slots and a class attribute."""

    shared = [1]

    def __init__(self) -> None:
        self.items = [1]
        self.name = "m"


def writes_attributes(module: Any) -> tuple[Any, ...]:
    module.name = module.name + "!"
    module.items.append(2)
    module.fresh = [module.name]
    module.fresh.append(3)
    alias = module.items
    alias.append(4)
    module.shared.append(5)
    return (
        module.name,
        module.items,
        module.fresh,
        vars(module)["name"],
        module.shared,
        "items" in module.__dict__,
    )


def test_attribute_writes_are_seen_at_once_and_done_later() -> None:
    native, real = Module(), Module()
    Module.shared = [1]
    want = copy.deepcopy(writes_attributes(native))
    Module.shared = [1]
    machine = python_machine(Recorder())
    got = machine.run(writes_attributes, real)
    assert [machine.heap.mirror(value) for value in got] == list(want)
    assert (real.name, real.items, vars(real).keys()) == ("m", [1], {"name", "items"})
    assert Module.shared == [1]
    replay(machine)
    assert vars(real) == vars(native)
    assert Module.shared == [1, 5]


def test_reads_are_reported_with_their_keys() -> None:
    domain = Recorder()
    module = Module()
    python_machine(domain).run(lambda m: (m.items[0], len(m.items), "name" in vars(m)), module)
    kinds = {(kind, key) for _, kind, key in domain.reads}
    assert {("attr", "items"), ("item", 0), ("len", None)} <= kinds
