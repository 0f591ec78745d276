"""``backward()`` inside a graph: the gradients of some tensors, with respect to others.

A pass (``autograd/inlined.py``) replaces the node by what computes the gradients; where that is not
covered, eager torch runs the graph, this node included. Where gradients go through functions of the
program's own, there is a node for each part of the way (``capture/tensors/autograd_functions.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyshape.ir.graph import Node, TensorType, Value, row_major
from anyshape.ops import parts, write_back
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import dense_order, strides_in_order
from anyshape.ops.rules import same_as
from anyshape.ops.table import OpDef, op

GRADIENTS = "gradients"
FUNCTION_RESULT = "function_result"
"""What an `autograd.Function` gives, as a leaf: its own backward goes on behind it."""

AS_LEAF = "as_leaf"
"""What the program makes a leaf of: gradients end there."""
LEAVES = frozenset({FUNCTION_RESULT, AS_LEAF})
APPLIED = "applied_function"
"""An `autograd.Function` with its own backward, the region: of the gradients of the results, and
of what it captures, it gives a gradient for each argument, or None."""


def gone_through(nodes: Sequence[Node], of: set[Value], wanted: set[Value]) -> set[Value]:
    """The results of the nodes that ``backward()`` goes through: those between what is
    differentiated and what gradients are wanted of. Behind a function's result its own backward
    goes on."""
    leading: set[Value] = set()
    for node in nodes:
        if node.op == FUNCTION_RESULT:
            leading.update(wanted.intersection(node.outputs))
        elif is_recorded(node) and any(v in wanted or v in leading for v in node.inputs()):
            leading.update(filter(requires, node.outputs))
    found = leading.intersection(of)
    for node in reversed(nodes):
        if is_recorded(node) and node.op != GRADIENTS and not found.isdisjoint(node.outputs):
            found.update(leading.intersection(node.inputs()))
    return found


def is_recorded(node: Node) -> bool:
    """Whether autograd sees the node."""
    return node.modes is not None and node.modes.grad


def requires(value: Value) -> bool:
    """Whether eager's tensor would require gradients."""
    return isinstance(value.type, TensorType) and value.type.requires_grad


SPARSE = ("sparse", "sparse_grad")
"""Options of torch's operators by which their gradients are sparse tensors."""


def gives_sparse(node: Node, row: OpDef) -> bool:
    """Whether eager's gradients may be sparse tensors."""
    given = dict(zip(row.signature.names, node.args, strict=False)) | dict(node.kwargs)
    return any(given.get(name, False) is not False for name in SPARSE)


RECORDED_IN_PLACE = frozenset(
    {*(f"{name}_" for name in ("eq", "ne", "lt", "gt", "le", "ge")), "fill_", "masked_fill_"}
)
"""Operators whose result requires gradients in eager, whatever its dtype, where they write it in
place and an operand requires some."""

SLICES_OF_A_PART = frozenset({"slice_read", "slice_set"})
"""Operators that are a slice to autograd only where they leave something out."""


def gradient_type(kind: TensorType, order: tuple[int, ...] | None = None) -> TensorType:
    """What autograd keeps as ``.grad``: laid out as the tensor is where that has no holes.
    ``order``: of what it gives otherwise, its dimensions, innermost first."""
    if order is not None:
        strides = strides_in_order(kind.shape, order)
        return TensorType(kind.dtype, kind.device, kind.shape, strides)
    dense = dense_order(kind.shape, kind.strides) is not None
    strides = kind.strides if dense else row_major(kind.shape)
    return TensorType(kind.dtype, kind.device, kind.shape, strides)


def _type(
    cx: TypeContext,
    of: Any,
    cotangents: Any,
    wanted: tuple[Value, ...],
    retain: bool,
    more: bool,
    again: bool,
    orders: tuple[tuple[int, ...] | None, ...] | None = None,
) -> tuple[TensorType, ...]:
    orders = orders or (None,) * len(wanted)
    return tuple(gradient_type(v.tensor, order) for v, order in zip(wanted, orders, strict=True))


op(
    GRADIENTS,
    "of, cotangents, wanted, retain, more, again, orders=None",
    torch="anyshape.eager.gradients",
    type=_type,
    differentiable=False,
)
for _name, _signature in ((FUNCTION_RESULT, "input, number"), (AS_LEAF, "input")):
    op(
        _name,
        _signature,
        torch=f"anyshape.eager_functions.{_name}",
        type=same_as(0),
        expand=lambda b, x, number=0: x,
        alias="view",
        write_back=write_back.same,
        part=parts.same,
        keeps_elements=True,
        differentiable=False,
    )
op(
    APPLIED,
    "arguments, results, captured",
    torch="anyshape.eager_functions.applied_function",
    type=lambda cx, arguments, results, captured: tuple(value.tensor for value in results),
    expand=lambda b, arguments, results, captured: results,
    vjp="region",
)
