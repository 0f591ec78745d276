"""What a type rule may ask about sizes.

A rule states preconditions (``require``), asks for decisions that change rank or arity
(``decide``), broadcasts, and makes fresh sizes that data decides. What happens when the facts do
not know is the caller's policy: capture guards backed symbols on their hint and makes checks of
unbacked ones; a pass may neither guard nor check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from anyshape.ir.dtypes import DType, float32
from anyshape.ir.graph import HOST, Location
from anyshape.nouns import mutable
from anyshape.symbolic import (
    Condition,
    Contradiction,
    Dim,
    Expr,
    Facts,
    Relation,
    Space,
    Symbol,
    any_of,
    broadcast,
    enough,
    eq,
    evaluate,
    ge,
    le,
    maximum,
    minimum,
)


class OpError(Exception):
    """The operator would raise in eager with these arguments."""


class NoRow(OpError):
    """Eager can do it, but this row cannot say what it means."""


class Undecided(Exception):
    """A decision that changes rank, arity or aliasing depends on a size nobody may guard on."""

    def __init__(self, condition: Condition | bool) -> None:
        super().__init__(str(condition))
        self.condition = condition


@mutable
class TypeContext:
    """Facts and policy for type rules.

    ``on_guard(condition)`` is called with each backed relation relied on, ``on_check(condition,
    message)`` of each condition to test while running; ``None`` means neither is possible here.
    ``wanted`` is the number of results that the program takes apart at once, where it says one.
    ``memo`` holds layouts already worked out from shapes alone, or by the facts in their keys.
    """

    space: Space
    facts: Facts
    hints: Mapping[Symbol, int] = field(default_factory=dict)
    on_guard: Callable[[Condition], None] | None = None
    on_check: Callable[[Condition, str], None] | None = None
    location: Location | None = None
    default_dtype: DType = float32
    default_device: str = HOST
    memo: dict[object, Any] = field(default_factory=dict)
    wanted: int | None = None
    types: dict[object, tuple[Facts, int, Any]] = field(default_factory=dict)  # `known_types.py`

    @property
    def policy(self) -> tuple[object, ...]:
        """What a rule sees of a context beside what is known of sizes."""
        may = self.on_guard is not None, self.on_check is not None
        return (*may, self.wanted, self.default_dtype, self.default_device)

    @property
    def may_require(self) -> bool:
        """Whether an unknown condition becomes a guard or a check, as while capturing."""
        return self.on_guard is not None or self.on_check is not None

    def known(self, condition: Condition | bool) -> bool | None:
        """What the facts say of the condition: True, False or None."""
        return condition if isinstance(condition, bool) else self.facts.known(condition)

    def hint(self, condition: Condition | bool) -> bool | None:
        """The condition at the example sizes, or None where a symbol is unbacked or has no hint.
        ``Undecided`` where it divides by nothing there: data has to refuse such sizes first."""
        if isinstance(condition, bool):
            return condition
        symbols = condition.symbols
        if not all(map(self._may_guard, symbols)):
            return None
        try:
            return bool(evaluate(condition, self.hints))
        except ZeroDivisionError:
            raise Undecided(condition) from None

    def is_open(self, condition: Condition | bool) -> bool:
        """Does data decide it, as far as is known?"""
        return self.known(condition) is None and self.hint(condition) is None

    def require(self, condition: Condition | bool, message: str) -> None:
        """A precondition: eager raises where it is false. Becomes a fact."""
        known = self.known(condition)
        if known:
            return
        if known is False:
            raise OpError(message)
        assert not isinstance(condition, bool)  # or it were known
        hint = self.hint(condition)
        if hint is not None and self.on_guard is not None:
            if not self._guarded(condition, hint):
                raise OpError(message)
            return
        if self.on_check is None:
            raise Undecided(condition)
        try:
            self.facts.assume(condition, self.location)
        except Contradiction:  # it is false, which nobody had found out
            raise OpError(message) from None
        self.on_check(condition, message)

    def decide(self, condition: Condition | bool) -> bool:
        """The answer, by facts or by a guard on the hint's side; raises ``Undecided`` otherwise."""
        known = self.known(condition)
        if known is not None:
            return known
        assert not isinstance(condition, bool)
        hint = self.hint(condition)
        if hint is None or self.on_guard is None:
            raise Undecided(condition)
        return self._guarded(condition, hint)

    def decide_without_data(self, condition: Condition | bool) -> bool:
        """As `decide`; where data is in it, by a guard on what alone is enough in the example:
        ``s + u >= 1`` by ``s >= 1``, if ``u`` is never negative. Raises ``Undecided`` otherwise.
        """
        try:
            return self.decide(condition)
        except Undecided:
            if self.on_guard is None or not isinstance(condition, Relation):
                raise
            for sufficient, truth in enough(self.facts, condition, self._may_guard):
                if self._holds_at_hint(sufficient) and self.decide(sufficient):
                    return truth
            raise

    def _may_guard(self, symbol: Symbol) -> bool:
        return symbol.policy == "backed" and symbol in self.hints

    def _guarded(self, condition: Condition, hint: bool) -> bool:
        """The truth of an unknown condition, relied on as the example has it. Where the facts
        contradict the example, which nobody had found out, they say it."""
        relied_on = condition if hint else ~condition
        assert self.on_guard is not None
        assert not isinstance(relied_on, bool)
        try:
            self.facts.assume(relied_on, self.location)
        except Contradiction:
            return not hint
        self.on_guard(relied_on)
        return hint

    def from_zero(self, position: Dim, size: Dim) -> Dim:
        """A position in a dimension, counted from 0: Python counts negative ones from the end.

        Where data decides the sign it is ``position + size * (1 if position < 0 else 0)``.
        """
        if isinstance(position, int):
            return position if position >= 0 else position + size
        known = self.known(ge(position, 0))
        if known is None and self.on_guard is not None and self.hint(ge(position, 0)) is not None:
            known = self.decide(ge(position, 0))
        if known is not None:
            return position if known else position + size
        return position + size * minimum(maximum(-position, 0), 1)

    def same(self, a: Dim, b: Dim) -> bool:
        """Are the sizes known to be equal? (No guard, no check.)"""
        return a is b or self.known(eq(a, b)) is True

    def fresh_size(self, prefix: str = "u", *, low: Dim = 0, high: Dim | None = None) -> Expr:
        """A new size that data decides, with its bounds as facts."""
        size = self.space.fresh(prefix, policy="unbacked", knowledge="midrun")
        for condition in (ge(size, low), True if high is None else le(size, high)):
            if not isinstance(condition, bool):
                self.facts.assume(condition, self.location)
        return size

    def broadcast_dims(self, dims: Sequence[Dim], message: str) -> Dim:
        """The broadcast of sizes at one position (DESIGN.md section 5, "Broadcasting")."""
        result: Dim = 1
        for dim in dims:
            if result is dim or (dim.__class__ is int and (dim == 1 or dim == result)):
                continue
            if result.__class__ is int and result == 1:
                result = dim
            else:
                result = self._broadcast_two(result, dim, message)
        return result

    def _broadcast_two(self, a: Dim, b: Dim, message: str) -> Dim:
        if a is b or a == b or self.known(eq(b, 1)):
            return a
        if self.known(eq(a, 1)):
            return b
        if self.known(eq(a, b)):
            return self.facts.simplify(a)
        for one, other in ((a, b), (b, a)):  # known not to be 1: the other is 1 or equal
            if self.known(eq(one, 1)) is False:
                return self._broadcast_into(one, other, message)
        if self.on_guard is not None and self.hint(eq(a, b)) is not None:
            return self._broadcast_by_hint(a, b, message)
        self.require(any_of(eq(a, 1), eq(b, 1), eq(a, b)), message)
        return broadcast(a, b)

    def _broadcast_into(self, full: Dim, other: Dim, message: str) -> Dim:
        same = eq(full, other)
        if isinstance(same, bool) or self.hint(same) is None or self.on_guard is None:
            self.require(any_of(same, eq(other, 1)), message)
            return full
        return self._broadcast_by_hint(full, other, message)

    def _broadcast_by_hint(self, a: Dim, b: Dim, message: str) -> Dim:
        """Backed sizes: guard what the hint shows, one of equal, a is 1, b is 1. Sizes of which one
        is made of the other, as ``min(s0, s1)`` of ``s0``, are equal also where both are 1."""
        alike = isinstance(a, Expr) and isinstance(b, Expr) and bool(a.symbols & b.symbols)
        if self._holds_at_hint(eq(a, b)) and (alike or not self._holds_at_hint(eq(a, 1))):
            self.require(eq(a, b), message)
            return a
        for one, other in ((a, b), (b, a)):
            if self._holds_at_hint(eq(one, 1)) and self.decide(eq(one, 1)):
                return other
        self.require(eq(a, b), message)
        return a

    def _holds_at_hint(self, condition: Condition | bool) -> bool:
        return condition if isinstance(condition, bool) else bool(self.hint(condition))

    def broadcast_shapes(
        self, shapes: Sequence[Sequence[Dim]], message: str = ""
    ) -> tuple[Dim, ...]:
        """The shape that all broadcast to, aligned at the last dimension."""
        first = tuple(shapes[0]) if shapes else ()
        if all(shape is first or shape == first for shape in shapes):
            return first
        rank = max((len(shape) for shape in shapes), default=0)
        text = message or "The sizes of the tensors must match to broadcast"
        return tuple(
            self.broadcast_dims([s[i - rank] for s in shapes if len(s) >= rank - i], text)
            for i in range(rank)
        )
