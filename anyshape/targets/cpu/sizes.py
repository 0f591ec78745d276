"""Sizes and conditions on sizes as C."""

from __future__ import annotations

from collections.abc import Callable

from anyshape.symbolic import Condition, Dim
from anyshape.symbolic.render import TruncatingText
from anyshape.symbolic.text import NOTHING_COMPUTED, Computed, Name, name_of


class _C(TruncatingText):
    conjunction, disjunction = " && ", " || "

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
) -> str:
    """C text over int64_t with floored division; C's own where both sides are `nonnegative`."""
    return _C(name, nonnegative, computed).condition(dim)
