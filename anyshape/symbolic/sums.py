"""Names for parts of sizes: of many partial sums, and of operations nested in one another.

In: sums that a program computes, each with the name that holds it. Out: for another sum the named
one that it begins with, and what is to be added. The offsets of n parts so take text linear in n.
Nested operations share their operands, which are to be named before: as text they would double.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from anyshape.symbolic.atoms import Monomial, Operation
from anyshape.symbolic.expr import Dim, Expr
from anyshape.symbolic.polynomial import MASK

DEEP = 2  # operations in one another from which on their operands are worth names
LONG = 4  # terms from which a sum is worth a name


@dataclass(slots=True, eq=False)
class NamedSums:
    """The sums named so far, by the digest of their terms."""

    names: dict[int, tuple[dict[Monomial, int], str]] = field(default_factory=dict)

    def note(self, dim: Expr, name: str) -> None:
        """``name`` holds the sum from here on."""
        if len(dim.terms) >= LONG and not dim.constant:
            self.names[dim.digest] = dim.terms, name

    def split(self, dim: Expr) -> tuple[str, Dim] | None:
        """A name and the rest: the nearest named sum is looked for among those that lack only the
        newest terms of ``dim``.
        """
        if len(dim.terms) <= LONG:
            return None
        space = dim.space
        left = dim.terms.copy()
        digest = space.digest({}, -dim.constant) + dim.digest & MASK
        rest: dict[Monomial, int] = {}
        while len(left) >= LONG:
            named = self.names.get(digest)
            if named is not None and named[0] == left:
                return named[1], space.from_terms(rest, dim.constant)
            monomial, coefficient = left.popitem()
            rest[monomial] = coefficient
            digest = digest - space.digest({monomial: coefficient}, 0) & MASK
        return None


def nested_parts(dim: Expr, held: Container[Dim]) -> Iterator[Expr]:
    """The operands inside ``dim`` in which operations lie in one another, innermost first."""
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
                for arg in atom.args if isinstance(atom, Operation) and atom.depth > DEEP else ():
                    if isinstance(arg, Expr) and arg not in seen and arg not in held:
                        seen.add(arg)
                        waiting.append((arg, False))
