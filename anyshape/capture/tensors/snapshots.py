"""What a deferred effect shows: its arguments as they are now, whatever is written afterwards.

In: the arguments of a `print` or a log record. Out: the same with tensors copied and containers
of this trace copied at any depth. Containers from outside are written by the same ordered log
that the effect is in. What cannot be copied without showing ends the segment instead.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import torch

from anyshape.capture.guards.constant_kinds import CONSTANTS, EQUAL, IDENTITY
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.values import PROXIES, TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors import tensor_ops


def snapshot(domain: RecordingDomain, value: Any) -> Any:
    """`value` as it is now, for an effect that happens later."""
    kind = type(value)
    if kind is TensorValue:
        return _copied(domain, value)
    if (
        kind in CONSTANTS
        or kind in PROXIES
        or kind is tensor_ops.SizeTuple
        or isinstance(value, (*IDENTITY, *EQUAL))
    ):
        return value
    if kind is tuple:
        return tuple([snapshot(domain, item) for item in value])
    heap = domain.machine.heap
    if heap.real(value) is not value or not heap.is_created(value):
        return value
    if kind in (dict, OrderedDict):
        return heap.create(kind((k, snapshot(domain, item)) for k, item in value.items()))
    if kind is deque:
        return heap.create(deque([snapshot(domain, item) for item in value], value.maxlen))
    if kind in (list, set):
        return heap.create(kind([snapshot(domain, item) for item in value]))
    raise broken("python-effect", f"printing an object of class {bare_name(kind)}")


def _copied(domain: RecordingDomain, value: TensorValue) -> Any:
    """A copy that prints as the tensor does."""
    shown = domain.type_of(value)
    if shown is not torch.Tensor or value.value.tensor.requires_grad or value.attributes:
        raise broken("python-effect", "printing a tensor with gradients")
    return tensor_ops.call_row(domain, "clone", value)
