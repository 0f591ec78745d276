"""The polyfills that run instead of iterators of C: a row for each generator that does.

What they raise comes out as it is, a StopIteration too, where a generator of the program's would
make a RuntimeError of it (PEP 479). All that such a polyfill is lies in its locals, at each yield
and at the head of its outer loop: begun once more with them it goes on, as C does behind an
exception, and an iterator of C made of them goes on natively.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.iterators import TELLING, advanced
from anyshape.capture.heap.quiet_classes import class_entry
from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.nouns import frozen

Locals = Mapping[str, Any]
State = tuple[Any, ...]


@frozen
class StandIn:
    """What is known of one of them; the key of its row is the name of its code."""

    cls: type
    """The iterator of C."""
    state: Callable[[Locals], State] | None = None
    """What `__reduce__` of that gives, by the locals; None: no locals say it, or it gives none."""
    ended: State | None = None
    """What it gives once it has ended: the frame is gone."""
    native: Callable[[Locals], Iterator[Any] | None] | None = None
    """One that goes on natively; None, or gives None: there is no way to make it."""
    shared: bool = False
    """It may be advanced while it runs: another one over the same iterators does it."""
    ends_by_errors: bool = False
    """What is raised inside is its end."""
    blank: Callable[[Locals], Iterator[Any] | None] | None = None
    """One of which `__setstate__` makes the same as of this one; None: as `native`."""
    sets: str = ""
    """The local that `__setstate__` sets; "finished": it says whether the iterator has ended."""


def named_by_c(kind: type) -> str:
    """How C's errors call the type of an iterator."""
    return kind.__name__ if kind.__module__ == "builtins" else f"itertools.{kind.__name__}"


def _over(cls: type, *names: str) -> Callable[[Locals], State]:
    """`cls` called with what lies in these locals."""
    return lambda values: (cls, tuple(values[name] for name in names))


def _mapped(values: Locals) -> State:
    return map, (values["fn"], *values["iterators"])


def _zipped(values: Locals) -> State:
    made = zip, tuple(values["iterators"])
    return (*made, True) if values["strict"] else made


def _chained(values: Locals) -> State:
    source, active = values["source"], values["active"]
    return itertools.chain, (), (source,) if active is None else (source, active)


def _sliced(values: Locals) -> State:
    bounds = values["wanted"], values["stop"], values["step"]
    return itertools.islice, (values["iterator"], *bounds), values["position"]


def _accumulated(values: Locals) -> State:
    iterator, total = values["iterator"], values["total"]
    if values["initial"] is not None:
        iterator = itertools.chain((values["initial"],), iterator)
    of_parts = itertools.accumulate, (iterator, values["func"])
    return (*of_parts, None if total is ABSENT else total)


def _zipped_longest(values: Locals) -> State:
    iterators = (() if it is None else it for it in values["iterators"])
    return itertools.zip_longest, tuple(iterators), values["fillvalue"]


def _grouped(values: Locals) -> State:
    value, key, _ = values["state"]
    made: State = itertools.groupby, (values["iterator"], values["key"])
    known = value is not ABSENT and values["target"] is not ABSENT
    return (*made, (key, value, values["target"])) if known else made


_GROUP = type(next(itertools.groupby("a"))[1])


def _of_group(values: Locals) -> State:
    """A group of a `groupby` that has come as far."""
    value, key, current = values["state"]
    if current is not values["number"]:
        return iter, ((),)
    (target,) = values["number"]
    groups = itertools.groupby(values["iterator"], values["key"])
    if value is not ABSENT:
        groups.__setstate__((key, value, target))  # type: ignore[attr-defined]
    return _GROUP, (groups, target)


def _zip_on(values: Locals) -> Iterator[Any]:
    return zip(*values["iterators"], strict=bool(values["strict"]))


def _chain_on(values: Locals) -> Iterator[Any]:
    active = () if values["active"] is None else (values["active"],)
    return itertools.chain.from_iterable(itertools.chain(active, values["source"]))


