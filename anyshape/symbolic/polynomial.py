"""Interned polynomials with integer coefficients: sums, products, order of terms.

The same value in the same space is the same object: equality is identity. The hash is linear (the
sum of coefficient * product of the atoms' salts), so that the hash of a sum is the sum of the
hashes; a long sum plus a short one is interned by that hash alone and finds its terms when they
are first asked for. Keeping all partial sums of n symbols so takes time and memory linear in n.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from math import gcd
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast, overload

from anyshape.symbolic.atoms import Atom, Monomial, Symbol, age, monomial_order, product_of
from anyshape.symbolic.text import PLAIN

if TYPE_CHECKING:
    from anyshape.symbolic.expr import Dim, Expr, Space

MASK = (1 << 61) - 1
ONE_SALT = 0x9E3779B97F4A7C1  # stands for the hash of the monomial 1
LONG = 32  # terms from which a sum may find its terms later
SALT, DEPTH, INDEX, WORD = map(attrgetter, ("salt", "depth", "index", "word"))
FEW = 4  # terms of a sum by which the parts of a long one are multiplied


def _drawn_salts() -> Iterator[int]:
    draw = Random(0).getrandbits
    while True:
        yield draw(61) | 1


FIRST_SALTS = tuple(islice(_drawn_salts(), 64))
"""To begin a generator takes longer than all else that a space of few symbols does."""


def salts() -> Iterator[int]:
    """The random shares that atoms have in hashes, in the order of their age: the same in every
    space and every run."""
    yield from FIRST_SALTS
    yield from islice(_drawn_salts(), len(FIRST_SALTS), None)


Measure: TypeAlias = tuple[int, int, int]
"""The age of the newest symbol (or a newer one's), how many operations lie in one another at most,
and the sign that all coefficients have, 0 where they may differ."""


class Polynomial:
    """A sum of monomials and a constant.

    `terms` maps monomials to coefficients, without the constant part; it is never empty and never
    changed. `atom` is set when the whole is one atom; `parts` when this is the sum
    `parts[0] + parts[2] * parts[1]` of a long and a short one; it has at least `least` terms.
    """

    __slots__ = (
        "atom",
        "constant",
        "digest",
        "index",
        "inside",
        "least",
        "measured",
        "parts",
        "space",
        "terms",
    )

    space: Space
    index: int
    terms: dict[Monomial, int]
    constant: int
    digest: int
    atom: Atom | None
    inside: frozenset[Symbol] | None
    parts: tuple[Expr, Expr, int] | None
    least: int
    measured: Measure | None

    def __getattr__(self, name: str) -> dict[Monomial, int]:
        """The terms of a long sum, when they are first asked for."""
        if name != "terms":
            raise AttributeError(f"a size has no attribute {name!r}", name=name, obj=self)
        self.terms = terms = _gathered(self)
        self.least = len(terms)
        return terms

    @property
    def symbol(self) -> Symbol | None:
        """The symbol that this is, if it is nothing but one."""
        atom = self.atom
        return atom if atom.__class__ is Symbol else None

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol in the expression, those inside divisions and the like included."""
        found = self.inside
        if found is None:
            if self.atom is not None:
                found = self.atom.symbols
            else:
                found = _symbols_of_sum(self)
            self.inside = found
        return found

    @property
    def newest(self) -> int:
        """An age that no symbol in the expression exceeds; a long sum is not gathered for it."""
        return (self.measured or _measured(self))[0]

    @property
    def depth(self) -> int:
        """How many operations lie in one another at most."""
        return (self.measured or _measured(self))[1]

    def ordered_terms(self) -> list[tuple[Monomial, int]]:
        """The terms, the highest degree first and then the oldest atoms: the same in every run."""
        if len(self.terms) == 1:
            return list(self.terms.items())
        return sorted(self.terms.items(), key=monomial_order)

    def __add__(self, other: Dim) -> Dim:
        if other.__class__ is self.__class__:
            return combine(self, other, 1)
        if not isinstance(other, int):
            return NotImplemented
        if not other:
            return +self
        digest = (self.digest + other * ONE_SALT) & MASK
        if self.parts is not None:
            return self.space.intern_sum(self.parts, self.constant + other, digest)
        return self.space.intern(self.terms, self.constant + other, digest)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        if other.__class__ is self.__class__:
            return combine(self, other, -1)
        if not isinstance(other, int):
            return NotImplemented
        return self + -other

    def __rsub__(self, other: int) -> Dim:
        return self.scaled(-1) + other if isinstance(other, int) else NotImplemented

    def __neg__(self) -> Expr:
        return self.scaled(-1)

    if TYPE_CHECKING:  # every polynomial is an Expr, which says so of itself

        def __pos__(self) -> Expr: ...

    def __mul__(self, other: Dim) -> Dim:
        if other.__class__ is self.__class__:
            products = self.space.products
            found = products.get((self, other))
            if found is None:
                found = products[self, other] = multiply(self, other)
            return found
        if not isinstance(other, int):
            return NotImplemented
        if other == 1:
            return +self
        return self.scaled(int(other)) if other else 0

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Dim:
        if not isinstance(exponent, int) or exponent < 0:
            return NotImplemented
        result: Dim = 1
        for _ in range(exponent):
            result = self * result
        return result

    def scaled(self, factor: int) -> Expr:
        """The polynomial times a constant that is not 0; a long sum's is the sum of its parts'."""
        if factor == 1:
            return cast("Expr", self)
        memo = self.space.multiples
        part = cast("Expr", self)
        found = memo.get((part, factor))
        if found is not None:
            return found
        made: list[Expr] = []
        while part.least >= LONG and (part, factor) not in memo and part.parts is not None:
            made.append(part)
            part = part.parts[0]
        found = memo.get((part, factor))
        if found is None:
            found = memo[part, factor] = part.scaled_directly(factor)
        for later in reversed(made):
            assert later.parts is not None
            _, short, sign = later.parts
            result = combine(found, short.scaled(factor), sign)
            rest = later.constant * factor - constant_of(result)
            found = memo[later, factor] = cast("Expr", result + rest)
        return found

    def scaled_directly(self, factor: int) -> Expr:
        """The polynomial times a constant that is not 0, term by term."""
        terms = {monomial: c * factor for monomial, c in self.terms.items()}
        digest = (self.digest * factor) & MASK
        return self.space.intern(terms, self.constant * factor, digest)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"whether {self} is zero is not known while compiling; ask facts.known(ne(x, 0))"
        )

    def refuse_order(self, other: object) -> NoReturn:
        """Sizes have no order in Python's sense: the answer may be unknown."""
        raise TypeError(
            f"{self} cannot be compared while compiling; build a relation with lt, le, gt or ge "
            "and ask facts.known()"
        )

    __lt__ = __le__ = __gt__ = __ge__ = refuse_order

    def __copy__(self) -> Polynomial:
        return self

    def __deepcopy__(self, memo: object) -> Polynomial:
        return self

    def __repr__(self) -> str:
        return PLAIN.dim(cast("Expr", self))


