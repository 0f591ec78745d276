"""Which guard of a specialization does not hold, with the value that was found instead.

In: a set of guards, torch's modes as they are, the entry values. Out: the first `Failure`, or None;
and what a further specialization should do about it: see a number as a symbol, a text or a
container as what differs from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from anyshape.capture.guards.guard_code import (
    CONTENTS,
    KINDS,
    MODE_FIELDS,
    OPAQUE,
    Guard,
    GuardSet,
    bind_symbols,
    from_slot,
    same_constant,
    short,
)
from anyshape.capture.heap import quiet_reads
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.sources import Source, describe_step, read_path, read_source
from anyshape.ir.graph import Location
from anyshape.ir.scalars import Scalar, ScalarInput, evaluate_scalar
from anyshape.nouns import frozen
from anyshape.symbolic import Condition, Symbol, evaluate


@frozen
class Failure:
    """Which guard did not hold, with the value that was found instead."""

    guard: str
    found: str
    location: Location | None = None
    source: str = ""
    widens: bool = False  # a number that was handed in has another value than before
    by_value: Literal["", "size", "text", "number", "float", "contents", "draws"] = (
        ""  # what it tells the value of
    )
    stale: bool = False  # an object was replaced: the specialization will hardly be right again
    memory: tuple[object, ...] = ()  # what was relied on, where the guard's text does not say

    def __str__(self) -> str:
        where = f"  [{self.location}]" if self.location is not None else ""
        return f"{self.guard}; now {self.found}{where}"


UNREADABLE = LookupError, AttributeError, TypeError, ValueError, ReferenceError
"""What is raised where nothing lies at a source any more; `ValueError`: an empty cell."""


def explain_failure(
    guards: GuardSet, modes: tuple[Any, ...], slots: Sequence[Any]
) -> Failure | None:
    """The first guard that does not hold for these slots, in the order of the program."""
    values = list(slots)
    if guards.modes != modes:
        field, before, now = next(
            row for row in zip(MODE_FIELDS, guards.modes, modes) if row[1] != row[2]
        )
        return Failure(f"{field} is {before}", str(now))
    if guards.front is not None and not guards.front(values):
        return Failure("the same declared arguments are there", "others are None")
    for guard in guards.guards:
        failure = explain_guard(guard, values)
        if failure is not None:
            return failure
    if guards.no_alias is not None and guards.no_alias.holds_for(values) is guards.overlapping:
        return Failure(str(guards.no_alias), "they do" if not guards.overlapping else "they do not")
    if any(guards.hooks):
        return Failure("no module has hooks", "a hook was registered")
    return _explain_sizes(guards, values)


def changed_numbers(guards: GuardSet, slots: Sequence[Any]) -> set[str]:
    """The numbers handed in that have other values than before, by source, and the tuples that
    hold some, and the floats kept outside, of which no length is made; they become symbolic."""
    values = list(slots)
    names: set[str] = set()
    for guard in guards.guards:
        if issubclass(type(guard.expected), (int, float, tuple)):
            failure = explain_guard(guard, values)
            if failure is not None and (failure.widens or failure.by_value == "float"):
                names.add(failure.source)
                names.update(_changed_items(guard, read_source(guard.source, values)))
    return names


IDENTIFYING = frozenset({"is", "refers"})


def contents_of(text: str) -> str:
    """The name under which what lies in the container at this source is relied on no more."""
    return f"the contents of {text}"


OUTSIDE_CONTAINERS = "the containers of objects outside"
"""The name under which, of what lies in attributes of objects outside, the identity of lists and
the value of floats in containers are relied on no more."""


def state_behind(text: str) -> str:
    """The name under which what the generator at this source draws is relied on no more."""
    return f"the state of {text}"


def data_of(text: str) -> str:
    """The name under which where the elements of the tensor at this source lie is relied on no
    more."""
    return f"the data of {text}"


def replaced(
    guards: GuardSet, slots: Sequence[Any], kind: type | tuple[type, ...]
) -> Iterator[tuple[Any, str]]:
    """What of this class was known by its identity and has been replaced by another of it since,
    with where it lay."""
    values = list(slots)
    for guard in guards.guards:
        expected = guard.expected() if guard.kind == "refers" else guard.expected
        if guard.kind in IDENTIFYING and (expected is None or issubclass(type(expected), kind)):
            try:
                found = read_path(guard.source, values)
            except UNREADABLE:
                continue
            if found is not expected and isinstance(found, kind):
                yield expected, guard.source.text


def moved(guards: GuardSet) -> set[str]:
    """The parameters that lie elsewhere since, by source: `p.data = ...` keeps the object."""
    pairs = zip(guards.parameters, guards.pointers)
    gone = {id(tensor) for tensor, pointer in pairs if tensor.data_ptr() != pointer}
    return {g.source.text for g in guards.guards if g.kind == "is" and id(g.expected) in gone}


def _changed_items(guard: Guard, found: Any) -> Iterator[str]:
    if isinstance(found, tuple):
        for index, (was, now) in enumerate(zip(guard.expected, found, strict=True)):
            if was != now:
                yield describe_step(guard.source, "item", index)


def _widens(expected: Any, found: Any) -> bool:
    """Do they differ in the values of numbers only?"""
    if type(found) is not type(expected):
        return False
    if issubclass(type(expected), tuple):
        pairs = list(zip(expected, found))
        same = len(expected) == len(found)
        return same and all(same_constant(now, was) or _widens(was, now) for was, now in pairs)
    return type(expected) in (int, float)


def holds(guard: Guard) -> bool:
    """Does a guard that reads no slot hold now?"""
    return explain_guard(guard, []) is None


def explain_guard(guard: Guard, values: list[Any]) -> Failure | None:
    """The failure of one guard, or None."""
    kind = KINDS[guard.kind]
    try:
        found = (read_path if kind.steps else read_source)(guard.source, values)
        if guard.kind in quiet_reads.ASKING and (
            quiet_reads.asks_the_program(found, guard.kind)
            or quiet_reads.asks_keys(found, guard.kind)
        ):
            return Failure(str(guard), short(found), guard.location, guard.source.text)
        relation = RELATIONS.get(guard.kind)
        holds = (
            kind.holds(found, guard.expected)
            if relation is None
            else relation(found, guard.expected, values)
        )
    except UNREADABLE as error:
        return Failure(str(guard), f"{bare_name(type(error))}: {error}", guard.location)
    if holds:
        return None
    numbers = guard.kind == "equals" and _widens(guard.expected, found)
    widens = numbers and from_slot(guard.source)
    stale = guard.kind == "is" and not (from_slot(guard.source) or guard.source.is_varying)
    where, value = guard.source.text, _value_kind(guard, found)
    memory = guard.expected if guard.kind == "buffer" else ()
    return Failure(str(guard), short(found), guard.location, where, widens, value, stale, memory)


def are_distinct(found: Any, others: Sequence[Source], values: list[Any]) -> bool:
    """Whether these are different objects."""
    objects = [found, *(read_source(source, values) for source in others)]
    return len({*map(id, objects)}) == len(objects)


RELATIONS: Mapping[str, Callable[[Any, Any, list[Any]], bool]] = {
    "same": lambda found, other, values: found is read_source(other, values),
    "distinct": are_distinct,
}
"""Kinds of guards that compare with what lies elsewhere."""


def _value_kind(
    guard: Guard, found: Any
) -> Literal["", "text", "number", "float", "contents", "draws"]:
    """What a guard tells of by its value that may differ from call to call: a text handed in, a
    counter kept outside, what lies in a container, what a generator draws."""
    slot, expected = from_slot(guard.source), guard.expected
    if guard.kind in CONTENTS and not guard.library:
        return "contents"
    if guard.kind == "draws":
        return "draws"
    if guard.kind != "equals":
        return ""
    if slot:
        return "text" if type(expected) in OPAQUE and type(found) in OPAQUE else ""
    if type(expected) not in (int, float, tuple) or not _widens(expected, found):
        return ""
    if type(expected) is tuple:  # the averages' rates that a schedule of an optimizer sets
        changed = [was for was, now in zip(expected, found) if not same_constant(now, was)]
        return "float" if all(type(was) is float for was in changed) else ""
    return "float" if type(expected) is float else "number"


def _holds(condition: Condition | bool, sizes: Mapping[Symbol, int]) -> bool:
    """Where a size is divided by 0, it does not."""
    try:
        return bool(evaluate(condition, sizes))
    except ZeroDivisionError:
        return False


def _explain_sizes(guards: GuardSet, values: list[Any]) -> Failure | None:
    try:
        sizes, floats = bind_symbols(guards, values)
    except (ArithmeticError, ValueError) as error:  # int(k) of a k that is no number now
        return Failure("what is computed of the arguments is a size", str(error))
    for size in guards.sizes:
        if not _holds(size.condition, sizes):
            shown = ", ".join(
                f"{s.name} = {sizes[s]}"
                for s in sorted(size.condition.symbols, key=lambda s: s.name)
            )
            return Failure(
                str(size), shown, size.location, by_value="size" if size.by_value else ""
            )
    for scalar in guards.scalars:
        found = _found(scalar.scalar, sizes, floats)
        if found != str(scalar.truth):
            return Failure(
                str(scalar), found, scalar.location, by_value="size" if scalar.by_value else ""
            )
    return None


def _found(scalar: Scalar, sizes: Mapping[Symbol, int], floats: Mapping[ScalarInput, Any]) -> str:
    """Its truth in words, or what is raised where there is none."""
    try:
        return str(bool(evaluate_scalar(scalar, sizes, floats)))
    except (ArithmeticError, ValueError) as error:
        return str(error)
