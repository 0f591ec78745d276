"""Sizes that lie in tensors: `torch.tensor(x.shape[1]) // 2`, read back by a branch, by `.item()`
or by an operator that wants an integer.

In: the nodes of a segment, as they are made. Out: of an int64 tensor without dimensions that is
computed from sizes alone, which size it is; of a bool, which condition. So the program is asked
about sizes and not about data. Where anything is written in place, all is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyshape.ir.dtypes import bool_, int64
from anyshape.ir.graph import Node, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar
from anyshape.ops.table import OPS, Content
from anyshape.symbolic import Dim, Expr, Facts


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

    def note(self, nodes: Sequence[Node], before: int, facts: Facts | None) -> None:
        """Learns from the nodes from `before` on. `facts` are those that hold ever after; None
        inside a fork."""
        for node in nodes[before:]:
            row = OPS.get(node.op)
            if row is None or row.mutates or row.guessed:
                self._contents.clear()
            elif len(node.outputs) == 1 and _may_hold(node.output):
                content = self._made(node, facts)
                if content is not None and _is_of(content, node.output):
                    self._contents[node.output] = content

    def _made(self, node: Node, facts: Facts | None) -> Content | None:
        rule = OPS[node.op].holds
        return rule and rule(facts, [*map(self._operand, node.args)], node.kwargs)

    def _operand(self, arg: Any) -> Dim | None:
        return _number(self._contents.get(arg) if isinstance(arg, Value) else arg)


def _number(what: Any) -> Dim | None:
    return what if isinstance(what, Expr) or type(what) is int else None


def _may_hold(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and not kind.shape and kind.dtype in (int64, bool_)


def _is_of(content: Content, value: Value) -> bool:
    """Whether a tensor of this dtype holds it as it is."""
    return (_number(content) is None) is (value.dtype is bool_)
