"""Names bound to concrete sizes, names replaced by expressions, and shapes made equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from anyshape.nouns import frozen
from anyshape.symbolic.atoms import Symbol, age
from anyshape.symbolic.conditions import (
    AllOf,
    AnyOf,
    Condition,
    Kind,
    Relation,
    all_of,
    any_of,
    eq,
    ge,
    le,
    ne,
)
from anyshape.symbolic.expr import Dim, symbols_of
from anyshape.symbolic.facts import Facts
from anyshape.symbolic.substitution import substitute


@frozen
class Mismatch:
    """Why sizes do not fit patterns: the position, the pattern there, the size, and a sentence."""

    position: int
    pattern: Dim | None
    size: int
    reason: str


def bind(patterns: Sequence[Dim], sizes: Sequence[int]) -> dict[Symbol, int] | Mismatch:
    """The values of the symbols for which the patterns have these sizes, or the first mismatch.

    A pattern is solved for its last unknown symbol, which must stand in it linearly.
    """
    if len(patterns) != len(sizes):
        reason = f"{len(patterns)} sizes were expected, {len(sizes)} were given"
        return Mismatch(min(len(patterns), len(sizes)), None, len(sizes), reason)
    values: dict[Symbol, int] = {}
    waiting = list(enumerate(zip(patterns, sizes, strict=True)))
    while waiting:
        later = []
        for position, (pattern, size) in waiting:
            outcome = _bind_one(pattern, size, values)
            if isinstance(outcome, str):
                return Mismatch(position, pattern, size, outcome)
            if not outcome:
                later.append((position, (pattern, size)))
        if len(later) == len(waiting):
            position, (pattern, size) = later[0]
            reason = f"{pattern} = {size} cannot be solved for one unknown"
            return Mismatch(position, pattern, size, reason)
        waiting = later
    for position, (pattern, size) in enumerate(zip(patterns, sizes, strict=True)):
        for symbol in sorted(symbols_of(pattern) - values.keys(), key=age):
            reason = f"{pattern} = {size} holds for every {symbol.name}"
            return Mismatch(position, pattern, size, reason)
    return values


def _bind_one(pattern: Dim, size: int, values: dict[Symbol, int]) -> bool | str:
    """Solves one pattern: True when done, False when it must wait, a sentence when it cannot be."""
    try:
        left = substitute(pattern, values)
    except (ZeroDivisionError, ValueError) as error:
        return f"{pattern} is undefined here: {error}"
    if isinstance(left, int):
        return True if left == size else f"{pattern} is {left}, not {size}"
    if len(left.terms) != 1:
        return False
    ((monomial, slope),) = left.terms.items()
    symbol = monomial[0]
    if len(monomial) != 1 or not isinstance(symbol, Symbol):
        return False
    value, rest = divmod(size - left.constant, slope)
    if rest:
        return f"no whole number makes {pattern} equal {size}"
    if value < 0 and not symbol.signed:
        return f"{pattern} = {size} makes {symbol.name} negative"
    values[symbol] = value
    return True


def unify(a: Sequence[Dim], b: Sequence[Dim], facts: Facts) -> Condition | bool:
    """The condition under which two shapes are equal: True, False, or what is left to check."""
    if len(a) != len(b):
        return False
    left: list[Condition | bool] = []
    for x, y in zip(a, b, strict=True):
        relation = eq(x, y)
        known = facts.known(relation)
        if known is False:
            return False
        if known is None:
            left.append(relation)
    return all_of(*left)


def restate(condition: Condition | bool, values: Mapping[Symbol, Dim]) -> Condition | bool:
    """The condition with symbols replaced, as `substitute` does in a dim."""
    match condition:
        case bool():
            return condition
        case Relation():
            return RELATIONS[condition.kind](substitute(condition.form, values), condition.bound)
        case AllOf():
            return all_of(*(restate(part, values) for part in condition.parts))
        case AnyOf():
            return any_of(*(restate(part, values) for part in condition.parts))


RELATIONS: Mapping[Kind, Callable[[Dim, Dim], Condition | bool]] = {
    "eq": eq,
    "ne": ne,
    "ge": ge,
    "le": le,
}


def solvable(dim: Dim, known: Set[Symbol]) -> tuple[Symbol, int, Dim] | None:
    """`(symbol, slope, rest)` where the dim is `slope*symbol + rest`, and all else is known.

    The slope is a constant other than 0, so that one size gives one symbol, or none.
    """
    unknown = symbols_of(dim) - known
    if len(unknown) != 1 or isinstance(dim, int):
        return None
    (symbol,) = unknown
    slope = dim.terms.get((symbol,), 0)
    rest = dim - slope * symbol.expr
    return None if not slope or symbol in symbols_of(rest) else (symbol, slope, rest)
