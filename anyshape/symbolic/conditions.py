"""Relations between sizes, and their conjunctions and disjunctions.

In: two dims. Out: a bool when the normal form alone decides for all integers, else a `Relation`
`form == bound`, `!=`, `>=` or `<=`: the form has no constant and no common factor and is kept in
one sign, so that two spellings of one relation are one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd
from typing import Literal, NoReturn, TypeAlias

from anyshape.symbolic.atoms import Symbol
from anyshape.symbolic.expr import Dim, Expr, maximum, minimum
from anyshape.symbolic.polynomial import divide_exactly, negative, without_constant

Kind: TypeAlias = Literal["eq", "ne", "ge", "le"]

SIGNS: Mapping[Kind, str] = {"eq": "==", "ne": "!=", "ge": ">=", "le": "<="}


class Undecided:
    """What has no truth value while compiling."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the truth of {self} is not known while compiling; ask facts.known()")


class Relation(Undecided):
    """`form == bound`, `form != bound`, `form >= bound` or `form <= bound`; == is identity."""

    __slots__ = ("bound", "form", "kind", "opposite")

    kind: Kind
    form: Expr
    bound: int
    opposite: Relation | None

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in the relation."""
        return self.form.symbols

    def excess(self) -> Dim:
        """The expression that is 0, is not 0, or is at least 0 when the relation holds."""
        return self.bound - self.form if self.kind == "le" else self.form - self.bound

    def sides(self) -> tuple[Dim, str, Dim]:
        """The relation without subtractions, such as (2*s0, ">=", s1 + 4)."""
        space = self.form.space
        left = {m: c for m, c in self.form.terms.items() if c > 0}
        right = {m: -c for m, c in self.form.terms.items() if c < 0}
        shift = -self.bound if self.bound < 0 and right else 0
        return (
            space.from_terms(left, shift),
            SIGNS[self.kind],
            space.from_terms(right, self.bound + shift),
        )

    def __invert__(self) -> Relation:
        found = self.opposite
        if found is None:
            found = self.opposite = _opposite(self)
            found.opposite = self
        return found

    def __repr__(self) -> str:
        left, sign, right = self.sides()
        return f"{left} {sign} {right}"


class Junction(Undecided):
    """Two or more conditions joined; == is identity."""

    __slots__ = ("parts",)

    parts: tuple[Condition, ...]
    word = ""

    def __init__(self, parts: tuple[Condition, ...]) -> None:
        self.parts = parts

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in the condition."""
        return frozenset().union(*[part.symbols for part in self.parts])

    def __repr__(self) -> str:
        texts = (f"({p})" if isinstance(p, Junction) else str(p) for p in self.parts)
        return f" {self.word} ".join(texts)


class AllOf(Junction):
    """True when every part is."""

    __slots__ = ()
    word = "and"

    def __invert__(self) -> Condition | bool:
        return any_of(*(~part for part in self.parts))


class AnyOf(Junction):
    """True when at least one part is."""

    __slots__ = ()
    word = "or"

    def __invert__(self) -> Condition | bool:
        return all_of(*(~part for part in self.parts))


Condition: TypeAlias = Relation | AllOf | AnyOf

_new = object.__new__


def _relation(kind: Kind, form: Expr, bound: int) -> Relation:
    table = form.space.relations
    key = (kind, form, bound)
    found = table.get(key)
    if found is None:
        found = table[key] = _new(Relation)
        found.kind = kind
        found.form = form
        found.bound = bound
        found.opposite = None
    return found


def _opposite(relation: Relation) -> Relation:
    match relation.kind:
        case "ge":
            return _relation("le", relation.form, relation.bound - 1)
        case "le":
            return _relation("ge", relation.form, relation.bound + 1)
        case "eq":
            return _relation("ne", relation.form, relation.bound)
        case "ne":
            return _relation("eq", relation.form, relation.bound)


