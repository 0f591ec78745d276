"""What a program point's next specialization relies on no more, as it was another in each before.

In: a point, the call that fits none of its specializations. Out: the point with `widen` and
`general` set: the sources whose values are symbols or arguments from now on. Nothing is compiled
here.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from anyshape.capture.guards.constant_kinds import OWNERS
from anyshape.capture.guards.guard_failures import (
    OUTSIDE_CONTAINERS,
    Failure,
    changed_numbers,
    contents_of,
    explain_failure,
    moved,
    replaced,
    state_behind,
)
from anyshape.capture.segments.program_points import Entry
from anyshape.dispatch.specializations import Point, Specialization
from anyshape.nouns import replace

HOLDERS = (tuple, list, dict, set)  # of the state that a program keeps between calls
MAX_VALUES = 3  # specializations of a point that differ in a value alone
MAX_SIZES_OF_STEPS = 8  # of one that calls backward(): cut, it would be many segments
MAX_VALUES_BETWEEN = 1  # of one behind a graph break: another break costs little more


def widened(point: Point, entry: Entry, fullgraph: bool) -> Point:
    """A number handed in with another value than before becomes symbolic from now on, and a
    tensor or a container that was known by its identity and has been replaced becomes an
    argument; so does, after some specializations, a parameter whose data is. Where a module has
    been replaced, the program is changed from outside, and what lies in containers there is likely
    to be changed next: adapters that are put in have lists of names and factors. After some on
    different values alone, what they are is relied on no more, and a text that native code
    makes is not looked into; sizes are, as long as none has been another one. How many parts a
    whole training step has may be more values: cut, it would be as many segments."""
    failures = [f for f in _failures(point, entry) if f.by_value]
    values = {(failure.guard, failure.memory) for failure in failures}
    often = len(values) >= _most_values(point, entry, failures)
    general = often and not fullgraph
    names = {*point.widen, *entry.symbolic(), *_of_other_objects(point, entry)}
    names |= set(_of_other_values(failures, entry, often, general))
    sizes = any(failure.by_value == "size" for failure in failures)
    return replace(point, widen=frozenset(names), general=general and sizes)


def _failures(point: Point, entry: Entry) -> Iterator[Failure]:
    """Why each specialization does not fit the call, its modes aside."""
    for one in point.specializations:
        failure = explain_failure(one.guards, one.guards.modes, entry.slots)
        if failure is not None:
            yield failure


def _usual_most(entry: Entry) -> int:
    return MAX_VALUES if entry.point is None else MAX_VALUES_BETWEEN


def _most_values(point: Point, entry: Entry, failures: list[Failure]) -> int:
    """So many different values, and no more, are a specialization each."""
    by_sizes = entry.point is None and all(failure.by_value == "size" for failure in failures)
    if by_sizes and any(one.differentiates() for one in point.specializations):
        return MAX_SIZES_OF_STEPS
    return _usual_most(entry)


def _of_other_objects(point: Point, entry: Entry) -> Iterator[str]:
    """The sources of what has been replaced, or lies elsewhere, since."""
    count = len(point.specializations)
    for one in point.specializations:
        yield from changed_numbers(one.guards, entry.slots)
        for tensor, source in replaced(one.guards, entry.slots, torch.Tensor):
            if type(tensor) is torch.Tensor or count >= MAX_VALUES:
                yield source
        yield from _replaced(one, entry, HOLDERS)
        if any(_replaced(one, entry, OWNERS)):
            yield OUTSIDE_CONTAINERS
        if count >= _usual_most(entry):  # new in each call, or another layer
            yield from _replaced(one, entry, OWNERS)
            yield from moved(one.guards)


def _replaced(one: Specialization, entry: Entry, kinds: tuple[type, ...]) -> Iterator[str]:
    return (source for _, source in replaced(one.guards, entry.slots, kinds))


def _of_other_values(
    failures: list[Failure], entry: Entry, often: bool, general: bool
) -> Iterator[str]:
    """The names under which what these failures tell the value of is relied on no more. A range
    that native code has made is there to be looped over: its text is not waited for."""
    made = {text for text, slot in zip(entry.slot_texts(), entry.slots) if type(slot) is range}
    for failure in failures:
        kind, source = failure.by_value, failure.source
        is_made = kind == "text" and entry.point is not None  # by native code
        if (often and kind == "number") or (is_made and (general or source in made)):
            yield source
        elif general and kind == "contents":
            yield contents_of(source)
        elif kind == "draws":  # it is new in each call
            yield state_behind(source)
