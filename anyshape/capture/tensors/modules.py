"""`nn.Module` without its own Python: attribute look-up in the three dictionaries, and calls
without hooks.

In: the call of one of `nn.Module`'s own methods. Out: what it would do, or `NotImplemented` to
have it interpreted. A module's hook dictionaries become one guard; parameters, buffers and
children are guarded by identity where they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from anyshape.capture.heap.values import NULL, PROXIES, Call
from anyshape.capture.recording.domain import RecordingDomain

Module = torch.nn.Module
TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = tuple(
    getattr(torch_module, name)
    for name in (
        "_global_backward_pre_hooks",
        "_global_backward_hooks",
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
    )
)


def call(domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python function about to be interpreted; `NotImplemented` unless it is one of
    `nn.Module`'s that has a fast path."""
    handler = FAST.get(fn)
    if handler is None or not args or not isinstance(args[0], Module):
        return NotImplemented
    return handler(domain, args, kwargs)


def _getattr(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module, name = args
    heap = domain.machine.heap
    if heap.is_created(module) or heap.is_shadowed(module.__dict__):
        return NotImplemented
    recorder = domain.recorder
    place = domain.place_of(module, "attr")
    assert place is not None
    for table_name in TABLES:
        table = module.__dict__.get(table_name)
        if table is not None and name in table:
            if heap.is_shadowed(table):
                return heap.item(table, name)
            value = table[name]
            if type(value) in PROXIES:
                return value
            source = recorder.sources.child(place, "attr", table_name)
            if place.is_pinned and not source.is_pinned:
                recorder.sources.pin(source, table)
            return domain.see(recorder.sources.child(source, "item", name), value)
    return NotImplemented


def _call(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module, *rest = args
    heap = domain.machine.heap
    state = module.__dict__
    if heap.is_created(module) or heap.is_shadowed(state):
        return NotImplemented
    place = domain.place_of(module, "attr")
    assert place is not None
    if not place.is_pinned or state.get("_compiled_call_impl") is not None or "forward" in state:
        return NotImplemented
    hooks = [state.get(name) for name in HOOKS]
    if any(hooks) or any(GLOBAL_HOOKS):
        return NotImplemented
    forward = domain.machine.lookup(type(module), "forward")
    if forward is NULL or type(forward) is not FunctionType:
        return NotImplemented
    if not domain.recorder.hooks:
        domain.recorder.hooks.extend(GLOBAL_HOOKS)
    if domain.recorder.hook_tables(module, hooks):
        namespace = domain.recorder.sources.child(place, "attr", "__dict__")
        domain.recorder.sources.pin(namespace, state)
        domain.recorder.guard(namespace, "contains", ("forward", False))
    return Call(forward, (module, *rest), kwargs)


FAST: dict[Any, Callable[..., Any]] = {
    Module.__getattr__: _getattr,
    Module.__call__: _call,
    Module._call_impl: _call,
    Module._wrapped_call_impl: _call,
}
