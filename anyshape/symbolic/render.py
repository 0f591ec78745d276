"""Expressions and conditions as Python text and as values; a target has its own text."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias, cast

from anyshape.symbolic.atoms import (
    DEEP,
    MANY,
    Atom,
    Broadcast,
    FloorDiv,
    Max,
    Min,
    Mod,
    Symbol,
    age,
    deep,
    opaque,
)
from anyshape.symbolic.conditions import AllOf, AnyOf, Condition, Kind, Relation
from anyshape.symbolic.expr import Dim, Expr
from anyshape.symbolic.text import NOTHING_COMPUTED, Computed, Name, Printer, name_of

SHALLOW = 4  # operations in one another up to which an evaluator is Python code
SHORT = 128  # terms of such a form
DEEPEST = 12  # operations in one another through which signs are followed

Evaluator: TypeAlias = Callable[[Mapping[Atom, int], dict[Atom, int]], int]


class PythonText(Printer):
    """Python text using only arithmetic, min, max and conditional expressions."""

    conjunction, disjunction = " and ", " or "

    def condition(self, condition: Dim | Condition | bool) -> str:
        """Text of a condition or an expression."""
        if condition.__class__ is int or isinstance(condition, Expr):
            return self.dim(condition)
        match condition:
            case bool():
                return self.truth(condition)
            case Relation():
                left, sign, right = condition.sides()
                return f"{self.dim(left)} {sign} {self.dim(right)}"
            case AllOf():
                return self.conjunction.join(f"({self.condition(p)})" for p in condition.parts)
            case AnyOf():
                return self.disjunction.join(f"({self.condition(p)})" for p in condition.parts)
            case _:
                return self.dim(condition)

    def truth(self, value: bool) -> str:
        """Text of a constant condition."""
        return str(value)

    def broadcast(self, args: tuple[Dim, ...]) -> str:
        *firsts, last = args
        text = self.operand(last)
        for arg in reversed(firsts):
            spelled = self.operand(arg)
            text = f"({spelled} if {spelled} != 1 else {text})"
        return text


class TruncatingText(PythonText):
    """Text in a language of 64-bit integers whose division truncates: Python's is spelled out,
    unless nothing is negative. A target says how it writes numbers, choices and divisors."""

    loose = ()
    division = "/"

    def __init__(
        self,
        name: Name = name_of,
        nonnegative: Callable[[Dim], bool] | None = None,
        computed: Computed = NOTHING_COMPUTED,
    ) -> None:
        super().__init__(name, computed)
        self.nonnegative = nonnegative or not_negative

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Text of ``yes`` where the condition holds, else of ``no``."""
        raise NotImplementedError

    def plain(self, atom: Atom) -> bool:
        return self.nonnegative(atom.args[0]) and self.nonnegative(atom.args[1])

    def divisor(self, dim: Dim) -> str:
        """Text of what is divided by; where it is 0, nobody reads the quotient or the rest."""
        return self.operand(dim)

    def floordiv(self, atom: Atom) -> str:
        a, b = self.operand(atom.args[0]), self.divisor(atom.args[1])
        dividend = a if self.plain(atom) else f"({a} - {self.floored(a, b)})"
        return f"({dividend} {self.division} {b})"

    def mod(self, atom: Atom) -> str:
        a, b = self.operand(atom.args[0]), self.divisor(atom.args[1])
        return f"({a} % {b})" if self.plain(atom) else self.floored(a, b)

    def floored(self, a: str, b: str) -> str:
        return f"(({a} % {b} + {b}) % {b})"

    def extremum(self, word: str, args: tuple[Dim, ...]) -> str:
        sign = "<" if word == "min" else ">"
        texts = [self.operand(arg) for arg in args]
        return balanced(lambda a, b: self.choose(f"{a} {sign} {b}", a, b), texts)

    def broadcast(self, args: tuple[Dim, ...]) -> str:
        *firsts, text = [self.operand(arg) for arg in args]
        for first in reversed(firsts):
            text = self.choose(f"{first} != 1", first, text)
        return text


def balanced(join: Callable[[str, str], str], texts: list[str]) -> str:
    """Joins texts in a tree, so that text which repeats its operands stays short."""
    if len(texts) == 1:
        return texts[0]
    half = len(texts) // 2
    return join(balanced(join, texts[:half]), balanced(join, texts[half:]))


def not_negative(dim: Dim) -> bool:
    """True when the form alone shows dim >= 0: sizes with positive coefficients."""
    if dim.__class__ is not Expr:
        return dim >= 0
    return dim.constant >= 0 and all(
        coefficient >= 0 and all(_atom_not_negative(atom) for atom in monomial)
        for monomial, coefficient in dim.terms.items()
    )


def _atom_not_negative(atom: Atom) -> bool:
    if isinstance(atom, Symbol):
        return not atom.signed
    if atom.depth > DEEPEST:
        return False  # a walk over all paths through it would be long
    if isinstance(atom, Mod):
        return not_negative(atom.args[1])
    if isinstance(atom, Max):
        return any(not_negative(arg) for arg in atom.args)
    return all(not_negative(arg) for arg in atom.args)


