"""The operators of Python: signs, special methods and functions of C. Tables only."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


class Operator:
    """A binary operator: its sign, special methods and C function."""

    __slots__ = ("function", "in_place", "method", "name", "reflected", "sign")

    def __init__(
        self, sign: str, name: str, function: Callable[[Any, Any], Any], in_place: bool
    ) -> None:
        self.sign = sign
        self.name = name
        self.method = f"__{name}__"
        self.reflected = f"__r{name}__"
        self.in_place = f"__i{name}__" if in_place else None
        self.function = function


_NAMES = (
    ("+", "add", operator.add, operator.iadd),
    ("-", "sub", operator.sub, operator.isub),
    ("*", "mul", operator.mul, operator.imul),
    ("/", "truediv", operator.truediv, operator.itruediv),
    ("//", "floordiv", operator.floordiv, operator.ifloordiv),
    ("%", "mod", operator.mod, operator.imod),
    ("**", "pow", operator.pow, operator.ipow),
    ("@", "matmul", operator.matmul, operator.imatmul),
    ("<<", "lshift", operator.lshift, operator.ilshift),
    (">>", "rshift", operator.rshift, operator.irshift),
    ("&", "and", operator.and_, operator.iand),
    ("|", "or", operator.or_, operator.ior),
    ("^", "xor", operator.xor, operator.ixor),
)
BINARY = {sign: Operator(sign, name, function, False) for sign, name, function, _ in _NAMES}
INPLACE = {sign: Operator(sign, name, function, True) for sign, name, _, function in _NAMES}
COMPARISONS: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "<": ("__lt__", "__gt__", operator.lt),
    "<=": ("__le__", "__ge__", operator.le),
    "==": ("__eq__", "__eq__", operator.eq),
    "!=": ("__ne__", "__ne__", operator.ne),
    ">": ("__gt__", "__lt__", operator.gt),
    ">=": ("__ge__", "__le__", operator.ge),
}
UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "-": ("__neg__", operator.neg),
    "+": ("__pos__", operator.pos),
    "~": ("__invert__", operator.invert),
    "abs": ("__abs__", abs),
}
