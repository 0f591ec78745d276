"""Text read back: `"2*time + 1"` as an expression, `"time % 8 == 0"` as a condition.

Python's own syntax, read by Python's own parser and never evaluated: names, integers, + - * // %
**, min, max, broadcast, comparisons, and, or, not. What `str` writes is read back as the same
object.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from anyshape.symbolic.conditions import (
    Condition,
    all_of,
    any_of,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
)
from anyshape.symbolic.expr import Dim, Expr, broadcast, floordiv, maximum, minimum, mod

BINARY: Mapping[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
CALLS: Mapping[str, Callable[..., Dim]] = {"min": minimum, "max": maximum, "broadcast": broadcast}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Dim, Dim], Condition | bool]] = {
    ast.Eq: eq,
    ast.NotEq: ne,
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: gt,
    ast.GtE: ge,
}


def parse_dim(text: str, named: Callable[[str], Dim | None]) -> Dim:
    """The expression that a text spells; ValueError, which quotes the part, if it spells none.

    `named` gives the expression of a name, None for an unknown one.
    """
    return _Reader(text, named).dim(_parsed(text))


def parse_condition(text: str, named: Callable[[str], Dim | None]) -> Condition | bool:
    """The condition that a text spells; ValueError, which quotes the part, if it spells none."""
    return _Reader(text, named).condition(_parsed(text))


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression: {error.msg}") from None


class _Reader:
    """Turns Python's syntax tree of one text into expressions."""

    def __init__(self, text: str, named: Callable[[str], Dim | None]) -> None:
        self.text = text
        self.named = named

    def dim(self, node: ast.expr) -> Dim:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return value
            case ast.Name(id=name):
                found = self.named(name)
                if found is None:
                    raise ValueError(f"{self.text!r} names {name}, which is not a size here")
                return found
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.dim(operand)
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(power))):
                return self.power(self.dim(base), power, node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return self.binary(BINARY[type(op)], left, right, node)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in CALLS and args:
                return CALLS[name](*map(self.dim, args))
        raise self.refused(node)

    def binary(
        self, op: Callable[[Dim, Dim], Dim], left: ast.expr, right: ast.expr, node: ast.expr
    ) -> Dim:
        try:
            return op(self.dim(left), self.dim(right))
        except ZeroDivisionError:
            raise ValueError(f"{ast.unparse(node)!r} divides by zero") from None

    def power(self, base: Dim, power: int, node: ast.expr) -> Dim:
        if not 0 <= power <= 16:
            raise self.refused(node)
        result = base**power
        assert isinstance(result, int | Expr)
        return result

    def condition(self, node: ast.expr) -> Condition | bool:
        match node:
            case ast.Constant(value=bool(value)):
                return value
            case ast.BoolOp(op=ast.And(), values=values):
                return all_of(*map(self.condition, values))
            case ast.BoolOp(op=ast.Or(), values=values):
                return any_of(*map(self.condition, values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.condition(operand)
                return (not inner) if isinstance(inner, bool) else ~inner
            case ast.Compare(left=left, ops=ops, comparators=right):
                if not all(type(op) in COMPARISONS for op in ops):
                    raise self.refused(node)
                sides = [self.dim(left), *map(self.dim, right)]
                pairs = zip(ops, sides, sides[1:], strict=False)
                return all_of(*(COMPARISONS[type(op)](a, b) for op, a, b in pairs))
        raise self.refused(node)

    def refused(self, node: ast.expr) -> ValueError:
        return ValueError(f"{ast.unparse(node)!r} in {self.text!r} is not about sizes")
