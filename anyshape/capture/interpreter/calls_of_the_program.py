"""Native calls as the program makes them: whoever looks at its caller, as `namedtuple` does for a
module's name and `warnings` for a file and a line, finds the program.

In: the virtual frame that calls, and the call. Out: its result. The real frame that calls has the
globals, the names, the file and the line of the virtual one.
"""

from __future__ import annotations

import ctypes
import re
import sys
import typing
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType
from typing import Any

from anyshape.capture.interpreter.frame import Code, Frame, handled_exception

IN_C = frozenset({type(len), type(list.append), type(list.__len__)})
"""Callables that ask for the innermost frame at most; `re` warns of the program that called it."""
ASKING = frozenset(
    getattr(typing, name, None)
    for name in ("TypeVar", "ParamSpec", "TypeVarTuple", "TypeAliasType")
)
"""Classes whose objects know the module of the program that made them; since 3.12 they are C."""
OF_RE = frozenset({re.Pattern, re.Match})
"""Classes whose methods, of an object or of the class, call the library's Python for a template."""
MARK = "<called for the program>"
"""A name in such a frame's code: tracebacks leave it out."""


def is_call(code: CodeType) -> bool:
    """Whether it is the code of a frame that calls for the program."""
    return MARK in code.co_names


def call(
    frame: Frame | None, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`fn(*args, **kwargs)`, called by a frame like this one, while it handles what that does."""
    innermost, deep = frame, type(fn) not in IN_C or calls_python(fn)
    while frame is not None:
        if not frame.code.hidden:
            line = frame.code.lines[max(frame.index - 1, 0)] or frame.code.code.co_firstlineno
            caller = frame.code.callers.get(line) or _caller(frame.code, line)
            fn, args, kwargs = FunctionType(caller, frame.globals), (fn, args, kwargs), {}
            if not deep:
                break
        frame = frame.back
    return while_handling(innermost, fn, args, kwargs)


def while_handling(
    frame: Frame | None, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`fn(*args, **kwargs)` while what this frame handles is handled."""
    handled = handled_exception(frame)
    return fn(*args, **kwargs) if handled is None else _while_handling(handled, fn, args, kwargs)


class _Handling(BaseException):
    """Is handled for a moment: CPython puts back what was handled before, however that ends."""


_set_handled = ctypes.PYFUNCTYPE(None, ctypes.py_object)(
    ("PyErr_SetHandledException", ctypes.pythonapi)
)


def _while_handling(
    handled: BaseException, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call that finds this in `sys.exc_info()`, and as the context of what it raises."""
    try:
        raise _Handling
    except _Handling:
        _set_handled(handled)
        return fn(*args, **kwargs)


def prepare(code: Code) -> None:
    """Makes what calls from each line of the code, so that the program, which counts what there is
    in the process, does not meet it later."""
    for line in set(code.lines) - code.callers.keys():
        if line is not None:
            _caller(code, line)


def calls_python(fn: Callable[..., Any]) -> bool:
    """Whether a function of C looks further up than at its caller, or calls library code that does:
    `warn` and `re` warn of a program, and hooks of `typing`'s protocols ask who wants to know.
    Classes of C that ask for the module of their caller are called so, too."""
    if isinstance(fn, MethodDescriptorType):
        return fn.__objclass__ in OF_RE
    if type(fn) is not BuiltinFunctionType:
        return type(fn) is type and fn in ASKING
    return type(fn.__self__) in OF_RE or fn.__module__ in ("_abc", "_warnings")


def _template(fn: Any, args: Any, kwargs: Any) -> Any: return fn(*args, **kwargs)  # fmt: skip  # noqa: E704


def _caller(code: Code, line: int) -> CodeType:
    """The code that calls from this line; one line, as the template has."""
    made = _template.__code__.replace(
        co_filename=code.code.co_filename,
        co_firstlineno=line,
        co_name=code.code.co_name,
        co_qualname=code.code.co_qualname,
        co_names=(MARK,),
    )
    code.callers[line] = made
    return made


# ---- functions behind functions ------------------------------------------------------------------
_VECTORCALL_OFFSET = 56
"""Where a class says at which offset its objects have the C function that calls them, in bytes."""


def _called_by(function: Callable[..., Any]) -> int:
    """The address of the C function that a call of a Python function goes to."""
    at = ctypes.c_ssize_t.from_address(id(FunctionType) + _VECTORCALL_OFFSET).value
    return ctypes.c_size_t.from_address(id(function) + at).value


_REPLACEABLE = (
    sys.version_info >= (3, 12)
    and sys.implementation.name == "cpython"
    and object.__basicsize__ == 16  # else the offset above is another
)
_PLAIN = _called_by(lambda: None) if _REPLACEABLE else 0


def is_replaced(function: FunctionType) -> bool:
    """Whether C has put another function behind a Python function, as it can since 3.12: its code
    is not what runs."""
    return _REPLACEABLE and _called_by(function) != _PLAIN
