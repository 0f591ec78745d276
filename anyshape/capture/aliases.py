"""Copy or view, where that depends on a size: decided only if anybody could tell the difference.

In: the nodes of a capture, what was written and what is returned. `x.t().contiguous()` is `x` itself at one row and a copy otherwise; that
matters where one of the two is written, or both are visible outside. Then the question is decided by a guard; nearly always nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from anyshape.capture.recorder import Recorder
from anyshape.ir.graph import Arg, Node, TensorType, Value, values_in
from anyshape.ops import OPS
from anyshape.symbolic import Condition, Dim, all_of, any_of, eq

COPIES = frozenset({"contiguous", "reshape", "reshape_as", "flatten", "ravel", "unflatten"})


class Classes:
    """Tensors that share memory for sure (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}

    def of(self, value: Value) -> Value:
        while value in self._parent:
            value = self._parent[value]
        return value

    def join(self, a: Value, b: Value) -> None:
        a, b = self.of(a), self.of(b)
        if a is not b:
            self._parent[b] = a


def is_row_major(kind: TensorType) -> Condition | bool:
    """The condition on sizes under which a tensor of this type lies in memory row by row."""
    parts: list[Condition | bool] = []
    expected: Dim = 1
    for size, stride in zip(reversed(kind.shape), reversed(kind.strides)):
        parts.append(any_of(eq(size, 1), eq(stride, expected)))
        expected = expected * size
    return all_of(*parts)


def settle(recorder: Recorder, outputs: Iterable[Arg]) -> None:
    """Guards whether a copy is a view, for each copy of which that can be seen."""
    nodes = recorder.builder.nodes
    unsure = [node for node in nodes if node.op in COPIES and _is_unsure(recorder, node)]
    if not unsure:
        return
    classes = Classes()
    for node in nodes:
        row = OPS.get(node.op)
        sure = row is not None and (row.alias == "view" or row.mutates)
        if sure or (node.op in COPIES and node not in unsure):
            first = next(node.inputs(), None)
            for output in node.outputs if first is not None else ():
                classes.join(first, output)  # type: ignore[arg-type]
    written = {classes.of(value) for value in recorder.written}
    inputs = {classes.of(entry.value) for entry in recorder.builder.inputs}
    returned = {classes.of(value) for value in values_in(tuple(outputs))}
    for node in unsure:
        source, copy = classes.of(node.args[0]), classes.of(node.output)  # type: ignore[arg-type]
        touched = source in written or copy in written
        seen = copy in returned and (source in returned or source in inputs)
        if touched or seen:
            _decide(recorder, node.args[0].tensor)  # type: ignore[union-attr]


def _decide(recorder: Recorder, kind: TensorType) -> None:
    """Guards one relation for each dimension, as the example sizes have it: facts that are no disjunctions simplify types."""
    whole = is_row_major(kind)
    if recorder.cx.known(whole) is not None:
        return
    if recorder.cx.hint(whole) is not True:  # type: ignore[arg-type]
        recorder.decide(whole)
        return
    expected: Dim = 1
    for size, stride in zip(reversed(kind.shape), reversed(kind.strides)):
        for part in (eq(size, 1), eq(stride, expected)):
            if part is True or (
                not isinstance(part, bool) and recorder.cx.hint(part) and recorder.decide(part)
            ):
                break
        expected = expected * size


def _is_unsure(recorder: Recorder, node: Node) -> bool:
    """Whether the node copies as a rule, and may not where sizes are one."""
    before, after = node.args[0].tensor, node.output.tensor  # type: ignore[union-attr]
    if node.op != "contiguous" and _is_view(recorder, before, after):
        return False
    return recorder.cx.known(is_row_major(before)) is None


def _is_view(recorder: Recorder, before: TensorType, after: TensorType) -> bool:
    """A reshape that the rule made a view keeps a stride of its input where it is not row-major."""
    return after.strides != _row_major(after)


def _row_major(kind: TensorType) -> tuple[Dim, ...]:
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(kind.shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))
