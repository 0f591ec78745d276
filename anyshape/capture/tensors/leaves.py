"""Which tensors are leaves: `requires_grad_()`, `requires_grad = ...`, `detach_()`, `grad_fn`.

In: a tensor that the program changes so. Out: the node that says it, or nothing where nothing
changes; else the caller ends the segment.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording import gradients
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import Value
from anyshape.ops import OPS
from anyshape.ops.gradients.backward import AS_LEAF
from anyshape.ops.shared_memory import DETACHED

BASE = "_base"  # of a view, what it views


def may_make_leaves(domain: RecordingDomain) -> bool:
    recorder = domain.recorder
    within = recorder.depth or recorder.modes.checkpoint or domain.functions.inside
    return not (within or recorder.modes.inference or domain.functions.refused)


def leaf_made(domain: RecordingDomain, x: TensorValue) -> bool:
    """`x.requires_grad_()` of a tensor that was made here and that nothing views: whoever knows it
    knows a leaf from now on. False where it is none such."""
    recorder, value = domain.recorder, x.value
    own = recorder.source_of(value) is None and x.python is None
    if not own or not may_make_leaves(domain) or not value.dtype.is_floating:
        return False
    if value.tensor.requires_grad:
        return True
    if _is_viewed_or_written(domain, value):
        return False
    made = recorder.call(AS_LEAF, value)
    gradients.require(made)
    x.value = made
    domain.functions.leaves[made] = x
    return True


def flag_set(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    """Makes a tensor require gradients, or not: a leaf that was made here, or what was handed in.
    False where the caller is to end the segment."""
    return (new is True and leaf_made(domain, x)) or (
        type(new) is bool and _flag_of_argument_set(domain, x, new)
    )


def _flag_of_argument_set(domain: RecordingDomain, x: TensorValue, new: bool) -> bool:
    """Of a leaf that was handed in, and that nothing has read: the graph finds it so, as its flag
    is set before the graph runs (``segments/flagged_arguments.py``)."""
    recorder, value = domain.recorder, x.value
    real = recorder.real_tensor(x)
    if real is None or not value.dtype.is_floating or not may_make_leaves(domain):
        return False
    if real.is_inference() or real.grad_fn is not None or value in domain.functions.hooked:
        return False
    if any(value in node.read for node in recorder.builder.nodes) or value in recorder.written:
        return False
    no_grad_fn(domain, x)
    gradients.mark(value, new)
    recorder.runs.clear()
    domain.functions.flagged.pop(value, None)
    if new != real.requires_grad:
        domain.functions.flagged[value] = new
    return True


def has_that_flag(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    """`x.requires_grad = new` of a leaf that is so already, or that is made so."""
    if domain.functions.transforms:  # torch refuses it
        return False
    if type(new) is not bool or new != x.value.tensor.requires_grad:
        return flag_set(domain, x, new)
    no_grad_fn(domain, x)  # which is relied on: eager torch refuses it of results
    return True


def detached_in_place(domain: RecordingDomain, x: TensorValue) -> bool:
    """`x.detach_()` of a tensor that was made here, is no view and has none, and of one that was
    handed in and is detached already; False of others."""
    recorder, value = domain.recorder, x.value
    if _is_detached(recorder, x):
        return True
    maker, functions = recorder.builder.makers.get(value), domain.functions
    if maker is None or OPS[maker.op].alias != "none" or OPS[maker.op].mutates:
        return False
    if x.python is not None or x.attributes or not may_make_leaves(domain):
        return False
    if functions.calls or functions.alone or value in functions.leaves:
        return False
    if _is_viewed_or_written(domain, value, DETACHED) or _may_be_saved(domain, value):
        return False
    if value.tensor.requires_grad:
        x.value = recorder.call("detach", value)
    return True


def _is_detached(recorder: Recorder, x: TensorValue) -> bool:
    """That it was handed in and requires no gradients, relied on being no view: these raise."""
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    if source is None or real is None or x.value.tensor.requires_grad:
        return False
    if getattr(real, BASE) is not None or real.is_inference():
        return False
    recorder.guard(recorder.sources.child(source, "attr", BASE), "equals", None)
    return True


def _may_be_saved(domain: RecordingDomain, value: Value) -> bool:
    """Whether gradients are to come of what was computed of it: eager torch refuses these where it
    has saved the tensor itself."""
    if not value.tensor.requires_grad or value in domain.recorder.spent:
        return False
    return any(
        value in node.read and node.op not in DETACHED for node in domain.recorder.builder.nodes
    )


def _is_viewed_or_written(
    domain: RecordingDomain, value: Value, views: frozenset[str] = frozenset()
) -> bool:
    """Whether a node does so, but for such ``views``."""
    for node in domain.recorder.builder.nodes:
        if node.op in views:
            continue
        row = OPS.get(node.op)
        if value in node.read and (row is None or row.mutates or row.alias != "none"):
            return True
    return False


def is_written_nowhere(domain: RecordingDomain, x: Value) -> bool:
    """Whether it was made in memory of its own, and no node views or writes it."""
    row = OPS.get(domain.recorder.builder.makers[x].op)
    own = row is not None and row.alias == "none" and not row.mutates
    return own and not _is_viewed_or_written(domain, x)


def no_grad_fn(domain: RecordingDomain, x: TensorValue) -> None:
    """None, relied on for what is handed in; ends the segment where there is something."""
    recorder = domain.recorder
    if not x.value.tensor.requires_grad or x.value in domain.functions.leaves:
        return
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    if source is None or real is None or real.grad_fn is not None or x.value in recorder.written:
        raise broken("tensor-attribute", "grad_fn")
    recorder.guard(recorder.sources.child(source, "attr", "grad_fn"), "equals", None)
