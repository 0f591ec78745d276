"""Objects die when CPython's do, where the program sees it: by weak references and `__del__`."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference
from tests.fuzz_python.oracle import WAYS

ROOT = Path(__file__).parents[3]


class Plain:
    pass


def of_an_object(x: Any, log: list[Any]) -> Any:
    held = Plain()
    there = weakref.ref(held, lambda ref: log.append("gone"))
    log.append(there() is held)
    del held
    log.append((there(), there.__callback__))
    return x + 1


def of_a_function(x: Any, log: list[Any]) -> Any:
    def inner() -> None: ...

    there = weakref.ref(inner)
    log.append(there() is inner)
    del inner
    log.append(there() is None)
    return x + 1


def of_a_class_in_a_cycle(x: Any, log: list[Any]) -> Any:
    class Made:
        table: Any = OrderedDict()

    Made.table[Made] = None
    there = weakref.ref(Made)
    del Made
    gc.collect()
    log.append(there() is None)
    return x + 1


def of_a_proxy(x: Any, log: list[Any]) -> Any:
    held = Plain()
    proxy = weakref.proxy(held)
    proxy.name = 1
    log.append(held.name)
    del held
    try:
        log.append(proxy.name)
    except ReferenceError:
        log.append("gone")
    return x + 1


def of_keys(x: Any, log: list[Any]) -> Any:
    keys = [Plain(), Plain(), Plain()]
    table = weakref.WeakKeyDictionary((key, i) for i, key in enumerate(keys))
    del keys[0]
    log.append(sorted(table.values()))
    keys.pop()
    log.append(list(table.values()))
    return x + 1


def at_the_end_of_a_loop(x: Any, log: list[Any]) -> Any:
    class Last(list):  # type: ignore[type-arg]
        def __del__(self) -> None:
            log.append("gone")

    iterator = iter(Last([1]))
    for value in iterator:
        log.append(value)
    log.append("after")
    del iterator
    log.append("end")
    return x + 1


def in_the_order_of_locals(x: Any, log: list[Any]) -> Any:
    class Dying:
        def __init__(self, name: str) -> None:
            self.name = name

        def __del__(self) -> None:
            log.append(self.name)

    def of_a_function() -> Any:
        a, b, c = Dying("a"), Dying("b"), [Dying("c"), Dying("d")]
        a = Dying("e") if a is not b else a
        del c[0]
        return b

    def of_a_generator() -> Any:
        a, b = Dying("g"), Dying("h")
        yield a is b
        c = Dying("i")
        yield c

    kept = of_a_function()
    log.append("returned")
    del kept
    running = of_a_generator()
    next(running)
    list(running)
    log.append("run out")
    closed = of_a_generator()
    next(closed)
    closed.close()
    log.append("closed")
    return x + 1


def by_finalize(x: Any, log: list[Any]) -> Any:
    held = Plain()
    ending = weakref.finalize(held, log.append, "gone")
    log.append(ending.alive)
    del held
    log.append(ending.alive)
    return x + 1


def of_a_generator_that_delegates(x: Any, log: list[Any]) -> Any:
    def guarded() -> Any:
        try:
            yield 1
        finally:
            log.append("closed")

    def delegating() -> Any:
        yield from guarded()

    one, some = delegating(), [guarded(), {"a": (guarded(),)}]
    next(one)
    next(some[0])  # type: ignore[call-overload]
    next(some[1]["a"][0])  # type: ignore[index]
    log.append("begun")
    x = x + 1
    log.append("end")
    return x


BY_VALUE: Any = weakref.WeakValueDictionary()
BY_KEY: Any = weakref.WeakKeyDictionary()
BY_ITEM: Any = weakref.WeakSet()


def of_a_tensor_in_a_weak_dictionary(x: Any, log: list[Any]) -> Any:
    made = x + 1
    BY_VALUE["made"] = made
    result = made * 1
    log.append("made" in BY_VALUE)
    del made
    log.append(("made" in BY_VALUE, len(BY_VALUE)))
    return result


def of_an_object_held_by_others(x: Any, log: list[Any]) -> Any:
    held = Plain()
    others = [held]
    BY_VALUE["held"] = BY_KEY[held] = held
    BY_KEY[held] = 1
    BY_ITEM.add(held)
    del held
    x = x + 1
    log.append((len(BY_VALUE), len(BY_KEY), len(BY_ITEM)))
    del others
    log.append((len(BY_VALUE), len(BY_KEY), len(BY_ITEM)))
    return x


def of_what_new_has_made(x: Any, log: list[Any]) -> Any:
    class Told:
        def __del__(self) -> None:
            log.append("gone")

    held = [object.__new__(Told)]
    x = x + 1
    log.append("still there")
    del held
    log.append("after")
    return x


PROGRAMS = [
    of_a_tensor_in_a_weak_dictionary,
    of_an_object_held_by_others,
    of_what_new_has_made,
    of_an_object,
    of_a_function,
    of_a_class_in_a_cycle,
    of_a_proxy,
    of_keys,
    at_the_end_of_a_loop,
    in_the_order_of_locals,
    by_finalize,
    of_a_generator_that_delegates,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_sees_the_same_deaths(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program)
    x = torch.ones(3)
    for _ in range(2):
        wanted: list[Any] = []
        found: list[Any] = []
        program(x, wanted)
        assert torch.equal(fast(x, found), x + 1)
        assert found == wanted
    assert fast.stats().internal_errors == 0


def of_a_module_with_a_hook(x: Any, log: list[Any]) -> Any:
    module = torch.nn.Sigmoid()
    handle = module.register_forward_hook(lambda *args: None)
    y = module(x)
    log.append(handle.hooks_dict_ref() is not None)
    log.append(handle.id in handle.hooks_dict_ref())
    return x + 1 + 0 * y


def of_a_module_in_backward(x: Any, log: list[Any]) -> Any:
    module, leaf = torch.nn.Sigmoid(), x.clone().requires_grad_()
    module.register_full_backward_hook(lambda module, given, wanted: (given[0] * 2,))
    module(leaf).sum().backward()
    log.append(leaf.grad.tolist())
    return x + 1


def of_what_holds_a_function(x: Any, log: list[Any]) -> Any:
    def inner() -> None: ...

    held = [(inner,)]  # noqa: F841
    there = weakref.ref(inner)
    del inner
    y = x + 1
    log.append(there() is not None)
    return y


def of_an_attribute(x: Any, log: list[Any]) -> Any:
    held = Plain()
    held.part = OrderedDict()  # type: ignore[attr-defined]
    there = weakref.ref(held.part)  # type: ignore[attr-defined]
    y = x + 1
    log.append(there() is not None)
    return y


class Slots:
    """No weak reference can be made to it."""

    __slots__ = ("part",)


def of_a_slot(x: Any, log: list[Any]) -> Any:
    held = Slots()
    held.part = part = OrderedDict()  # type: ignore[attr-defined]
    there = weakref.ref(part)
    del part
    y = x + 1
    log.append(there() is not None)
    return y


@pytest.mark.parametrize("way", ["every", "third", "any"])
@pytest.mark.parametrize(
    "program",
    [
        of_a_slot,
        of_a_generator_that_delegates,
        of_a_module_with_a_hook,
        of_a_module_in_backward,
        of_what_holds_a_function,
        of_an_attribute,
    ],
)
def test_what_is_read_no_more_lives_to_the_end_over_breaks(
    program: Callable[..., Any], way: str
) -> None:
    """What dies with a variable that nothing reads any more dies with the function."""
    fast = Compiled(program, Options(**WAYS[way]), ByReference)
    for _ in range(2):
        wanted: list[Any] = []
        found: list[Any] = []
        program(torch.ones(3), wanted)
        fast(torch.ones(3), found)
        assert found == wanted


class Dying:
    def __init__(self, log: list[Any] | None = None) -> None:
        self.log = [] if log is None else log

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.log = LOG

    def __del__(self) -> None:
        self.log.append("dead")


def made_by_c(data: bytes) -> Any:
    return pickle.loads(data)


DEATHS: dict[str, Callable[[Any], Any]] = {
    "a name": lambda made: None,
    "a list": lambda made: [made],
    "a list in a list": lambda made: [[made]],
    "a dict": lambda made: {"a": made},
    "an object": lambda made: Holder(made),
}


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.mark.parametrize("way", DEATHS)
def test_what_c_has_made_dies_when_the_program_drops_it(way: str) -> None:
    """In later calls, too, in which the instructions between two breaks are interpreted."""

    def program(x: Any, data: bytes) -> Any:
        y = x + 1
        held = DEATHS[way](made_by_c(data)) if way != "a name" else made_by_c(data)
        LOG.append("made")
        del held
        LOG.append("dropped")
        held = [made_by_c(data)]
        held.clear()
        LOG.append("cleared")
        return y * 2

    data = pickle.dumps(Dying())
    program(torch.ones(2), data)
    fast = Compiled(program, Options(), ByReference)
    for _ in range(3):
        LOG.clear()
        fast(torch.ones(2), data)
        assert LOG == ["made", "dead", "dropped", "dead", "cleared"]
    assert not fast.mistakes


LOG: list[Any] = []


def test_what_the_program_traces_is_traced() -> None:
    def traced(x: Any) -> Any:
        y = x + 1
        return y * 2

    def program(x: Any) -> Any:
        lines: list[int] = []

        def trace(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code is traced.__code__ and event == "line":
                lines.append(frame.f_lineno - frame.f_code.co_firstlineno)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            y = traced(x)
        finally:
            sys.settrace(before)
        return y, lines

    result, lines = anyshape.compile(program)(torch.ones(2))
    assert lines == [1, 2]
    assert torch.equal(result, torch.full((2,), 4.0))


COUNTED = """
import gc, threading
import torch, anyshape

class Same:
    def __eq__(self, other):
        return False

    __hash__ = None

def counted(x):
    y, same = x + 1, Same()
    len(gc.get_objects())
    before = len(gc.get_objects())
    for _ in range(10):
        same == same
    after = len(gc.get_objects())
    return y * 2, after - before, threading.active_count()

gc.disable()
fast = anyshape.compile(counted)
print([fast(torch.ones(2))[1:] for _ in range(2)], counted(torch.ones(2))[1:])
"""


def test_a_program_that_counts_objects_meets_none_of_ours(tmp_path: Path) -> None:
    """In a process of its own: the thread that hands tests to a worker makes objects as well."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNTED],
        cwd=ROOT, capture_output=True, text=True, timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ANYSHAPE_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[(0, 1), (0, 1)] (0, 1)\n"