def _symbols_of_sum(expr: Polynomial) -> frozenset[Symbol]:
    if expr.parts is not None and expr.parts[0].inside is not None:
        long, short, _ = expr.parts
        if len(expr.terms) == len(long.terms) + len(short.terms):  # nothing has cancelled
            return long.symbols | short.symbols
    atoms = frozenset(chain.from_iterable(expr.terms))
    if not any(map(WORD, atoms)):
        return cast("frozenset[Symbol]", atoms)
    return frozenset().union(*[atom.symbols for atom in atoms])


def _measured(expr: Polynomial) -> Measure:
    """What is kept of a sum without its terms, from what is kept of its parts."""
    waiting: list[Polynomial] = []
    while expr.measured is None and expr.parts is not None:
        waiting.append(expr)
        expr = expr.parts[0]
    found = expr.measured
    if found is None:
        found = expr.measured = _measured_terms(expr)
    for later in reversed(waiting):
        assert later.parts is not None
        _, short, scale = later.parts
        newest, depth, sign = short.measured or _measured(short)
        sign = found[2] if found[2] == sign * scale else 0
        found = later.measured = max(found[0], newest), max(found[1], depth), sign
    return found


def _measured_terms(expr: Polynomial) -> Measure:
    depth = max(map(DEPTH, chain.from_iterable(expr.terms)))
    if depth:
        newest = max(map(age, expr.symbols))
    else:
        newest = max(map(INDEX, chain.from_iterable(expr.terms)))
    values = expr.terms.values()
    return newest, depth, 1 if min(values) > 0 else -1 if max(values) < 0 else 0


