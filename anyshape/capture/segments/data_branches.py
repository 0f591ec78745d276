"""A branch on a tensor, or on a number that data decides.

In: the value, at a jump of a frame. Out: its truth, where the other side can only raise, which a
check sees to; the frame where both sides meet again (`sizes/data_join.py`); or a graph break.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import ScalarValue, TensorValue
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.sizes import data_join, join, numbers
from anyshape.capture.sizes.merging import NotJoined
from anyshape.capture.tensors import tensor_ops
from anyshape.ops.layout import numel
from anyshape.symbolic import eq


def branch(domain: RecordingDomain, value: Any, frame: Frame) -> Any:
    """The truth of `value` for a jump of `frame`, as `join.branch` gives it."""
    recorder = domain.recorder
    raising = None if recorder.depth else join.raising_outcome(domain, frame)
    if raising is not None and type(value) is ScalarValue:
        wanted = numbers.unary(recorder, "not", value) if raising else value
        recorder.call("number", "check", (wanted.scalar,))
        return not raising
    if raising is not None and numel(value.value.shape) == 1:
        bad = tensor_ops.compare(domain, "!=" if raising else "==", value, 0)
        recorder.call("check_false", bad.value)
        return not raising
    return _joined(domain, value, frame)


def _joined(domain: RecordingDomain, value: Any, frame: Frame) -> Any:
    """Both sides run; where they cannot be joined, the segment ends."""
    recorder = domain.recorder
    mark = recorder.mark()
    try:
        number = _number(domain, value) if type(value) is TensorValue else value
        return data_join.branch(domain, numbers.unary(recorder, "bool", number).scalar, frame)
    except NotJoined as reason:
        recorder.rollback(mark)
        join.refuse(domain, "what data decides", reason)
    if type(value) is ScalarValue:
        raise recorder.undecided(value.scalar)
    raise broken("tensor-branch")


def _number(domain: RecordingDomain, value: TensorValue) -> Any:
    if not domain.recorder.cx.known(eq(numel(value.value.shape), 1)):
        raise NotJoined("a tensor of more than one element")
    return tensor_ops.read_number(domain, value, "bool")
