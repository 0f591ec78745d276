"""Every simplification rule is proved: by brute force over small integers and by z3 over all."""

from __future__ import annotations

from itertools import product

import pytest
import z3

from anyshape.rewrite import Apply, Literal, Rule, Variable, instantiate, parse_rule
from anyshape.symbolic import Facts, Space, floordiv, mod
from anyshape.symbolic.expr import ARITHMETIC, COMPARISONS, compare_ints
from anyshape.symbolic.rules import ALWAYS, UNDER_FACTS
from anyshape.symbolic.simplify import RELATIONS
from tests.symbolic.proofs import divided, of_dim, of_pattern
from tests.symbolic.trees import Undefined, plain

RULES = [*ALWAYS.rules, *UNDER_FACTS.rules]
SMALL = range(-5, 8)
CONSTANTS = (*range(-6, 9), 16, 31, 64)
TO_64 = range(-6, 65)


def named(rules):
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.name)


def number(pattern, env):
    """One side of a rule in Python's own integers."""
    match pattern:
        case Literal(value=value):
            return value
        case Variable(name=name):
            return env[name]
        case Apply(op=op, operands=operands):
            return plain((op, *(number(part, env) for part in operands)), {})


def true(condition, env):
    match condition:
        case None:
            return True
        case Apply(op="and", operands=operands):
            return all(true(part, env) for part in operands)
        case Apply(op="or", operands=operands):
            return any(true(part, env) for part in operands)
        case Apply(op=op, operands=operands):
            return COMPARISONS[op](*(number(part, env) for part in operands))


def counterexample(rule: Rule):
    names = [variable.name for variable in rule.variables]
    for values in product(SMALL if len(names) < 4 else SMALL[1:-2:], repeat=len(names)):
        env = dict(zip(names, values))
        try:
            left = number(rule.left, env)
        except Undefined:
            continue
        if not true(rule.condition, env):
            continue
        try:
            if number(rule.right, env) == left:
                continue
        except Undefined:
            pass
        return env
    return None


@named(RULES)
def test_a_rule_holds_for_small_integers(rule):
    assert counterexample(rule) is None


@named(RULES)
def test_a_rule_holds_for_all_integers(rule):
    if refuted(rule, {}, timeout_ms=1500) == z3.unsat:
        return
    divisors = {v.name for v in divisor_variables(rule.left) | divisor_variables(rule.right)}
    numbers = sorted({v.name for v in rule.variables if v.constant} | divisors)
    all_values = product(CONSTANTS if len(numbers) > 2 else TO_64, repeat=len(numbers))
    possible = [
        env
        for values in all_values
        if not impossible(rule.condition, env := dict(zip(numbers, values)))
    ]
    if len(numbers) > 2 and len(possible) > 100:  # a seventh of the triples
        possible = [
            env
            for env in possible
            if not sum(env.values()) % 7 and len(set(map(abs, env.values()))) > 1
        ]
    for env in possible:
        answers = (refuted(rule, env, timeout_ms=1000, seed=seed) for seed in range(6))
        assert next((a for a in answers if a != z3.unknown), z3.unknown) == z3.unsat, env
    assert len(possible) > 10


def impossible(condition, env):
    """Whether constants alone make a condition false, or a divisor zero."""
    try:
        return not true(condition, env) if condition is not None else False
    except KeyError:
        parts = condition.operands if condition.op == "and" else ()
        return any(impossible(part, env) for part in parts)
    except Undefined:
        return True


def divisor_variables(pattern):
    if not isinstance(pattern, Apply):
        return set()
    found = set().union(*map(divisor_variables, pattern.operands))
    if pattern.op in ("//", "%"):
        found |= set(variables_in(pattern.operands[1]))
    return found


def variables_in(pattern):
    if isinstance(pattern, Variable):
        return [pattern]
    return [v for p in getattr(pattern, "operands", ()) for v in variables_in(p)]


