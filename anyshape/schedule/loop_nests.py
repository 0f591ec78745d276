"""The loops that a kernel begins with, before any is split.

In: a node of a graph of core rows. Out: a ``LoopNest``.
"""

from __future__ import annotations

from anyshape.ir.graph import Node, Value
from anyshape.ops.table import Reduce
from anyshape.schedule.analysis import Analysis
from anyshape.schedule.draft import Cell, Draft
from anyshape.schedule.groups import LoopNest
from anyshape.schedule.indices import Index
from anyshape.schedule.lower import Lowering, arguments, reduced_dims


def first_nest(found: Analysis, node: Node) -> LoopNest:
    """One loop for each dimension of the result, and one for each that is reduced."""
    row = found.ops[node.op]
    if isinstance(row.lower, Reduce):
        probe = Lowering(found.ops, found.cx, found.sizes, Draft(found.symbols), {}, _nothing)
        dims, _ = reduced_dims(probe, node)
        base = arguments(probe, node)[0]
        assert isinstance(base, Value)
        shape = found.sizes.shape(base.shape)
        kept = tuple((s,) for d, s in enumerate(shape) if d not in dims)
        return LoopNest(kept, tuple((shape[d],) for d in dims) or ((1,),))
    return LoopNest(tuple((size,) for size in found.sizes.shape(node.output.shape)))


def _nothing(value: Value, index: Index, *, whole: bool = False) -> Cell:
    raise AssertionError("nothing is read here")
