"""Integers nobody knows yet, as hash-consed polynomials.

In: named symbols and Python ints. Out: `Expr`, a sum of monomials over atoms (symbol, floor division, modulo, minimum, maximum,
broadcast) with integer coefficients, kept in one normal form and interned in a `Space`, so that equality is identity. A constant is
always a plain int. Every rule applied here holds for all integers; what needs facts lives in `facts.py`, the rules in `rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import gcd
from typing import ClassVar, Literal, NoReturn, TypeAlias

from anyshape.symbolic.text import PLAIN

Policy: TypeAlias = Literal["backed", "unbacked"]
Knowledge: TypeAlias = Literal["entry", "midrun"]

MASK = (1 << 61) - 1
ONE_SALT = 0x9E3779B97F4A7C1
"""The hash of an expression is linear: the sum of coefficient * hash(monomial), so a sum's hash is the sum of the hashes."""


class Atom:
    """What a monomial is a product of: a symbol, or an operation that is not polynomial."""

    __slots__ = ("expr", "index", "space", "symbols", "unit")

    word: ClassVar[str] = ""
    space: Space
    index: int
    unit: Monomial
    expr: Expr
    symbols: frozenset[Symbol]

    def _enter(self, space: Space, symbols: frozenset[Symbol]) -> None:
        self.space = space
        self.index = space.next_atom()
        self.unit = (self,)
        self.symbols = symbols
        self.expr = space.intern({self.unit: 1}, 0, hash(self.unit) & MASK)

    @property
    def args(self) -> tuple[Dim, ...]:
        """The operands; empty for a symbol."""
        return ()

    def __repr__(self) -> str:
        return str(self.expr)


Monomial: TypeAlias = tuple[Atom, ...]
"""A product of atoms, repeated for a power, sorted by age."""


class Symbol(Atom):
    """A named unknown integer. `signed` False says it is a size, hence at least 0."""

    __slots__ = ("knowledge", "name", "policy", "signed")

    def __init__(
        self, space: Space, name: str, policy: Policy, knowledge: Knowledge, signed: bool
    ) -> None:
        self.name = name
        self.policy = policy
        self.knowledge = knowledge
        self.signed = signed
        self._enter(space, frozenset((self,)))

    def __repr__(self) -> str:
        return self.name


class Quotient(Atom):
    """A floor division or a modulo that no rule could take apart."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, space: Space, numerator: Dim, denominator: Dim) -> None:
        self.numerator = numerator
        self.denominator = denominator
        self._enter(space, symbols_of(numerator) | symbols_of(denominator))

    @property
    def args(self) -> tuple[Dim, ...]:
        return (self.numerator, self.denominator)


class FloorDiv(Quotient):
    """numerator // denominator, rounded down as Python does."""

    __slots__ = ()
    word = "//"


class Mod(Quotient):
    """numerator % denominator, with the sign of the denominator as in Python."""

    __slots__ = ()
    word = "%"


class Lattice(Atom):
    """A commutative, associative, idempotent choice among two or more operands."""

    __slots__ = ("operands",)

    def __init__(self, space: Space, operands: tuple[Dim, ...]) -> None:
        self.operands = operands
        self._enter(space, frozenset().union(*(symbols_of(x) for x in operands)))

    @property
    def args(self) -> tuple[Dim, ...]:
        return self.operands


class Min(Lattice):
    """The smallest operand."""

    __slots__ = ()
    word = "min"


class Max(Lattice):
    """The largest operand."""

    __slots__ = ()
    word = "max"


class Broadcast(Lattice):
    """The size that operands broadcast to: 1 if all are 1, else the one that is not 1 (so 0 with 1 is 0)."""

    __slots__ = ()
    word = "broadcast"


