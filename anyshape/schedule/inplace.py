"""Writes that are done where the caller's tensor lies, as eager torch does them.

    %v = index_put(%x, (%i,), %u); ...; assign(%x, %v)   ->   x[i] = u; ...

In: an analysed graph. Out: each such ``%v`` with the input whose memory is its own; its copy and
the final assignment are left out, so that writing one row of a long cache costs one row.

The segment may still fail after the write, and is then run again by eager torch. That is why only
writes count that can be done twice: they set elements (no sums), and nothing else reads ``%x``, so
that neither what is written nor where depends on what was there.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.ir.graph import Node, Value, values_in
from anyshape.ops.table import assignment
from anyshape.schedule.analysis import Analysis
from anyshape.schedule.scatter import write_mode


def written_in_place(found: Analysis) -> Mapping[Value, Value]:
    """The results of scatters that are assigned to inputs, with the input."""
    reads: dict[Value, list[Node]] = {}
    for node in found.nodes:
        for value in node.inputs():
            reads.setdefault(value, []).append(node)
    escaping = {_root(found, value) for value in values_in(found.graph.outputs)}
    homes: dict[Value, Value] = {}
    for node in found.nodes:
        if not assigns(found, node):
            continue
        target, source = node.args
        assert isinstance(target, Value)
        if isinstance(source, Value) and _is_set(found, source, target):
            scatter = found.nodes[found.producer[source]]
            alone = reads[target] == [scatter, node] and source not in escaping
            if alone and source not in homes:
                homes[source] = target
    return homes


def assigns(found: Analysis, node: Node) -> bool:
    """Is it the write that functionalization leaves of all those to an input?"""
    return assignment(found.ops.get(node.op)) is not None


def _is_set(found: Analysis, value: Value, target: Value) -> bool:
    """Does a scatter set elements of ``target`` itself, in the memory of a tensor as laid out?"""
    if found.kind_of(value) != "scatter" or target in found.producer:
        return False
    node = found.nodes[found.producer[value]]
    sets = write_mode(found.ops[node.op], node) == "set"
    alike = value.dtype is target.dtype and value.shape == target.shape
    return sets and node.args[0] is target and alike and 0 not in target.tensor.strides


def _root(found: Analysis, value: Value) -> Value:
    """What a view is a view of, all the way."""
    while found.kind_of(value) == "view":
        first = found.nodes[found.producer[value]].args[0]
        assert isinstance(first, Value)
        value = first
    return value
