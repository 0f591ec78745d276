"""A branch on a tensor, or on a number that data decides.

In: the value, at a jump of a frame. Out: its truth, where the other side can only raise, which a
check sees to; the frame where both sides meet again (`sizes/data_join.py`); what is expected of it
(`recording/expected_numbers.py`); or a graph break.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import ScalarValue, TensorValue
from anyshape.capture.interpreter.control_flow import ends_loop
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.sizes import data_join, join, numbers, sides
from anyshape.capture.sizes.merging import NotJoined
from anyshape.capture.tensors import tensor_ops
from anyshape.ir.scalars import Scalar
from anyshape.ops.layout import numel
from anyshape.symbolic import eq


def branch(domain: RecordingDomain, value: Any, frame: Frame) -> Any:
    """The truth of `value` for a jump of `frame`, as `join.branch` gives it."""
    recorder = domain.recorder
    raising = None if recorder.depth else join.raising_outcome(domain, frame)
    if raising is not None and _is_number(value):
        return _checked(domain, value, truth=not raising)
    if recorder.expected.knows(frame):  # in a turn before this one, say
        expected = _expected(domain, value, frame)
        if expected is not None:
            return _checked(domain, value, truth=expected)
    return _joined(domain, value, frame)


def _is_number(value: Any) -> bool:
    return type(value) is ScalarValue or numel(value.value.shape) == 1


def _checked(domain: RecordingDomain, value: Any, *, truth: bool) -> bool:
    """The truth, which a check tests."""
    recorder = domain.recorder
    if type(value) is ScalarValue:
        holds = numbers.unary(recorder, "bool", value).scalar
        recorder.call("number", "check", (holds if truth else Scalar("bool", "not", (holds,)),))
    else:
        bad = tensor_ops.compare(domain, "==" if truth else "!=", value, 0)
        recorder.call("check_false", bad.value)
    return truth


def _joined(domain: RecordingDomain, value: Any, frame: Frame) -> Any:
    """Both sides run; where they cannot be joined, one is expected, or the segment ends."""
    recorder = domain.recorder
    mark = recorder.mark()
    try:
        number = _number(domain, value) if type(value) is TensorValue else value
        return data_join.branch(domain, numbers.unary(recorder, "bool", number).scalar, frame)
    except NotJoined as reason:
        recorder.rollback(mark)
        join.refuse(domain, "what data decides", reason)
    expected = _expected(domain, value, frame)
    if expected is not None:
        return _checked(domain, value, truth=expected)
    if type(value) is ScalarValue:
        raise recorder.undecided(value.scalar)
    raise broken("tensor-branch")


def _expected(domain: RecordingDomain, value: Any, frame: Frame) -> bool | None:
    """What most calls find here, where that may be relied on: at no jump that ends a loop."""
    recorder = domain.recorder
    name, _ = frame.code.opcodes[frame.index - 1]
    if recorder.depth or not sides.decides(name) or ends_loop(frame.code, frame.index - 1):
        return None
    nodes, found = recorder.builder.nodes, recorder.expected.numbers
    if type(value) is ScalarValue:
        truth = found.of_number(nodes, value.scalar)
    else:
        truth = found.of_tensor(nodes, value.value) if _is_number(value) else None
    recorder.here()
    return recorder.expected.truth(recorder.cx, truth, frame, "a number that data decides")


def _number(domain: RecordingDomain, value: TensorValue) -> Any:
    if not domain.recorder.cx.known(eq(numel(value.value.shape), 1)):
        raise NotJoined("a tensor of more than one element")
    return tensor_ops.read_number(domain, value, "bool")
