"""`nn.Module` without its own Python: attribute look-up in the three dictionaries, and calls
without hooks.

In: the call of one of `nn.Module`'s own methods. Out: what it would do, or `NotImplemented` to
have it interpreted. A module's hook dictionaries become one guard; parameters, buffers and
children are guarded by identity where they are read. Between segments, calls have the same fast
path, so that program points are the same frames.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from anyshape.capture.heap.quiet_reads import asks_the_program
from anyshape.capture.heap.values import NULL, PROXIES, Call
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.recording.domain import RecordingDomain

Module = torch.nn.Module
TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
INSTEAD = ("forward", "_compiled_call_impl")  # what a module may have of its own, and call
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
    own_source = domain.readable_source(module, "attr")
    assert own_source is not None
    for table_name in TABLES:
        table = module.__dict__.get(table_name)
        if table is not None and heap.is_shadowed(table):
            value = heap.item_or_null(table, name)
            if value is not NULL:
                return value
        elif table is not None and name in table:
            value = table[name]
            if type(value) in PROXIES:
                return value
            source = recorder.sources.child(own_source, "attr", table_name)
            if own_source.is_pinned and not source.is_pinned:
                recorder.sources.pin(source, table, borrowed=own_source.is_borrowed)
            return domain.see(recorder.sources.child(source, "item", name), value)
    return NotImplemented


def forward_alone(interpreter: Interpreter, module: Any) -> FunctionType | None:
    """The function that a call of the module comes to, where there is nothing else on the way; None
    where there are hooks, or a `forward` of its own."""
    state = module.__dict__
    if state.get("_compiled_call_impl") is not None or "forward" in state:
        return None
    hooks = (*(state.get(name) for name in HOOKS), *GLOBAL_HOOKS)
    if any(hooks) or any(map(interpreter.heap.is_shadowed, hooks)):
        return None
    forward = interpreter.lookup(type(module), "forward")
    return forward if type(forward) is FunctionType else None


def _call(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module, *rest = args
    heap, recorder = domain.machine.heap, domain.recorder
    state = module.__dict__
    if heap.is_created(module) or heap.is_shadowed(state) or asks_the_program(module, "attr"):
        return NotImplemented
    source = domain.readable_source(module, "attr")
    assert source is not None
    forward = forward_alone(domain.machine, module)
    if forward is None:
        return NotImplemented
    if not recorder.hooks:
        recorder.hooks.extend(GLOBAL_HOOKS)
    if not source.is_pinned:
        if not state.keys().isdisjoint(INSTEAD):
            return NotImplemented
        child = recorder.sources.child
        for name in HOOKS:
            recorder.guard(child(source, "attr", name), "truth", False)
        for name in INSTEAD:
            recorder.guard(source, "missing", name)
    elif id(module) not in recorder.hooked:  # it is relied on to have no hooks, once
        recorder.hooked[id(module)] = module
        recorder.hooks.extend(state.get(name) for name in HOOKS)
        namespace = recorder.sources.child(source, "attr", "__dict__")
        recorder.sources.pin(namespace, state, borrowed=source.is_borrowed)
        recorder.guard(namespace, "contains", ("forward", False))
    return Call(forward, (module, *rest), kwargs)


CALLS = frozenset({Module.__call__, Module._call_impl, Module._wrapped_call_impl})
FAST: dict[Any, Callable[..., Any]] = {
    Module.__getattr__: _getattr,
    **dict.fromkeys(CALLS, _call),
}
