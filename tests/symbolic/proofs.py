"""z3's view of expressions, conditions and rules, for tests."""

from __future__ import annotations

import z3

from anyshape.rewrite import Apply, Literal, Variable
from anyshape.symbolic import AllOf, Relation


def divided(a, b, side):
    """Floor quotient and remainder of two z3 integers as Python has them; b != 0 goes to `side`."""
    if z3.is_int_value(b):
        d = b.as_long()
        if d == 0:
            side.append(z3.BoolVal(False))
            return z3.IntVal(0), z3.IntVal(0)
        q = a / b if d > 0 else -a / -b
        return q, a - b * q
    q, r = z3.FreshInt("q"), z3.FreshInt("r")
    side.append(a == b * q + r)
    side.append(z3.Or(z3.And(0 <= r, r < b), z3.And(b < r, r <= 0)))
    return q, r


def folded(word, xs, side):
    """min, max or broadcast of z3 integers."""
    result = xs[0]
    for x in xs[1:]:
        if word == "broadcast":
            side.append(z3.Or(result == x, result == 1, x == 1))
            result = z3.If(result == 1, x, result)
        else:
            result = z3.If((result <= x) if word == "min" else (result >= x), result, x)
    return result


def of_dim(dim, names, side):
    """A dim over z3 integers; where it is defined goes to `side`."""
    if isinstance(dim, int):
        return z3.IntVal(dim)
    result = z3.IntVal(dim.constant)
    for monomial, coefficient in dim.terms.items():
        product = z3.IntVal(coefficient)
        for atom in monomial:
            product = product * of_atom(atom, names, side)
        result = result + product
    return result


def of_atom(atom, names, side):
    if not atom.word:
        return names[atom]
    args = [of_dim(arg, names, side) for arg in atom.args]
    if atom.word in ("//", "%"):
        return divided(*args, side)[atom.word == "%"]
    return folded(atom.word, args, side)


def of_condition(condition, names, side):
    if isinstance(condition, bool):
        return z3.BoolVal(condition)
    if isinstance(condition, Relation):
        form = of_dim(condition.form, names, side)
        return compare(condition.kind, form, condition.bound)
    parts = [of_condition(part, names, side) for part in condition.parts]
    return z3.And(parts) if isinstance(condition, AllOf) else z3.Or(parts)


def compare(kind, a, b):
    return {
        "eq": lambda: a == b,
        "ne": lambda: a != b,
        "ge": lambda: a >= b,
        "le": lambda: a <= b,
        "gt": lambda: a > b,
        "lt": lambda: a < b,
    }[kind]()


KINDS = {"==": "eq", "!=": "ne", ">=": "ge", "<=": "le", ">": "gt", "<": "lt"}


def of_pattern(pattern, names, side):
    """One side of a rule over z3 integers."""
    match pattern:
        case Literal(value=value):
            return z3.IntVal(value)
        case Variable(name=name):
            return names[name]
        case Apply(op="and" | "or" as op, operands=operands):
            parts = [of_pattern(part, names, side) for part in operands]
            return z3.And(parts) if op == "and" else z3.Or(parts)
        case Apply(op=op, operands=operands):
            args = [of_pattern(part, names, side) for part in operands]
            if op in KINDS:
                return compare(KINDS[op], *args)
            if op in ("//", "%"):
                return divided(*args, side)[op == "%"]
            if op in ("min", "max", "broadcast"):
                return folded(op, args, side)
            return {"+": lambda: args[0] + args[1], "-": lambda: args[0] - args[1]}.get(
                op, lambda: args[0] * args[1]
            )()
    raise AssertionError(pattern)
