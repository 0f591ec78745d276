"""Weak references to what the function makes, in one graph: they end when CPython's do."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import UserList
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.errors import AnyshapeError
from anyshape.options import Options
from tests.capture.by_reference import ByReference, compiled
from tests.fuzz_python.oracle import WAYS


class Plain:
    def method(self) -> None: ...


class Counting(weakref.ref):  # type: ignore[type-arg]
    def __init__(self, held: Any, callback: Any = None, value: int = 42) -> None:
        self.value = value
        super().__init__(held, callback)

    def __call__(self) -> Any:
        self.called = True
        return super().__call__()


def by_a_name(log: list[Any]) -> None:
    held = Plain()
    there, again = weakref.ref(held), held
    log.append((there() is held, there is weakref.ref(held), hash(there) == hash(held)))
    del held
    log.append(there() is again)
    del again
    log.append((there(), there.__callback__))


def in_containers(log: list[Any]) -> None:
    table: Any = {"a": [Plain()]}
    there = weakref.ref(table["a"][0])
    log.append(there() is None)
    table.clear()
    log.append(there())


def by_a_closure(log: list[Any]) -> None:
    def make() -> Any:
        held = Plain()
        return lambda: held

    inner = make()
    there = weakref.ref(inner())
    log.append(there() is inner())
    del inner
    log.append(there())


def with_a_callback(log: list[Any]) -> None:
    held = Plain()
    there = weakref.ref(held, lambda gone: log.append(("gone", gone() is None)))
    log.append((there.__callback__ is not None, weakref.getweakrefcount(held)))
    log.append(weakref.getweakrefs(held) == [there])
    del held
    log.append("after")


def of_a_reference_that_died_before(log: list[Any]) -> None:
    held = Plain()
    there = weakref.ref(held, log.append)
    del there
    del held
    log.append("nobody is told")


def in_a_loop(log: list[Any]) -> None:
    there: list[Any] = []
    for i in range(3):
        held = Plain()
        held.i = i  # type: ignore[attr-defined]
        there.append(weakref.ref(held))
        log.append([r() is None for r in there])


def of_a_function_and_a_method(log: list[Any]) -> None:
    def inner() -> None: ...

    there = weakref.ref(inner)
    del inner
    method = Plain().method
    bound = weakref.ref(method)
    log.append((there(), weakref.ref(Plain().method)(), bound() is method))
    del method
    log.append(bound())


def by_a_subclass(log: list[Any]) -> None:
    held = Plain()
    there = Counting(held, value=24)
    log.append((there.value, there() is held, there.called))
    del held
    log.append(there())


def in_a_set(log: list[Any]) -> None:
    member = Plain()
    members: Any = weakref.WeakSet([member])
    log.append(len(members))
    del member
    log.append(len(members))


def in_a_dictionary(log: list[Any]) -> None:
    held = Plain()
    values: Any = weakref.WeakValueDictionary()
    values["a"] = held
    log.append((values["a"] is held, len(values)))
    del held
    log.append("a" in values)


def through_a_proxy(log: list[Any]) -> None:
    held = UserList([1, 2])
    proxy: Any = weakref.proxy(held)
    proxy.name = 3
    proxy.append(4)
    log.append((held.name, len(proxy), list(proxy), proxy[0], 2 in proxy, bool(proxy)))  # type: ignore[attr-defined]
    proxy[0] = 9
    del proxy.name, proxy[1]
    log.append((str(proxy), proxy + [1], proxy == held, hasattr(held, "name")))
    log.append((isinstance(proxy, UserList), type(proxy) is weakref.ProxyType))
    del held
    for use in (lambda: proxy.name, lambda: len(proxy), lambda: setattr(proxy, "a", 1)):
        try:
            use()
        except ReferenceError as error:
            log.append(str(error))


def by_calling_a_proxy(log: list[Any]) -> None:
    def double(a: int) -> int:
        return a * 2

    proxy: Any = weakref.proxy(double)
    log.append(proxy(3))
    del double
    try:
        proxy(3)
    except ReferenceError as error:
        log.append(str(error))


def behind_an_error(log: list[Any]) -> None:
    """The traceback of an error holds the locals of the frames that it has left."""
    there: Any = None

    def fails() -> None:
        nonlocal there
        held = Plain()
        there = weakref.ref(held)
        raise KeyError(1)

    try:
        fails()
    except KeyError as error:
        kept = error
    log.append(there() is not None)
    del kept
    log.append(there())


def in_a_generator_that_is_dropped(log: list[Any]) -> None:
    there: Any = None

    def one() -> Any:
        nonlocal there
        held = Plain()
        there = weakref.ref(held)
        yield 1
        yield 2

    running = one()
    log.append((next(running), there() is not None))
    del running
    log.append(there())


def around_the_collector(log: list[Any]) -> None:
    held = Plain()
    there = weakref.ref(held)
    gc.collect()
    log.append(there() is held)
    del held
    gc.collect()
    log.append(there())


def is_let_go(held: Any, *rest: Any) -> bool:
    """Whether nobody but this function has held what it was given."""
    there = weakref.ref(held)
    del held
    return there() is None


class Letting:
    """Each method says whether what it was given was its alone."""

    log: list[Any] = []

    def __init__(self, held: Any) -> None:
        there = weakref.ref(held)
        del held
        self.log.append(there() is None)

    def __setitem__(self, key: Any, held: Any) -> None:
        there = weakref.ref(held)
        del held
        self.log.append(there() is None)

    def __add__(self, held: Any) -> bool:
        there = weakref.ref(held)
        del held
        return there() is None

    __call__ = __contains__ = __eq__ = method = __add__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def by_who_calls(log: list[Any]) -> None:
    """A call hands its arguments over to a function in Python; all other instructions, and C, hold
    what they work with until it returns."""
    let_go = is_let_go
    log.append([let_go(Plain()), let_go(held=Plain()), let_go([Plain()].pop())])
    log.append([let_go(*[Plain()]), let_go(*(Plain(), 1)), let_go(**{"held": Plain()})])
    log.append([*map(let_go, [Plain()]), *(let_go(each) for each in [Plain()])])
    log.append([functools.partial(let_go, Plain())(), max([Plain()], key=let_go) is None])
    Letting.log = log
    one = Letting(Plain())
    one[0] = Plain()
    log.append([one + Plain(), one(Plain()), Plain() in one, one == Plain(), one.method(Plain())])
    log.append(let_go(Plain()))


IN_ONE_GRAPH = [
    *(by_a_name, in_containers, by_a_closure, with_a_callback, of_a_reference_that_died_before),
    *(in_a_loop, of_a_function_and_a_method, by_a_subclass, in_a_set, in_a_dictionary),
    *(through_a_proxy, by_calling_a_proxy, behind_an_error, in_a_generator_that_is_dropped),
    *(around_the_collector, by_who_calls),
]


def two_at_once(log: list[Any]) -> None:
    """In which order they die decides what the program is told first."""
    both = [Plain(), Plain()]
    there = [weakref.ref(one, lambda gone, i=i: log.append(i)) for i, one in enumerate(both)]
    del both
    log.append([one() for one in there])


def only_in_a_cycle(log: list[Any]) -> None:
    held: Any = Plain()
    held.me = held
    there = weakref.ref(held)
    del held
    gc.collect()
    log.append(there())


def of_a_class(log: list[Any]) -> None:
    class Made: ...

    there = weakref.ref(Made)
    del Made
    gc.collect()
    log.append(there())


def that_leaves(log: list[Any]) -> None:
    held = Plain()
    log.extend([weakref.ref(held), held])


def told_with_an_error(log: list[Any]) -> None:
    held = Plain()
    there = weakref.ref(held, lambda gone: log.append(1) or 1 / 0)  # type: ignore[func-returns-value]
    del held
    log.append(there())


def of_a_generator_with_a_handler(log: list[Any]) -> None:
    def guarded() -> Any:
        held = Plain()
        log.append(weakref.ref(held)() is held)
        there.append(weakref.ref(held, lambda gone: log.append("gone")))
        try:
            yield 1
        finally:
            log.append("closed")

    there: list[Any] = []
    next(guarded())
    log.append("end")


def behind_an_error_that_leaves(log: list[Any]) -> None:
    """Its traceback has the frames that it has left, and what their locals hold."""
    held = Plain()
    log.append(weakref.ref(held)() is held)
    try:
        raise KeyError(held.method is None)
    except KeyError as error:
        log.append(error)
    del held


NOT_IN_ONE = [
    *(two_at_once, only_in_a_cycle, of_a_class, that_leaves, told_with_an_error),
    of_a_generator_with_a_handler,
]


HELD_LONGER = (
    *(in_a_loop, behind_an_error, in_a_generator_that_is_dropped, of_a_class, by_who_calls),
)
"""What segments of one instruction hold of these lives on; see docs/python.md."""
OVER_BREAKS = [fn for fn in (*IN_ONE_GRAPH, *NOT_IN_ONE) if fn not in HELD_LONGER]


def around(program: Callable[[list[Any]], None]) -> Callable[..., Any]:
    def function(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        y = x + 1
        program(log)
        return y * 2

    return function


def logged(fn: Callable[..., Any]) -> list[Any]:
    log: list[Any] = []
    assert torch.equal(fn(torch.ones(2), log), torch.full((2,), 4.0))
    if any(type(item) is Plain for item in log):  # another one in each call
        return [item() is log[-1] for item in log[:-1]]
    return log


@pytest.mark.parametrize("program", IN_ONE_GRAPH)
def test_it_ends_in_one_graph_when_cpython_ends_it(program: Callable[..., Any]) -> None:
    function = around(program)
    wanted, fast = logged(function), compiled(function)
    assert [logged(fast), logged(fast)] == [wanted, wanted]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("program", NOT_IN_ONE)
def test_where_capture_cannot_tell_when_cpython_does(program: Callable[..., Any]) -> None:
    function = around(program)
    with pytest.raises(AnyshapeError, match=r"E211 .*weakref"):
        compiled(function)(torch.ones(2), [])
    fast = compiled(function, fullgraph=False)
    assert [logged(fast), logged(fast)] == [logged(function)] * 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["every", "any"])
@pytest.mark.parametrize("program", OVER_BREAKS)
def test_and_over_breaks(program: Callable[..., Any], way: str) -> None:
    function = around(program)
    fast = Compiled(function, Options(**WAYS[way]), ByReference)
    assert logged(fast) == logged(function)


def test_references_from_outside_end_behind_the_collector() -> None:
    """What they lead to may be what it has ended."""
    node: Any = Plain()
    node.me = node
    there = [weakref.ref(node)]
    del node

    def function(x: torch.Tensor) -> Any:
        gc.collect()
        return x + 1, there[0]()

    with pytest.raises(AnyshapeError, match="gc.collect"):
        compiled(function)(torch.ones(2))
    assert compiled(function, fullgraph=False)(torch.ones(2))[1] is None


def test_frames_that_an_error_takes_along_hold_nothing_of_capture() -> None:
    function = around(behind_an_error_that_leaves)
    with pytest.raises(AnyshapeError, match=r"E211 .*weakref"):
        compiled(function)(torch.ones(2), [])
    log: list[Any] = []
    compiled(function, fullgraph=False)(torch.ones(2), log)
    assert log[0] is True and type(log[1]) is KeyError


class Holder:
    kept: Any
    reference: Any


def let_go_by_a_name(holder: Holder) -> None:
    holder.kept = None


def let_go_by_a_deletion(holder: Holder) -> None:
    del holder.kept


def let_go_in_a_list(holder: Holder) -> None:
    holder.kept.parts.pop()


def let_go_with_what_holds_it(holder: Holder) -> None:
    holder.kept.parts = []


@pytest.mark.parametrize(
    "let_go",
    [let_go_by_a_name, let_go_by_a_deletion, let_go_in_a_list, let_go_with_what_holds_it],
)
@pytest.mark.parametrize("refers_inside", [False, True])
def test_a_write_may_end_what_is_outside(
    let_go: Callable[[Holder], None], refers_inside: bool
) -> None:
    """The write is done at the segment's end: nothing reads a reference behind it."""
    holder = Holder()
    holder.kept = Plain()
    holder.kept.parts = [Plain()]
    holder.reference = weakref.ref(holder.kept.parts[0])

    def function(x: torch.Tensor) -> Any:
        mine = Plain()
        there = weakref.ref(mine) if refers_inside else None
        y = x + 1
        let_go(holder)
        return y, holder.reference() is None, there

    with pytest.raises(AnyshapeError, match=r"E211 .*a write that may end it"):
        compiled(function)(torch.ones(2))


