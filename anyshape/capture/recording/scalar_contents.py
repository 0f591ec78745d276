"""Sizes that lie in tensors: `torch.tensor(x.shape[1]) // 2`, read back by a branch, by `.item()`
or by an operator that wants an integer.

In: the nodes of a segment, as they are made. Out: of an int64 tensor of one element that is
computed from sizes alone, which size it is; of a bool, which condition. So the program is asked
about sizes and not about data. What may lie in memory that is written in place is forgotten.

    n_frames = torch.ceil((length - self.kernel_size) / self.stride).to(torch.int64)

Numbers in tensors that were handed in, such as buffers of a module, are data as long as that is
enough. Where it is not, capture begins again and relies on them as on any number kept outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from anyshape.ir.dtypes import bool_, float32, float64, int64
from anyshape.ir.graph import Node, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar
from anyshape.ops import ranges
from anyshape.ops.build import Builder
from anyshape.ops.table import OPS, Content, ContentRule, Ratio
from anyshape.symbolic import Condition, Dim, Expr, Facts, eq


class Outside(Protocol):
    """What a segment was handed; ``relies``: guards are made."""

    def number(self, value: Value, *, relies: bool) -> Dim | None:
        """That in a tensor without dimensions; None where it holds no integer."""

    def holds(self, condition: Condition | bool, *, relies: bool) -> bool:
        """Does it, by what is known or at the example sizes?"""


class ScalarContents:
    """What is known of the tensors of one segment. ``relies``: may it rely on what those hold that
    it was handed? ``withheld``: they would have told a number that the program needs."""

    __slots__ = ("_contents", "_data", "_unseen", "_written", "outside", "relies", "withheld")

    def __init__(self) -> None:
        self._contents: dict[Value, Content] = {}
        self._data: set[Value] = set()  # of which it is known that data decides them
        self._written: set[Value | None] = set()
        self._unseen = False  # may something have been written that no node tells of?
        self.outside: Outside | None = None
        self.relies = self.withheld = False

    def content(self, value: Value) -> Content | None:
        """The size or the condition that a tensor holds; None where that is not known."""
        return self._contents.get(value)

    def read(self, builder: Builder, value: Value) -> Value | int | bool | None:
        """What `item()` of the tensor is, without a node; None where data decides it."""
        content = self.needed(builder, value)
        if content is None or isinstance(content, (int, bool)):
            return content
        if isinstance(content, Expr):
            return Value(value.name, ScalarType("int", content))
        if isinstance(content, Ratio):
            return None
        return Value(value.name, ScalarType("bool", Scalar("bool", "value", (content,))))

    def needed(self, builder: Builder, value: Value) -> Content | None:
        """As `content`, of a number that the program needs: tensors that were handed in may tell
        it."""
        known = self._contents.get(value)
        if known is not None or self.outside is None or self._unseen or self.withheld:
            return known
        found = self._computed(builder, value, self.outside)
        self.withheld |= found is not None and not self.relies
        return found if self.relies else None

    def _computed(self, builder: Builder, value: Value, outside: Outside) -> Content | None:
        """What a tensor holds that is computed of sizes and of what was handed in, nothing of which
        has been written."""
        holds = partial(outside.holds, relies=self.relies)
        made: dict[Value, Content | None] = {}
        waiting = [value]
        while waiting:
            x = waiting[-1]
            found = self._contents.get(x)
            if x in made or found is not None:
                made[waiting.pop()] = made.get(x, found)
                continue
            node = builder.makers.get(x)
            if x in self._data or self._is_data(builder, x, node):
                self._data |= {value, x}
                return None
            if node is None:
                made[x] = outside.number(x, relies=self.relies)
            else:
                rule = _rule(node)
                assert rule is not None
                missing = [v for v in node.inputs() if v not in made]
                if missing:
                    waiting += missing
                    continue
                operands = [_operand(arg, made) for arg in node.args]
                content = rule(holds, operands, node.kwargs)
                made[x] = content if content is not None and _is_of(content, x) else None
            if made[x] is None:
                return None
        return made[value]

    def _is_data(self, builder: Builder, x: Value, node: Node | None) -> bool:
        """Does nothing that was handed in or computed of sizes tell what it holds?"""
        if not _may_hold(x) or _memory(builder, x) in self._written:
            return True
        return node is not None and _rule(node) is None

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
                self._unseen |= row is None
            elif row.mutates:
                written = _memory_of(builder, node)
                self._written |= written
                kept = self._contents.items()
                self._contents = {v: c for v, c in kept if _memory(builder, v) not in written}
            elif len(node.outputs) == 1 and _may_hold(node.output):
                content = self._made(node, facts)
                if content is not None and _is_of(content, node.output):
                    self._contents[node.output] = content

    def _made(self, node: Node, facts: Facts | None) -> Content | None:
        def holds(condition: Condition | bool) -> bool:
            known = condition if isinstance(condition, bool) else facts and facts.known(condition)
            return known is True

        rule = _rule(node)
        return rule and rule(holds, [_operand(a, self._contents) for a in node.args], node.kwargs)


def _rule(node: Node) -> ContentRule | None:
    row = OPS.get(node.op)
    if row is None:
        return None
    is_picked = node.op == "select" or (row.keeps_elements and row.holds is None)
    return ranges.content if is_picked else row.holds


def _operand(arg: Any, contents: Mapping[Value, Content | None]) -> Dim | Ratio | None:
    what = contents.get(arg) if isinstance(arg, Value) else arg
    return what if isinstance(what, (Expr, Ratio)) or type(what) is int else None


HOLDING = frozenset({int64, bool_, float32, float64})


def _may_hold(value: Value) -> bool:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype not in HOLDING:
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
    """Whether a tensor of this dtype holds it as it is. On a GPU, eager may divide in another
    way."""
    if isinstance(content, Ratio):
        return value.dtype in (float32, float64) and value.tensor.device == "cpu"
    is_number = isinstance(content, Expr) or type(content) is int
    return value.dtype is (int64 if is_number else bool_)
