"""What C says of the process, and locks that nobody outside has seen.

In: calls of such functions while recording. Out: the answer, which each call asks for again; a lock
of the trace's own, which is really taken and let go, since no other thread can hold it. At the end
of the segment such a lock is made anew (`makers.py`), if nobody holds it.
"""

from __future__ import annotations

import _thread
import gc
import sys
import threading
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


def _made(fn: Any) -> Handler:
    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        return domain.created(fn(*args, **kwargs))

    return handler


def _on_own_lock(fn: Any) -> Handler:
    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        heap = domain.machine.heap
        if not args or not heap.is_created(args[0]) or heap.journal is not None:
            raise broken("unknown-call", name_of(fn))
        return fn(*args, **kwargs)

    return handler


LOCKS: Mapping[type, Any] = {
    _thread.LockType: _thread.allocate_lock,
    _thread.RLock: _thread.RLock,
}
_METHODS = ("acquire", "release", "__enter__", "__exit__", "locked")


FUNCTIONS: Mapping[Any, Handler] = {threading.RLock: _made(_thread.RLock)}
"""Those written in Python."""
HANDLERS: Mapping[Any, Handler] = {
    **{fn: _asked(fn) for fn in (_thread.get_ident, sys.gettrace, sys.getprofile, gc.isenabled)},
    sys.get_int_max_str_digits: _asked(sys.get_int_max_str_digits),
    sys.intern: _interned,
    **{fn: _made(fn) for fn in LOCKS.values()},
    **{
        vars(kind)[name]: _on_own_lock(vars(kind)[name])
        for kind in LOCKS
        for name in _METHODS
        if name in vars(kind)
    },
}
