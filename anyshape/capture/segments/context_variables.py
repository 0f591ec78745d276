"""Variables of `contextvars` that the program reads and sets while recording.

In: calls of `get` and `set` of a variable that is the same one in each call. Out: what lies in the
thread's context, read again in each call, or what the segment has set there; the write itself comes
at the end of the segment, where the token that it gives is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from anyshape.capture.guards.counters import UNSET, ContextValue
from anyshape.capture.heap.breaks import broken
from anyshape.capture.recording.domain import RecordingDomain

Args = tuple[Any, ...]


def _known(domain: RecordingDomain, args: Args, kwargs: dict[str, Any], name: str) -> Any:
    """The variable, if it is one that each call asks; else a break. Torch's configuration lies in
    such variables, too: how it refuses what is wrong would be interpreted without end."""
    module = domain.machine.current().globals.get("__name__")
    if type(module) is str and module.partition(".")[0] == "torch":
        raise broken("unknown-call", f"ContextVar.{name}")
    fits = args and type(args[0]) is ContextVar and len(args) in (1, 2) and not kwargs
    if not fits or domain.machine.heap.is_created(args[0]):
        raise broken("unknown-call", f"ContextVar.{name}")
    if not domain.recorder.is_the_same(args[0]):
        raise broken("unknown-call", f"ContextVar.{name} of what may be another one in each call")
    return args[0]


def _get(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    variable = _known(domain, args, kwargs, "get")
    if id(variable) in domain.context_values:
        return domain.context_values[id(variable)][1]
    value = _read(domain, variable)
    if value is not UNSET:
        return value
    if len(args) == 2:
        return args[1]
    default = _default_of(variable)
    if default is UNSET:
        raise LookupError(variable)
    return domain.see(domain.recorder.sources.const(default, f"{variable.name}'s default"), default)


def _default_of(variable: ContextVar[Any]) -> Any:
    """What a variable that is not set gives, for good."""
    try:
        return variable.get()
    except LookupError:
        return UNSET


def _read(domain: RecordingDomain, variable: ContextVar[Any]) -> Any:
    """What lies in the thread's context."""
    found = variable.get(UNSET)
    sources = domain.recorder.sources
    base = sources.of(_value_of(domain, variable))
    assert base is not None
    source = sources.child(base, "call", ())
    if found is UNSET:
        domain.recorder.guard(source, "is", UNSET)
        return UNSET
    return domain.see(source, found)


def _value_of(domain: RecordingDomain, variable: ContextVar[Any]) -> ContextValue:
    asked = domain.context_readings.setdefault(id(variable), ContextValue(variable))
    domain.recorder.sources.const(asked, f"the value of {variable.name}")
    return asked


def _set(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    variable = _known(domain, args, kwargs, "set")
    heap, frame = domain.machine.heap, domain.machine.current()
    unread = frame.code.opcodes[frame.index][0] == "POP_TOP"
    if len(args) != 2 or not unread or heap.journal is not None:
        raise broken("unknown-call", "ContextVar.set")
    heap.log(ContextValue.set, _value_of(domain, variable), (args[1],))
    domain.context_values[id(variable)] = variable, args[1]


HANDLERS: Mapping[Any, Callable[..., Any]] = {ContextVar.get: _get, ContextVar.set: _set}