def at_least(expr: Expr, bound: int) -> Relation:
    """expr >= bound, in normal form."""
    if expr.atom is not None:
        return _relation("ge", expr, bound)
    bound -= expr.constant
    common = gcd(*expr.terms.values())
    if negative(expr):
        form = divide_exactly(without_constant(expr), -common)
        return _relation("le", form, -bound // common)
    return _relation("ge", divide_exactly(without_constant(expr), common), -(-bound // common))


def equal(expr: Expr, bound: int) -> Relation | bool:
    """expr == bound, in normal form; False where no whole number will do."""
    if expr.atom is not None:
        return _relation("eq", expr, bound)
    bound -= expr.constant
    common = gcd(*expr.terms.values())
    if bound % common:
        return False
    if negative(expr):
        common = -common
    return _relation("eq", divide_exactly(without_constant(expr), common), bound // common)


def ge(a: Dim, b: Dim) -> Relation | bool:
    """a >= b."""
    if b.__class__ is int and a.__class__ is Expr:
        return at_least(a, b)
    excess = a - b
    return at_least(excess, 0) if excess.__class__ is Expr else excess >= 0


def le(a: Dim, b: Dim) -> Relation | bool:
    """a <= b."""
    if b.__class__ is int and a.__class__ is Expr and a.atom is not None:
        return _relation("le", a, b)
    return ge(b, a)


def gt(a: Dim, b: Dim) -> Relation | bool:
    """a > b."""
    return ge(a, b + 1)


def lt(a: Dim, b: Dim) -> Relation | bool:
    """a < b."""
    return le(a, b - 1) if b.__class__ is int else ge(b, a + 1)


def eq(a: Dim, b: Dim) -> Relation | bool:
    """a == b."""
    if b.__class__ is int and a.__class__ is Expr:
        return equal(a, b)
    excess = a - b
    return equal(excess, 0) if excess.__class__ is Expr else excess == 0


def ne(a: Dim, b: Dim) -> Relation | bool:
    """a != b."""
    same = eq(a, b)
    return (not same) if isinstance(same, bool) else ~same


def all_of(*conditions: Condition | bool) -> Condition | bool:
    """The conjunction; True when empty."""
    return _join(AllOf, conditions)


def any_of(*conditions: Condition | bool) -> Condition | bool:
    """The disjunction; False when empty."""
    return _join(AnyOf, conditions)


def indicator(condition: Condition | bool) -> Dim:
    """1 where the condition holds, else 0."""
    if isinstance(condition, bool):
        return int(condition)
    if isinstance(condition, Relation):
        excess = condition.excess()
        if condition.kind in ("ge", "le"):
            return minimum(maximum(excess + 1, 0), 1)
        differs = minimum(maximum(excess, -excess), 1)
        return differs if condition.kind == "ne" else 1 - differs
    join = minimum if isinstance(condition, AllOf) else maximum
    return join(*map(indicator, condition.parts))


def _join(kind: type[AllOf | AnyOf], conditions: Iterable[Condition | bool]) -> Condition | bool:
    neutral = kind is AllOf
    parts: dict[Condition, None] = {}
    for condition in conditions:
        if isinstance(condition, bool):
            if condition is not neutral:
                return condition
        elif condition.__class__ is kind:
            parts.update(dict.fromkeys(condition.parts))
        else:
            parts[condition] = None
    if any(isinstance(part, Relation) and ~part in parts for part in parts):
        return not neutral
    if len(parts) < 2:
        return next(iter(parts), neutral)
    return _interned(kind, tuple(parts))


def _interned(kind: type[AllOf | AnyOf], parts: tuple[Condition, ...]) -> AllOf | AnyOf:
    first: Condition = parts[0]
    while isinstance(first, Junction):
        first = first.parts[0]
    table = first.form.space.relations
    key = (kind, frozenset(parts))
    found = table.get(key)
    if found is None:
        found = table[key] = kind(parts)
    return found
