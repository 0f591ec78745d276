"""Counters and states that the program keeps outside: `self.step += 1` reads another number in each
call, `self.state = f(self.state, x)` another tensor.

In: what a capture has relied on, and what it writes. Out: the sources whose integer is relied on by
its value, or whose tensor by its identity, and which are written over with another one. They are
seen as symbols, and as arguments, from the first call on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

from anyshape.capture.guards.guard_code import Guard
from anyshape.capture.heap.effects import Effect
from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.sources import Source, Sources
from anyshape.capture.heap.undo import write_cell
from anyshape.capture.heap.values import SizeValue, TensorValue
from anyshape.ir.graph import Value
from anyshape.nouns import frozen

Target: TypeAlias = tuple[Source | None, Any]
UNSET = object()
"""What stands for the value of a variable that has none, and no default."""


@frozen(eq=False)
class ContextValue:
    """What a variable of `contextvars` holds in the thread's context: called, it is read."""

    variable: ContextVar[Any]

    def __call__(self) -> Any:
        return self.variable.get(UNSET)

    def set(self, value: Any) -> None:
        self.variable.set(value)


def counters(
    guards: tuple[Guard, ...],
    heap: Heap,
    sources: Sources,
    source_of: Callable[[Value], Source | None],
) -> frozenset[str]:
    """What is to be a symbol or an argument, by source; `source_of` is None for what the graph
    makes."""
    relied_on = {
        _target(guard.source): guard
        for guard in guards
        if RELIED_ON.get(type(guard.expected)) == guard.kind and _is_kept(guard.source)
    }
    if not relied_on:
        return frozenset()
    last = {
        target: value for effect in heap.effects for target, value in _stores(effect, heap, sources)
    }
    return frozenset(
        guard.source.text
        for target, guard in relied_on.items()
        if _is_another(last.get(target), guard.expected, source_of)
    )


RELIED_ON: Mapping[type, str] = MappingProxyType({int: "equals", torch.Tensor: "is"})
"""What is relied on so, by class, is another one where the program writes over it."""


def _is_kept(source: Source) -> bool:
    """Whether it lies in a cell, in a context, or under a key whose hash is no code of the
    program's."""
    return (
        source.kind == "cell"
        or (source.kind, source.key) == IN_CONTEXT
        or (source.kind in KEPT and type(source.key) in PLAIN)
    )


IN_CONTEXT = ("call", ())
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
    elif effect.fn is ContextValue.set:
        yield (base, ()), effect.args[0]
    elif effect.fn in STORES and len(effect.args) == 2 and type(effect.args[0]) in PLAIN:
        key, value = effect.args
        yield (base, key), value
        yield (sources.child(base, "attr", "__dict__"), key), value


STORES = frozenset({object.__setattr__, type.__setattr__, dict.__setitem__, list.__setitem__})


def _is_another(
    value: Any, expected: int | torch.Tensor, source_of: Callable[[Value], Source | None]
) -> bool:
    """Whether it is a number or a tensor of the graph, and not known to be the one that was
    read."""
    if isinstance(expected, torch.Tensor):
        return type(value) is TensorValue and source_of(value.value) is None
    return type(value) is SizeValue or (type(value) is int and value != expected)
