"""Sizes that lie in tensors: `torch.tensor(x.shape[1]) // 2`, read back by a branch, by `.item()`
or by an operator that wants an integer.

In: the nodes of a segment, as they are made. Out: of an int64 tensor of one element that is
computed from sizes alone, which size it is; of a bool, which condition. So the program is asked
about sizes and not about data. What may lie in memory that is written in place is forgotten.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import bool_, int64
from anyshape.ir.graph import Node, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar
from anyshape.ops import ranges
from anyshape.ops.build import Builder
from anyshape.ops.table import OPS, Content
from anyshape.symbolic import Dim, Expr, Facts, eq


class ScalarContents:
    """What is known of the tensors of one segment."""

    __slots__ = ("_contents",)

    def __init__(self) -> None:
        self._contents: dict[Value, Content] = {}

    def content(self, value: Value) -> Content | None:
        """The size or the condition that a tensor holds; None where that is not known."""
        return self._contents.get(value)

    def read(self, value: Value) -> Value | int | bool | None:
        """What `item()` of the tensor is, without a node; None where data decides it."""
        content = self._contents.get(value)
        if content is None or isinstance(content, (int, bool)):
            return content
        if isinstance(content, Expr):
            return Value(value.name, ScalarType("int", content))
        return Value(value.name, ScalarType("bool", Scalar("bool", "value", (content,))))

    def hold(self, value: Value, content: Content) -> None:
        """Learns of one tensor of one element."""
        self._contents[value] = content

    def note(self, builder: Builder, before: int, facts: Facts | None) -> None:
        """Learns from the nodes from `before` on. `facts` are those that hold ever after; None
        inside a fork."""
        for node in builder.nodes[before:]:
            row = OPS.get(node.op)
            if row is None or row.guessed:
                self._contents.clear()
            elif row.mutates:
                written = _memory_of(builder, node)
                kept = self._contents.items()
                self._contents = {v: c for v, c in kept if _memory(builder, v) not in written}
            elif len(node.outputs) == 1 and _may_hold(node.output):
                content = self._made(node, facts)
                if content is not None and _is_of(content, node.output):
                    self._contents[node.output] = content

    def _made(self, node: Node, facts: Facts | None) -> Content | None:
        row = OPS[node.op]
        rule = ranges.content if row.keeps_elements or node.op == "select" else row.holds
        return rule and rule(facts, [*map(self._operand, node.args)], node.kwargs)

    def _operand(self, arg: Any) -> Dim | None:
        return _number(self._contents.get(arg) if isinstance(arg, Value) else arg)


def _number(what: Any) -> Dim | None:
    return what if isinstance(what, Expr) or type(what) is int else None


def _may_hold(value: Value) -> bool:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype not in (int64, bool_):
        return False
    return all(size == 1 for size in kind.shape)


def are_all_positions(builder: Builder, x: Value) -> bool:
    """Whether row `i` of a tensor holds `i`: it has the positions of all elements of a vector."""
    made, value = builder.makers.get(x), x
    while made is not None and OPS[made.op].keeps_elements:
        value = next(made.inputs())
        made = builder.makers.get(value)
    if made is None or made.op != "nonzero":
        return False
    shape = next(made.inputs()).shape
    if len(shape) != 1 or not builder.cx.known(eq(shape[0], x.shape[0])):
        return False
    return not any(
        _memory(builder, value) in _memory_of(builder, node)
        for node in builder.nodes[builder.nodes.index(made) :]
        if node.op not in OPS or OPS[node.op].mutates
    )


def _memory_of(builder: Builder, node: Node) -> set[Value | None]:
    return {_memory(builder, value) for value in node.inputs()}


def _memory(builder: Builder, value: Value) -> Value | None:
    """What made the memory that a tensor may lie in; None where the segment was handed it."""
    while value in builder.makers:
        node = builder.makers[value]
        row = OPS.get(node.op)
        if row is not None and not row.mutates and row.alias == "none":
            return value
        first = next(node.inputs(), None)
        if first is None:
            return value
        value = first
    return None


def _is_of(content: Content, value: Value) -> bool:
    """Whether a tensor of this dtype holds it as it is."""
    return (_number(content) is None) is (value.dtype is bool_)
