"""`torch.utils.checkpoint` while gradients are recorded: the function is captured like any other.
Its nodes say which call they belong to (`Modes.checkpoint`), for `autograd/checkpoints.py`, which
has them computed again.

In: a call of `checkpoint`. Out: a call of the function between two marks. Eager runs the function
twice: what it draws is drawn once here, and kept; where it writes what was there before, or ends
the segment, twice is not once, and torch's own `checkpoint` runs: a break in a checkpoint has the
capture begun again without this (`segments/capturing.py`). One inside another adds nothing to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import torch.utils.checkpoint

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.undo import has_older_writes
from anyshape.capture.heap.values import Break, Call, TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors.aliases import memory_classes
from anyshape.ir.graph import Node, values_in
from anyshape.nouns import frozen
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
    """What there was when the function began. ``journal``: a mark of the heap's."""

    nodes: int
    effects: int
    journal: int
    created: int
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
    recorder, heap = domain.recorder, domain.machine.heap
    if recorder.modes.checkpoint:
        return None
    recorder.checkpointed += 1
    recorder.modes = dataclasses.replace(recorder.modes, checkpoint=recorder.checkpointed)
    nodes, effects = len(recorder.builder.nodes), len(heap.effects)
    return Opened(nodes, effects, heap.checkpoint(), len(heap.created), args[0])


def _end(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    opened, reentrant, made = args
    if opened is None:
        return
    recorder, heap = domain.recorder, domain.machine.heap
    fresh = frozenset(islice(heap.created, opened.created, None))
    older = has_older_writes((heap.journal or [])[opened.journal :], fresh)
    heap.release(opened.journal)
    if older or len(heap.effects) > opened.effects or _differs_twice(domain, opened):
        raise _not_once("of what does more than compute its result")
    if reentrant and not all(map(_requires, made if type(made) is tuple else (made,))):
        raise _not_once("of results that require no gradients")
    recorder.modes = dataclasses.replace(recorder.modes, checkpoint=0)


def _not_once(why: str) -> Break:
    return broken("disabled", f"torch.utils.checkpoint {why}")


def _differs_twice(domain: RecordingDomain, opened: Opened) -> bool:
    """Do the nodes write what was there before, or draw other numbers the second time?"""
    nodes = domain.recorder.builder.nodes
    classes = memory_classes(domain.recorder)
    inside = nodes[opened.nodes :]
    made = {value for node in inside for value in node.outputs}
    known = (value for node in nodes for value in (*node.inputs(), *node.outputs))
    older = {classes.of(value) for value in known if value not in made}
    written = (classes.of(v) for node in inside if _row(node, "mutates") for v in _target(node))
    redrawn = opened.redraws and any(_row(node, "random") for node in inside)
    return redrawn or any(memory in older for memory in written)


def _row(node: Node, column: str) -> bool:
    return node.op in OPS and bool(getattr(OPS[node.op], column))


def _target(node: Node) -> tuple[Any, ...]:
    return tuple(values_in(node.args[:1]))


def _requires(value: Any) -> bool:
    return type(value) is TensorValue and bool(value.value.tensor.requires_grad)


HANDLERS: dict[Any, Callable[..., Any]] = {
    checkpoint: _checkpoint,
    begin: _begin,
    end: _end,
}
