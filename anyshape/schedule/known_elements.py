"""What an element of a draft is, where no data decides it: an integer or a condition over sizes and
the indices that the element is asked at.

    where(i0 < 1, i0 + 1, 1) != 1   ->   False, as i0 + 1 is 1 where i0 is below 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import product
from typing import TypeAlias

from anyshape.ir.dtypes import bool_, int64
from anyshape.ir.loops import Const, Element, Op, Position
from anyshape.nouns import mutable
from anyshape.schedule.draft import Draft
from anyshape.symbolic import (
    Condition,
    Contradiction,
    Dim,
    Facts,
    all_of,
    any_of,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
)

Truth: TypeAlias = "Condition | bool"
Cases: TypeAlias = "tuple[tuple[Truth, Dim], ...]"
"""An integer: its value under each of some conditions, one of which holds."""
MOST_CASES = 8

RELATIONS = {"eq": eq, "ne": ne, "le": le, "lt": lt, "ge": ge, "gt": gt}
CONNECTIVES = {
    "logical_and": all_of,
    "bit_and": all_of,
    "logical_or": any_of,
    "bit_or": any_of,
}


class DecidedByData(Exception):
    """The element is not known from sizes and indices."""


@mutable
class KnownElements:
    """Of one draft, under ``facts`` about sizes and indices. Methods raise ``DecidedByData``."""

    draft: Draft
    facts: Facts
    truths: dict[int, Truth] = field(default_factory=dict)
    integers: dict[int, Cases] = field(default_factory=dict)

    def truth(self, number: int) -> Truth:
        """When a bool is true."""
        if number not in self.truths:
            self.truths[number] = self._settled(self._truth(self.draft.elements[number]))
        return self.truths[number]

    def integer(self, number: int) -> Cases:
        """What an integer is."""
        if number not in self.integers:
            self.integers[number] = self._merged(self._integer(self.draft.elements[number]))
        return self.integers[number]

    def constant(self, number: int) -> int | None:
        """The number that an integer or a bool is everywhere; None if there is none."""
        if self.draft.elements[number].dtype is bool_:
            truth = self.truth(number)
            return int(truth) if isinstance(truth, bool) else None
        cases = self.integer(number)
        return cases[0][1] if len(cases) == 1 and isinstance(cases[0][1], int) else None

    def _truth(self, element: Element) -> Truth:
        match element:
            case Const(value=value, dtype=dtype) if dtype is bool_:
                return bool(value)
            case Op(op="logical_not" | "bit_not", args=(arg,), dtype=dtype) if dtype is bool_:
                return _opposite(self.truth(arg))
            case Op(op="where", args=(condition, a, b), dtype=dtype) if dtype is bool_:
                holds, one, other = map(self.truth, (condition, a, b))
                return any_of(all_of(holds, one), all_of(_opposite(holds), other))
            case Op(op=op, args=args, dtype=dtype) if op in CONNECTIVES and dtype is bool_:
                return CONNECTIVES[op](*map(self.truth, args))
            case Op(op=op, args=args) if op in RELATIONS and not self._are_bools(args):
                return self._related(RELATIONS[op], *map(self.integer, args))
        raise DecidedByData

    def _are_bools(self, args: Sequence[int]) -> bool:
        return any(self.draft.elements[arg].dtype is bool_ for arg in args)

    def _related(self, relation: Callable[[Dim, Dim], Truth], a: Cases, b: Cases) -> Truth:
        return any_of(
            *(
                self._settled(all_of(under_a, under_b, relation(one, other)))
                for (under_a, one), (under_b, other) in product(a, b)
            )
        )

    def _integer(self, element: Element) -> Cases:
        match element:
            case Const(value=int(value)):
                return ((True, value),)
            case Position(index=index):
                return ((True, index),)
            case Op(op="cast", args=(arg,), dtype=dtype) if dtype is int64:
                return self._widened(arg)
            case Op(op="where", args=(condition, a, b)):
                holds = self.truth(condition)
                return (
                    *((all_of(holds, under), value) for under, value in self.integer(a)),
                    *((all_of(_opposite(holds), under), value) for under, value in self.integer(b)),
                )
            case Op(op="add" | "sub" as op, args=(a, b), dtype=dtype) if dtype is int64:
                sign = 1 if op == "add" else -1
                return tuple(
                    (all_of(under_a, under_b), one + sign * other)
                    for (under_a, one), (under_b, other) in product(
                        self.integer(a), self.integer(b)
                    )
                )
        raise DecidedByData

    def _widened(self, number: int) -> Cases:
        source = self.draft.elements[number].dtype
        if source is bool_:
            truth = self.truth(number)
            return ((truth, 1), (_opposite(truth), 0))
        if source.is_floating or source.is_complex:
            raise DecidedByData
        return self.integer(number)

    def _settled(self, truth: Truth) -> Truth:
        if isinstance(truth, bool):
            return truth
        known = self.facts.known(truth)
        return truth if known is None else known

    def _merged(self, cases: Cases) -> Cases:
        """Without cases that there are not, those of one value as one, and each as its condition
        says."""
        by_value: dict[Dim, Truth] = {}
        for under, value in cases:
            holds = self._settled(under)
            if holds is not False:
                value = self._within(holds, value)
                by_value[value] = any_of(by_value.get(value, False), holds)
        if len(by_value) > MOST_CASES:
            raise DecidedByData
        if len(by_value) == 1:
            return tuple((True, value) for value in by_value)
        return tuple((holds, value) for value, holds in by_value.items())

    def _within(self, holds: Truth, value: Dim) -> Dim:
        if isinstance(value, int) or holds is True:
            return value
        try:
            return self.facts.under(holds).simplify(value)
        except Contradiction:
            return value


def _opposite(truth: Truth) -> Truth:
    return not truth if isinstance(truth, bool) else ~truth
