"""Integers nobody knows yet, in one normal form: what may be done with sizes.

In: symbols of a `Space` and Python ints. Out: `Expr`, a polynomial over atoms (symbol, floor
division, modulo, minimum, maximum, broadcast), interned; a constant is always a plain int.
Everything done here holds for all integers; what needs facts is in `facts.py`. Coefficients are
split by the functions below, the rest by the lines of `rules.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import gcd, inf
from typing import Any, TypeAlias

from anyshape.symbolic.atoms import (
    Atom,
    Broadcast,
    FloorDiv,
    Knowledge,
    Max,
    Min,
    Mod,
    Monomial,
    Operation,
    Policy,
    Symbol,
    quotient_of,
)
from anyshape.symbolic.polynomial import (
    LONG,
    MASK,
    ONE_SALT,
    SALT,
    Polynomial,
    content,
    divide_exactly,
    merged,
    mixed,
    negative,
    salts,
    without_constant,
)
from anyshape.symbolic.rules import ALWAYS
from anyshape.symbolic.work import Work

WIDE = 16  # operands of one operation: each is compared with each


class Expr(Polynomial):
    """An integer expression; + - * // % take Exprs and ints and give a Dim, == is identity."""

    __slots__ = ()

    def __pos__(self) -> Expr:
        return self

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: int) -> Dim:
        return mod(other, self)

    def __divmod__(self, other: Dim) -> tuple[Dim, Dim]:
        return floordiv(self, other), mod(self, other)

    def __rdivmod__(self, other: int) -> tuple[Dim, Dim]:
        return floordiv(other, self), mod(other, self)


Dim: TypeAlias = int | Expr