class Expr:
    """A polynomial with integer coefficients over atoms; the same value in the same space is the same object.

    `terms` maps monomials to coefficients, without the constant part; it is never empty and never changed.
    """

    __slots__ = ("_symbols", "constant", "digest", "index", "space", "symbol", "terms")

    space: Space
    index: int
    constant: int
    symbol: Symbol | None
    terms: dict[Monomial, int]
    digest: int
    _symbols: frozenset[Symbol] | None

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in the expression, those inside divisions and the like included."""
        found = self._symbols
        if found is None:
            atoms = {atom for monomial in self.terms for atom in monomial}
            found = frozenset().union(*(atom.symbols for atom in atoms))
            self._symbols = found
        return found

    @property
    def atom(self) -> Atom | None:
        """The atom that this expression is, if it is nothing more than one."""
        if self.constant or len(self.terms) != 1:
            return None
        (monomial, coefficient), *_ = self.terms.items()
        return monomial[0] if coefficient == 1 and len(monomial) == 1 else None

    def ordered_terms(self) -> list[tuple[Monomial, int]]:
        """The terms, the highest degree first and then the oldest atoms: the same in every run."""
        if len(self.terms) == 1:
            return list(self.terms.items())
        return sorted(self.terms.items(), key=_term_order)

    def __add__(self, other: Dim) -> Dim:
        if other.__class__ is Expr:
            return _combine(self, other, 1)
        if not isinstance(other, int):
            return NotImplemented
        return self._shifted(int(other)) if other else self

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        if other.__class__ is Expr:
            return _combine(self, other, -1)
        if not isinstance(other, int):
            return NotImplemented
        return self._shifted(-other) if other else self

    def __rsub__(self, other: int) -> Dim:
        return self._scaled(-1) + other

    def __neg__(self) -> Expr:
        return self._scaled(-1)

    def __pos__(self) -> Expr:
        return self

    def __mul__(self, other: Dim) -> Dim:
        if other.__class__ is Expr:
            return _multiply(self, other)
        if not isinstance(other, int):
            return NotImplemented
        if other == 1:
            return self
        return self._scaled(int(other)) if other else 0

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Dim:
        if not isinstance(exponent, int) or exponent < 0:
            return NotImplemented
        result: Dim = 1
        for _ in range(exponent):
            result = self * result
        return result

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

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the truth of {self} is not known while compiling; ask facts.known(ne(x, 0))"
        )

    def _refuse_order(self, other: object) -> NoReturn:
        raise TypeError(
            f"{self} has no order yet; build a relation with lt, le, gt or ge and ask facts.known()"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse_order

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __repr__(self) -> str:
        return PLAIN.dim(self)

    def _shifted(self, constant: int) -> Expr:
        return self.space.intern(
            self.terms, self.constant + constant, (self.digest + constant * ONE_SALT) & MASK
        )

    def _scaled(self, factor: int) -> Expr:
        terms = {monomial: c * factor for monomial, c in self.terms.items()}
        return self.space.intern(terms, self.constant * factor, (self.digest * factor) & MASK)


Dim: TypeAlias = int | Expr


class Space:
    """Where the expressions of one compiled function are interned; two spaces do not mix."""

    __slots__ = ("_atoms", "_counters", "_exprs", "memo", "relations", "_symbols")

    def __init__(self) -> None:
        self._exprs: dict[int, Expr] = {}
        self._symbols: dict[str, Expr] = {}
        self._atoms: dict[tuple[object, ...], Atom] = {}
        self.memo: dict[tuple[object, ...], Dim] = {}
        self.relations: dict[object, object] = {}
        self._counters: dict[str, int] = {}

    def symbol(
        self,
        name: str,
        *,
        policy: Policy = "backed",
        knowledge: Knowledge = "entry",
        signed: bool = False,
    ) -> Expr:
        """A new symbol; ValueError if the name is taken. `signed` False: a size, at least 0."""
        if name in self._symbols:
            raise ValueError(f"symbol {name} already exists in this space")
        made = Symbol(self, name, policy, knowledge, signed).expr
        self._symbols[name] = made
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
        count = self._counters.get(prefix, 0)
        while f"{prefix}{count}" in self._symbols:
            count += 1
        self._counters[prefix] = count + 1
        name = f"{prefix}{count}"
        return self.symbol(name, policy=policy, knowledge=knowledge, signed=signed)

    def named(self, name: str) -> Expr | None:
        """The symbol of that name, if there is one."""
        return self._symbols.get(name)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self._symbols.values())

    def next_atom(self) -> int:
        count = self._counters.get("", 0)
        self._counters[""] = count + 1
        return count

    def intern(self, terms: dict[Monomial, int], constant: int, digest: int) -> Expr:
        """The one expression with these terms (not empty, no zero coefficients, owned by the callee)."""
        table = self._exprs
        found = table.get(digest)
        key = digest
        while found is not None:
            if found.constant == constant and found.terms == terms:
                return found
            key += 1
            found = table.get(key)
        made = _new(Expr)
        made.space = self
        made.index = len(table)
        made.terms = terms
        made.constant = constant
        made.digest = digest
        made._symbols = None
        made.symbol = _only_symbol(terms) if not constant and len(terms) == 1 else None
        table[key] = made
        return made

    def from_terms(self, terms: dict[Monomial, int], constant: int) -> Dim:
        if not terms:
            return constant
        digest = constant * ONE_SALT
        for monomial, coefficient in terms.items():
            digest += coefficient * hash(monomial)
        return self.intern(terms, constant, digest & MASK)

    def make(self, kind: type[Atom], *args: Dim | tuple[Dim, ...]) -> Expr:
        key = (kind, *args)
        found = self._atoms.get(key)
        if found is None:
            found = kind(self, *args)  # type: ignore[call-arg]
            self._atoms[key] = found
        return found.expr


_new = object.__new__


def _only_symbol(terms: dict[Monomial, int]) -> Symbol | None:
    for monomial, coefficient in terms.items():
        if coefficient == 1 and len(monomial) == 1 and monomial[0].__class__ is Symbol:
            return monomial[0]  # type: ignore[return-value]
    return None


def _term_order(term: tuple[Monomial, int]) -> tuple[int, ...]:
    monomial = term[0]
    return (-len(monomial), *[atom.index for atom in monomial])


def _age(atom: Atom) -> int:
    return atom.index


def _mixed(a: Expr, b: Expr) -> NoReturn:
    raise ValueError(f"{a} and {b} belong to two spaces and cannot be combined")


def _combine(a: Expr, b: Expr, sign: int) -> Dim:
    """a + sign * b."""
    space = a.space
    if b.space is not space:
        _mixed(a, b)
    digest = (a.digest + sign * b.digest) & MASK
    constant = a.constant + sign * b.constant
    if sign == 1 and len(a.terms) < len(b.terms):
        a, b = b, a
    terms = a.terms.copy()
    for monomial, coefficient in b.terms.items():
        value = terms.get(monomial, 0) + sign * coefficient
        if value:
            terms[monomial] = value
        else:
            del terms[monomial]
    return space.intern(terms, constant, digest) if terms else constant


def product_of(a: Monomial, b: Monomial) -> Monomial:
    """The monomial a * b."""
    if len(a) == 1 and len(b) == 1:
        return a + b if a[0].index <= b[0].index else b + a
    return tuple(sorted(a + b, key=_age))


def _multiply(a: Expr, b: Expr) -> Dim:
    if b.space is not a.space:
        _mixed(a, b)
    terms: dict[Monomial, int] = {}
    for left, x in a.terms.items():
        for right, y in b.terms.items():
            monomial = product_of(left, right)
            terms[monomial] = terms.get(monomial, 0) + x * y
    if b.constant:
        for left, x in a.terms.items():
            terms[left] = terms.get(left, 0) + x * b.constant
    if a.constant:
        for right, y in b.terms.items():
            terms[right] = terms.get(right, 0) + y * a.constant
    terms = {monomial: c for monomial, c in terms.items() if c}
    return a.space.from_terms(terms, a.constant * b.constant)


def total(items: Iterable[Dim]) -> Dim:
    """The sum of all items, in time linear in their terms."""
    terms: dict[Monomial, int] = {}
    constant = digest = 0
    space: Space | None = None
    for item in items:
        if item.__class__ is not Expr:
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
    terms = {monomial: c for monomial, c in terms.items() if c}
    return space.intern(terms, constant, digest & MASK) if terms and space else int(constant)


def symbols_of(dim: Dim) -> frozenset[Symbol]:
    """The symbols of a dimension; none for an int."""
    return dim.symbols if dim.__class__ is Expr else frozenset()


def content(dim: Dim) -> int:
    """The greatest common divisor of all coefficients and the constant."""
    if dim.__class__ is not Expr:
        return abs(dim)
    return gcd(dim.constant, *dim.terms.values())


def leading(dim: Dim) -> int:
    """The coefficient that decides the sign in which an expression is kept."""
    if dim.__class__ is not Expr:
        return dim
    terms = dim.terms
    if len(terms) == 1:
        return next(iter(terms.values()))
    return min(terms.items(), key=_term_order)[1]


def divide_exactly(dim: Dim, by: int) -> Dim:
    """dim / by, where by divides every coefficient."""
    if by == 1:
        return dim
    if dim.__class__ is not Expr:
        return dim // by
    terms = {monomial: c // by for monomial, c in dim.terms.items()}
    return dim.space.from_terms(terms, dim.constant // by)


def space_of(*dims: Dim) -> Space:
    """The space of the dims that are not ints; ValueError if they have two."""
    first: Expr | None = None
    for dim in dims:
        if dim.__class__ is Expr:
            if first is None:
                first = dim
            elif dim.space is not first.space:
                _mixed(first, dim)
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
        found = space.memo[key] = _floordiv(space, a, b)
    return found


def mod(a: Dim, b: Dim) -> Dim:
    """a % b with the sign of b; ZeroDivisionError if b is the constant 0."""
    if a.__class__ is not Expr and b.__class__ is not Expr:
        return a % b
    space = space_of(a, b)
    key = (Mod, a, b)
    found = space.memo.get(key)
    if found is None:
        found = space.memo[key] = _mod(space, a, b)
    return found


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a // b rounded up."""
    return -floordiv(-a, b)


