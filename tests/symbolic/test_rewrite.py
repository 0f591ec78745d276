"""The rewriter knows no integers: here it rewrites nested tuples of strings."""

from __future__ import annotations

import pytest

from anyshape.rewrite import RuleTable, parse_rule, parse_rules


class Words:
    """Terms are ints, names, or (operation, operand, ...)."""

    def readings(self, op, term):
        return [term[1:]] if isinstance(term, tuple) and term[0] == op else []

    def build(self, op, operands):
        return (op, *operands)

    def literal(self, value):
        return value

    def is_constant(self, term):
        return isinstance(term, int)

    def operations(self, term):
        return [term[0]] if isinstance(term, tuple) else []


TABLE = RuleTable(
    parse_rules(
        """
        # double negation
        twice:     neg(neg(x)) => x
        same:      sub(x, x) => 0
        constant:  sub(x, c) => add(c, neg(x)) if c > 3 or x != c
        """
    )
)


def rewritten(term, ask=lambda op, operands: False):
    return TABLE.rewrite(term[0], term[1:], Words(), ask)


def test_a_name_that_stands_twice_must_be_the_same():
    assert rewritten(("sub", ("f", "a"), ("f", "a"))) == 0
    assert rewritten(("sub", "a", "b")) is None


def test_patterns_reach_into_operands():
    assert rewritten(("neg", ("neg", "a"))) == "a"
    assert rewritten(("neg", "a")) is None


def test_conditions_are_put_to_the_caller():
    asked = []

    def ask(op, operands):
        asked.append((op, *operands))
        return op == "!="

    assert rewritten(("sub", "a", 2), ask) == ("add", 2, ("neg", "a"))
    assert asked == [(">", 2, 3), ("!=", "a", 2)]
    assert rewritten(("sub", "a", 2)) is None


def test_only_constants_stand_for_constant_names():
    assert rewritten(("sub", "a", "b"), lambda op, operands: True) is None


def test_the_first_rule_that_fits_wins_and_is_named():
    rule, term = TABLE.fire("sub", (5, 5), Words(), lambda op, operands: True)
    assert (rule.name, term) == ("same", 0)


def test_what_is_no_rule_is_refused():
    for line in ("a: x => x", "b: f(x) => f(y)", "c: f(x)", "d: f(x.y) => x", "e: f('a') => 1"):
        with pytest.raises(ValueError):
            parse_rule(line)


def test_a_rule_keeps_its_text():
    rule = parse_rule("small: f(x, c1) => x if c1 == 0")
    assert rule.text == "f(x, c1) => x if c1 == 0"
    assert [v.name for v in rule.variables] == ["x", "c1"]
    assert [v.constant for v in rule.variables] == [False, True]
