"""Binding names to concrete sizes, and making two shapes equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyshape.symbolic.conditions import Condition, all_of, eq
from anyshape.symbolic.expr import Dim, Expr, Symbol
from anyshape.symbolic.facts import Facts
from anyshape.symbolic.render import evaluate


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why sizes do not fit patterns: the position, the pattern, the size, and the sentence."""

    position: int
    pattern: Dim | None
    size: int
    reason: str


def bind(patterns: Sequence[Dim], sizes: Sequence[int]) -> dict[Symbol, int] | Mismatch:
    """The values of the symbols for which the patterns have these sizes, or the first mismatch."""
    if len(patterns) != len(sizes):
        reason = f"{len(patterns)} sizes were expected, {len(sizes)} were given"
        return Mismatch(min(len(patterns), len(sizes)), None, len(sizes), reason)
    values: dict[Symbol, int] = {}
    waiting = list(range(len(patterns)))
    while waiting:
        later: list[int] = []
        for position in waiting:
            outcome = _bind_one(position, patterns[position], sizes[position], values)
            if outcome is None:
                later.append(position)
            elif isinstance(outcome, Mismatch):
                return outcome
        if len(later) == len(waiting):
            position = later[0]
            reason = f"{patterns[position]} has more than one unknown and cannot be solved"
            return Mismatch(position, patterns[position], sizes[position], reason)
        waiting = later
    return values


def _bind_one(
    position: int, pattern: Dim, size: int, values: dict[Symbol, int]
) -> Mismatch | bool | None:
    unknown = [s for s in pattern.symbols if s not in values] if isinstance(pattern, Expr) else []
    if not unknown:
        found = evaluate(pattern, values)
        if found == size:
            return True
        return Mismatch(position, pattern, size, f"{pattern} is {found}, not {size}")
    if len(unknown) > 1:
        return None
    symbol = unknown[0]
    slope = pattern.terms.get((symbol,))
    if slope is None or any(
        symbol in a.symbols for m in pattern.terms for a in m if a is not symbol
    ):
        return None
    if sum(m.count(symbol) for m in pattern.terms) != 1:
        return None
    offset = evaluate(pattern - slope * symbol.expr, values)
    value, rest = divmod(size - offset, slope)
    if rest:
        return Mismatch(position, pattern, size, f"no whole number makes {pattern} equal {size}")
    if value < 0 and not symbol.signed:
        return Mismatch(position, pattern, size, f"{pattern} = {size} makes {symbol.name} negative")
    values[symbol] = value
    return True


def unify(a: Sequence[Dim], b: Sequence[Dim], facts: Facts) -> Condition | bool:
    """The condition under which two shapes are equal: True, False, or what remains to be checked."""
    if len(a) != len(b):
        return False
    left: list[Condition | bool] = []
    for x, y in zip(a, b):
        relation = eq(x, y)
        known = facts.known(relation)
        if known is False:
            return False
        if known is None:
            left.append(relation)
    return all_of(*left)
