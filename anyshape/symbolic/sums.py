"""Names for long sums: the next of many partial sums is spelled over the one before.

In: sums that a program computes, each with the name that holds it. Out: for another sum the named
one that it begins with, and what is to be added. The offsets of n parts so take text linear in n.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anyshape.symbolic.atoms import Monomial
from anyshape.symbolic.expr import Dim, Expr
from anyshape.symbolic.polynomial import MASK

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
