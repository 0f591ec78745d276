"""A node whose row has no gradient rule, or whose rule has no formula for its arguments, becomes
one that torch's autograd records.

    %y = cdist(%a, %b)   ->   %y, %h = recorded("torch.cdist", (%a, %b), (), (), (0, 1), (1,))

Of what the graph is given, eager's own rule says what a later write spoils: autograd keeps it as it
lies. Anything else that it keeps is copied, since the program may write that memory again.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from anyshape.autograd.memory import roots
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.nouns import replace
from anyshape.ops.gradients.backward import gives_sparse
from anyshape.ops.gradients.recorded import (
    CONSTANT,
    HANDLE,
    RECORDED,
    SEVERAL,
    is_tensor,
    tensors_in,
)
from anyshape.ops.table import OpDef
from anyshape.symbolic import Expr


def may_be_recorded(node: Node, row: OpDef | None) -> bool:
    """Whether the row has no rule (nor an expansion for these arguments, which would stand here in
    its place), and torch's autograd can record the node."""
    return row is not None and not isinstance(row.vjp, Mapping) and can_be_recorded(node, row)


def can_be_recorded(node: Node, row: OpDef) -> bool:
    """Whether torch's function gives all the results of the node and does nothing else."""
    return (
        row.alias == "none"
        and not row.mutates
        and not node.regions
        and row.resource in RECORDED
        and all(isinstance(value.type, TensorType) for value in node.outputs)
        and (row.torch in SEVERAL or sum(map(has_gradients, node.outputs)) == 1)
        and not gives_sparse(node, row)
        and not any(map(_hides_tensors, (*node.args, *node.kwargs.values())))
    )


def has_gradients(value: Value) -> bool:
    """Whether a tensor is of a type of which there are gradients."""
    return value.dtype.is_floating or value.dtype.is_complex


def is_complex(node: Node) -> bool:
    """Whether complex numbers are among what the node reads or makes."""
    tensors = filter(is_tensor, (*node.inputs(), *node.outputs))
    return any(value.dtype.is_complex for value in tensors)


def _hides_tensors(arg: Arg) -> bool:
    if isinstance(arg, tuple):
        return any(map(_hides_tensors, arg))
    return isinstance(arg, slice) and bool(tensors_in(arg))


def constant_in(node: Node, row: OpDef) -> frozenset[Value]:
    """What the node reads and has no gradient of, not even zeros."""
    found = CONSTANT.get(row.torch)
    if found is None or not found.holds(node.args, node.kwargs):
        return frozenset()
    others = (*node.args[: found.position], *node.args[found.position + 1 :], *node.kwargs.values())
    return frozenset(tensors_in(node.args[found.position])) - set(tensors_in(others))


def recorded(node: Node, row: OpDef, active: Set[Value], callers: Set[Value], handle: str) -> Node:
    """The node that gives the same results, and a handle of this name behind them. ``active``: what
    has gradients; ``callers``: what lies in memory that only the caller writes."""
    first, options = node.args[:1], dict(node.kwargs)
    function = row.torch
    if row.number_first is not None and any(map(_is_number, first)):
        function = row.number_first
        options = {name: value for name, value in options.items() if value is not None}
    named = tuple(options.values())
    tensors = tensors_in((node.args, named))
    wanted = tuple(i for i, value in enumerate(tensors) if value in active)
    callers_own = tuple(i for i, value in enumerate(tensors) if value in callers)
    return replace(
        node,
        op=RECORDED[row.resource],
        args=(function, node.args, tuple(options), named, wanted, callers_own),
        kwargs={},
        outputs=(*node.outputs, Value(handle, HANDLE)),
    )


def in_callers_memory(graph: Graph, ops: Mapping[str, OpDef]) -> frozenset[Value]:
    """The inputs of the graph, and views of them."""
    inputs = {entry.value for entry in graph.inputs if is_tensor(entry.value)}
    owner = roots(graph, ops)
    return frozenset(inputs | {value for value, root in owner.items() if root in inputs})


def _is_number(arg: Arg) -> bool:
    return isinstance(arg, (int, float, Expr, Scalar, ScalarInput)) or (
        isinstance(arg, Value) and not is_tensor(arg)
    )
