"""The sizes that a native region computes, as numbers that one C function follows.

    [a, b], then a*b + 4   ->   PRODUCT 2 0 1, SUM 1 4 1 2

In: sizes and conditions over symbols whose values come first. Out: the index of each among the
region's numbers, and the instructions that compute one after the other
(``native_prelude.py: anyshape_numbers``). C text of thousands of sizes would take the compiler
seconds; the instructions take it none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum
from typing import TypeAlias

from anyshape.nouns import mutable
from anyshape.symbolic import (
    AllOf,
    AnyOf,
    Condition,
    Dim,
    Expr,
    NamedSums,
    Relation,
    nested_parts,
)
from anyshape.symbolic.atoms import Atom, Monomial

Number: TypeAlias = Dim | Condition | bool


class Operation(IntEnum):
    """What an instruction does with indices: ``[operation, how many, ...]``; a sum has a constant,
    then pairs of a coefficient and an index."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    BROADCAST = 4
    FLOORDIV = 5
    MOD = 6
    EQ = 7
    NE = 8
    GE = 9
    LE = 10
    ALL = 11
    ANY = 12


ATOMS = {
    "//": Operation.FLOORDIV,
    "%": Operation.MOD,
    "min": Operation.MIN,
    "max": Operation.MAX,
    "broadcast": Operation.BROADCAST,
}
RELATIONS = {
    "eq": Operation.EQ,
    "ne": Operation.NE,
    "ge": Operation.GE,
    "le": Operation.LE,
}


@mutable(eq=False)
class RegionNumbers:
    """The numbers of one native region: first those that it is handed, then what is computed."""

    given: int = 0
    indices: dict[object, int] = field(default_factory=dict)
    code: list[int] = field(default_factory=list)
    computed: int = 0
    sums: NamedSums[int] = field(default_factory=NamedSums)

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return self.given + self.computed

    def hand(self, atom: Atom | None = None) -> int:
        """The index of a number that the region is handed; all are before the first computed."""
        assert not self.computed
        index = self.given
        self.given += 1
        if atom is not None:
            self.indices[atom.expr] = index
        return index

    def index(self, number: Number) -> int:
        """Where the value is, computed once."""
        found = self.indices.get(number)
        if found is None:
            found = self.indices[number] = self._compute(number)
        return found

    def offset(self, before: int, dim: Dim) -> int:
        """The index of what is at ``before`` and the size."""
        key = before, dim
        if dim == 0:
            return before
        if key not in self.indices:
            self.indices[key] = self._sum(0, ((1, before), (1, self.index(dim))))
        return self.indices[key]

    def running_total(self, before: int, sizes: Sequence[Dim]) -> int:
        """The index of what is at ``before`` and the largest of the sizes."""
        largest = self._of(Operation.MAX, map(self.index, sizes))
        return self._sum(0, ((1, before), (1, largest)))

    def _compute(self, number: Number) -> int:
        match number:
            case Expr():
                return self._dim(number)
            case Relation(kind=kind, form=form, bound=bound):
                return self._of(RELATIONS[kind], (self.index(form), self.index(bound)))
            case AllOf(parts=parts):
                return self._of(Operation.ALL, map(self.index, parts))
            case AnyOf(parts=parts):
                return self._of(Operation.ANY, map(self.index, parts))
        return self._sum(int(number), ())

    def _dim(self, dim: Expr) -> int:
        for part in nested_parts(dim, self.indices):
            self.index(part)
        if dim.atom is not None:
            return self._atom(dim.atom)
        near = self.sums.split(dim)
        rest: Dim = dim
        pairs = []
        if near is not None:
            whole, factor, rest = near
            if factor == 1 and rest == 0:
                return whole
            pairs.append((factor, whole))
        if isinstance(rest, Expr):
            pairs += [(c, self._monomial(monomial)) for monomial, c in rest.ordered_terms()]
        index = self._sum(rest.constant if isinstance(rest, Expr) else rest, pairs)
        self.sums.note(dim, index)
        return index

    def _monomial(self, monomial: Monomial) -> int:
        if len(monomial) == 1:
            return self.index(monomial[0].expr)
        if monomial not in self.indices:
            factors = [self.index(atom.expr) for atom in monomial]
            self.indices[monomial] = self._of(Operation.PRODUCT, factors)
        return self.indices[monomial]

    def _atom(self, atom: Atom) -> int:
        return self._of(ATOMS[atom.word], map(self.index, atom.args))

    def _of(self, operation: Operation, operands_at: Sequence[int] | map[int]) -> int:
        operands = tuple(operands_at)
        self.code += (operation, len(operands), *operands)
        return self._next()

    def _sum(self, constant: int, pairs: Sequence[tuple[int, int]]) -> int:
        self.code += (Operation.SUM, len(pairs), constant)
        for pair in pairs:
            self.code += pair
        return self._next()

    def _next(self) -> int:
        self.computed += 1
        return self.count - 1