def test_a_write_that_ends_nothing() -> None:
    holder, referred = Holder(), Plain()
    holder.kept, holder.reference = [1], weakref.ref(referred)

    def function(x: torch.Tensor) -> Any:
        holder.kept.append(referred)
        holder.kept[0] += 1
        holder.more = 3  # type: ignore[attr-defined]
        return x + 1, holder.reference() is referred

    assert compiled(function)(torch.ones(2))[1]


def test_an_object_that_holds_a_tensor_of_the_graph() -> None:
    def function(x: torch.Tensor) -> Any:
        held = Plain()
        held.part = part = x * 2  # type: ignore[attr-defined]
        there = weakref.ref(held)
        alive = there() is held
        del held
        return part + 1, alive, there() is None

    assert compiled(function)(torch.ones(2))[1:] == (True, True)


def many(x: torch.Tensor, count: int) -> Any:
    kept, there = [], []
    for _ in range(count):
        kept.append(Plain())
        there.append(weakref.ref(kept[-1]))
    alive = sum(one() is not None for one in there)
    kept.clear()
    return x + alive, sum(one() is not None for one in there)


def test_looking_for_the_dead_has_an_end() -> None:
    """Each instruction looks at all objects: past so many, capture ends at the references."""
    assert compiled(many)(torch.ones(2), 20)[1] == 0
    with pytest.raises(AnyshapeError, match=r"E211 .*weakref"):
        compiled(many)(torch.ones(2), 500)
    y, left = compiled(many, fullgraph=False)(torch.ones(2), 500)
    assert left == 0 and torch.equal(y, torch.full((2,), 501.0))
