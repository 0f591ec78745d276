"""Random integer programs for the tests: built twice, as expressions and as plain Python."""

from __future__ import annotations

from functools import reduce

from hypothesis import strategies as st

from anyshape.symbolic import (
    Space,
    broadcast,
    evaluate,
    floordiv,
    maximum,
    minimum,
    mod,
)

OPERATORS = ("+", "-", "*", "//", "%", "min", "max", "broadcast")
CONSTANTS = (-6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 64)


class Undefined(Exception):
    """Division by zero, or sizes that do not broadcast."""


def tree(names, operators=OPERATORS, max_leaves=8):
    """A nested tuple (operator, left, right), a name or an int."""
    leaves = st.sampled_from(names) | st.sampled_from(CONSTANTS)
    return st.recursive(
        leaves,
        lambda inner: st.tuples(st.sampled_from(operators), inner, inner),
        max_leaves=max_leaves,
    )


def plain_broadcast(a, b):
    others = {a, b} - {1}
    if len(others) > 1:
        raise Undefined
    return others.pop() if others else 1


def plain(node, env):
    """What Python says the tree is."""
    if isinstance(node, int):
        return node
    if isinstance(node, str):
        return env[node]
    op, a, b = node
    x, y = plain(a, env), plain(b, env)
    if op in ("//", "%") and y == 0:
        raise Undefined
    return {
        "+": lambda: x + y,
        "-": lambda: x - y,
        "*": lambda: x * y,
        "//": lambda: x // y,
        "%": lambda: x % y,
        "min": lambda: min(x, y),
        "max": lambda: max(x, y),
        "broadcast": lambda: plain_broadcast(x, y),
    }[op]()


BUILD = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "//": floordiv,
    "%": mod,
    "min": minimum,
    "max": maximum,
    "broadcast": broadcast,
}


def built(node, symbols):
    """The tree as an expression; Undefined when a constant makes it so for all sizes."""
    if isinstance(node, int):
        return node
    if isinstance(node, str):
        return symbols[node]
    op, a, b = node
    x, y = built(a, symbols), built(b, symbols)
    try:
        return BUILD[op](x, y)
    except (ZeroDivisionError, ValueError) as error:
        raise Undefined from error


def value(dim, env):
    """`evaluate`, or Undefined."""
    try:
        return evaluate(dim, env)
    except (ZeroDivisionError, ValueError) as error:
        raise Undefined from error


def signed_symbols(names):
    space = Space()
    return {name: space.symbol(name, signed=True) for name in names}


def environments(names, low=-5, high=9):
    return st.fixed_dictionaries({name: st.integers(low, high) for name in names})


def as_sum(items):
    return reduce(lambda a, b: a + b, items)