def nothing_cancelled(expr: Polynomial) -> bool:
    """Do the parts of a long sum have no symbols that it does not have?

    So it is when all coefficients are of one sign, or when the short part's symbols are newer.
    """
    if (expr.measured or _measured(expr))[2]:
        return True
    assert expr.parts is not None
    long, short, _ = expr.parts
    return min(map(age, short.symbols)) > long.newest


def split_since(expr: Expr, oldest: int) -> tuple[dict[Monomial, int], list[Dim]]:
    """The terms with symbols of this age or newer, and sums that make up the rest.

    A long sum of older symbols is not looked into.
    """
    recent: dict[Monomial, int] = {}
    rest: list[Dim] = []
    waiting = [(expr, 1)]
    left = expr.constant
    while waiting:
        part, scale = waiting.pop()
        if part.newest < oldest:
            rest.append(part * scale)
            left -= part.constant * scale
        elif part.parts is not None:
            long, short, sign = part.parts
            waiting += ((short, scale * sign), (long, scale))
        else:
            older = {m: c for m, c in part.terms.items() if _older(m, oldest)}
            newer = {m: c for m, c in part.terms.items() if m not in older}
            merged(recent, newer, scale)
            rest.append(part.space.from_terms(older, 0) * scale)
    return recent, [*rest, left]


def _older(monomial: Monomial, oldest: int) -> bool:
    """Are all symbols in it older than that?"""
    return all(
        (max(map(age, atom.symbols)) if atom.word else atom.index) < oldest for atom in monomial
    )


def mixed(a: Dim, b: Dim) -> NoReturn:
    """Refuses two spaces in one expression."""
    raise ValueError(f"{a} and {b} belong to two spaces and cannot be combined")


def combine(a: Expr, b: Expr, sign: int) -> Dim:
    """a + sign * b."""
    space = a.space
    if b.space is not space:
        mixed(a, b)
    if sign == -1 and a.parts is not None and b in a.parts[:2]:
        long, short, scale = a.parts  # what was added is taken away
        if b is long:
            return short.scaled(scale) + (a.constant - b.constant - scale * short.constant)
        if scale == 1:
            return long + (a.constant - b.constant - long.constant)
    if sign == -1 and b.least >= LONG and b.least > 2 * a.least:
        b, sign = b.scaled(-1), 1
    digest = (a.digest + sign * b.digest) & MASK
    constant = a.constant + sign * b.constant
    if sign == 1 and a.least < b.least:
        a, b = b, a
    if a.least >= LONG and a.least > 2 * b.least:
        return space.intern_sum((a, b, sign), constant, digest)
    terms = merged(a.terms.copy(), b.terms, sign)
    return space.intern(terms, constant, digest) if terms else constant


def merged(terms: dict[Monomial, int], more: dict[Monomial, int], sign: int) -> dict[Monomial, int]:
    """The first argument after sign * the second was added to it."""
    for monomial, coefficient in more.items():
        value = terms.get(monomial, 0) + sign * coefficient
        if value:
            terms[monomial] = value
        else:
            del terms[monomial]
    return terms


