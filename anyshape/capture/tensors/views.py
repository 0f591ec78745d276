"""Does eager call a tensor a view? Asked by ``_is_view()`` and ``_base``. And tensors that become
a view of what they were: `x.unsqueeze_(0)`.

In: a proxy. Out: yes or no, by the operators that made it, and by the very sizes of the call where
only they tell; whether the proxy stands for the view from now on.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.ir.graph import Value
from anyshape.ops import OPS
from anyshape.ops.shared_memory import base_of, is_view


def views(domain: RecordingDomain, x: TensorValue) -> bool | None:
    """Whether eager calls it a view, where that is known."""
    domain.recorder.asked[x.value] = None
    recorder = domain.recorder
    builder = recorder.builder
    for value in (x.value, base_of(x.value, builder.makers, OPS)):
        recorder.choices.refuse_root(value)
        recorder.layouts_read |= value in recorder.taken  # a gradient of eager's may be a view
    known = is_view(builder.cx, OPS, builder.makers, x.value)
    return _views_at_these_sizes(domain, x.value) if known is None else known


def is_a_view(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x._is_view()`."""
    known = views(domain, args[0])
    if known is None:
        raise broken("tensor-attribute", "_is_view()")
    return known


def _views_at_these_sizes(domain: RecordingDomain, value: Value) -> bool | None:
    """The same, with each size on the way to what it may view guarded: what a segment hands out
    has memory of its own, and would be none."""
    makers = domain.recorder.builder.makers
    base, here = base_of(value, makers, OPS), value
    while True:
        for dim in (*here.tensor.shape, *here.tensor.strides):
            domain.recorder.specialize(dim, "_is_view()")
        if here is base:
            return is_view(domain.recorder.cx, OPS, makers, value, exact=True)
        here = makers[here].read[0]


def may_become_a_view(domain: RecordingDomain, x: Any) -> bool:
    """Whether it lies in memory that was made here, which nothing else views, and autograd records
    nothing of it: of what was handed in, the object itself changes, and other views know it."""
    recorder, functions = domain.recorder, domain.functions
    if type(x) is not TensorValue or x.python is not None or x.attributes:
        return False
    if recorder.depth or recorder.modes.checkpoint or functions.inside or functions.transforms:
        return False
    if x.value.tensor.requires_grad or 0 in x.value.tensor.strides:  # which cannot be written
        return False
    base = base_of(x.value, recorder.builder.makers, OPS)
    if base not in recorder.builder.makers or recorder.source_of(base) is not None:
        return False
    return views(domain, x) is False and not _is_viewed_besides(domain, x.value, base)


def _is_viewed_besides(domain: RecordingDomain, value: Value, base: Value) -> bool:
    """Whether something views the memory but for what ``value`` has become."""
    makers = domain.recorder.builder.makers
    own = {value}
    while value is not base:
        value = makers[value].read[0]
        own.add(value)
    for node in domain.recorder.builder.nodes:
        row = OPS.get(node.op)
        is_view = row is None or (row.alias != "none" and not row.mutates)
        if is_view and own.isdisjoint(node.outputs):
            if any(base_of(read, makers, OPS) is base for read in node.read):
                return True
    return False


def become(domain: RecordingDomain, x: TensorValue, made: TensorValue) -> None:
    """Whoever knows `x` knows ``made``, a view of it, from now on; to eager it is no view even so.
    That counts as a write: autograd refuses what it has saved of `x`."""
    recorder = domain.recorder
    recorder.call("copy_", x.value, x.value)
    domain.wrote_tensor(x)
    x.value = recorder.call("detach", made.value)
