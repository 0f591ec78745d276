"""`torch.inference_mode()` and `with torch.device(...)`: contexts whose modes a segment has inside
of it alone.

In: a context that is entered or left. Out: the modes of the nodes that follow. A segment that ends
inside, or hands out what eager makes in another mode than the one it is run in, is captured again
without this (``NotWithin``), and then ends where the context is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.guards.execution_modes import TorchModes
from anyshape.capture.heap.breaks import broken
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.reached import requires
from anyshape.ir.graph import Arg, Node, TensorType, Value, values_in
from anyshape.nouns import replace
from anyshape.ops.shared_memory import base_of
from anyshape.ops.table import OPS


class NotWithin(BaseException):
    """A context was entered that the segment may not hold."""


def refuse_open(recorder: Recorder) -> None:
    """The segment ends here. Raises ``NotWithin``."""
    if recorder.modes.outer is not None:
        raise NotWithin


def under_inference(recorder: Recorder, outputs: Sequence[Arg]) -> bool:
    """Whether the graph is to run in inference mode: all that it makes anew and hands out was made
    in it. Raises ``NotWithin`` where that is so of some."""
    builder = recorder.builder
    inside = [n for n in builder.nodes if n.modes is not None and n.modes.inference]
    if recorder.entry_modes.inference or not inside:
        return False
    if any(_is_refused(recorder, node) for node in builder.nodes if not _is_inside(node)):
        raise NotWithin
    tensors = [v for v in values_in(tuple(outputs)) if isinstance(v.type, TensorType)]
    makers = [_maker_of_memory(recorder, value) for value in tensors]
    found = {_is_inside(node) for node in makers if node is not None}
    if len(found) > 1:
        raise NotWithin
    return found == {True}


def _is_inside(node: Node) -> bool:
    return node.modes is not None and node.modes.inference


def _maker_of_memory(recorder: Recorder, value: Value) -> Node | None:
    makers = recorder.builder.makers
    return makers.get(base_of(value, makers, OPS))


def _is_refused(recorder: Recorder, node: Node) -> bool:
    """Whether eager may raise: it writes to what was made in inference mode, or keeps it for a
    gradient."""
    row = OPS.get(node.op)
    if row is None or not (row.mutates or any(map(requires, node.outputs))):
        return False
    makers = (_maker_of_memory(recorder, value) for value in node.read)
    return any(maker is not None and _is_inside(maker) for maker in makers)


def _enter_inference(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    (context,) = args
    wanted = context.__dict__.get("mode")
    if not domain.machine.heap.is_created(context) or type(wanted) is not bool:
        return NotImplemented
    _enter(domain, lambda modes: replace(modes, inference=wanted, grad=not wanted))


def _leave_inference(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if domain.recorder.modes.outer is None:
        return NotImplemented
    _leave(domain, ("inference", "grad"))


def _enter_device(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    (device,) = args
    _enter(domain, lambda modes: replace(modes, default_device=device))
    return device


def _leave_device(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if domain.recorder.modes.outer is None:
        raise broken("unknown-call", "torch.device.__exit__")
    _leave(domain, ("default_device",))


def _enter(domain: RecordingDomain, change: Callable[[TorchModes], TorchModes]) -> None:
    recorder = domain.recorder
    if not domain.enters_contexts or recorder.depth:
        raise broken("unknown-call", "a context of modes")
    recorder.modes = replace(change(recorder.modes), outer=recorder.modes)


def _leave(domain: RecordingDomain, names: Sequence[str]) -> None:
    modes = domain.recorder.modes
    outer = modes.outer
    assert outer is not None
    before: dict[str, Any] = {name: getattr(outer, name) for name in names}
    domain.recorder.modes = replace(modes, **before, outer=outer.outer)


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    torch.inference_mode.__enter__: _enter_inference,
    torch.inference_mode.__exit__: _leave_inference,
}
NATIVE: Mapping[Any, Callable[..., Any]] = {
    torch.device.__enter__: _enter_device,
    torch.device.__exit__: _leave_device,
}