def _gathered(expr: Polynomial) -> dict[Monomial, int]:
    """The terms of a long sum, from the nearest part that has its own."""
    waiting: list[tuple[Expr, int]] = []
    found = _own_terms(expr)
    while found is None:
        assert expr.parts is not None
        expr, short, sign = expr.parts
        waiting.append((short, sign))
        found = _own_terms(expr)
    terms = found.copy()
    for short, sign in reversed(waiting):
        merged(terms, short.terms, sign)
    return terms


def _own_terms(expr: Polynomial) -> dict[Monomial, int] | None:
    try:
        return object.__getattribute__(expr, "terms")
    except AttributeError:
        return None


def multiply(a: Expr, b: Expr) -> Dim:
    """a * b, multiplied out."""
    if b.space is not a.space:
        mixed(a, b)
    long, short = (a, b) if a.least >= b.least else (b, a)
    if long.least >= LONG and long.parts is not None and short.least <= FEW:
        return _multiply_parts(long, short)
    if len(a.terms) == 1 and len(b.terms) == 1 and not a.constant and not b.constant:
        ((left, x),) = a.terms.items()
        ((right, y),) = b.terms.items()
        return a.space.from_terms({product_of(left, right): x * y}, 0)
    terms: dict[Monomial, int] = {}
    for left, x in a.terms.items():
        for right, y in b.terms.items():
            monomial = product_of(left, right)
            terms[monomial] = terms.get(monomial, 0) + x * y
    for left, x in a.terms.items() if b.constant else ():
        terms[left] = terms.get(left, 0) + x * b.constant
    for right, y in b.terms.items() if a.constant else ():
        terms[right] = terms.get(right, 0) + y * a.constant
    terms = {monomial: c for monomial, c in terms.items() if c}
    return a.space.from_terms(terms, a.constant * b.constant)


def _multiply_parts(a: Expr, b: Expr) -> Dim:
    """A long sum times a short one: the sum of its parts' products, of which most are known."""
    products, part = a.space.products, a
    made: list[Expr] = []
    while (part, b) not in products and part.parts is not None and part.least >= LONG:
        made.append(part)
        part = part.parts[0]
    found = products.get((part, b))
    if found is None:
        found = products[part, b] = multiply(part, b)
    for later in reversed(made):
        assert later.parts is not None
        long, short, sign = later.parts
        rest = later.constant - long.constant - sign * short.constant
        found = products[later, b] = found + short * b * sign + b * rest
    return found


def constant_of(dim: Dim) -> int:
    """The constant part."""
    return dim if isinstance(dim, int) else dim.constant


def content(dim: Dim) -> int:
    """The greatest common divisor of all coefficients and the constant."""
    return abs(dim) if isinstance(dim, int) else gcd(dim.constant, *dim.terms.values())


def negative(dim: Dim) -> bool:
    """Whether an expression is kept in the other sign: all or the first of it is negative."""
    if isinstance(dim, int):
        return dim < 0
    values = dim.terms.values()
    if min(values) > 0:
        return False
    if max(values) < 0:
        return True
    if max(map(len, dim.terms)) == 1:  # the oldest atom's, as in `monomial_order`, found sooner
        return dim.terms[min(chain.from_iterable(dim.terms), key=INDEX).unit] < 0
    return min(dim.terms.items(), key=monomial_order)[1] < 0


@overload
def divide_exactly(dim: Expr, by: int) -> Expr: ...
@overload
def divide_exactly(dim: int, by: int) -> int: ...
def divide_exactly(dim: Dim, by: int) -> Dim:
    """dim / by, where `by` divides every coefficient and the constant."""
    if by == 1:
        return dim
    if isinstance(dim, int):
        return dim // by
    if by == -1:
        return dim.scaled(-1)
    terms = {monomial: c // by for monomial, c in dim.terms.items()}
    constant = dim.constant // by
    return dim.space.intern(terms, constant, dim.space.digest(terms, constant))


def without_constant(expr: Expr) -> Expr:
    """The expression less its constant part."""
    return cast("Expr", expr - expr.constant) if expr.constant else expr
