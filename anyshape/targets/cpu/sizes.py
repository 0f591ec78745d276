"""Sizes and conditions on sizes as C."""

from __future__ import annotations

from collections.abc import Callable

from anyshape.symbolic import Condition, Dim
from anyshape.symbolic.render import TruncatingText
from anyshape.symbolic.text import NOTHING_COMPUTED, Computed, Name, name_of


def is_constant(dim: Dim) -> bool:
    """Is the divisor a number, which is not 0?"""
    return isinstance(dim, int)


class _C(TruncatingText):
    conjunction, disjunction = " && ", " || "

    def __init__(
        self,
        name: Name,
        nonnegative: Callable[[Dim], bool] | None,
        computed: Computed,
        not_zero: Callable[[Dim], bool],
    ) -> None:
        super().__init__(name, nonnegative, computed)
        self.not_zero = not_zero

    def divisor(self, dim: Dim) -> str:
        """1 instead of 0, which ends the process on a processor: an element that a mask leaves
        out may have its place in a tensor of no elements computed all the same."""
        text = self.operand(dim)
        return text if self.not_zero(dim) else self.choose(text, text, "1")

    def number(self, value: int) -> str:
        return str(value) if -(2**31) < value < 2**31 else f"{value}LL"

    def truth(self, value: bool) -> str:
        return "1" if value else "0"

    def choose(self, condition: str, yes: str, no: str) -> str:
        return f"({condition} ? {yes} : {no})"


def to_c(
    dim: Dim | Condition | bool,
    name: Name = name_of,
    *,
    nonnegative: Callable[[Dim], bool] | None = None,
    computed: Computed = NOTHING_COMPUTED,
    not_zero: Callable[[Dim], bool] = is_constant,
) -> str:
    """C text over int64_t with floored division; C's own where both sides are `nonnegative`. A
    divisor is tested unless it is `not_zero`."""
    return _C(name, nonnegative, computed, not_zero).condition(dim)
