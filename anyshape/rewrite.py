"""Rewriting by rules that are lines of text: parse, match, build.

In: lines such as `div_of_div: (x // c1) // c2 => x // (c1 * c2) if c2 > 0` and a `Language` that
knows the terms. Out: a `RuleTable` that rewrites an operation by the first rule that fits. Names
starting with `c` and a digit (or plain `c`) are constants; what stands after `if` is asked of the
caller. Rules stay data: tests read the same lines and prove them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from anyshape.nouns import frozen

Term = TypeVar("Term")


@frozen
class Literal:
    """An integer written in a rule."""

    value: int


@frozen
class Variable:
    """A name in a rule; a constant one matches constants only."""

    name: str

    @property
    def constant(self) -> bool:
        return self.name == "c" or (self.name[0] == "c" and self.name[1:].isdigit())


@frozen
class Apply:
    """An operation in a rule, such as `//` or `min`."""

    op: str
    operands: tuple[Pattern, ...]


Pattern: TypeAlias = Literal | Variable | Apply

SPELLINGS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.USub: "-",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "and",
    ast.Or: "or",
}


@frozen
class Rule:
    """One line: what is matched, what it becomes, and when."""

    name: str
    text: str
    left: Apply
    right: Pattern
    condition: Pattern | None

    @property
    def inner(self) -> frozenset[str]:
        """The operations below the root that must be there for the rule to fire."""
        found = {op for operand in self.left.operands for op in _operations(operand)}
        return frozenset(found - {"+", "*", "-"})

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The names on the left side, in order of appearance."""
        return tuple(dict.fromkeys(_variables(self.left)))


class Language(Protocol[Term]):
    """What the rewriter must know of the terms that it rewrites."""

    def readings(self, op: str, term: Term) -> Iterable[tuple[Term, ...]]:
        """Every way to read the term as this operation on operands."""

    def build(self, op: str, operands: Sequence[Term]) -> Term:
        """The operation applied."""

    def literal(self, value: int) -> Term:
        """A constant."""

    def is_constant(self, term: Term) -> bool:
        """Whether a constant name may stand for it."""

    def operations(self, term: Term) -> Iterable[str]:
        """The operations at the top of the term, to pass over rules quickly."""


Ask = Callable[[str, Sequence[Term]], bool]


def parse_rule(line: str) -> Rule:
    """The rule that a line says; SyntaxError or ValueError if it says none."""
    name, _, text = line.partition(":")
    body, arrow, rest = text.partition("=>")
    if not arrow:
        raise ValueError(f"a rule reads `name: left => right if condition`, not {line!r}")
    right, _, condition = rest.partition(" if ")
    left = _parse(body)
    if not isinstance(left, Apply):
        raise ValueError(f"the left side of rule {name} must be an operation")
    asked = _parse(condition) if condition.strip() else None
    rule = Rule(name.strip(), text.strip(), left, _parse(right), asked)
    loose = {*_variables(rule.right), *(_variables(asked) if asked else ())} - {*rule.variables}
    if loose:
        raise ValueError(f"rule {name}: {sorted(v.name for v in loose)} are not on the left side")
    return rule


def parse_rules(lines: str) -> tuple[Rule, ...]:
    """The rules of a block of text; blank lines and lines starting with # are passed over."""
    kept = (line.strip() for line in lines.splitlines())
    return tuple(parse_rule(line) for line in kept if line and not line.startswith("#"))


def _parse(text: str) -> Pattern:
    return _pattern(ast.parse(text.strip(), mode="eval").body)


