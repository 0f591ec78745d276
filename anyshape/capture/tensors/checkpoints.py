"""`torch.utils.checkpoint` while gradients are recorded: the function is captured like any other.
Its nodes say which call they belong to (`Modes.checkpoint`), for `autograd/checkpoints.py`, which
has them computed again.

In: a call of `checkpoint`. Out: a call of the function between two marks. Eager runs the function
twice: what it draws is drawn once here, and kept; where it writes what was there before, or ends
the segment, twice is not once, and torch's own `checkpoint` runs: a break in a checkpoint has the
capture begun again without this (`segments/capturing.py`). One inside another adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import torch.utils.checkpoint

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.undo import has_older_writes
from anyshape.capture.heap.values import Break, Call, TensorValue
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.recording import spans
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.spans import Span
from anyshape.capture.tensors.aliases import writes_older
from anyshape.nouns import frozen, replace
from anyshape.ops.table import OPS

checkpoint = torch.utils.checkpoint.checkpoint
OPTIONS: Mapping[str, Any] = {
    "use_reentrant": None,
    "context_fn": torch.utils.checkpoint.noop_context_fn,
    "determinism_check": "default",
    "debug": False,
    "early_stop": True,
    "preserve_rng_state": True,
}
"""The parameters of `checkpoint` that are not the function's, with their defaults."""


@frozen
class Opened:
    """When the function began, and whether it draws other numbers the second time."""

    span: Span
    redraws: bool


# ---- what stands for the call --------------------------------------------------------------------
def checkpointed(function: Any, args: Any, kwargs: Any, redraws: bool, reentrant: bool) -> Any:
    """Interpreted like a program's own code."""
    opened = begin(redraws)
    made, done = None, False
    try:
        made = function(*args, **kwargs)
        done = True
    finally:
        end(opened, done and reentrant, made)
    return made


def is_within_checkpoint(machine: Machine) -> bool:
    """Whether a checkpoint is called in one of the frames, whose marks capture alone can set."""
    return any(frame.code.code is checkpointed.__code__ for frame in machine.frames())


def begin(redraws: bool) -> Any:
    """From here on nodes belong to a checkpoint; None inside another one. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def end(opened: Any, reentrant: bool, made: Any) -> Any:
    """The function is left. What `use_reentrant=True` gives requires gradients."""
    raise AssertionError("capture handles this function")


# ---- handlers ------------------------------------------------------------------------------------
def _checkpoint(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    options = {name: kwargs.get(name, default) for name, default in OPTIONS.items()}
    named = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    recorder, reentrant = domain.recorder, options["use_reentrant"]
    if reentrant not in (False, True) or not args or (reentrant and named):
        return NotImplemented
    if not recorder.modes.grad:
        return Call(args[0], args[1:], named)
    plain = options["context_fn"] is OPTIONS["context_fn"] and options["debug"] is False
    if not plain or not recorder.checkpoints or recorder.depth:
        return NotImplemented
    if reentrant and not any(map(_requires, args[1:])):
        return NotImplemented
    redraws = options["preserve_rng_state"] is not True
    return Call(checkpointed, (args[0], args[1:], named, redraws, reentrant))


def _begin(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recorder = domain.recorder
    if recorder.modes.checkpoint:
        return None
    recorder.checkpointed += 1
    recorder.modes = replace(recorder.modes, checkpoint=recorder.checkpointed)
    return Opened(spans.begun(domain), args[0])


def _end(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    opened, reentrant, made = args
    if opened is None:
        return
    recorder, heap, span = domain.recorder, domain.machine.heap, opened.span
    fresh = frozenset(islice(heap.created, span.created, None))
    older = has_older_writes((heap.journal or [])[span.journal :], fresh)
    heap.release(span.journal)
    if older or len(heap.effects) > span.effects or _differs_twice(domain, opened):
        raise _not_once("of what does more than compute its result")
    if reentrant and not all(map(_requires, made if type(made) is tuple else (made,))):
        raise _not_once("of results that require no gradients")
    recorder.modes = replace(recorder.modes, checkpoint=0)


def _not_once(why: str) -> Break:
    return broken("left-to-autograd", f"torch.utils.checkpoint {why}")


def _differs_twice(domain: RecordingDomain, opened: Opened) -> bool:
    """Do the nodes write what was there before, or draw other numbers the second time?"""
    inside = domain.recorder.builder.nodes[opened.span.nodes :]
    drawn = any(node.op in OPS and OPS[node.op].random for node in inside)
    return (opened.redraws and drawn) or writes_older(domain.recorder, opened.span.nodes)


def _requires(value: Any) -> bool:
    return type(value) is TensorValue and bool(value.value.tensor.requires_grad)


HANDLERS: dict[Any, Callable[..., Any]] = {
    checkpoint: _checkpoint,
    begin: _begin,
    end: _end,
}