def _slice_on(values: Locals) -> Iterator[Any]:
    done, stop = values["position"], values["stop"]
    first = max(values["wanted"] - done, 0)
    last = None if stop is None else max(stop - done, 0)
    return itertools.islice(values["iterator"], first, last, values["step"])


def _accumulate_on(values: Locals) -> Iterator[Any]:
    iterator, func, total = values["iterator"], values["func"], values["total"]
    if values["initial"] is not None or total is ABSENT:
        return itertools.accumulate(iterator, func, initial=values["initial"])
    return advanced(itertools.accumulate(itertools.chain((total,), iterator), func), 1)


def _drop_on(values: Locals) -> Iterator[Any]:
    predicate = ().__contains__ if values["begun"] else values["predicate"]  # false of anything
    return itertools.dropwhile(predicate, values["iterator"])


def _pair_on(values: Locals) -> Iterator[Any]:
    before, iterator = values["before"], values["iterator"]
    return itertools.pairwise(
        iterator if before is ABSENT else itertools.chain((before,), iterator)
    )


def _cycle_on(values: Locals) -> Iterator[Any]:
    iterator, saved = values["iterator"], values["saved"]
    given = len(saved) if iterator is not None else values["index"]
    return advanced(itertools.cycle(itertools.chain(saved, iterator or ())), given)


def _multiply_on(values: Locals) -> Iterator[Any]:
    return advanced(itertools.product(*values["pools"]), values["given"])


def _group_on(values: Locals) -> Iterator[Any] | None:
    """Once it has given a group, that one reads what is next with it."""
    begun = values["target"] is not ABSENT or values["state"][1] is not ABSENT
    return None if begun else itertools.groupby(values["iterator"], values["key"])


def _zip_longest_on(values: Locals) -> Iterator[Any]:
    _, iterators, fillvalue = _zipped_longest(values)
    return itertools.zip_longest(*iterators, fillvalue=fillvalue)


def _call_on(state: Callable[[Locals], State]) -> Callable[[Locals], Iterator[Any]]:
    """One whose state is no more than what it is made of."""

    def native(values: Locals) -> Iterator[Any]:
        cls, given = state(values)[:2]
        made: Iterator[Any] = cls(*given)
        return made

    return native


