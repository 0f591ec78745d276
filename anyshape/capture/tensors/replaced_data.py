"""`x.data = new`: another tensor's memory for a tensor that was handed in.

`new` is what the segment has made, so that it lies in memory of its own when the segment ends,
where the assignment is done, or lies in the memory of another tensor that was handed in, or is what
`x.data` was before. Until then what reads `x` reads `new` (`recording/replaced_tensors.py`), and
what writes `x` writes there, counted by `x` alone. What autograd may have saved of `x`, or of a
view of it, is left to eager torch: but for what `backward()` has gone through, of which nothing is
left.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape.capture.guards.guard_failures import data_of
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.reached import requires
from anyshape.ir.graph import Value
from anyshape.ops import OPS
from anyshape.ops.shared_memory import base_of
from anyshape.symbolic import all_of, eq
from anyshape.version_counters import move_version


def data_replaced(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    """Whether the assignment is part of the segment."""
    recorder = domain.recorder
    real = recorder.real_tensor(x)
    if real is None or recorder.source_of(x.value) is None or real.is_inference():
        return False
    if recorder.depth or not _is_alike(domain, x, new) or _is_recorded(recorder, x.value):
        return False
    root = base_of(new.value, recorder.builder.makers, OPS)
    if _is_former_data(recorder, x, new):
        del recorder.replaced.by[x.value]
    elif root is x.value or new.value in recorder.replaced.by:
        return False
    elif root not in recorder.builder.makers and recorder.source_of(root) is None:
        return False
    else:
        recorder.replaced.by[x.value] = new.value
    domain.identify(x)
    domain.machine.heap.set_tensor_slot(x, x.value, "data", new)
    return True


def _is_former_data(recorder: Recorder, x: TensorValue, new: TensorValue) -> bool:
    """Whether `x` gets back the memory that it had: `x.data` of before."""
    maker = recorder.builder.makers.get(new.value)
    former = maker is not None and maker.op == "data" and maker.args[0] is x.value
    return former and x.value in recorder.replaced.by


def where_it_lies(domain: RecordingDomain, x: Any) -> TensorValue | None:
    """What a write to `x` writes instead: the memory that its data was replaced by. None where it
    was not."""
    recorder = domain.recorder
    if type(x) is not TensorValue or x.value not in recorder.replaced.by:
        return None
    if recorder.depth or (recorder.modes.grad and x.value.tensor.requires_grad):
        raise broken("python-effect", "setting data of a tensor that is used afterwards")
    return TensorValue(recorder.call("data", x.value))


def count_write(domain: RecordingDomain, x: TensorValue) -> None:
    """Counts a write where its data lies as one of `x`."""
    domain.machine.heap.log(move_version, x, (1,))


def _is_alike(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    if type(new) is not TensorValue or new.python not in (None, torch.Tensor):
        return False
    ours, given = x.value.tensor, new.value.tensor
    if given.requires_grad:
        return False
    if (ours.dtype, ours.device, ours.rank) != (given.dtype, given.device, given.rank):
        return False
    pairs = (*zip(ours.shape, given.shape), *zip(ours.strides, given.strides))
    return domain.recorder.decide(all_of(*(eq(a, b) for a, b in pairs)))


def _is_recorded(recorder: Recorder, x: Value) -> bool:
    """Whether what requires gradients was made of `x`, or of what may be a view of it, and there
    are some to be had still."""
    waiting, nodes = [x], recorder.builder.nodes
    seen = {x}
    while waiting:
        for node in recorder.replaced.readers(nodes, waiting.pop()):
            recorded = node.modes is None or node.modes.grad
            if recorded and any(requires(v) and v not in recorder.spent for v in node.outputs):
                return True
            if node.op not in OPS or OPS[node.op].alias != "none":
                waiting += [v for v in node.outputs if v not in seen]
                seen.update(node.outputs)
    return False


def known_by_their_data(recorder: Recorder) -> frozenset[str]:
    """The names of where those lie that are known to be one tensor in each call, and so to lie in
    one place: in the next call they lie elsewhere."""
    sources = map(recorder.source_of, recorder.replaced.by)
    pinned = (source for source in sources if source is not None and source.is_pinned)
    return frozenset(data_of(source.text) for source in pinned)