def refuted(rule, env, timeout_ms, seed=0):
    """z3's answer to: both sides are defined, the condition holds, and they differ."""
    names = {
        v.name: z3.IntVal(env[v.name]) if v.name in env else z3.Int(v.name) for v in rule.variables
    }
    side: list[z3.BoolRef] = []
    left = of_pattern(rule.left, names, side)
    right = of_pattern(rule.right, names, side)
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.set("smt.random_seed", seed)
    if rule.condition is not None:
        solver.add(of_pattern(rule.condition, names, side))
    solver.add(*side, left != right)
    return solver.check()


def comparisons(condition):
    """The comparisons that a condition is made of."""
    match condition:
        case None:
            return []
        case Apply(op="and" | "or", operands=operands):
            return [one for part in operands for one in comparisons(part)]
        case _:
            return [condition]


@named(ALWAYS.rules)
def test_a_rule_about_constants_can_fire(rule):
    for values in product(range(-2, 9), repeat=len(rule.variables)):
        space = Space()
        terms = {
            v.name: value if v.constant else space.symbol(v.name, signed=True)
            for v, value in zip(rule.variables, values)
        }
        try:
            operands = [instantiate(part, terms, ARITHMETIC) for part in rule.left.operands]
        except ZeroDivisionError:
            continue
        fired = ALWAYS.fire(rule.left.op, operands, ARITHMETIC, compare_ints)
        if fired is not None and fired[0] is rule:
            return
    pytest.fail(f"{rule.name} never fires: an earlier rule or the normal form takes its place")


@named(UNDER_FACTS.rules)
def test_a_rule_fires_when_its_condition_is_all_that_is_known(rule):
    space = Space()
    terms = {v.name: space.symbol(v.name, signed=True) for v in rule.variables}
    facts = Facts(space)
    for one in comparisons(rule.condition):
        facts.assume(RELATIONS[one.op](*(instantiate(p, terms, ARITHMETIC) for p in one.operands)))

    def ask(op, operands):
        return facts.known(RELATIONS[op](*operands)) is True

    operands = [instantiate(part, terms, ARITHMETIC) for part in rule.left.operands]
    fired = UNDER_FACTS.fire(rule.left.op, operands, ARITHMETIC, ask)
    assert fired is not None and fired[0] is rule


DIVISORS = (-64, -7, -3, -2, -1, 1, 2, 3, 4, 6, 8, 12, 31, 64)


@pytest.mark.parametrize("divisor", DIVISORS)
def test_the_normal_form_of_division_by_a_constant_holds_for_all_integers(divisor):
    """Coefficients are split by code, not by rules: every residue of two coefficients is proved."""
    space = Space()
    x, y = space.symbol("x", signed=True), space.symbol("y", signed=True)
    names = {x.symbol: z3.Int("x"), y.symbol: z3.Int("y")}
    solver = z3.Solver()
    solver.set("timeout", 5000)
    some = (-9, -4, -1, 0, 1, 2, 6, 8, 65)
    for a, b, c in product(some, (0, -3, 4), (-5, 0, 3, 63)):
        dim = a * x + b * y + c
        plain_dim = a * names[x.symbol] + b * names[y.symbol] + c
        for word, made in (("//", floordiv(dim, divisor)), ("%", mod(dim, divisor))):
            side: list[z3.BoolRef] = []
            expected = divided(plain_dim, z3.IntVal(divisor), side)[word == "%"]
            solver.push()
            solver.add(of_dim(made, names, side) != expected)
            assert solver.check() == z3.unsat, (dim, word, divisor, made)
            solver.pop()


def test_a_wrong_rule_is_caught_by_both_proofs():
    wrong = parse_rule("wrong: (x // c1) * c1 => x if c1 > 0")
    assert counterexample(wrong) is not None
    assert refuted(wrong, {"c1": 3}, 1000) == z3.sat


def test_a_rule_may_not_invent_names():
    with pytest.raises(ValueError, match="not on the left"):
        parse_rule("wrong: x // y => z")
    with pytest.raises(ValueError, match="name: left => right"):
        parse_rule("x // y == 3")
