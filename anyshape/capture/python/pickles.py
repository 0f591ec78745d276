"""Calls of `_pickle`, which is C and would ask classes of the program: the Python of the standard
library is interpreted in its place (`pickle_polyfills.py`).

In: a function of `_pickle` and its arguments, while recording. Out: a call of the polyfill, where
the file is one that capture has made; else the call is left to C.
"""

from __future__ import annotations

import _pickle
import io
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from anyshape.capture.heap import twins
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter import intrinsic_names
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.python import jsons, pickle_polyfills, warning_polyfills

Args = tuple[Any, ...]
Handler = Callable[[Interpreter, Args, dict[str, Any]], Any]
CODES = frozenset(
    getattr(pickle_polyfills, name).__code__
    for name in ("dump", "dumps", "load", "loads", "dump_by", "load_by", "make_pickler")
).union(jsons.CODES, (warning_polyfills.warn_explicit.__code__,))
"""Polyfills that do the work of C as a whole: where the segment would end in one, C does it."""


def is_within(machine: Interpreter) -> bool:
    """Whether a polyfill does the work of C in one of the frames."""
    return any(frame.code.code in CODES for frame in machine.frames())


def refuse_frames(machine: Interpreter) -> None:
    """The program looks at frames: those of a polyfill would lie among them."""
    if is_within(machine):
        raise broken("unknown-call", "a frame that C code has called")


def _left_to_c(machine: Interpreter, args: Args, kwargs: dict[str, Any]) -> NoReturn:
    raise broken("unknown-call", f"_{args[0]}")


def _instead(function: Any, polyfill: Callable[..., Any], file: int | None) -> Handler:
    """`file` is the position of the argument that is one."""

    def handler(machine: Interpreter, args: Args, kwargs: dict[str, Any]) -> Any:
        if not machine.recording or machine.domain.leaves_work_to_c:
            return machine.native(function, args, kwargs)
        if file is None:
            fits = function is _pickle.dumps or (args and type(args[0]) is bytes)
        else:
            fits = len(args) > file and _is_of_ours(machine, args[file])
        return Call(polyfill, args, kwargs) if fits else machine.native(function, args, kwargs)

    return handler


def _is_of_ours(machine: Interpreter, file: Any) -> bool:
    """What is read and written there nobody else sees."""
    return type(file) is io.BytesIO and machine.heap.is_created(file)


def _works_for(machine: Interpreter, args: Args, kwargs: dict[str, Any]) -> Any:
    cls, file, twin = args
    made = machine.heap.create(cls(file))
    machine.heap.slots[id(made), twins.WORK] = made, twin
    return made


def _method(method: Any, polyfill: Callable[..., Any]) -> Handler:
    def handler(machine: Interpreter, args: Args, kwargs: dict[str, Any]) -> Any:
        twin = twins.twin_of(machine.heap.slots, args[0]) if args and machine.recording else None
        return (
            machine.native(method, args, kwargs)
            if twin is None
            else Call(polyfill, (twin, *args[1:]), kwargs)
        )

    return handler


HANDLERS: Mapping[Any, Handler] = {
    intrinsic_names.works_for: _works_for,
    pickle_polyfills.left_to_c: _left_to_c,
    _pickle.dumps: _instead(_pickle.dumps, pickle_polyfills.dumps, None),
    _pickle.dump: _instead(_pickle.dump, pickle_polyfills.dump, 1),
    _pickle.loads: _instead(_pickle.loads, pickle_polyfills.loads, None),
    _pickle.load: _instead(_pickle.load, pickle_polyfills.load, 0),
    _pickle.Pickler: _instead(_pickle.Pickler, pickle_polyfills.make_pickler, 0),
    _pickle.Unpickler: _instead(_pickle.Unpickler, pickle_polyfills.make_unpickler, 0),
    _pickle.Pickler.dump: _method(_pickle.Pickler.dump, pickle_polyfills.dump_by),
    _pickle.Pickler.clear_memo: _method(_pickle.Pickler.clear_memo, pickle_polyfills.clear_memo_of),
    _pickle.Unpickler.load: _method(_pickle.Unpickler.load, pickle_polyfills.load_by),
}
