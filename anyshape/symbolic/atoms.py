"""What a monomial is a product of: symbols, and the operations that are not polynomial.

Atoms are nouns: `expr.py` makes them, one for each meaning in a `Space`, after its rules found
nothing simpler.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from anyshape.symbolic.expr import Dim, Expr, Space

Policy: TypeAlias = Literal["backed", "unbacked"]
Knowledge: TypeAlias = Literal["entry", "midrun"]

DEEP = 24  # operations nested in one another that are looked into
MANY = 64  # symbols in one operation that proof search looks into


class Atom:
    """A symbol or an operation; `expr` is the expression that is this atom and no more."""

    __slots__ = ("depth", "expr", "index", "salt", "space", "symbols", "unit")

    word: ClassVar[str] = ""
    depth: int
    space: Space
    index: int
    salt: int
    unit: Monomial
    expr: Expr
    symbols: frozenset[Symbol]

    def __init__(self, space: Space, symbols: frozenset[Symbol], depth: int = 0) -> None:
        self.space = space
        self.depth = depth
        space.deepest = max(space.deepest, depth)
        self.index, self.salt = space.next_atom()
        self.unit = (self,)
        self.symbols = symbols
        self.expr = space.intern({self.unit: 1}, 0, self.salt)
        self.expr.atom = self

    @property
    def args(self) -> tuple[Dim, ...]:
        """The operands; empty for a symbol."""
        return ()

    def __repr__(self) -> str:
        return str(self.expr)


Monomial: TypeAlias = tuple[Atom, ...]
"""A product of atoms, repeated for a power, the oldest first."""


class Symbol(Atom):
    """A named unknown integer; `signed` False says that it is a size, hence at least 0."""

    __slots__ = ("knowledge", "name", "policy", "signed")

    def __init__(
        self, space: Space, name: str, policy: Policy, knowledge: Knowledge, signed: bool
    ) -> None:
        self.name = name
        self.policy = policy
        self.knowledge = knowledge
        self.signed = signed
        super().__init__(space, frozenset((self,)))

    def __repr__(self) -> str:
        return self.name


class Operation(Atom):
    """An atom with operands."""

    __slots__ = ("operands",)

    def __init__(self, space: Space, operands: tuple[Dim, ...]) -> None:
        self.operands = operands
        exprs = [x for x in operands if not isinstance(x, int)]
        inside = [atom.depth for x in exprs for monomial in x.terms for atom in monomial]
        symbols: frozenset[Symbol] = frozenset()
        super().__init__(
            space, symbols.union(*[x.symbols for x in exprs]), max(inside, default=0) + 1
        )

    @property
    def args(self) -> tuple[Dim, ...]:
        return self.operands


class FloorDiv(Operation):
    """operands[0] // operands[1], rounded down as Python does."""

    __slots__ = ()
    word = "//"


class Mod(Operation):
    """operands[0] % operands[1], with the sign of the second as in Python."""

    __slots__ = ()
    word = "%"


class Min(Operation):
    """The smallest operand."""

    __slots__ = ()
    word = "min"


class Max(Operation):
    """The largest operand."""

    __slots__ = ()
    word = "max"


class Broadcast(Operation):
    """The size that operands broadcast to: 1 if all are 1, else the one that is not."""

    __slots__ = ()
    word = "broadcast"


def deep(atom: Atom) -> bool:
    """Whether so many operations are nested in the atom that reasoning stops at it."""
    return atom.depth > DEEP


def opaque(atom: Atom) -> bool:
    """Whether proof search takes the atom for an unknown, as it does symbols: one that is deep, or
    has so many symbols that no proof could use what is known of them all."""
    return atom.depth > DEEP or (atom.depth > 0 and len(atom.symbols) > MANY)


def monomial_order(term: tuple[Monomial, int]) -> tuple[int, ...]:
    """Sorts terms by degree, the highest first, then by the age of their atoms."""
    monomial = term[0]
    return (-len(monomial), *[atom.index for atom in monomial])


age: Callable[[Atom], int] = attrgetter("index")
"""Sorts atoms by when they were made."""


def product_of(a: Monomial, b: Monomial) -> Monomial:
    """The monomial a * b."""
    if len(a) == 1 and len(b) == 1:
        return a + b if a[0].index <= b[0].index else b + a
    return tuple(sorted(a + b, key=age))


def quotient_of(a: Monomial, b: Monomial) -> Monomial | None:
    """The monomial a / b, or None if b does not divide a."""
    left = list(a)
    for atom in b:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
