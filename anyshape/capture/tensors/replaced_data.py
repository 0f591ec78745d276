"""`x.data = new`: another tensor's memory for a tensor that was handed in.

`new` is what the segment has made, so that it lies in memory of its own when the segment ends,
where the assignment is done. Until then what reads `x` reads `new` (`recording/refused_calls.py`).
What autograd may have saved of `x`, or of a view of it, is left to eager torch.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import TensorType, Value
from anyshape.ops import OPS
from anyshape.ops.shared_memory import base_of
from anyshape.symbolic import all_of, eq


def data_replaced(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    """Whether the assignment is part of the segment."""
    recorder = domain.recorder
    real = recorder.real_tensor(x)
    if real is None or recorder.source_of(x.value) is None or real.is_inference():
        return False
    if recorder.depth or not _is_alike(domain, x, new) or _is_recorded(recorder, x.value):
        return False
    root = base_of(new.value, recorder.builder.makers, OPS)
    if root not in recorder.builder.makers or recorder.source_of(root) is not None:
        return False
    domain.identify(x)
    recorder.replaced.by[x.value] = new.value
    domain.machine.heap.set_tensor_slot(x, x.value, "data", new)
    return True


def _is_alike(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    if type(new) is not TensorValue or new.python is not None:
        return False
    ours, given = x.value.tensor, new.value.tensor
    if ours.requires_grad or given.requires_grad:
        return False
    if (ours.dtype, ours.device, ours.rank) != (given.dtype, given.device, given.rank):
        return False
    pairs = (*zip(ours.shape, given.shape), *zip(ours.strides, given.strides))
    return domain.recorder.decide(all_of(*(eq(a, b) for a, b in pairs)))


def _is_recorded(recorder: Recorder, x: Value) -> bool:
    """Whether what requires gradients was made of `x`, or of what may be a view of it."""
    waiting, nodes = [x], recorder.builder.nodes
    seen = {x}
    while waiting:
        for node in recorder.replaced.readers(nodes, waiting.pop()):
            if any(isinstance(v.type, TensorType) and v.type.requires_grad for v in node.outputs):
                return True
            if node.op not in OPS or OPS[node.op].alias != "none":
                waiting += [v for v in node.outputs if v not in seen]
                seen.update(node.outputs)
    return False


def known_by_their_data(recorder: Recorder) -> frozenset[str]:
    """The sources of those that are known to be one tensor in each call, and so to lie in one
    place: in the next call they lie elsewhere."""
    sources = map(recorder.source_of, recorder.replaced.by)
    return frozenset(source.text for source in sources if source is not None and source.is_pinned)
