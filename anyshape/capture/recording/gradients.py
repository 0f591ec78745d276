"""Which results require gradients: eager's rules, decided by the types of values.

In: the nodes that a call has just made. Out: their results' types, and those of what they write,
say whether eager's would require gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anyshape.ir.graph import Node, TensorType, Value
from anyshape.nouns import replace
from anyshape.ops import OPS
from anyshape.ops.context import TypeContext
from anyshape.ops.gradients.indexing import source_and_index
from anyshape.ops.shared_memory import lies_in_argument
from anyshape.symbolic import eq


def propagate(cx: TypeContext, nodes: Sequence[Node], before: int, grad: bool) -> None:
    """Says of what the nodes from `before` on make, and write, whether it requires gradients.
    Without grad mode only a view does, where its base does."""
    for node in nodes[before:]:
        row = OPS.get(node.op)
        constant = row is not None and not row.differentiable
        kept = grad or _is_view(cx, node)
        wanted = kept and not constant and any(map(_requires, node.inputs()))
        if wanted or constant:
            for value in (*_results(node), *(_written(node, nodes) if wanted else ())):
                mark(value, wanted)
        if wanted:
            _guard_source(cx, node)


def _results(node: Node) -> Iterator[Value]:
    """Those that may require gradients."""
    row = OPS.get(node.op)
    fixed = frozenset() if row is None else row.constant_results
    return (value for position, value in enumerate(node.outputs) if position not in fixed)


def _guard_source(cx: TypeContext, node: Node) -> None:
    """Guards whether a scatter's source is as long as its index, where its gradient is recorded:
    the rule has a formula for that, and eager, which records the others, refuses their gradient."""
    for size, read in source_and_index(node):
        alike = eq(size, read)
        if cx.hint(alike) is not None:
            cx.decide(alike)


def require(made: Value) -> None:
    """It was made with ``requires_grad=True``."""
    mark(made, True)


def _is_view(cx: TypeContext, node: Node) -> bool:
    row = OPS.get(node.op)
    if row is None or row.mutates or not node.args or not isinstance(node.args[0], Value):
        return False
    return lies_in_argument(cx, node, row)


def mark(value: Value, wanted: bool) -> None:
    """Says whether it requires gradients, if it can."""
    kind = value.type
    if isinstance(kind, TensorType):
        differentiable = kind.dtype.is_floating or kind.dtype.is_complex
        value.type = replace(kind, requires_grad=wanted and differentiable)


def _requires(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.requires_grad


def _written(node: Node, nodes: Sequence[Node]) -> Iterator[Value]:
    """What an in-place operator writes: its first argument, and what that is a view of."""
    row = OPS.get(node.op)
    if row is None or not row.mutates:
        return
    makers = {output: made for made in nodes for output in made.outputs}
    target = node.args[0]
    while isinstance(target, Value):
        yield target
        maker = makers.get(target)
        above = None if maker is None else OPS.get(maker.op)
        if maker is None or above is None or above.alias == "none":
            return
        target = maker.args[0] if maker.args else None
