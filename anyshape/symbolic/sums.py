"""Names for parts of sizes: of many partial sums, and of operations nested in one another.

In: sums that a program computes, each with the name that holds it. Out: for another sum the named
one that it begins with, and what is to be added. The offsets of n parts so take text linear in n.
Nested operations share their operands, which are to be named before: as text they would double.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import chain
from typing import Generic, Protocol, TypeVar

from anyshape.nouns import mutable
from anyshape.symbolic.atoms import Atom, Operation, Symbol, age
from anyshape.symbolic.conditions import AllOf, AnyOf, Condition, Relation
from anyshape.symbolic.expr import Dim, Expr, total
from anyshape.symbolic.polynomial import MASK, nothing_cancelled, without_constant
from anyshape.symbolic.render import unknowns

DEEP = 2  # operations in one another from which on their operands are worth names
LONG = 4  # terms from which a sum is worth a name


MULTIPLES = (1, -1, 2)
T = TypeVar("T")


@mutable(eq=False)
class NamedSums(Generic[T]):
    """The sums named so far and small multiples of them, by the digest of their terms."""

    names: dict[int, tuple[Expr, T, int]] = field(default_factory=dict)

    def note(self, dim: Expr, name: T) -> None:
        """``name`` holds the sum from here on."""
        if dim.least >= LONG and not dim.constant:
            for factor in MULTIPLES:
                made = dim.scaled(factor)
                self.names.setdefault(made.digest, (made, name, factor))

    def split(self, dim: Expr) -> tuple[T, int, Dim] | None:
        """The name of the nearest named sum, of which multiple of it to take, and the rest: looked
        for among the sums that ``dim`` was made of, and among those that lack only its newest
        terms.
        """
        rest: list[Dim] = [dim.constant]
        part = without_constant(dim)
        while (found := self.names.get(part.digest)) is None or found[0] is not part:
            if part.parts is None:
                return self._split_terms(part, rest)
            long, short, sign = part.parts
            rest.append(without_constant(short).scaled(sign))
            part = without_constant(long)
        return found[1], found[2], total(rest)

    def _split_terms(self, dim: Expr, rest: list[Dim]) -> tuple[T, int, Dim] | None:
        if len(dim.terms) <= LONG:
            return None
        space, digest, left = dim.space, dim.digest, dim.terms.copy()
        while len(left) >= LONG:
            found = self.names.get(digest)
            if found is not None and found[0].terms == left:
                return found[1], found[2], total(rest)
            monomial, coefficient = left.popitem()
            rest.append(space.term(monomial, coefficient))
            digest = digest - space.digest({monomial: coefficient}, 0) & MASK
        return None


def nested_parts(dim: Expr, computed: Container[object]) -> Iterator[Expr]:
    """The operands inside ``dim`` in which operations lie in one another, innermost first."""
    if dim.depth <= DEEP:
        return
    waiting, seen = [(dim, False)], {dim}
    while waiting:
        part, done = waiting.pop()
        if done:
            yield part
            continue
        if part is not dim:
            waiting.append((part, True))
        for monomial in part.terms:
            for atom in monomial:
                if not isinstance(atom, Operation) or atom.depth <= DEEP or atom.expr in computed:
                    continue
                for arg in atom.args:
                    if isinstance(arg, Expr) and arg not in seen and arg not in computed:
                        seen.add(arg)
                        waiting.append((arg, False))


class Sized(Protocol):
    """Whatever is made of symbols: a size, a relation, a scalar."""

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in it."""


@mutable(eq=False)
class SymbolsSeen:
    """Collects symbols from many numbers; what partial sums and nested operations share is looked
    at once."""

    seen: set[Sized] = field(default_factory=set)
    symbols: dict[Symbol, None] = field(default_factory=dict)

    def add(self, number: Sized) -> Sequence[Symbol]:
        """Its symbols, the oldest first, after those of the numbers before; returns those of the
        parts that no number before had."""
        if number in self.seen:
            return ()
        new: set[Symbol] = set()
        waiting = [number]
        while waiting:
            part = waiting.pop()
            if part in self.seen:
                continue
            self.seen.add(part)
            if isinstance(part, Expr) and part.parts is not None and nothing_cancelled(part):
                waiting += part.parts[:2]
            elif isinstance(part, Expr) and part.depth:
                for atom in chain.from_iterable(part.terms):
                    if isinstance(atom, Symbol):
                        new.add(atom)
                    else:
                        waiting += (arg for arg in atom.args if isinstance(arg, Expr))
            else:
                new |= part.symbols
        ordered = sorted(new, key=age)
        self.symbols.update(dict.fromkeys(ordered))
        return ordered


def symbols_of_all(numbers: Iterable[Sized]) -> dict[Symbol, None]:
    """The symbols of the numbers in order of first use."""
    found = SymbolsSeen()
    for number in numbers:
        found.add(number)
    return found.symbols


def unknowns_of_all(numbers: Iterable[Expr | Condition]) -> tuple[Atom, ...]:
    """What has to have a size for the numbers to have values: symbols in order of first use, then
    operations that are not looked into (`render.unknowns`)."""
    found = SymbolsSeen()
    operations: dict[Atom, None] = {}
    waiting = [*numbers]
    for number in waiting:  # grows while it is read
        if isinstance(number, (AllOf, AnyOf)):
            waiting += number.parts
            continue
        form = number.form if isinstance(number, Relation) else number
        if not form.depth:
            found.add(form)
            continue
        for atom in sorted(unknowns(form), key=age):
            if isinstance(atom, Symbol):
                found.add(atom)
            else:
                operations[atom] = None
    return (*found.symbols, *operations)
