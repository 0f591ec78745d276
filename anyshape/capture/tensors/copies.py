"""`copy.copy` and `copy.deepcopy` of tensors that need no gradient.

In: a call. Out: a view with a version counter of its own, or a clone. Eager torch makes either by
way of the storage, and copies what a program has noted of a tensor; such a tensor ends the segment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import contiguous_strides
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors import tensor_ops


def _copy(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Another tensor of the same memory, whose writes do not count as writes of the first."""
    if kwargs or len(args) != 1 or type(args[0]) is not TensorValue:
        return NotImplemented
    (x,) = args
    if not _is_plain(x) or x.value.tensor.requires_grad or not _has_no_notes(domain, x):
        raise broken("unknown-call", "copy.copy of a tensor that needs gradients, or is more")
    return tensor_ops.call_row(domain, "data", x)


def _deepcopy(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of a contiguous tensor: what a clone is too."""
    x = args[0]
    if type(x) is not TensorValue or not _is_plain(x):
        return NotImplemented
    kind = x.value.tensor
    dense = kind.strides == contiguous_strides(kind.shape)
    if kind.requires_grad or not dense:
        return NotImplemented
    return tensor_ops.call_row(domain, "clone", x)


def _is_plain(x: TensorValue) -> bool:
    return not x.attributes and x.python in (None, torch.Tensor)


def _has_no_notes(domain: RecordingDomain, x: TensorValue) -> bool:
    """Whether the tensor has no attributes of the program's; relies on it."""
    real, source = domain.recorder.real_tensor(x), domain.recorder.source_of(x.value)
    if real is None or source is None:
        return True
    notes = domain.recorder.sources.child(source, "attr", "__dict__")
    domain.recorder.guard(notes, "length", len(real.__dict__))
    return not real.__dict__


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    copy.copy: _copy,
    torch.Tensor.__deepcopy__: _deepcopy,
}
