"""Integers nobody knows yet: expressions, relations, facts. Standard library only.

Read `expr.py` first (the normal form), then `conditions.py` (relations), `facts.py` (what is
known), `solve.py` and `render.py`. `expr.py`, `atoms.py`, `polynomial.py` and `text.py` are one
recursive definition: an expression is a sum of products of atoms, and an atom holds expressions.
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
    Policy,
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
from anyshape.symbolic.enough import enough
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
from anyshape.symbolic.extent import Ceilings
from anyshape.symbolic.facts import Contradiction, Facts
from anyshape.symbolic.parse import parse_condition, parse_dim
from anyshape.symbolic.polynomial import nothing_cancelled, split_since
from anyshape.symbolic.render import evaluate, evaluator, not_negative, to_python, unknowns
from anyshape.symbolic.solve import Mismatch, bind, restate, solvable, substitute, unify
from anyshape.symbolic.sums import (
    NamedSums,
    Sized,
    SymbolsSeen,
    nested_parts,
    symbols_of_all,
    unknowns_of_all,
)

__all__ = [
    "AllOf",
    "AnyOf",
    "Atom",
    "Broadcast",
    "Ceilings",
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
    "Policy",
    "Relation",
    "Sized",
    "Space",
    "Symbol",
    "SymbolsSeen",
    "age",
    "all_of",
    "any_of",
    "bind",
    "broadcast",
    "ceildiv",
    "enough",
    "eq",
    "evaluate",
    "evaluator",
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
    "not_negative",
    "nothing_cancelled",
    "parse_condition",
    "parse_dim",
    "restate",
    "solvable",
    "split_since",
    "substitute",
    "symbols_of",
    "symbols_of_all",
    "to_python",
    "total",
    "unify",
    "unknowns",
    "unknowns_of_all",
]