def to_python(
    dim: Dim | Condition | bool, name: Name = name_of, *, computed: Computed = NOTHING_COMPUTED
) -> str:
    """Python text using only arithmetic, min, max and conditional expressions.

    ``computed`` names what has been computed already.
    """
    return PythonText(name, computed).condition(dim)


def evaluate(
    dim: Dim | Condition | bool, env: Mapping[Symbol, int], seen: dict[Atom, int] | None = None
) -> int | bool:
    """The value under these sizes; KeyError for a symbol without one, errors as Python's.

    ``seen`` has the values of operations under the same sizes, and is handed on from one expression
    to the next that shares some with it.
    """
    values = {} if seen is None else seen
    match dim:
        case Expr():
            _find_inner(dim, env, values)
            return _value(dim, env, values)
        case Relation():
            _find_inner(dim.form, env, values)
            return COMPARE[dim.kind](_value(dim.form, env, values), dim.bound)
        case AllOf():
            return all(evaluate(part, env, values) for part in dim.parts)
        case AnyOf():
            return any(evaluate(part, env, values) for part in dim.parts)
        case _:
            return dim


def unknowns(form: Expr) -> frozenset[Atom]:
    """What has to have a size for the form to have a value: its symbols, and operations that are
    not looked into instead of the symbols in them."""
    if not form.depth or (form.depth <= DEEP and len(form.symbols) <= MANY):
        return form.symbols
    atoms = [atom for monomial in form.terms for atom in monomial]
    inside = [atom.symbols for atom in atoms if not opaque(atom)]
    return frozenset(filter(opaque, atoms)).union(*inside)


def evaluator(form: Expr) -> Evaluator:
    """A function of the sizes, and of the values of operations seen under them, that gives what
    `evaluate` does: Python code for a form of a few operations, for evaluating it often."""
    table = form.space.evaluators
    found = table.get(form)
    if found is None:
        found = table[form] = _evaluator(form)
    return found


def _evaluator(form: Expr) -> Evaluator:
    if not form.depth:
        return partial(_value, form)
    if form.depth > SHALLOW or len(form.terms) > SHORT or len(form.symbols) > MANY:
        # What is no symbol among the sizes is among the values that were seen.
        return lambda sizes, seen: int(evaluate(form, cast("Mapping[Symbol, int]", sizes), seen))
    names: dict[str, object] = {"one_of": _broadcast_value}
    names |= {f"s{symbol.index}": symbol for symbol in form.symbols}
    text = ValueText(lambda symbol: f"sizes[s{symbol.index}]").dim(form)
    found: Evaluator = eval(f"lambda sizes, seen: {text}", names)
    return found


class ValueText(PythonText):
    """The text of an evaluator."""

    def broadcast(self, args: tuple[Dim, ...]) -> str:
        return f"one_of([{', '.join(map(self.operand, args))}])"


def _find_inner(dim: Expr, env: Mapping[Symbol, int], seen: dict[Atom, int]) -> None:
    """The values of deeply nested atoms, the innermost first, so that nothing recurses far."""
    if not any(deep(atom) and atom not in seen for monomial in dim.terms for atom in monomial):
        return
    found: dict[Atom, None] = {}
    waiting = [dim]
    while waiting:
        for monomial in waiting.pop().terms:
            for atom in monomial:
                if atom.word and atom not in found and atom not in seen:
                    found[atom] = None
                    waiting.extend(arg for arg in atom.args if isinstance(arg, Expr))
    for atom in sorted(found, key=age):
        _atom_value(atom, env, seen)


def _value(dim: Dim, env: Mapping[Symbol, int], seen: dict[Atom, int]) -> int:
    if isinstance(dim, int):
        return dim
    result = dim.constant
    for monomial, coefficient in dim.terms.items():
        for atom in monomial:
            coefficient *= _atom_value(atom, env, seen)
        result += coefficient
    return result


def _atom_value(atom: Atom, env: Mapping[Symbol, int], seen: dict[Atom, int]) -> int:
    if atom.__class__ is Symbol:
        return env[atom]
    found = seen.get(atom)
    if found is None:
        args = [_value(arg, env, seen) for arg in atom.args]
        found = seen[atom] = OPERATIONS[type(atom)](args)
    return found


def _broadcast_value(sizes: list[int]) -> int:
    others = {size for size in sizes if size != 1}
    if len(others) > 1:
        raise ValueError(f"sizes {sorted(others)} cannot be broadcast together")
    return others.pop() if others else 1


COMPARE: Mapping[Kind, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "ge": operator.ge,
    "le": operator.le,
}

OPERATIONS: Mapping[type[Atom], Callable[[list[int]], int]] = {
    FloorDiv: lambda args: args[0] // args[1],
    Mod: lambda args: args[0] % args[1],
    Min: min,
    Max: max,
    Broadcast: _broadcast_value,
}
