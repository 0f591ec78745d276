"""Program points: where a segment begins, as a key and flat slots.

In: the real frames that a segment left (`Rebuilder.frames`). Out: the next program point, and
frames made again from it for capture. A key is the skeleton of the frames: code, instruction,
which slot lies where.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeAlias

import torch

from anyshape.capture.heap.quiet_reads import descriptor_of
from anyshape.capture.heap.values import BOUND_IN_C, LOST, NULL
from anyshape.capture.interpreter.continuations import Continuation
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.liveness import (
    holds_finalized,
    is_live,
    live_at,
    may_be_watched,
)
from anyshape.declare import BoundDeclaration
from anyshape.nouns import frozen, mutable

_DEAD = -2
"""The slot of what is not read any more, and whose end nobody sees."""
_UNWATCHED = (type, torch.Tensor)
"""Classes live on in cycles; tensors that are not read any more would keep their memory."""
_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})


@mutable
class _Flattener:
    """Numbers the values of frames; a mutable object met twice is one slot."""

    slots: list[Any] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)
    positions: list[tuple[Any, ...]] = field(default_factory=list)
    methods: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)

    def slot(self, value: Any) -> Any:
        """The number of the slot; -1 where there is no value; a C method bound to an object is
        that object's slot, the method of its class and a slot of its own."""
        kind, slots = type(value), self.slots
        if kind in _PLAIN:
            slots.append(value)
            return len(slots) - 1
        if value is NULL:
            return -1
        method = descriptor_of(value) if kind in BOUND_IN_C else None
        if method is not None:
            return (self.slot(value.__self__), method, self.unseen(value))
        found = self.known.setdefault(id(value), len(slots))
        if found == len(slots):
            slots.append(value)
            if kind is Generator and not value.finished:
                self.positions.append((found, value.frame.code, value.frame.index))
        self.dead.discard(found)
        return found

    def dead_slot(self, value: Any) -> int:
        """The slot of what is not read any more: one of its own if the program can see it die."""
        if not may_be_watched(value, _UNWATCHED):
            return _DEAD
        found = self.known.setdefault(id(value), len(self.slots))
        if found == len(self.slots):
            self.slots.append(value)
            self.dead.add(found)
        return found

    def unseen(self, value: Any) -> int:
        """A slot that nothing is relied on of: what lies there is given back as it is."""
        found = self.known.setdefault(id(value), len(self.slots))
        if found == len(self.slots):
            self.slots.append(value)
            self.methods.add(found)
        return found

    def continuation(self, made: Continuation | None) -> Any:
        """A continuation as data: its class, and its fields as slots, nested continuations or
        plain values."""
        if made is None or not dataclasses.is_dataclass(made):
            return made
        fields = [getattr(made, f.name) for f in dataclasses.fields(made)]
        return (type(made), *map(self._field, fields))

    def _field(self, value: Any) -> Any:
        if issubclass(type(value), Continuation):
            return ("continuation", self.continuation(value))
        if type(value) in (int, bool):
            return ("plain", value)
        return ("slot", self.slot(value))

    def frame(self, frame: Frame) -> tuple[Any, ...]:
        live, slot = live_at(frame), self.slot
        locals_ = [
            slot(value) if live >> i & 1 or is_live(live, i, value) else self.dead_slot(value)
            for i, value in enumerate(frame.locals)
        ]
        return (
            frame.code,
            frame.index,
            id(frame.globals),
            tuple(locals_),
            tuple([slot(value) for value in frame.stack]),
            -1 if frame.handled is None else slot(frame.handled),
            -1 if frame.names is None else slot(frame.names),
            -1 if frame.locals_dict is None else slot(frame.locals_dict),
            -1 if frame.generator is None else slot(frame.generator),
            self.continuation(frame.continuation),
        )


class _Names:
    """What the slots of a program point are called: each by where it is met first."""

    def __init__(self, count: int) -> None:
        self.texts = [""] * count

    def note(self, slot: Any, text: str) -> None:
        while type(slot) is tuple:  # a method of what lies there
            slot = slot[0]
        if slot >= 0 and not self.texts[slot]:
            self.texts[slot] = text

    def frame(self, part: tuple[Any, ...], depth: int) -> None:
        code, _, _, locals_, stack, *others, following = part
        prefix = f"{code.code.co_name}." if depth else ""
        for name, slot in zip(code.local_names, locals_):
            self.note(slot, prefix + name)
        for index, slot in enumerate(stack):
            self.note(slot, f"{prefix}stack[{index}]")
        for name, slot in zip(("handled", "names", "locals", "generator"), others, strict=True):
            self.note(slot, name)
        self.continuation(following)

    def continuation(self, data: Any) -> None:
        if isinstance(data, tuple):
            kind, *fields = data
            for declared, (what, content) in zip(dataclasses.fields(kind), fields, strict=True):
                if what == "slot":
                    self.note(content, declared.name)
                elif what == "continuation":
                    self.continuation(content)


Numbers: TypeAlias = frozenset[tuple[Code, str]]
"""Locals and stack slots, by code and name, that hold symbolic numbers at the end of a segment."""


