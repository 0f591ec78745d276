"""Declared and marked sizes as one capture meets them: names become symbols of its space.

In: the patterns of `declare.py` placed at the slots of a call, and each tensor as it is read. Out:
the expression of each declared dimension. A name is the size of the first dimension that is
plainly it, or is solved from the first that holds it; what the test before each call has proved is
a fact here, never a guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from anyshape.capture.heap.sources import Source
from anyshape.declare import Assumption, BoundDeclaration, Pattern
from anyshape.nouns import frozen, mutable
from anyshape.symbolic import (
    Condition,
    Dim,
    Expr,
    Symbol,
    eq,
    floordiv,
    ge,
    mod,
    restate,
    solvable,
    substitute,
    symbols_of,
)

Learn = Callable[[Condition | bool, object], None]
Fresh = Callable[[str], Expr]


@frozen
class Stated:
    """The reason of a fact that the user declared."""

    rule: str

    def __str__(self) -> str:
        return self.rule


@mutable(eq=False)
class DeclaredSizes:
    """The names of one capture, as far as they are known."""

    binding: BoundDeclaration
    learn: Learn  # takes a fact
    values: dict[Symbol, Dim] = field(default_factory=dict)
    _assumed: list[Assumption] = field(init=False)
    _equal: list[tuple[Dim, Dim]] = field(default_factory=list)  # a symbol, and what it must be
    _at: dict[tuple[Any, ...], Pattern] = field(init=False)

    def __post_init__(self) -> None:
        self._at = {(slot, *p.path.steps): p for slot, p in self.binding.patterns}
        self._assumed = list(self.binding.declaration.assumptions)

    def order(self, count: int) -> list[int]:
        """The slots in the order to look at them: those that give names plainly come first."""
        derived = {
            slot
            for slot, pattern in self.binding.patterns
            if any(not isinstance(d, int) and d.symbol is None for _, d in pattern.sizes)
        }
        return sorted(range(count), key=lambda slot: slot in derived)

    def sizes(self, source: Source, rank: int) -> dict[int, Dim]:
        """The declared sizes of the tensor at `source`, by dimension."""
        pattern = self._at.get(path_of(source))
        return {} if pattern is None else {dim % rank: size for dim, size in pattern.sizes}

    def resolve(self, size: Dim, fresh: Fresh) -> Dim:
        """The expression of a declared size; `fresh(name)` makes the symbol that is this
        dimension, where its value is needed to know a name."""
        unknown = symbols_of(size) - self.values.keys()
        if not unknown:
            return substitute(size, self.values)
        step = solvable(size, self.values.keys())
        if step is None:
            own = fresh("size")
            self._equal.append((own, size))
            return own
        symbol, slope, rest = step
        own = fresh(symbol.name if (slope, rest) == (1, 0) else "size")
        left = own - substitute(rest, self.values)
        why = Stated(f"declared: {size}")
        if slope == 1:
            self.values[symbol] = left
        else:
            self.values[symbol] = floordiv(left, slope)
            self.learn(eq(mod(left, slope), 0), why)
        self.learn(ge(self.values[symbol], 0), why)
        self._settle()
        return own

    def shape(self, pattern: Pattern, rank: int) -> list[tuple[int, Dim]] | None:
        """What a pattern says of a result, where all its names are known."""
        known = self.values.keys()
        if any(not symbols_of(size) <= known for _, size in pattern.sizes):
            return None
        return [(dim % rank, substitute(size, self.values)) for dim, size in pattern.sizes]

    def _settle(self) -> None:
        """Learns what is said of names that are known by now."""
        known = self.values.keys()
        for assumption in [a for a in self._assumed if _names(a.condition) <= known]:
            self._assumed.remove(assumption)
            restated = restate(assumption.condition, self.values)
            self.learn(restated, Stated(f"assumed: {assumption.rule}"))
        for own, size in [row for row in self._equal if symbols_of(row[1]) <= known]:
            self._equal.remove((own, size))
            self.learn(eq(own, substitute(size, self.values)), Stated(f"declared: {size}"))


def _names(condition: Condition | bool) -> frozenset[Symbol]:
    return frozenset() if isinstance(condition, bool) else condition.symbols


def path_of(source: Source) -> tuple[Any, ...]:
    """The slot that a source begins at and what is read from there, as a declared path has it."""
    steps: list[Any] = []
    step: Source | None = source
    while step is not None and step.base is not None:
        if not (step.kind == "attr" and step.key == "__dict__"):
            steps.append(step.key)
        step = step.base
    root = step.key if step is not None and step.kind == "slot" else None
    return (root, *reversed(steps))
