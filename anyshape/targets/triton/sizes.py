"""Sizes and conditions on sizes as Triton."""

from __future__ import annotations

from collections.abc import Callable

from anyshape.symbolic import Condition, Dim
from anyshape.symbolic.render import TruncatingText, balanced
from anyshape.symbolic.text import Name, name_of


class _Triton(TruncatingText):
    """Integer scalars of a kernel; `//` and `%` truncate in Triton as in C."""

    conjunction, disjunction = " & ", " | "
    division = "//"

    def truth(self, value: bool) -> str:
        return str(value)

    def choose(self, condition: str, yes: str, no: str) -> str:
        return f"tl.where({condition}, {yes}, {no})"

    def extremum(self, word: str, args: tuple[Dim, ...]) -> str:
        texts = [self.dim(arg) for arg in args]
        return balanced(lambda a, b: f"tl.{word}imum({a}, {b})", texts)


def to_triton(
    dim: Dim | Condition | bool,
    name: Name = name_of,
    *,
    nonnegative: Callable[[Dim], bool] | None = None,
) -> str:
    """Triton text over integer scalars with Python's floored division; `tl` must be in scope."""
    return _Triton(name, nonnegative).condition(dim)
