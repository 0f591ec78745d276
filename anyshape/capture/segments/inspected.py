"""What `inspect` says of functions.

In: a call of one of its functions. Out: its answer, where a library's function is asked about,
whose signature no program changes. The program's own may change, from call to call or in the
segment, or have a `__signature__` that is code of the program: that is interpreted.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.purity import is_library
from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter import class_polyfills
from anyshape.capture.recording.domain import RecordingDomain


def _answered_of_libraries(fn: Callable[..., Any], other: Any = None) -> Callable[..., Any]:
    def inspected(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and _is_of_library(domain, args[0]):
            return fn(*args, **kwargs)
        return NotImplemented if other is None else Call(other, args, kwargs)

    return inspected


def _is_of_library(domain: RecordingDomain, asked: Any) -> bool:
    function = asked.__func__ if type(asked) is types.MethodType else asked
    if type(function) is types.FunctionType:  # what one of a library wraps may be the program's
        if domain.machine.heap.is_created(function) or function.__dict__:
            return False
    elif type(function) is not types.BuiltinFunctionType:
        return False
    return is_library(str(function.__module__))


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    inspect.signature: _answered_of_libraries(inspect.signature),
    inspect.getfullargspec: _answered_of_libraries(inspect.getfullargspec),
    inspect.unwrap: _answered_of_libraries(inspect.unwrap, class_polyfills.unwrapped),
}
