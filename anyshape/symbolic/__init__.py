"""Integers nobody knows yet: expressions, relations, facts. Standard library only.

Read `expr.py` first (the normal form), then `conditions.py` (relations), `facts.py` (what is
known), `solve.py` and `render.py`.
"""

from anyshape.symbolic.atoms import (
    Atom,
    Broadcast,
    FloorDiv,
    Max,
    Min,
    Mod,
    Monomial,
    Operation,
    Symbol,
    age,
)
from anyshape.symbolic.conditions import (
    AllOf,
    AnyOf,
    Condition,
    Relation,
    all_of,
    any_of,
    eq,
    ge,
    gt,
    indicator,
    le,
    lt,
    ne,
)
from anyshape.symbolic.expr import (
    Dim,
    Expr,
    Space,
    broadcast,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mod,
    symbols_of,
    total,
)
from anyshape.symbolic.facts import Contradiction, Facts
from anyshape.symbolic.parse import parse_condition, parse_dim
from anyshape.symbolic.polynomial import split_since
from anyshape.symbolic.render import evaluate, to_c, to_python, to_triton
from anyshape.symbolic.solve import Mismatch, bind, restate, solvable, substitute, unify
from anyshape.symbolic.sums import NamedSums, Sized, nested_parts, symbols_of_all

__all__ = [
    "AllOf",
    "AnyOf",
    "Atom",
    "Broadcast",
    "Condition",
    "Contradiction",
    "Dim",
    "Expr",
    "Facts",
    "FloorDiv",
    "Max",
    "Min",
    "Mismatch",
    "Mod",
    "Monomial",
    "NamedSums",
    "Operation",
    "Relation",
    "Sized",
    "Space",
    "Symbol",
    "age",
    "all_of",
    "any_of",
    "bind",
    "broadcast",
    "ceildiv",
    "eq",
    "evaluate",
    "floordiv",
    "ge",
    "gt",
    "indicator",
    "le",
    "lt",
    "maximum",
    "minimum",
    "mod",
    "ne",
    "nested_parts",
    "parse_condition",
    "parse_dim",
    "restate",
    "solvable",
    "split_since",
    "substitute",
    "symbols_of",
    "symbols_of_all",
    "to_c",
    "to_python",
    "to_triton",
    "total",
    "unify",
]