def _pattern(node: ast.expr) -> Pattern:
    match node:
        case ast.Constant(value=int(value)):
            return Literal(value)
        case ast.Name(id=name):
            return Variable(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return Literal(-value)
        case ast.UnaryOp(op=op, operand=operand):
            return Apply(SPELLINGS[type(op)], (_pattern(operand),))
        case ast.BinOp(left=left, op=op, right=right):
            return Apply(SPELLINGS[type(op)], (_pattern(left), _pattern(right)))
        case ast.Call(func=ast.Name(id=name), args=args):
            return Apply(name, tuple(map(_pattern, args)))
        case ast.BoolOp(op=op, values=values):
            return Apply(SPELLINGS[type(op)], tuple(map(_pattern, values)))
        case ast.Compare(left=left, ops=ops, comparators=right):
            sides = [_pattern(left), *map(_pattern, right)]
            parts = [Apply(SPELLINGS[type(op)], (a, b)) for op, a, b in zip(ops, sides, sides[1:])]
            return parts[0] if len(parts) == 1 else Apply("and", tuple(parts))
    raise ValueError(f"a rule cannot contain {ast.unparse(node)}")


def _variables(pattern: Pattern) -> Iterator[Variable]:
    match pattern:
        case Variable():
            yield pattern
        case Apply(operands=operands):
            for operand in operands:
                yield from _variables(operand)


def _operations(pattern: Pattern) -> Iterator[str]:
    if isinstance(pattern, Apply):
        yield pattern.op
        for operand in pattern.operands:
            yield from _operations(operand)


def matches(
    pattern: Pattern, term: Term, language: Language[Term], bound: Mapping[str, Term]
) -> Iterator[Mapping[str, Term]]:
    """Every binding of the pattern's names under which it is this term."""
    match pattern:
        case Literal(value=value):
            if term == language.literal(value):
                yield bound
        case Variable(name=name):
            if name in bound:
                if bound[name] == term:
                    yield bound
            elif not pattern.constant or language.is_constant(term):
                yield {**bound, name: term}
        case Apply(op=op, operands=operands):
            for reading in language.readings(op, term):
                yield from _all_match(operands, reading, language, bound)


def _all_match(
    patterns: Sequence[Pattern],
    terms: Sequence[Term],
    language: Language[Term],
    bound: Mapping[str, Term],
) -> Iterator[Mapping[str, Term]]:
    if not patterns:
        yield bound
        return
    for first in matches(patterns[0], terms[0], language, bound):
        yield from _all_match(patterns[1:], terms[1:], language, first)


def instantiate(pattern: Pattern, bound: Mapping[str, Term], language: Language[Term]) -> Term:
    """The term that a pattern describes once its names are bound."""
    match pattern:
        case Literal(value=value):
            return language.literal(value)
        case Variable(name=name):
            return bound[name]
        case Apply(op=op, operands=operands):
            return language.build(op, [instantiate(p, bound, language) for p in operands])


def holds(
    condition: Pattern | None, bound: Mapping[str, Term], language: Language[Term], ask: Ask[Term]
) -> bool:
    """Whether a rule's condition is known to be true; each comparison is put to `ask`."""
    match condition:
        case None:
            return True
        case Apply(op="and", operands=operands):
            return all(holds(part, bound, language, ask) for part in operands)
        case Apply(op="or", operands=operands):
            return any(holds(part, bound, language, ask) for part in operands)
        case Apply(op=op, operands=operands):
            return ask(op, [instantiate(part, bound, language) for part in operands])
    raise ValueError(f"not a condition: {condition}")


class RuleTable:
    """Rules by the operation at their root; the first that fits wins."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_op: dict[str, list[tuple[Rule, frozenset[str]]]] = {}
        for rule in self.rules:
            self._by_op.setdefault(rule.left.op, []).append((rule, rule.inner))

    def rewrite(
        self, op: str, operands: Sequence[Term], language: Language[Term], ask: Ask[Term]
    ) -> Term | None:
        """What the operation becomes by the first rule that fits and whose condition holds."""
        fired = self.fire(op, operands, language, ask)
        return None if fired is None else fired[1]

    def fire(
        self, op: str, operands: Sequence[Term], language: Language[Term], ask: Ask[Term]
    ) -> tuple[Rule, Term] | None:
        """As `rewrite`, with the rule that did it."""
        present: set[str] | None = None
        for rule, inner in self._by_op.get(op, ()):
            if inner:
                if present is None:
                    present = {name for term in operands for name in language.operations(term)}
                if not inner <= present:
                    continue
            for bound in _all_match(rule.left.operands, operands, language, {}):
                if holds(rule.condition, bound, language, ask):
                    return rule, instantiate(rule.right, bound, language)
        return None
