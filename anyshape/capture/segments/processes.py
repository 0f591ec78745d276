"""What C says of the process and of its threads.

In: calls of such functions while recording. Out: the answer, which each call asks for again.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.guards.constant_kinds import CONSTANTS
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments import context_variables

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


HANDLERS: Mapping[Any, Handler] = {
    **{fn: _asked(fn) for fn in (_thread.get_ident, sys.gettrace, sys.getprofile)},
    sys.get_int_max_str_digits: _asked(sys.get_int_max_str_digits),
    sys.intern: _interned,
    **context_variables.HANDLERS,
    sys.audit: lambda domain, args, kwargs: domain.defer(sys.audit, args, kwargs),
}
