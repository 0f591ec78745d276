"""What C says of the process.

In: calls of such functions while recording. Out: the answer, which each call asks for again.
"""

from __future__ import annotations

import _thread
import contextvars
import sys
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.guards.constant_kinds import CONSTANTS
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.recording.domain import RecordingDomain

Args = tuple[Any, ...]
Handler = Callable[[RecordingDomain, Args, dict[str, Any]], Any]


def _asked(fn: Any) -> Handler:
    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        if args or kwargs:
            raise broken("unknown-call", name_of(fn))
        answer = domain.relied.asked(fn, ())
        if type(answer) not in CONSTANTS:
            raise broken("unknown-call", name_of(fn))
        return answer

    return handler


def _interned(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or kwargs or type(args[0]) is not str:
        raise broken("unknown-call", "sys.intern")
    return sys.intern(args[0])


def _context_variable(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    """`variable.get()`: what it holds is read anew in each call. Only native code sets one."""
    if kwargs or not 1 <= len(args) <= 2 or domain.machine.heap.is_created(args[0]):
        raise broken("unknown-call", "ContextVar.get")
    variable, *default = args
    sources, text = domain.recorder.sources, f"{variable.name}.get()"
    owner = sources.of(variable) or sources.const(variable, variable.name)
    read = sources.child(owner, "attr", "get")
    source = sources.child(read, "call", (UNSET,), text)
    value = variable.get(UNSET)
    if value is not UNSET:
        return domain.see(source, value)
    domain.recorder.guard(source, "is", UNSET)
    try:
        found = variable.get(*default)  # its own default
    except LookupError:  # the program's; what has no default says so nowhere else
        domain.recorder.guard(owner, "is", variable)
        raise
    return found if default else domain.see(sources.child(read, "call", (), text), found)


UNSET = object()
"""What `get` gives where the variable holds nothing."""
HANDLERS: Mapping[Any, Handler] = {
    contextvars.ContextVar.get: _context_variable,
    **{fn: _asked(fn) for fn in (_thread.get_ident, sys.gettrace, sys.getprofile)},
    sys.get_int_max_str_digits: _asked(sys.get_int_max_str_digits),
    sys.intern: _interned,
    sys.audit: lambda domain, args, kwargs: domain.defer(sys.audit, args, kwargs),
}
