"""Counters that the program keeps outside: `self.step += 1` reads another number in each call.

In: what a capture has relied on, and what it writes. Out: the sources whose integer is relied on by
its value and is written over with another one. They are seen as symbols from the first call on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from anyshape.capture.guards.guard_code import Guard
from anyshape.capture.heap.effects import Effect
from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.sources import Source, Sources
from anyshape.capture.heap.undo import write_cell
from anyshape.capture.heap.values import SizeValue

Target: TypeAlias = tuple[Source | None, Any]


def counters(guards: tuple[Guard, ...], heap: Heap, sources: Sources) -> frozenset[str]:
    """What is to be a symbol, by source."""
    relied_on = {
        _target(guard.source): guard
        for guard in guards
        if guard.kind == "equals" and type(guard.expected) is int and _is_kept(guard.source)
    }
    if not relied_on:
        return frozenset()
    last = {
        target: value for effect in heap.effects for target, value in _stores(effect, heap, sources)
    }
    return frozenset(
        guard.source.text
        for target, guard in relied_on.items()
        if _is_another(last.get(target), guard.expected)
    )


def _is_kept(source: Source) -> bool:
    """Whether it lies in a cell, or under a key whose hash is no code of the program's."""
    return source.kind == "cell" or (source.kind in KEPT and type(source.key) in PLAIN)


KEPT = frozenset({"attr", "item"})
PLAIN = frozenset({str, int})


def _target(source: Source) -> Target:
    return source.base, "cell" if source.kind == "cell" else source.key


def _stores(effect: Effect, heap: Heap, sources: Sources) -> Iterator[tuple[Target, Any]]:
    """The targets that it writes, each as a step from a source, and what lies there then."""
    base = sources.of(heap.real(effect.target))
    if base is None:
        return
    if effect.fn is write_cell:
        yield (base, "cell"), effect.args[0]
    elif effect.fn in STORES and len(effect.args) == 2 and type(effect.args[0]) in PLAIN:
        key, value = effect.args
        yield (base, key), value
        yield (sources.child(base, "attr", "__dict__"), key), value


STORES = frozenset({object.__setattr__, type.__setattr__, dict.__setitem__, list.__setitem__})


def _is_another(value: Any, expected: int) -> bool:
    """Whether it is a number, and not known to be the one that was read."""
    return type(value) is SizeValue or (type(value) is int and value != expected)
