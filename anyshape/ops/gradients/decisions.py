"""Rows whose result the last bit of what they read may decide: comparisons of floats, and steps.

What reads such a result computes it once (``autograd/decisions.py``).
"""

from __future__ import annotations

from anyshape.ir.graph import Arg, Node, TensorType, Value

COMPARISONS = frozenset("eq ne lt le gt ge".split())
STEPS = frozenset(
    "floor ceil trunc round low_floor_divide low_quotient low_rfloordiv floor_divide frac".split()
)


def decides(node: Node) -> bool:
    """Whether the last bit of an operand may make another result."""
    if node.op in COMPARISONS:
        return all(map(_is_floating, node.args[:2]))
    if node.op in STEPS:
        return any(map(_is_floating, node.args))
    return any(map(_is_floating, node.args[:1])) and _makes_integers(node)


def _makes_integers(node: Node) -> bool:
    kinds = [v.type for v in node.outputs if isinstance(v.type, TensorType)]
    return node.op == "to_dtype" and not any(kind.dtype.is_floating for kind in kinds)


def _is_floating(arg: Arg) -> bool:
    return (
        isinstance(arg, Value) and isinstance(arg.type, TensorType) and arg.type.dtype.is_floating
    )
