"""Sizes that lie in tensors: `torch.tensor(x.shape[1]) // 2`, read back by a branch, by `.item()`
or by an operator that wants an integer.

In: the nodes of a segment, as they are made. Out: of an int64 tensor without dimensions that is
computed from sizes alone, which size it is; of a bool, which condition. So the program is asked
about sizes and not about data. Where anything is written in place, all is forgotten.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from anyshape.ir.dtypes import bool_, int64
from anyshape.ir.graph import Node, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar
from anyshape.ops.table import OPS
from anyshape.symbolic import (
    Condition,
    Dim,
    Expr,
    Facts,
    eq,
    floordiv,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mod,
    ne,
)

Content: TypeAlias = Dim | Condition | bool
Rule: TypeAlias = Callable[[Any, Any, Mapping[str, Any], Facts | None], Any]


def _whole_part(a: Any, b: Any, kwargs: Mapping[str, Any], facts: Facts | None) -> Any:
    """A quotient, where it is the same however it is rounded, or rounded down."""
    mode = kwargs.get("rounding_mode")
    if mode == "trunc" and (facts is None or facts.known(ge(a, 0)) is not True):
        return None
    return None if mode is None else _floor(a, b, kwargs, facts)


def _floor(a: Any, b: Any, kwargs: Mapping[str, Any], facts: Facts | None) -> Any:
    return floordiv(a, b) if isinstance(b, int) and b > 0 else None


def _rest(a: Any, b: Any, kwargs: Mapping[str, Any], facts: Facts | None) -> Any:
    return mod(a, b) if isinstance(b, int) and b > 0 else None


def _scaled(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda a, b, kwargs, facts: function(a, b) if kwargs.get("alpha", 1) == 1 else None


def _of(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda a, b, kwargs, facts: function(a, b)


OF_TWO: Mapping[str, Rule] = MappingProxyType(
    {
        "add": _scaled(operator.add),
        "sub": _scaled(operator.sub),
        "div": _whole_part,
        "floor_divide": _floor,
        "remainder": _rest,
        "mul": _of(operator.mul),
        "maximum": _of(maximum),
        "minimum": _of(minimum),
        **{r.__name__: _of(r) for r in (eq, ne, lt, le, gt, ge)},
    }
)
SAME = frozenset({"clone", "alias", "to_dtype"})


class Held:
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
        if node.op == "full":
            return _number(node.args[1])
        first, second, *_ = (*map(self._operand, node.args[:2]), None, None)
        if first is None or node.op in SAME:
            return first
        if node.op == "neg":
            return -first
        rule = OF_TWO.get(node.op)
        if rule is None or second is None:
            return None
        return rule(first, second, node.kwargs, facts)

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