def _floordiv(space: Space, a: Dim, b: Dim) -> Dim:
    if b.__class__ is not Expr:
        if b == 0:
            raise ZeroDivisionError(f"{a} // 0")
        return _floordiv_by_constant(space, -a, -b) if b < 0 else _floordiv_by_constant(space, a, b)
    common = gcd(content(a), content(b)) * (-1 if leading(b) < 0 else 1)
    return space.make(FloorDiv, divide_exactly(a, common), divide_exactly(b, common))


def _floordiv_by_constant(space: Space, a: Expr, b: int) -> Dim:
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in a.terms.items():
        quotient = coefficient // b if coefficient >= 0 else -(-coefficient // b)
        if quotient:
            whole[monomial] = quotient
        if coefficient != quotient * b:
            rest[monomial] = coefficient - quotient * b
    quotient, constant = divmod(a.constant, b)
    outside = space.from_terms(whole, quotient)
    if not rest:
        return outside
    common = gcd(b, *rest.values())
    inside = space.from_terms({m: c // common for m, c in rest.items()}, constant // common)
    divisor = b // common
    if leading(inside) < 0:
        flipped = -inside + (divisor - 1)
        return outside - space.make(FloorDiv, flipped, divisor)
    return outside + space.make(FloorDiv, inside, divisor)


def _mod(space: Space, a: Dim, b: Dim) -> Dim:
    if b.__class__ is not Expr:
        if b == 0:
            raise ZeroDivisionError(f"{a} % 0")
        return -_mod_by_constant(space, -a, -b) if b < 0 else _mod_by_constant(space, a, b)
    common = gcd(content(a), content(b)) * (-1 if leading(b) < 0 else 1)
    return common * space.make(Mod, divide_exactly(a, common), divide_exactly(b, common))


def _mod_by_constant(space: Space, a: Expr, b: int) -> Dim:
    rest = {monomial: c % b for monomial, c in a.terms.items() if c % b}
    constant = a.constant % b
    if not rest:
        return constant
    common = gcd(b, *rest.values())
    inside = space.from_terms({m: c // common for m, c in rest.items()}, constant // common)
    return common * space.make(Mod, inside, b // common) + constant % common


def minimum(*items: Dim) -> Dim:
    """The smallest of one or more dims."""
    return _extremum(Min, min, items)


def maximum(*items: Dim) -> Dim:
    """The largest of one or more dims."""
    return _extremum(Max, max, items)


def _operands(kind: type[Lattice], items: Iterable[Dim]) -> tuple[dict[Expr, None], list[int]]:
    """The operands with nested ones of the same kind opened: symbolic ones without repeats, and the ints."""
    exprs: dict[Expr, None] = {}
    ints: list[int] = []
    for item in items:
        if item.__class__ is not Expr:
            ints.append(int(item))
            continue
        atom = item.atom
        if atom.__class__ is kind:
            more, constants = _operands(kind, atom.args)
            exprs.update(more)
            ints.extend(constants)
        else:
            exprs[item] = None
    return exprs, ints


def _extremum(kind: type[Lattice], pick: Callable[..., int], items: tuple[Dim, ...]) -> Dim:
    exprs, ints = _operands(kind, items)
    if not exprs:
        return pick(ints)
    space = space_of(*exprs)
    best: dict[Expr, int] = {}
    for expr in exprs:  # of x + 1 and x + 3 only one can win
        base = expr._shifted(-expr.constant) if expr.constant else expr
        best[base] = pick(best[base], expr.constant) if base in best else expr.constant
    operands: list[Dim] = sorted((base + best[base] for base in best), key=_index)
    if ints:
        operands.append(pick(ints))
    return operands[0] if len(operands) == 1 else space.make(kind, tuple(operands))


def _index(expr: Expr) -> int:
    return expr.index


def broadcast(*items: Dim) -> Dim:
    """The size that these sizes broadcast to; ValueError if two constants cannot.

    With a constant other than 1 the answer is that constant: any other operand is 1 or equal to it, or the broadcast is an error.
    """
    exprs, ints = _operands(Broadcast, items)
    constants = {value for value in ints if value != 1}
    if len(constants) > 1:
        raise ValueError(f"sizes {sorted(constants)} cannot be broadcast together")
    if constants:
        return constants.pop()
    operands = sorted(exprs, key=_index)
    if len(operands) < 2:
        return operands[0] if operands else 1
    return space_of(*operands).make(Broadcast, tuple(operands))
