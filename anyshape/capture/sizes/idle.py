"""Writes of nothing: what an in-place node leaves as it was, where certain sizes are 0.

    out.index_add_(0, rows, values)     # rows is empty

In: facts and a node. Out: whether it surely writes no element. A branch that leaves out work where
there is none is joined by that (``join.py``).
"""

from __future__ import annotations

from anyshape.ir.graph import Node, TensorType
from anyshape.nouns import replace
from anyshape.ops.rules import tensor
from anyshape.ops.table import OPS, Scatter
from anyshape.symbolic import Facts, eq


def writes_nothing(facts: Facts, node: Node) -> bool:
    """The facts say that what is written, or every index that is named in it, has no element."""
    row = OPS[node.op]
    (target, *_) = node.read
    if _is_empty(facts, tensor(target)):
        return True
    pure = OPS.get(row.functional or "")
    if pure is None or pure.data_indices is None:
        return False
    if not isinstance(pure.lower, Scatter) and not pure.scatters:
        return False
    indices = pure.data_indices(replace(node, op=pure.name))
    return any(_is_empty(facts, index.value.tensor) for index in indices)


def _is_empty(facts: Facts, kind: TensorType) -> bool:
    zero = [size == 0 if isinstance(size, int) else facts.known(eq(size, 0)) for size in kind.shape]
    return True in zero
