"""How a kernel runs over its rows: which passes it needs and what each computes.

In: a ``Kernel``. Out: for each element the axes it depends on and the *pass* in which it can be known:
an element needs pass 0 unless it depends on a ``Reduce``, which is known after the pass of its argument. Both
targets print passes in order; nothing here is of one target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anyshape.ir.loops import (
    Element,
    Kernel,
    Load,
    Reduce,
    Scan,
    Store,
    index_names,
    operands,
)
from anyshape.symbolic import Dim, Expr, Symbol


@dataclass(frozen=True, slots=True)
class Passes:
    """``axes_of[n]``: names of the axes that element ``n`` varies over; ``level[n]``: its pass."""

    kernel: Kernel
    axes_of: tuple[frozenset[str], ...]
    level: tuple[int, ...]
    rows: frozenset[str]

    @property
    def count(self) -> int:
        """The number of passes."""
        ends = [self.level[s.value] for s in self.kernel.stores]
        ends += [self.level[e.arg] for e in self.kernel.elements if isinstance(e, Reduce)]
        return max(ends, default=0) + 1

    def in_row(self, number: int) -> bool:
        """Does the element vary along the row?"""
        return not self.rows.isdisjoint(self.axes_of[number])

    def reduces(self, level: int) -> list[int]:
        """The reductions that pass ``level`` does."""
        elements = self.kernel.elements
        return [
            n
            for n, e in enumerate(elements)
            if isinstance(e, Reduce) and self.level[e.arg] == level
        ]

    def stores(self, level: int, per: str) -> list[Store]:
        """The stores of pass ``level``."""
        return [
            s
            for s in self.kernel.stores
            if s.per == per and max(self.level[n] for n in operands(s)) == level
        ]

    def closure(self, roots: Iterable[int], stop: frozenset[int] | set[int]) -> list[int]:
        """Everything that the roots need, operands first, without what is in ``stop``."""
        found: dict[int, None] = {}
        stack = [(n, False) for n in sorted(set(roots), reverse=True)]
        while stack:
            number, ready = stack.pop()
            if number in found or number in stop:
                continue
            if ready:
                found[number] = None
                continue
            stack.append((number, True))
            element = self.kernel.elements[number]
            if not isinstance(element, Reduce):
                stack.extend((n, False) for n in reversed(operands(element)))
        return list(found)


def analyse(kernel: Kernel) -> Passes:
    """Axes and passes of every element."""
    rows = frozenset(axis.name for axis in kernel.rows)
    names = rows | {axis.name for axis in kernel.axes}
    axes_of: list[frozenset[str]] = []
    level: list[int] = []
    for element in kernel.elements:
        own = operands(element)
        axes = (index_names(element) & names).union(*(axes_of[n] for n in own))
        above = max((level[n] for n in own), default=0)
        if isinstance(element, Reduce):
            axes, above = axes - rows, above + 1
        elif isinstance(element, Scan):
            axes = axes | {kernel.rows[-1].name}
        axes_of.append(axes)
        level.append(above)
    return Passes(kernel, tuple(axes_of), tuple(level), rows)


def coefficient(index: Dim, axis: str) -> Dim | None:
    """The step of an index along an axis, None where it is not affine in it."""
    if not isinstance(index, Expr):
        return 0
    result: Dim = 0
    for monomial, scale in index.terms.items():
        names = [a.name if isinstance(a, Symbol) else "" for a in monomial]
        if axis not in names:
            if any(axis in {s.name for s in a.symbols} for a in monomial):
                return None
            continue
        if names.count(axis) > 1:
            return None
        rest: Dim = scale
        for atom, name in zip(monomial, names, strict=True):
            if name == axis:
                continue
            if axis in {s.name for s in atom.symbols}:
                return None
            rest = rest * atom.expr
        result = result + rest
    return result


def step_of(passes: Passes, item: Element | Store, axis: str) -> Dim | None:
    """The step of a load or store along an axis; None where data decides."""
    if any(axis in passes.axes_of[n] for n in _index_operands(item)):
        return None
    index = item.index  # type: ignore[union-attr]
    return coefficient(index, axis)


def _index_operands(item: Element | Store) -> tuple[int, ...]:
    index = getattr(item, "index", None)
    if not isinstance(index, Expr):
        return ()
    return tuple(int(s.name[1:]) for s in index.symbols if s.name[0] == "v")


def accesses(kernel: Kernel) -> list[Load | Store]:
    """Every place where the kernel touches memory."""
    return [*(e for e in kernel.elements if isinstance(e, Load)), *kernel.stores]


def lane(kernel: Kernel, passes: Passes) -> str | None:
    """The axis to vectorise: where most accesses step by one. None for a kernel of one cell."""
    candidates = [a.name for a in kernel.rows[-1:]] + [a.name for a in kernel.axes[-1:]]
    if not candidates:
        return None
    if not kernel.rows or any(isinstance(e, Scan) for e in kernel.elements):
        return candidates[0]

    def score(axis: str) -> int:
        return sum(step_of(passes, item, axis) == 1 for item in accesses(kernel))

    return max(candidates, key=score)