class _Items:
    """What is iterated over by its items."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError


def _plain(cls: type, ended: State, *names: str, shared: bool = True, sets: str = "") -> StandIn:
    """One that is no more than its arguments."""
    state = _over(cls, *names)
    return StandIn(cls, state, (cls, ended), _call_on(state), shared, sets=sets)


STAND_INS: Mapping[str, StandIn] = {
    "mapped": StandIn(map, _mapped, (map, (bool, ())), _call_on(_mapped), True),
    "filtered": _plain(filter, (bool, ()), "fn", "iterator"),
    "zipped": StandIn(zip, _zipped, (zip, ()), _zip_on, True, sets="strict"),
    "enumerated": _plain(enumerate, ((),), "iterator", "count", shared=False),
    "calls_until": StandIn(
        type(iter(int, 1)),
        lambda values: (iter, (values["fn"], values["sentinel"])),
        (iter, ((),)),
        lambda values: iter(values["fn"], values["sentinel"]),
    ),
    "items_until_index_error": StandIn(
        type(iter(_Items())),
        lambda values: (iter, (values["obj"],), values["index"]),
        (iter, ((),)),
        sets="index",
    ),
    "reversed_of": StandIn(
        reversed,
        lambda values: (reversed, (values["obj"],), values["index"]),
        (reversed, ((),)),
        ends_by_errors=True,
    ),
    "starred": _plain(itertools.starmap, (bool, ()), "function", "iterator"),
    "filtered_false": _plain(itertools.filterfalse, (bool, ()), "predicate", "iterator"),
    "compressed": _plain(itertools.compress, ((), ()), "data", "selectors"),
    "taken_while": StandIn(
        itertools.takewhile,
        lambda values: (itertools.takewhile, (values["predicate"], values["iterator"]), 0),
        (itertools.takewhile, (bool, ())),
        _call_on(_over(itertools.takewhile, "predicate", "iterator")),
        sets="finished",
    ),
    "dropped_while": StandIn(
        itertools.dropwhile,
        lambda values: (
            itertools.dropwhile,
            (values["predicate"], values["iterator"]),
            values["begun"],
        ),
        (itertools.dropwhile, (bool, ())),
        _drop_on,
        sets="begun",
    ),
    "chained": StandIn(
        itertools.chain,
        _chained,
        (itertools.chain, ()),
        _chain_on,
        blank=lambda values: itertools.chain(),
    ),
    "sliced": StandIn(
        itertools.islice,
        _sliced,
        (itertools.islice, ((), 0)),
        _slice_on,
        ends_by_errors=True,
        sets="position",
    ),
    "accumulated": StandIn(
        itertools.accumulate,
        _accumulated,
        (itertools.accumulate, ((),)),
        _accumulate_on,
        sets="total",
    ),
    "zipped_longest": StandIn(
        itertools.zip_longest,
        _zipped_longest,
        (itertools.zip_longest, ()),
        _zip_longest_on,
        ends_by_errors=True,
        sets="fillvalue",
    ),
    "paired": StandIn(itertools.pairwise, native=_pair_on, ends_by_errors=True),
    "cycled": StandIn(
        itertools.cycle,
        native=_cycle_on,
        blank=lambda values: itertools.cycle(values["iterator"] or ()),
    ),
    "multiplied": StandIn(
        itertools.product,
        native=_multiply_on,
        blank=lambda values: itertools.product(*values["pools"]),
    ),
    "grouped": StandIn(itertools.groupby, _grouped, (itertools.groupby, ((),)), _group_on),
    "group": StandIn(_GROUP, _of_group, (iter, ((),))),
}


ITERATORS = frozenset({"iterator", "iterators", "data", "selectors", "source", "active"})
"""The locals that hold some."""


def native_rest(name: str, values: Locals) -> Iterator[Any] | None:
    """The iterator of C that goes on natively with what a polyfill's locals hold. None where there
    is none, or where making one would ask an iterator of the program for its iterator again, which
    it might notice."""
    row = STAND_INS.get(name)
    if row is None or row.native is None:
        return None
    named = [values[name] for name in ITERATORS & values.keys()]
    contents = [part for v in named for part in (v if type(v) is list else (v,))]
    if any(_notices(type(part)) for part in contents):
        return None
    return row.native(values)


def native_at(iterator: Any, state: Any) -> Iterator[Any]:
    """The same, at this state of `__setstate__`."""
    row, values = iterator.stands_for, iterator.frame.values_by_name()
    make = None if row is None else row.blank or row.native
    rest: Any = None if make is None else make(values)
    if rest is None:
        text = f"{named_by_c(iterator.python_type)!r} object has no attribute '__setstate__'"
        raise AttributeError(text, name="__setstate__", obj=iterator)
    rest.__setstate__(state)
    return rest


def _notices(cls: type) -> bool:
    """Whether `iter` of such an iterator is more than the iterator itself."""
    method = class_entry(cls, "__iter__")
    if class_entry(cls, "__next__") is None or type(method) is not FunctionType:
        return False
    return method.__code__.co_code != _itself.__code__.co_code


def _itself(self: Any) -> Any:
    return self


def reduced_state(row: StandIn, machine: Interpreter, values: Locals | None) -> State | None:
    """What `__reduce__` gives, by the locals of the frame; None where C gives nothing. Without a
    frame the iterator has ended."""
    if row.state is not None:
        return row.ended if values is None else row.state(_seen(machine, values))
    if row.native is None or row.cls not in TELLING:
        return None
    if machine.recording:
        raise broken("unknown-call", f"{named_by_c(row.cls)}.__reduce__")
    rest: Any = None if values is None else row.native(values)
    state: State = (row.cls, ((),)) if rest is None else rest.__reduce__()
    return state


def _seen(machine: Interpreter, values: Locals) -> Locals:
    """The iterators as the trace sees them, of a frame that an earlier segment left."""
    if not machine.recording or "iterators" not in values:
        return values
    return {**values, "iterators": machine.heap.mirror(values["iterators"])}
