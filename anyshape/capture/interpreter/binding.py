"""Binding arguments to the parameters of a Python function, as CPython's `initialize_locals` does.

In: a function, positional and keyword arguments. Out: the list of fast slots. A mismatch raises
CPython's own TypeError: the real function object is copied with an empty body and called natively.
"""

from __future__ import annotations

import itertools
from types import CodeType, FunctionType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import NULL, InterpreterBug
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import VARARGS_FLAG, VARKEYWORDS_FLAG, Code

_RUNS_LATER = 0x20 | 0x80 | 0x200  # generator, coroutine, async generator


def bind(
    machine: Interpreter,
    fn: FunctionType,
    code: Code,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[Any]:
    """The fast slots of a call: parameters bound, everything else `NULL`."""
    real = code.code
    positional = code.argument_count
    parameters = positional + code.keyword_only_count
    locals_: list[Any] = [NULL] * code.local_count
    given = len(args)
    if given <= positional:
        locals_[:given] = args
    else:
        locals_[:positional] = args[:positional]
    rest = parameters
    if real.co_flags & VARARGS_FLAG:
        locals_[parameters] = _rest(machine, args, positional)
        rest += 1
    elif given > positional:
        raise _mismatch(fn, args, kwargs)
    extra: dict[str, Any] | None = None
    if real.co_flags & VARKEYWORDS_FLAG:
        extra = {}
        locals_[rest] = extra
        if machine.recording:
            machine.heap.create(extra)
    if kwargs:
        _bind_keywords(fn, code, args, kwargs, locals_, extra)
    _fill_defaults(machine, fn, code, args, kwargs, locals_)
    return locals_


def _rest(machine: Interpreter, args: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """What `*args` gets: a tuple of its own, also where all of one is handed on."""
    made = (*itertools.islice(args, count, None),)
    return machine.heap.create(made) if made and machine.recording else made


def _bind_keywords(
    fn: FunctionType,
    code: Code,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    locals_: list[Any],
    extra: dict[str, Any] | None,
) -> None:
    real = code.code
    names = code.local_names
    parameters = code.argument_count + code.keyword_only_count
    first = real.co_posonlyargcount
    for name, value in kwargs.items():
        if name in names[first:parameters]:
            slot = names.index(name, first)
            if locals_[slot] is not NULL:
                raise _mismatch(fn, args, kwargs)
            locals_[slot] = value
        elif extra is not None and issubclass(type(name), str):
            extra[name] = value
        else:
            raise _mismatch(fn, args, kwargs)


def _fill_defaults(
    machine: Interpreter,
    fn: FunctionType,
    code: Code,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    locals_: list[Any],
) -> None:
    domain, names, positional = machine.domain, code.local_names, code.argument_count
    if len(args) < positional:
        defaults = fn.__defaults__ or ()
        first_default = positional - len(defaults)
        for slot in range(len(args), positional):
            if locals_[slot] is NULL:
                if slot < first_default:
                    raise _mismatch(fn, args, kwargs)
                value = defaults[slot - first_default]
                locals_[slot] = domain.default(fn, names[slot], value, keyword=False)
    if code.keyword_only_count:
        keyword_defaults = fn.__kwdefaults__ or {}
        if machine.recording and machine.heap.is_shadowed(keyword_defaults):
            raise broken("unknown-call", f"{fn.__qualname__}, whose defaults were looked into,")
        for slot in range(positional, positional + code.keyword_only_count):
            if locals_[slot] is NULL:
                name = names[slot]
                if name not in keyword_defaults:
                    raise _mismatch(fn, args, kwargs)
                locals_[slot] = domain.default(fn, name, keyword_defaults[name], keyword=True)


def _mismatch(fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseException:
    """The TypeError that CPython raises for this call."""
    stub = FunctionType(_empty_body(fn.__code__), fn.__globals__, fn.__name__, fn.__defaults__)
    stub.__kwdefaults__ = fn.__kwdefaults__
    stub.__qualname__ = fn.__qualname__
    try:
        stub(*args, **kwargs)
    except TypeError as error:
        return error.with_traceback(None)
    raise InterpreterBug(f"{fn.__qualname__}: arguments bind natively, but not here")


def _empty_body(code: CodeType) -> CodeType:
    """The same parameters, and a body that returns None at once."""
    empty = (lambda: None).__code__
    return code.replace(
        co_code=empty.co_code,
        co_consts=empty.co_consts,
        co_stacksize=empty.co_stacksize,
        co_flags=code.co_flags & ~_RUNS_LATER,
        co_exceptiontable=b"",
        co_freevars=(),
        co_cellvars=(),
    )
