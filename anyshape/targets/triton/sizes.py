"""Sizes and conditions on sizes as Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyshape.symbolic import Condition, Dim, Expr, Symbol
from anyshape.symbolic.render import TruncatingText, balanced
from anyshape.symbolic.text import NOTHING_COMPUTED, Computed, Name, name_of


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
    computed: Computed = NOTHING_COMPUTED,
) -> str:
    """Triton text over integer scalars with Python's floored division; `tl` must be in scope."""
    return _Triton(name, nonnegative, computed).condition(dim)


def nested_operands(dim: Dim) -> Iterator[Expr]:
    """The operands of operations that hold operations themselves, each once, the inner ones
    first."""
    seen: set[Expr] = set()

    def inside(part: Dim) -> Iterator[Expr]:
        for monomial in part.terms if isinstance(part, Expr) else ():
            for atom in monomial:
                args = () if isinstance(atom, Symbol) else atom.args
                for arg in args:
                    if isinstance(arg, Expr) and arg.depth and arg not in seen:
                        seen.add(arg)
                        yield from inside(arg)
                        yield arg

    return inside(dim)
