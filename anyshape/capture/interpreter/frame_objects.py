"""Real frame objects for tracebacks, which show virtual frames.

In: decoded code and an instruction. Out: the frame object of a generator that nobody has begun,
whose code has the user's line table and stands at that instruction: file, function, line and
columns are the user's own, and it has no caller. One for each instruction holds nothing and is
shared; that of a frame that an exception has left holds its locals, as CPython's does.
"""

from __future__ import annotations

import dis
import inspect
import sys
import threading
from collections.abc import Sequence
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from anyshape.capture.heap.values import LOST, NULL
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.versions import PYTHON

_FLAGS = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_GENERATOR
_COPY_CELLS, _BEGIN, _NOTHING, _STOP = (
    dis.opmap[name] for name in ("COPY_FREE_VARS", "RESUME", "NOP", "RETURN_GENERATOR")
)
_AHEAD = 2 if PYTHON >= (3, 13) else 0
"""By how much a suspended frame says that it stands behind the instruction that suspended it."""
_Names = tuple[tuple[str, ...], tuple[str, ...]]


def untraced(fn: Any) -> Any:
    """A function whose frames no traceback shows, as native code of the program has them above the
    frames that the interpreter runs: CPython leaves out a frame that has not come to RESUME."""
    code = fn.__code__
    fn.__code__ = code.replace(co_code=_without_begin(code))
    return fn


def _without_begin(code: CodeType) -> bytes:
    body = bytearray(code.co_code)
    for instruction in dis.get_instructions(code):
        if instruction.opcode == _BEGIN:
            body[instruction.offset] = _NOTHING
    return bytes(body)


def shared_frame(code: Code, globals_: dict[str, Any], index: int) -> FrameType:
    """The frame object of an instruction that holds nothing."""
    known = code.shared_frames.get(index)
    if known is None:
        known = code.shared_frames[index] = _made(code, globals_, index, ((), ()), (), ())
    return known


def left_frame(frame: Frame, index: int) -> FrameType:
    """A new frame object for a frame that its code has left at an instruction."""
    if frame.names is not None:  # names that lie in a mapping are no locals
        return shared_frame(frame.code, frame.globals, index)
    local_values = dict(zip(frame.code.local_names, frame.locals))
    cells = {
        name: value for name, value in local_values.items() if _is_shared(frame.code, name, value)
    }
    plain = {
        n: value for n, value in local_values.items() if not _is_nothing(value) and n not in cells
    }
    names = tuple(plain), tuple(cells)
    return _made(
        frame.code, frame.globals, index, names, tuple(plain.values()), tuple(cells.values())
    )


def shows(code: Code, frame: FrameType) -> bool:
    """Whether a frame object was made for this code."""
    return any(made is frame.f_code for made in code.stand_ins.values())


def _is_nothing(value: Any) -> bool:
    return value is NULL or value is LOST


def _is_shared(code: Code, name: str, value: Any) -> bool:
    return type(value) is CellType and name in (*code.code.co_cellvars, *code.code.co_freevars)


def _made(
    code: Code,
    globals_: dict[str, Any],
    index: int,
    names: _Names,
    values: Sequence[Any],
    cells: tuple[CellType, ...],
) -> FrameType:
    stand_in = code.stand_ins.get((index, names))
    if stand_in is None:
        stand_in = _suspending(code.code, code.offsets[index], *names)
        code.stand_ins[index, names] = stand_in
    made: list[FrameType] = []
    function: Any = FunctionType(stand_in, globals_, None, None, cells[: len(stand_in.co_freevars)])

    def make() -> None:
        made.append(function(*values).gi_frame)

    if sys.gettrace() is None and sys.getprofile() is None:
        make()
    else:  # which would see it, and no other thread does
        maker = threading.Thread(target=make)
        maker.start()
        maker.join()
    return made[0]


def _suspending(
    code: CodeType, offset: int, plain: tuple[str, ...], cells: tuple[str, ...]
) -> CodeType:
    """Code that becomes a generator at this offset, if what comes before fits there; as long as the
    original, whose line table it keeps."""
    fits = len(cells) < 256 and offset - _AHEAD >= 4
    body = bytes([_COPY_CELLS, len(cells)]) if cells and fits else b""
    body += bytes([_BEGIN, 0])
    body += max(0, (offset - _AHEAD - len(body)) // 2) * bytes([_NOTHING, 0])
    body += bytes([_STOP, 0])
    body += max(0, (len(code.co_code) - len(body)) // 2) * bytes([_NOTHING, 0])
    unbound = tuple(n for n in code.co_varnames if n not in plain and n not in cells)
    return code.replace(
        co_code=body,
        co_argcount=len(plain),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=_FLAGS,
        co_varnames=plain + unbound,  # C looks there for what a name may have been meant to be
        co_nlocals=len(plain + unbound),
        co_exceptiontable=b"",
        co_freevars=cells if fits else (),
        co_cellvars=(),
        co_stacksize=max(1, code.co_stacksize),
    )
