"""What a scan does at each step, found from what capture has recorded of one step.

In: the tensors that the program's function was given and what it made of them. Out: whether that
is the step of a linear recurrence, for which there is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.domain import RecordingDomain


def is_linear(left: Any, right: Any, made: Any) -> bool:
    """Whether `made` is `(a * c, b * c + d)` of `(a, b)` and `(c, d)`: nobody knows of real
    tensors. While recording: `linear`."""
    return False


def linear(
    domain: RecordingDomain, left: Sequence[Any], right: Sequence[Any], made: Sequence[Any]
) -> bool:
    """The answer, from the last three nodes: two products and a sum."""
    if len(made) != 2 or any(type(x) is not TensorValue for x in (*left, *right, *made)):
        return False
    (a, b), (c, d), (product, total) = ([x.value for x in part] for part in (left, right, made))
    nodes = {node.outputs[0]: node for node in domain.recorder.builder.nodes[-3:]}
    if sorted(node.op for node in nodes.values()) != ["add", "mul", "mul"]:
        return False
    carried = next((v for v, n in nodes.items() if n.op == "mul" and v is not product), None)
    if product not in nodes or total not in nodes or carried is None:
        return False
    return (
        {*nodes[product].args} == {a, c}
        and {*nodes[carried].args} == {b, c}
        and {*nodes[total].args[:2]} == {carried, d}
        and nodes[total].op == "add"
        and nodes[total].kwargs.get("alpha", 1) == 1
    )