class Space:
    """Where the expressions of one compiled function are interned; two spaces do not mix."""

    __slots__ = (
        "_atom_count",
        "_atoms",
        "_counters",
        "_exprs",
        "_salts",
        "_symbols",
        "anyway",
        "deepest",
        "evaluators",
        "memo",
        "multiples",
        "products",
        "relations",
        "work",
    )

    def __init__(self) -> None:
        self._exprs: dict[int, Expr] = {}
        self._symbols: dict[str, Expr] = {}
        self._atoms: dict[tuple[object, ...], Atom] = {}
        self._counters: dict[str, int] = {}
        self._atom_count = 0
        self.deepest = 0  # operations nested in one another, of all atoms
        self._salts = salts()
        self.memo: dict[tuple[object, ...], Dim] = {}
        self.anyway: dict[Atom, tuple[int | None, int | None]] = {}  # ranges that need no facts
        self.evaluators: dict[Expr, Callable[[Mapping[Atom, int], dict[Atom, int]], int]] = {}
        self.multiples: dict[tuple[Expr, int], Expr] = {}
        self.products: dict[tuple[Polynomial, Dim], Dim] = {}
        self.relations: dict[tuple[object, ...], Any] = {}
        self.work = Work()

    def symbol(
        self,
        name: str,
        *,
        policy: Policy = "backed",
        knowledge: Knowledge = "entry",
        signed: bool = False,
    ) -> Expr:
        """A new symbol; ValueError if the name is taken. Not signed means a size, at least 0."""
        if name in self._symbols:
            raise ValueError(f"symbol {name} already exists in this space")
        made = self._symbols[name] = Symbol(self, name, policy, knowledge, signed).expr
        return made

    def fresh(
        self,
        prefix: str,
        *,
        policy: Policy = "backed",
        knowledge: Knowledge = "entry",
        signed: bool = False,
    ) -> Expr:
        """A new symbol with the first free name of prefix0, prefix1, ..."""
        name = self.free_name(prefix)
        return self.symbol(name, policy=policy, knowledge=knowledge, signed=signed)

    def free_name(self, prefix: str) -> str:
        """The first name of prefix0, prefix1, ... that no symbol has; never given twice."""
        count = self._counters.get(prefix, 0)
        while f"{prefix}{count}" in self._symbols:
            count += 1
        self._counters[prefix] = count + 1
        return f"{prefix}{count}"

    def named(self, name: str) -> Expr | None:
        """The symbol of that name, if there is one."""
        return self._symbols.get(name)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self._symbols.values())

    def __len__(self) -> int:
        return len(self._symbols)

    def term_count(self) -> int:
        """Of all expressions so far."""
        return sum([len(expr.terms) for expr in self._exprs.values()])

    def next_atom(self) -> tuple[int, int]:
        """The age of the next atom, and its random share of the hash (the same in every run)."""
        self._atom_count += 1
        return self._atom_count, next(self._salts)

    def digest(self, terms: Mapping[Monomial, int], constant: int) -> int:
        """The linear hash of these terms."""
        result = constant * ONE_SALT
        if len(terms) >= LONG and max(map(len, terms)) == 1:
            salts = map(SALT, chain.from_iterable(terms))
            return (result + sum(map(operator.mul, salts, terms.values()))) & MASK
        for monomial, coefficient in terms.items():
            for atom in monomial:
                coefficient = coefficient * atom.salt & MASK
            result += coefficient
        return result & MASK

    def intern(self, terms: dict[Monomial, int], constant: int, digest: int) -> Expr:
        """The expression with these terms, which must have no zero and must not change any more."""
        table = self._exprs
        key = digest
        found = table.get(key)
        while found is not None:
            if found.constant == constant and (found.terms is terms or found.terms == terms):
                return found
            key += 1
            found = table.get(key)
        made = _new(Expr)
        made.space = self
        made.index = len(table)
        made.terms = terms
        made.least = len(terms)
        made.constant = constant
        made.digest = digest
        made.atom = made.inside = made.parts = made.measured = None
        table[key] = made
        return made

    def intern_sum(self, parts: tuple[Expr, Expr, int], constant: int, digest: int) -> Expr:
        """The expression parts[0] + parts[2] * parts[1], whose first part is long."""
        found = self._exprs.get(digest)
        if found is not None:
            if found.parts == parts and found.constant == constant:
                return found
            long, short, sign = parts
            return self.intern(merged(long.terms.copy(), short.terms, sign), constant, digest)
        made = self._exprs[digest] = _new(Expr)
        made.space = self
        made.index = len(self._exprs)
        made.least = parts[0].least - len(parts[1].terms)
        made.constant = constant
        made.digest = digest
        made.parts = parts
        made.atom = made.inside = made.measured = None
        return made

    def from_terms(self, terms: dict[Monomial, int], constant: int) -> Dim:
        """The expression with these terms, or the constant if there are none."""
        return self.intern(terms, constant, self.digest(terms, constant)) if terms else constant

    def term(self, monomial: Monomial, coefficient: int = 1) -> Expr:
        """The monomial times a coefficient that is not 0."""
        terms = {monomial: coefficient}
        return self.intern(terms, 0, self.digest(terms, 0))

    def operation(self, kind: type[Operation], *operands: Dim) -> Expr:
        """The one atom of this kind with these operands, as an expression."""
        key = (kind, operands)
        found = self._atoms.get(key)
        if found is None:
            found = self._atoms[key] = kind(self, operands)
        return found.expr


_new = object.__new__


def total(items: Iterable[Dim]) -> Dim:
    """The sum of all items, in time linear in their terms."""
    terms: dict[Monomial, int] = {}
    constant = digest = 0
    space: Space | None = None
    for item in items:
        if isinstance(item, int):
            constant += item
            digest += item * ONE_SALT
            continue
        if space is not item.space:
            if space is not None:
                raise ValueError(f"{item} belongs to another space than the sum")
            space = item.space
        constant += item.constant
        digest += item.digest
        for monomial, coefficient in item.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
    if space is None:
        return int(constant)
    if 0 in terms.values():
        terms = {monomial: c for monomial, c in terms.items() if c}
    return space.intern(terms, constant, digest & MASK) if terms else constant


def symbols_of(dim: Dim) -> frozenset[Symbol]:
    """The symbols of a dim; none for an int."""
    return frozenset() if isinstance(dim, int) else dim.symbols


