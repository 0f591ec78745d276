"""What is known about symbols: a growing knowledge base with three answers, True, False and None."""

from __future__ import annotations

from math import gcd

from anyshape.symbolic.atoms import Atom, Broadcast, FloorDiv, Max, Min, Mod, Symbol
from anyshape.symbolic.conditions import (
    AllOf,
    AnyOf,
    Condition,
    Relation,
    eq,
    ge,
    nonnegative,
    zero,
)
from anyshape.symbolic.expr import (
    Dim,
    Expr,
    Space,
    broadcast,
    floordiv,
    maximum,
    minimum,
    mod,
    total,
)

Bounds = tuple[int | None, int | None]


class Contradiction(ValueError):
    """A condition was assumed that the facts refute."""


class Facts:
    """Facts about the symbols of a space. They only grow: True and False hold for ever."""

    def __init__(self, space: Space, parent: Facts | None = None) -> None:
        self.space = space
        self._list: list[tuple[Condition, object]] = list(parent._list) if parent else []
        self._true: dict[Condition, object] = dict(parent._true) if parent else {}
        self._ranges: dict[Expr, Bounds] = dict(parent._ranges) if parent else {}
        self._values: dict[Symbol, Dim] = dict(parent._values) if parent else {}

    def fork(self) -> Facts:
        """A child that knows all this and may learn more without changing its parent."""
        return Facts(self.space, self)

    def all(self) -> list[tuple[Condition, object]]:
        """Every fact that was assumed, with its reason."""
        return list(self._list)

    def assume(self, condition: Condition | bool, reason: object = None) -> None:
        """Learns a condition; Contradiction if the facts refute it."""
        answer = self.known(condition)
        if answer is False:
            raise Contradiction(f"{condition} contradicts what is known")
        if answer is True:
            return
        self._list.append((condition, reason))
        self._learn(condition, reason)

    def _learn(self, condition: Condition, reason: object) -> None:
        self._true[condition] = reason
        if isinstance(condition, AllOf):
            for part in condition.parts:
                self._learn(part, reason)
        elif isinstance(condition, Relation):
            expr = self.simplify(condition.expr)
            if expr.__class__ is not Expr:
                return
            if condition.kind == "eq":
                self._equate(expr)
            elif condition.kind == "ge":
                self._narrow(expr)

    def _equate(self, expr: Expr) -> None:
        for monomial, c in reversed(expr.ordered_terms()):
            symbol = monomial[0]
            if len(monomial) == 1 and abs(c) == 1 and symbol.__class__ is Symbol:
                value = symbol.expr - expr if c == 1 else symbol.expr + expr
                if symbol not in (value.symbols if value.__class__ is Expr else ()):
                    self._values[symbol] = value
                    return
        self._narrow(expr)
        self._narrow(-expr)

    def _narrow(self, expr: Expr) -> None:
        form = expr - expr.constant
        lo, hi = self._ranges.get(form, (None, None))
        self._ranges[form] = (_max(lo, -expr.constant), hi)
        lo, hi = self._ranges.get(-form, (None, None))
        self._ranges[-form] = (lo, _min(hi, expr.constant))

    def known(self, condition: Condition | bool) -> bool | None:
        """True or False if the facts decide, else None."""
        match condition:
            case bool():
                return condition
            case AllOf():
                answers = [self.known(part) for part in condition.parts]
                if condition in self._true or all(answers):
                    return True
                return False if False in answers else None
            case AnyOf():
                answers = [self.known(part) for part in condition.parts]
                if condition in self._true or True in answers:
                    return True
                return None if None in answers else False
        if condition in self._true:
            return True
        if ~condition in self._true:
            return False
        expr = self.simplify(condition.expr)
        lo, hi = self.bounds(expr)
        if condition.kind == "ge":
            if lo is not None and lo >= 0:
                return True
            return False if hi is not None and hi < 0 else None
        same = None
        if lo == hi == 0:
            same = True
        elif (lo is not None and lo > 0) or (hi is not None and hi < 0):
            same = False
        return same if condition.kind == "eq" or same is None else not same

    def why(self, condition: Condition | bool) -> list[object]:
        """The reasons of the facts that decide the condition."""
        if isinstance(condition, bool):
            return []
        return [
            reason for fact, reason in self._list if not fact.symbols.isdisjoint(condition.symbols)
        ]

    def simplify(self, dim: Dim) -> Dim:
        """The same value in a simpler form under these facts."""
        if dim.__class__ is not Expr:
            return dim
        parts: list[Dim] = [dim.constant]
        for monomial, c in dim.terms.items():
            product: Dim = c
            for atom in monomial:
                product = self._atom(atom) * product
            parts.append(product)
        result = total(parts)
        return result

    def _atom(self, atom: Atom) -> Dim:
        if isinstance(atom, Symbol):
            value = self._values.get(atom)
            return atom.expr if value is None else self.simplify(value)
        args = [self.simplify(arg) for arg in atom.args]
        match atom:
            case FloorDiv():
                return self._floordiv(*args)
            case Mod():
                a, b = args
                if b.__class__ is not Expr and self.divisor(a) % b == 0:
                    return 0
                return mod(a, b)
            case Min():
                return minimum(*self._extreme(args, 1))
            case Max():
                return maximum(*self._extreme(args, -1))
            case Broadcast():
                return broadcast(*args)
        return atom.expr

    def _floordiv(self, a: Dim, b: Dim) -> Dim:
        return floordiv(a, b)

    def _extreme(self, args: list[Dim], sign: int) -> list[Dim]:
        kept: list[Dim] = []
        for position, arg in enumerate(args):
            others = kept + args[position + 1 :]
            if not any(self.known(nonnegative(sign * (arg - other))) for other in others):
                kept.append(arg)
        return kept

    def bounds(self, dim: Dim) -> Bounds:
        """The least and greatest value, None where unbounded."""
        if dim.__class__ is not Expr:
            return dim, dim
        lo: int | None = dim.constant
        hi: int | None = dim.constant
        for monomial, c in dim.terms.items():
            low, high = self._monomial(monomial)
            if c < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + c * low
            hi = None if hi is None or high is None else hi + c * high
        form = dim - dim.constant
        low, high = self._ranges.get(form, (None, None))
        if low is not None:
            lo = _max(lo, low + dim.constant)
        if high is not None:
            hi = _min(hi, high + dim.constant)
        return lo, hi

    def _monomial(self, monomial: tuple[Atom, ...]) -> Bounds:
        lo, hi = self._atom_bounds(monomial[0])
        for atom in monomial[1:]:
            low, high = self._atom_bounds(atom)
            if lo is None or low is None or lo < 0 or low < 0:
                return None, None
            lo, hi = lo * low, None if hi is None or high is None else hi * high
        return lo, hi

    def _atom_bounds(self, atom: Atom) -> Bounds:
        lo, hi = self._ranges.get(atom.expr, (None, None))
        match atom:
            case Symbol():
                return (lo if atom.signed else _max(lo, 0)), hi
            case Mod() if atom.args[1].__class__ is not Expr:
                return _max(lo, 0), _min(hi, atom.args[1] - 1)
            case FloorDiv() if atom.args[1].__class__ is not Expr:
                low, high = self.bounds(atom.args[0])
                if low is not None:
                    lo = _max(lo, low // atom.args[1])
                if high is not None:
                    hi = _min(hi, high // atom.args[1])
            case Min():
                ranges = [self.bounds(arg) for arg in atom.args]
                for _, high in ranges:
                    hi = _min(hi, high)
                if all(low is not None for low, _ in ranges):
                    lo = _max(lo, min(low for low, _ in ranges))
            case Max():
                ranges = [self.bounds(arg) for arg in atom.args]
                for low, _ in ranges:
                    lo = _max(lo, low)
                if all(high is not None for _, high in ranges):
                    hi = _min(hi, max(high for _, high in ranges))
            case Broadcast():
                ranges = [self.bounds(arg) for arg in atom.args]
                if all(low is not None for low, _ in ranges):
                    lo = _max(lo, min(low for low, _ in ranges))
                if all(high is not None for _, high in ranges):
                    hi = _min(hi, max(high for _, high in ranges))
        return lo, hi

    def divisor(self, dim: Dim) -> int:
        """The largest integer known to divide it; 0 has every divisor and answers 0."""
        if dim.__class__ is not Expr:
            return abs(dim)
        result = abs(dim.constant)
        for monomial, c in dim.terms.items():
            product = c
            for atom in monomial:
                product *= self._atom_divisor(atom)
            result = gcd(result, product)
        return result

    def _atom_divisor(self, atom: Atom) -> int:
        result = 1
        for fact in self._true:
            if isinstance(fact, Relation) and fact.kind == "eq" and fact.expr.atom is not None:
                known = fact.expr.atom
                if (
                    isinstance(known, Mod)
                    and known.args[0] is atom.expr
                    and isinstance(known.args[1], int)
                ):
                    result = max(result, known.args[1])
        return result


def _max(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _min(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


__all__ = ["Contradiction", "Facts", "eq", "ge", "zero"]
