"""Weak references from outside are read as they are behind the writes of the function."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape


class Part:
    value = 1


class Holder:
    def __init__(self) -> None:
        self.part: Any = Part()
        self.parts = [Part()]
        self.named = {"a": Part()}
        self.nested = [[(Part(),)]]


def set_attribute(holder: Holder) -> None:
    holder.part = None


def deleted_attribute(holder: Holder) -> None:
    del holder.part


def popped(holder: Holder) -> None:
    holder.parts.pop()


def cleared(holder: Holder) -> None:
    holder.named.clear()


def written_over(holder: Holder) -> None:
    holder.named["a"] = None  # type: ignore[assignment]


def what_holds_it(holder: Holder) -> None:
    holder.nested[0] = []


def of_part(holder: Holder) -> Any:
    return holder.part


WRITES: tuple[tuple[Callable[[Holder], None], Callable[[Holder], Any]], ...] = (
    (set_attribute, of_part),
    (deleted_attribute, of_part),
    (popped, lambda holder: holder.parts[0]),
    (cleared, lambda holder: holder.named["a"]),
    (written_over, lambda holder: holder.named["a"]),
    (what_holds_it, lambda holder: holder.nested[0][0][0]),
)


def by_call(reference: Any) -> bool:
    return reference() is None


def by_proxy(proxy: Any) -> bool:
    try:
        return proxy.value != 1
    except ReferenceError:
        return True


def by_set(made: Any) -> bool:
    return len(made) == 0


def set_of(value: Any) -> Any:
    return weakref.WeakSet([value])


READS: tuple[tuple[Callable[[Any], Any], Callable[[Any], bool]], ...] = (
    (weakref.ref, by_call),
    (weakref.proxy, by_proxy),
    (set_of, by_set),
)


@pytest.mark.parametrize("write, target", WRITES)
@pytest.mark.parametrize("make, is_dead", READS)
def test_what_a_write_ends_is_dead(write: Any, target: Any, make: Any, is_dead: Any) -> None:
    def program(x: torch.Tensor, holder: Holder, reference: Any) -> tuple[torch.Tensor, bool, bool]:
        y = x + 1
        before = is_dead(reference)
        write(holder)
        return y, before, is_dead(reference)

    fast = anyshape.compile(program)
    for _ in range(2):
        holder = Holder()
        _, before, after = fast(torch.ones(2), holder, make(target(holder)))
        assert (before, after) == (False, True)


def test_a_write_that_ends_nothing_is_no_break() -> None:
    def program(x: torch.Tensor, holder: Holder, reference: Any) -> tuple[torch.Tensor, bool]:
        holder.parts.append(Part())
        holder.named["b"] = Part()
        return x + 1, reference() is holder.part

    fast = anyshape.compile(program, fullgraph=True)
    holder = Holder()
    assert fast(torch.ones(2), holder, weakref.ref(holder.part))[1]
    assert len(holder.parts) == len(holder.named) == 2