def space_of(*dims: Dim) -> Space:
    """The space of the dims that are not ints; ValueError if they have two."""
    first: Expr | None = None
    for dim in dims:
        if dim.__class__ is Expr:
            if first is None:
                first = dim
            elif dim.space is not first.space:
                mixed(first, dim)
        elif not isinstance(dim, int):
            raise TypeError(f"a size must be an int or an Expr, not {type(dim).__name__}")
    if first is None:
        raise TypeError("no symbolic size among the operands")
    return first.space


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b rounded down; ZeroDivisionError if b is the constant 0."""
    if a.__class__ is not Expr and b.__class__ is not Expr:
        return a // b
    space = space_of(a, b)
    key = (FloorDiv, a, b)
    found = space.memo.get(key)
    if found is None:
        found = space.memo[key] = _divided(space, FloorDiv, a, b)
    return found


def mod(a: Dim, b: Dim) -> Dim:
    """a % b with the sign of b; ZeroDivisionError if b is the constant 0."""
    if a.__class__ is not Expr and b.__class__ is not Expr:
        return a % b
    space = space_of(a, b)
    key = (Mod, a, b)
    found = space.memo.get(key)
    if found is None:
        found = space.memo[key] = _divided(space, Mod, a, b)
    return found


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up; ZeroDivisionError if b is the constant 0."""
    return -floordiv(-a, b)


def _divided(space: Space, kind: type[FloorDiv | Mod], a: Dim, b: Dim) -> Dim:
    """The normal form of a // b or a % b: no common factor, the divisor in one sign."""
    if not isinstance(b, int):
        common = gcd(content(a), content(b)) * (-1 if negative(b) else 1)
        found = _ruled(space, kind, divide_exactly(a, common), divide_exactly(b, common))
        return found if kind is FloorDiv else common * found
    if b == 0:
        raise ZeroDivisionError(f"{a} {kind.word} 0")
    assert not isinstance(a, int)
    if kind is FloorDiv:
        return _floordiv_by_constant(space, a, b) if b > 0 else _floordiv_by_constant(space, -a, -b)
    return _mod_by_constant(space, a, b) if b > 0 else -_mod_by_constant(space, -a, -b)


