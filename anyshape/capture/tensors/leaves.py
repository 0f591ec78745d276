"""Which tensors are leaves: `requires_grad_()`, `requires_grad = ...`, `detach_()`, `grad_fn`.

In: a tensor that the program changes so. Out: the node that says it, or nothing where nothing
changes; else the caller ends the segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import ScalarValue, TensorValue
from anyshape.capture.recording import gradients
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.sizes.numbers import decide
from anyshape.capture.tensors.reached import HOOKS, rely_on_leaf, requires
from anyshape.ir.graph import Arg, Value, values_in
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
    if new is True and leaf_made(domain, x):
        return True
    real = domain.recorder.real_tensor(x)
    if type(new) is not bool or real is None or not x.value.dtype.is_floating:
        return False
    if not may_make_leaves(domain) or real.is_inference() or real.grad_fn is not None:
        return False
    if x.value in domain.functions.hooked:
        return False
    if x.value in domain.recorder.replaced.frozen:
        return _thawed(domain, x)
    return _frozen(domain, x, real) if not new else _required_from_the_start(domain, x, real)


def _required_from_the_start(domain: RecordingDomain, x: TensorValue, real: torch.Tensor) -> bool:
    """Of a leaf that was handed in, and that nothing has read: the graph finds it so, as its flag
    is set before the graph runs (``segments/flagged_arguments.py``)."""
    recorder, value = domain.recorder, x.value
    readers = recorder.replaced.readers(recorder.builder.nodes, value)
    if readers or value in recorder.written:
        return False
    no_grad_fn(domain, x)
    gradients.mark(value, True)
    recorder.runs.clear()
    domain.functions.flagged[value] = None
    return True


def _frozen(domain: RecordingDomain, x: TensorValue, real: torch.Tensor) -> bool:
    """Of a leaf that required gradients so far: what is recorded from now on reads `detach()` of
    it, and so gives it none, whatever becomes of the flag. What was recorded before does, where its
    gradients are taken behind a thaw; autograd gives it none as long as it is frozen. The graph
    runs while it requires gradients still: the flag is set behind it."""
    recorder, value, functions = domain.recorder, x.value, domain.functions
    if not real.requires_grad and value not in functions.flagged:
        return False  # it was written since, and is no leaf
    if _is_checkpointed(recorder):
        raise recorder.replaced.seen()
    if not functions.freezes or _asks_for_flags(domain):
        return False
    if any(getattr(real, name) is not None for name in HOOKS):
        return False  # autograd calls these of a leaf that is frozen, too
    rely_on_leaf(domain, x)
    recorder.replaced.frozen[value] = detached = recorder.call("detach", value)
    recorder.replaced.leaves.setdefault(value, []).append(detached)
    return _with_flag(domain, x, False)


def _thawed(domain: RecordingDomain, x: TensorValue) -> bool:
    """What views it requires gradients from now on, too, and is to be read no more."""
    recorder = domain.recorder
    if _asks_for_flags(domain) or _is_checkpointed(recorder):
        raise recorder.replaced.seen()
    detached = recorder.replaced.frozen.pop(x.value)
    recorder.replaced.thawed[detached] = views = _views(recorder, detached)
    for view in views:
        gradients.mark(view, True)
    return _with_flag(domain, x, True)


def _asks_for_flags(domain: RecordingDomain) -> bool:
    """Whether something was called that asks which of its arguments require gradients, and asks
    again, or acts on the answer, when it is differentiated."""
    functions = domain.functions
    unspent = not all(call.is_spent for call in functions.calls)
    return bool(functions.alone or unspent)


def _is_checkpointed(recorder: Recorder) -> bool:
    """Whether a checkpoint is to compute again what gradients come from: with the flags of then."""
    return bool(recorder.checkpointed) and any(
        requires(made) and made not in recorder.spent
        for node in recorder.builder.nodes
        if node.modes is not None and node.modes.checkpoint
        for made in node.outputs
    )


def _with_flag(domain: RecordingDomain, x: TensorValue, new: bool) -> bool:
    gradients.mark(x.value, new)
    domain.recorder.runs.clear()
    domain.machine.heap.set_tensor_slot(x, x.value, "requires_grad", new)
    return True


def _views(recorder: Recorder, detached: Value) -> dict[Value, int]:
    """What views a leaf that is frozen, and how many nodes read each."""
    nodes, replaced = recorder.builder.nodes, recorder.replaced
    views = replaced.views(nodes, detached)
    return {view: len(replaced.readers(nodes, view)) for view in views}


class FrozenViewsAreSeen(BaseException):
    """A view of a leaf that was frozen then is read behind the thaw, or handed out: to autograd it
    is a view of the leaf, with its flag. Capture begins again, and ends where a leaf is frozen."""


def refuse_other_flags(domain: RecordingDomain, outputs: Sequence[Arg]) -> None:
    """At the end of a segment. Raises `FrozenViewsAreSeen`; breaks where gradients are to come,
    outside, of what has read a leaf under another flag than it has now."""
    recorder = domain.recorder
    replaced, makers = recorder.replaced, recorder.builder.makers
    if not replaced.frozen and not replaced.thawed:
        return
    handed_out = {*values_in(tuple(outputs))}
    if replaced.is_seen or _asks_for_flags(domain) or _is_checkpointed(recorder):
        raise replaced.seen()
    if any(requires(v) and v in makers and v not in recorder.spent for v in handed_out):
        if replaced.meets_other_flags(recorder.builder.nodes, recorder.spent):
            raise replaced.seen()
    for detached in (*replaced.frozen.values(), *replaced.thawed):
        views = _views(recorder, detached)
        if replaced.thawed.get(detached, views) != views or not handed_out.isdisjoint(views):
            raise FrozenViewsAreSeen


def with_flags_of_the_graph(recorder: Recorder) -> None:
    """The graph is handed leaves that are frozen where it ends as those that require gradients, and
    no `detach()` in it does."""
    for value in recorder.replaced.frozen:
        gradients.mark(value, True)
    for views in recorder.replaced.thawed.values():
        for view in views:
            gradients.mark(view, False)


def decided_flag(domain: RecordingDomain, flag: Any) -> Any:
    """A flag as autograd takes it: what follows from sizes, or from a number that changes from call
    to call (`p.requires_grad = epoch > 2`), is relied on."""
    is_condition = type(flag) is ScalarValue and flag.kind is bool
    return decide(domain.recorder, flag) if is_condition else flag


def has_that_flag(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    """`x.requires_grad = new` of a leaf that is so already, or that is made so."""
    if domain.functions.transforms:  # torch refuses it
        return False
    new = decided_flag(domain, new)
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
