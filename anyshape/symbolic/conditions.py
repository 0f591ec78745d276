"""Relations between sizes, and their conjunctions and disjunctions.

In: two dims. Out: a bool when the normal form alone decides for all integers, else a `Relation`: an interned `expr == 0`, `expr != 0`
or `expr >= 0`, divided by the common factor of its coefficients and kept in one sign, so that two spellings are one object.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Literal, NoReturn, TypeAlias

from anyshape.symbolic.atoms import Symbol
from anyshape.symbolic.expr import Dim, Expr
from anyshape.symbolic.polynomial import divide_exactly, leading, without_constant

Kind: TypeAlias = Literal["eq", "ne", "ge"]


class Relation:
    """`expr == 0`, `expr != 0` or `expr >= 0`; interned, so == is identity; `~` negates."""

    __slots__ = ("_negation", "expr", "kind")

    kind: Kind
    expr: Expr

    def __init__(self, kind: Kind, expr: Expr) -> None:
        self.kind = kind
        self.expr = expr
        self._negation: Relation | None = None

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in the relation."""
        return self.expr.symbols

    def sides(self) -> tuple[Dim, str, Dim]:
        """The relation with positive terms on both sides, such as (2*s0, ">=", s1 + 4)."""
        left, right = self._split()
        if self.kind == "ge" and left.__class__ is not Expr:
            return right, "<=", left
        return left, {"eq": "==", "ne": "!=", "ge": ">="}[self.kind], right

    def _split(self) -> tuple[Dim, Dim]:
        expr = self.expr
        positive = {m: c for m, c in expr.terms.items() if c > 0}
        left = expr.space.from_terms(positive, max(expr.constant, 0) if len(positive) else 0)
        if not positive:
            left = expr.constant
        elif expr.constant > 0 and len(positive) == len(expr.terms):
            left = expr.space.from_terms(positive, 0)
        return left, left - expr

    def __invert__(self) -> Relation:
        found = self._negation
        if found is None:
            found = self._negation = _negated(self)
            found._negation = self
        return found

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the truth of {self} is not known while compiling; ask facts.known()")

    def __repr__(self) -> str:
        left, sign, right = self.sides()
        return f"{left} {sign} {right}"


class _Junction:
    """Two or more conditions joined; interned, so == is identity."""

    __slots__ = ("parts",)

    parts: tuple[Condition, ...]
    word = ""

    def __init__(self, parts: tuple[Condition, ...]) -> None:
        self.parts = parts

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in the condition."""
        return frozenset().union(*(part.symbols for part in self.parts))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the truth of {self} is not known while compiling; ask facts.known()")

    def __repr__(self) -> str:
        texts = (f"({p})" if isinstance(p, _Junction) else str(p) for p in self.parts)
        return f" {self.word} ".join(texts)


class AllOf(_Junction):
    """True when every part is."""

    __slots__ = ()
    word = "and"

    def __invert__(self) -> Condition | bool:
        return any_of(*(~part for part in self.parts))


class AnyOf(_Junction):
    """True when at least one part is."""

    __slots__ = ()
    word = "or"

    def __invert__(self) -> Condition | bool:
        return all_of(*(~part for part in self.parts))


Condition: TypeAlias = Relation | AllOf | AnyOf


def _relation(kind: Kind, expr: Expr) -> Relation:
    table = expr.space.relations
    key = (kind, expr)
    found = table.get(key)
    if found is None:
        found = table[key] = Relation(kind, expr)
    return found  # type: ignore[return-value]


def _negated(relation: Relation) -> Relation:
    if relation.kind == "ge":
        return _relation("ge", -relation.expr - 1)  # type: ignore[arg-type]
    return _relation("ne" if relation.kind == "eq" else "eq", relation.expr)


def nonnegative(expr: Dim) -> Relation | bool:
    """expr >= 0."""
    if expr.__class__ is not Expr:
        return expr >= 0  # type: ignore[operator]
    common = gcd(*expr.terms.values())
    if common != 1:
        inside = divide_exactly(without_constant(expr), common)
        expr = inside + expr.constant // common
    return _relation("ge", expr)


def zero(expr: Dim) -> Relation | bool:
    """expr == 0."""
    if expr.__class__ is not Expr:
        return expr == 0
    common = gcd(*expr.terms.values())
    if expr.constant % common:
        return False
    if leading(expr) < 0:
        common = -common
    return _relation("eq", divide_exactly(expr, common))  # type: ignore[arg-type]


def ge(a: Dim, b: Dim) -> Relation | bool:
    """a >= b."""
    return nonnegative(a - b)


def le(a: Dim, b: Dim) -> Relation | bool:
    """a <= b."""
    return nonnegative(b - a)


def gt(a: Dim, b: Dim) -> Relation | bool:
    """a > b."""
    return nonnegative(a - b - 1)


def lt(a: Dim, b: Dim) -> Relation | bool:
    """a < b."""
    return nonnegative(b - a - 1)


def eq(a: Dim, b: Dim) -> Relation | bool:
    """a == b."""
    return zero(a - b)


def ne(a: Dim, b: Dim) -> Relation | bool:
    """a != b."""
    relation = zero(a - b)
    return (not relation) if relation.__class__ is bool else ~relation


def all_of(*conditions: Condition | bool) -> Condition | bool:
    """The conjunction; True when empty."""
    return _join(AllOf, AnyOf, conditions)


def any_of(*conditions: Condition | bool) -> Condition | bool:
    """The disjunction; False when empty."""
    return _join(AnyOf, AllOf, conditions)


def _join(
    kind: type[AllOf | AnyOf], dual: type[AllOf | AnyOf], conditions: Iterable[Condition | bool]
) -> Condition | bool:
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
    if any(part.__class__ is Relation and ~part in parts for part in parts):
        return not neutral
    if len(parts) < 2:
        return next(iter(parts), neutral)
    joined = tuple(parts)
    first = next(iter(joined[0].symbols)).space
    key = (kind, frozenset(joined))
    found = first.relations.get(key)
    if found is None:
        found = first.relations[key] = kind(joined)
    return found  # type: ignore[return-value]