def numbers_of(frame: Frame, is_symbolic: Callable[[Any], bool]) -> Numbers:
    """Those of a virtual frame and of its callers."""
    found: set[tuple[Code, str]] = set()
    current: Frame | None = frame
    while current is not None:
        named = [*zip(current.code.local_names, current.locals)]
        named += [(f"stack[{i}]", value) for i, value in enumerate(current.stack)]
        for name, value in named:
            items = enumerate(tuple.__iter__(value)) if issubclass(type(value), tuple) else ()
            inside = [f"{name}[{i}]" for i, item in items if is_symbolic(item)]
            if inside or is_symbolic(value):
                found.update((current.code, text) for text in (name, *inside))
        current = current.back
    return frozenset(found)


@frozen
class ProgramPoint:
    """A program point with its values: `key` is hashable, `globals` are those of each frame."""

    key: tuple[Any, ...]
    slots: list[Any]
    scopes: list[tuple[Any, Any]]
    methods: frozenset[int]  # slots of bound methods, which are told by those of their objects
    dead: frozenset[int]  # slots of what is only held: nothing is relied on of it

    def holds_finalized(self, given: frozenset[int]) -> bool:
        """Whether something is called when it is dropped, and is none of what was `given`, by id: a
        segment would hold it after the program has dropped it."""
        return any(id(v) not in given and holds_finalized(v) for v in self.slots)

    def texts(self) -> list[str]:
        """What each slot is called."""
        names = _Names(len(self.slots))
        for depth, part in enumerate(self.key[:-1]):
            names.frame(part, depth)
        return names.texts

    def named(self, numbers: Numbers) -> frozenset[str]:
        """What the slots are called here that held symbolic numbers before."""
        found: set[str] = set()
        for depth, (code, *_) in enumerate(self.key[:-1]):
            prefix = f"{code.code.co_name}." if depth else ""
            found.update(prefix + text for other, text in numbers if other is code)
        return frozenset(found)


@frozen
class Entry:
    """Where a segment begins: at the call of the function (`point` None), or between two
    instructions."""

    key: tuple[Any, ...]
    slots: list[Any]
    texts: list[str] = field(default_factory=list)
    positional: int = 0
    names: tuple[str, ...] = ()
    point: ProgramPoint | None = None
    declared: BoundDeclaration | None = None
    numbers: Numbers = frozenset()  # what was symbolic where the last segment ended
    dynamic: bool = False  # the numbers among the arguments are symbolic

    def symbolic(self) -> frozenset[str]:
        """The slots whose numbers are symbolic from the first call on."""
        if self.point is not None:
            return self.point.named(self.numbers)
        numbers = (t for t, value in zip(self.texts, self.slots) if type(value) in (int, float))
        return frozenset(numbers if self.dynamic else ())

    def slot_texts(self) -> list[str]:
        """What each slot is called."""
        return self.texts if self.point is None else self.point.texts()


def flatten(frame: Frame) -> ProgramPoint:
    """The program point at which `frame` and its callers are."""
    flattener = _Flattener()
    parts: list[Any] = []
    scopes: list[tuple[Any, Any]] = []
    current: Frame | None = frame
    while current is not None:
        parts.append(flattener.frame(current))
        scopes.append((current.globals, current.builtins))
        current = current.back
    parts.append(tuple(flattener.positions))
    methods, dead = frozenset(flattener.methods), frozenset(flattener.dead)
    return ProgramPoint(tuple(parts), flattener.slots, scopes, methods, dead)


@frozen
class _Values:
    """What lies in the slots of a program point. No closure: one that calls itself would be a
    cycle, and hold the values until they are collected."""

    values: list[Any]
    bind: Callable[[Any, Any, int], Any]

    def __call__(self, slot: Any) -> Any:
        if type(slot) is tuple:
            owner, method, index = slot
            if self.values[index] is NULL:
                self.values[index] = self.bind(self(owner), method, index)
            return self.values[index]
        if slot < 0:
            return LOST if slot == _DEAD else NULL
        return self.values[slot]


def inflate(point: ProgramPoint, values: list[Any], bind: Callable[[Any, Any, int], Any]) -> Frame:
    """The innermost of new frames that hold `values` where the point has its slots; `bind`
    gives a method of a value that lies in a slot."""
    value = _Values(values, bind)
    innermost: Frame | None = None
    inner: Frame | None = None
    for part, (globals_, builtins) in zip(point.key, point.scopes):
        code, index, _, locals_, stack, handled, namespace, shown, generator, following = part
        names = None if namespace == -1 else value(namespace)
        frame = Frame(code, globals_, builtins, [value(slot) for slot in locals_], names)
        frame.stack = [value(slot) for slot in stack]
        frame.index = index
        frame.handled = None if handled == -1 else value(handled)
        frame.locals_dict = None if shown == -1 else value(shown)
        frame.continuation = _continuation(following, value)
        if generator != -1:
            frame.generator = value(generator)
            frame.generator.frame = frame
        if inner is None:
            innermost = frame
        else:
            inner.back = frame
        inner = frame
    assert innermost is not None
    return innermost


def _continuation(data: Any, value: _Values) -> Any:
    if not isinstance(data, tuple):
        return data
    kind, *fields = data
    made = []
    for what, content in fields:
        if what == "continuation":
            made.append(_continuation(content, value))
        else:
            made.append(content if what == "plain" else value(content))
    return kind(*made)
