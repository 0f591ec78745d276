"""Strides of their own that arguments have in dimensions of one element, where these say how the
other dimensions of a result lie.

Types have strides as if every size were above 1. ATen sorts the dimensions of a result by the
strides of its operands. Where one operand has all dimensions, one of a single element moves alone.
Where none has, as of what is broadcast (``x[:, None].expand(-1, n, -1) > 0``) or indexed, it may
take another dimension past a third, which it does not compare with: then the result lies otherwise
than its type says, a reshape of it is no view, and numbers drawn into it go elsewhere.

In: a recorder whose program has ended. Out: guards that arguments lie as their types say, where
that matters; ``StridesOfOnesMatter`` where the example does not, so that capture begins again with
sizes of 1, and their very strides, in the types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.aliases import lies_as_read
from anyshape.ir.graph import Node, TensorType, Value
from anyshape.ops import OPS
from anyshape.ops.index import INDEXED
from anyshape.ops.row_major_results import is_row_major
from anyshape.ops.rules import PointwiseRule
from anyshape.ops.shared_memory import base_of, written_in
from anyshape.symbolic import Dim, any_of, eq, ge, symbols_of

RESHAPES = frozenset(name for name, row in OPS.items() if row.views_where is not None) | {"view"}
"""Operators that give views, or copies, or are refused, by how their argument lies."""


class StridesOfOnesMatter(BaseException):
    """An argument has a stride of its own in a dimension of one element, and it is read; or how an
    index lies is, of what lies in another order: ATen views its positions with dimensions of 1."""


def rely_on_strides_of_ones(recorder: Recorder, outputs: Iterable[Any]) -> None:
    """Guards the strides of the arguments that say how a result lies whose layout is asked for, by
    the program, by a reshape or by numbers that are drawn into it one after the other in memory,
    where dimensions of one element may decide that."""
    nodes = recorder.builder.nodes
    reshaped = [node.read[0] for node in nodes if node.op in RESHAPES]
    laid = {*recorder.laid, *(v for node in nodes if _draws(node) for v in node.outputs)}
    asked = {*laid, *reshaped}
    if not asked or not any(map(_leaves_order_open, nodes)):
        return
    if not recorder.own_strides:
        _refuse_indices(recorder, {*laid, *_seen(nodes, reshaped, outputs)})
    deciding: set[Value] = set()
    for node, reaches in _reached(recorder, asked):
        if reaches or _leaves_order_open(node):
            deciding.update(node.inputs())
    for entry in tuple(recorder.builder.inputs):
        if entry.value in deciding and isinstance(entry.value.type, TensorType):
            _rely_on_strides(recorder, entry.value)


def _draws(node: Node) -> bool:
    row = OPS.get(node.op)
    return row is not None and row.random


def _reached(recorder: Recorder, asked: set[Value]) -> Iterator[tuple[Node, bool]]:
    """The nodes that say how what is asked for lies, the last ones first, and whether one between
    leaves an order open."""
    asked, deciding = set(asked), set[Value]()
    for node in reversed(recorder.builder.nodes):
        decides = not deciding.isdisjoint(node.outputs)
        if (decides or not asked.isdisjoint(node.outputs)) and lies_as_read(recorder, node):
            yield node, decides
            open_now = decides or _leaves_order_open(node)
            (deciding if open_now else asked).update(node.inputs())


def _seen(
    nodes: Sequence[Node], reshaped: Sequence[Value], outputs: Iterable[Any]
) -> Iterator[Value]:
    """Those in whose memory the program writes, or is handed something."""
    makers = {value: node for node in nodes for value in node.outputs}
    seen = written_in(nodes, OPS)
    seen |= {base_of(made, makers, OPS) for made in outputs if isinstance(made, Value)}
    return (value for value in reshaped if base_of(value, makers, OPS) in seen)


def _refuse_indices(recorder: Recorder, asked: set[Value]) -> None:
    """How an index lies of what is not row-major is worked out at the very sizes of 1."""
    for node, _ in _reached(recorder, asked) if asked else ():
        if node.op in INDEXED and _leaves_order_open(node) and not _is_of_rows(recorder, node):
            raise StridesOfOnesMatter


def _is_of_rows(recorder: Recorder, node: Node) -> bool:
    """Are all tensors that it reads row-major by their types?"""
    tensors = [v for v in node.read if isinstance(v.type, TensorType)]
    return all(is_row_major(recorder.builder, value) for value in tensors)


def _leaves_order_open(node: Node) -> bool:
    """Are there two dimensions of the result that no operand tells apart? Or is it an image, whose
    channels are innermost or not by every stride of its operands?"""
    row = OPS.get(node.op)
    if row is None or row.alias != "none" or row.mutates or len(node.outputs) != 1:
        return False
    kind = node.output.type
    if not isinstance(kind, TensorType) or kind.rank < 3:
        return False
    operands = [v.tensor for v in node.read if isinstance(v.type, TensorType)]
    if node.op in INDEXED or row.image_order is not None:
        return True
    if not isinstance(row.type, PointwiseRule):
        return any(0 in t.strides for t in operands)
    return not any(t.shape == kind.shape and 0 not in t.strides for t in operands)


def _rely_on_strides(recorder: Recorder, value: Value) -> None:
    source, real = recorder.source_of(value), recorder.real_tensor(TensorValue(value))
    if source is None or real is None or value.name in recorder.constants:
        return
    known = recorder.cx.known
    shape = [_simplified(recorder, size) for size in value.shape]
    empty = [is_0 for size in shape if known(is_0 := eq(size, 0)) is not False]
    for dim in _dimensions_of_one(recorder, shape):
        stride = recorder.sources.child(source, "stride", dim)
        read = recorder.measured(real.stride(dim), stride).expr
        as_typed = any_of(eq(read, _simplified(recorder, value.tensor.strides[dim])), *empty)
        if not recorder.decide_or_check(as_typed, "a stride that its sizes give"):
            assert not recorder.own_strides
            raise StridesOfOnesMatter


def _simplified(recorder: Recorder, dim: Dim) -> Dim:
    """In sizes that equal layers have in common, where a guard may ask for those."""
    found = recorder.cx.facts.simplify(dim)
    backed = all(symbol.policy == "backed" for symbol in symbols_of(found))
    return found if backed else dim


def _dimensions_of_one(recorder: Recorder, shape: Sequence[Dim]) -> Iterator[int]:
    """Those that may have one element."""
    for dim, size in enumerate(shape):
        if recorder.cx.known(ge(size, 2)) is not True:
            yield dim