def _floordiv_by_constant(space: Space, a: Expr, b: int) -> Dim:
    """(b*x + y) // b => x + y // b, and (-x) // b => -((x + b - 1) // b), so that signs are one."""
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in a.terms.items():
        quotient = coefficient // b if coefficient >= 0 else -(-coefficient // b)
        if quotient:
            whole[monomial] = quotient
        if coefficient != quotient * b:
            rest[monomial] = coefficient - quotient * b
    outside_constant, constant = divmod(a.constant, b)
    outside = space.from_terms(whole, outside_constant)
    if not rest:
        return outside
    common = gcd(b, *rest.values())
    inside = space.from_terms({m: c // common for m, c in rest.items()}, constant // common)
    divisor = b // common
    if negative(inside):
        return outside - _ruled(space, FloorDiv, divisor - 1 - inside, divisor)
    return outside + _ruled(space, FloorDiv, inside, divisor)


def _mod_by_constant(space: Space, a: Expr, b: int) -> Dim:
    """(b*x + y) % b => y % b, and (c*x + k) % (c*d) => c*(x % d) + k if 0 <= k < c."""
    rest = {monomial: c % b for monomial, c in a.terms.items() if c % b}
    constant = a.constant % b
    if not rest:
        return constant
    common = gcd(b, *rest.values())
    inside = space.from_terms({m: c // common for m, c in rest.items()}, constant // common)
    return common * _ruled(space, Mod, inside, b // common) + constant % common


def _ruled(space: Space, kind: type[FloorDiv | Mod], a: Dim, b: Dim) -> Dim:
    found = ALWAYS.rewrite(kind.word, (a, b), ARITHMETIC, compare_ints)
    return space.operation(kind, a, b) if found is None else found


def minimum(*items: Dim) -> Dim:
    """The smallest of one or more dims."""
    return _extremum(Min, min, items)


def maximum(*items: Dim) -> Dim:
    """The largest of one or more dims."""
    return _extremum(Max, max, items)


def _opened(kind: type[Operation], items: Iterable[Dim]) -> tuple[dict[Expr, None], list[int]]:
    """The operands, nested ones of the same kind opened while there are few: exprs without repeats,
    and ints."""
    exprs: dict[Expr, None] = {}
    ints: list[int] = []
    waiting = [*items]
    count = len(waiting)
    for item in waiting:  # grows while it is read
        if not isinstance(item, Expr):
            ints.append(operator.index(item))
            continue
        nested = _nested(kind, item)
        if nested is None or count + len(nested) - 1 > WIDE:
            exprs[item] = None
        else:
            waiting += nested
            count += len(nested) - 1
    return exprs, ints


def _nested(kind: type[Operation], item: Expr) -> Sequence[Dim] | None:
    """The operands if the item is an atom of this kind; of 2*min(x, y) + 1 they are 2*x + 1, ..."""
    if isinstance(item.atom, kind):
        return item.atom.args
    if kind is Broadcast or len(item.terms) != 1:
        return None
    ((monomial, scale),) = item.terms.items()
    atom = monomial[0]
    if scale < 0 or len(monomial) > 1 or not isinstance(atom, kind):
        return None
    return [scale * arg + item.constant for arg in atom.args]


def _extremum(kind: type[Min | Max], pick: Callable[..., int], items: tuple[Dim, ...]) -> Dim:
    exprs, ints = _opened(kind, items)
    if not exprs:
        return pick(ints)
    space = space_of(*exprs)
    key = (kind, items)
    found = space.memo.get(key)
    if found is None:
        if len(exprs) > WIDE:
            found = _in_parts(kind, pick, exprs, ints)
        else:
            found = _chosen(space, kind, pick, exprs, ints)
        space.memo[key] = found
    return found


def _in_parts(
    kind: type[Min | Max], pick: Callable[..., int], exprs: Iterable[Expr], ints: Sequence[int]
) -> Dim:
    """The extremum of those of a few operands each."""
    ordered = sorted(exprs, key=_index)
    starts = range(0, len(ordered), WIDE)
    parts = [_extremum(kind, pick, tuple(ordered[at : at + WIDE])) for at in starts]
    return _extremum(kind, pick, (*parts, *ints))


def _chosen(
    space: Space,
    kind: type[Min | Max],
    pick: Callable[..., int],
    exprs: Iterable[Expr],
    ints: Sequence[int],
) -> Dim:
    """Keeps one of x + 1 and x + 3; a common factor and the least constant go outside."""
    best: dict[Expr, int] = {}
    for expr in exprs:
        base = without_constant(expr)
        best[base] = pick(best[base], expr.constant) if base in best else expr.constant
    shift = min(best.values())
    operands: list[Dim] = [base + (constant - shift) for base, constant in best.items()]
    if ints:
        operands.append(pick(ints) - shift)
    common = gcd(*map(content, operands))
    found = _joined(space, kind, [divide_exactly(x, common) for x in operands])
    return common * found + shift


def _joined(space: Space, kind: type[Operation], operands: list[Dim]) -> Dim:
    """The atom of these operands, after rules have joined what two of them can be joined to."""
    rich = any(ARITHMETIC.operations(x) for x in operands)  # no rule is about symbols alone
    for position, x in enumerate(operands if rich else ()):
        for y in operands[:position] + operands[position + 1 :]:
            found = ALWAYS.rewrite(kind.word, (x, y), ARITHMETIC, compare_ints)
            if found is not None:
                others = [z for z in operands if z is not x and z is not y]
                return BUILDERS[kind.word](found, *others)
    return (
        operands[0] if len(operands) == 1 else space.operation(kind, *sorted(operands, key=_index))
    )


def _index(dim: Dim) -> float:
    """Sorts expressions by age, in one order for one space, and ints after them."""
    return inf if isinstance(dim, int) else dim.index


def broadcast(*items: Dim) -> Dim:
    """The size that these sizes broadcast to; ValueError if two constants cannot.

    With a constant other than 1 the answer is that constant: any other operand is 1 or equal to it,
    or the broadcast is an error.
    """
    exprs, ints = _opened(Broadcast, items)
    constants = {value for value in ints if value != 1}
    if len(constants) > 1:
        raise ValueError(f"sizes {sorted(constants)} cannot be broadcast together")
    if constants:
        return constants.pop()
    operands = sorted(exprs, key=_index)
    if len(operands) < 2:
        return operands[0] if operands else 1
    return space_of(*operands).operation(Broadcast, *operands)


def divide(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    """(q, r) with a == q * b + r and no term of r divisible by b's first: polynomial division."""
    (first, scale), *others = b.ordered_terms()
    quotient: list[Dim] = []
    rest: list[Dim] = []
    if not others and not b.constant and not isinstance(a, int):
        for monomial, coefficient in a.terms.items():  # each by itself
            over = quotient_of(monomial, first)
            if over is None or coefficient % scale:
                rest.append(a.space.term(monomial, coefficient))
            else:
                factor = coefficient // scale
                quotient.append(a.space.term(over, factor) if over else factor)
        return total(quotient), total([*rest, a.constant])
    while not isinstance(a, int):
        monomial, coefficient = a.ordered_terms()[0]
        over = quotient_of(monomial, first)
        if over is None or coefficient % scale:
            term = a.space.term(monomial, coefficient)
            rest.append(term)
            a = a - term
            continue
        factor = coefficient // scale
        part: Dim = a.space.term(over, factor) if over else factor
        quotient.append(part)
        a = a - part * b
    return total(quotient), total([*rest, a])


class Arithmetic:
    """How rules read and build expressions (`anyshape.rewrite.Language`)."""

    def readings(self, op: str, term: Dim) -> Iterable[tuple[Dim, ...]]:
        """Sums as (one term, the rest), products as (coefficient, the rest), atoms as they are."""
        if isinstance(term, int):
            return [(0, term)] if op == "+" else [(term, 1)] if op == "*" else []
        if op == "+":
            return self._sums(term)
        if op == "*":
            common = content(term) * (-1 if negative(term) else 1)
            return [(common, divide_exactly(term, common))]
        atom = term.atom
        if atom is None or atom.word != op:
            return []
        if op in ("//", "%"):
            return [atom.args]
        return self._pairs(op, atom.args)

    def _sums(self, term: Expr) -> Iterator[tuple[Dim, Dim]]:
        for monomial, coefficient in term.ordered_terms():
            one = term.space.term(monomial, coefficient)
            yield one, term - one

    def _pairs(self, op: str, args: tuple[Dim, ...]) -> Iterator[tuple[Dim, Dim]]:
        for position, arg in enumerate(args):
            yield arg, BUILDERS[op](*args[:position], *args[position + 1 :])

    def build(self, op: str, operands: Sequence[Dim]) -> Dim:
        """The operation on these operands."""
        return BUILDERS[op](*operands)

    def literal(self, value: int) -> Dim:
        """A constant."""
        return value

    def is_constant(self, term: Dim) -> bool:
        """Ints are constants."""
        return isinstance(term, int)

    def operations(self, term: Dim) -> Iterable[str]:
        """The words of the atoms in the term's monomials, without the symbols."""
        if isinstance(term, int):
            return ()
        return [atom.word for monomial in term.terms for atom in monomial if atom.word]


ARITHMETIC = Arithmetic()

BUILDERS: Mapping[str, Callable[..., Dim]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": floordiv,
    "%": mod,
    "min": minimum,
    "max": maximum,
    "broadcast": broadcast,
}

COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare_ints(op: str, operands: Sequence[Dim]) -> bool:
    """Decides a rule's condition between constants."""
    a, b = operands
    return isinstance(a, int) and isinstance(b, int) and COMPARISONS[op](a, b)
