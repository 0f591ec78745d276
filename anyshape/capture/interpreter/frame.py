"""Virtual frames, and code objects decoded once.

In: a CPython code object. Out: `Code`, a list of `(handler, arg)` with jump targets
turned into list indices and the exception table parsed; and `Frame`, the state of one activation. A
frame owns its lists, so that `copy` makes a fork. Read on in `machine.py` (the loop) and
`opcodes.py` (the handlers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol

from anyshape.capture.heap.iterators import copy_iterator
from anyshape.capture.heap.purity import is_library
from anyshape.capture.interpreter.instructions import (
    JUMPS,
    Instruction,
    handler_rows,
    instructions_of,
)
from anyshape.ir.graph import Location
from anyshape.nouns import frozen

VIEWS_FILE = str(Path(__file__).with_name("frame_views.py"))
"""Its functions handle what stands for no value, as the interpreter's own do."""
VARARGS_FLAG = 0x04
VARKEYWORDS_FLAG = 0x08

Handler = Callable[[Any, "Frame", Any], "Frame | None"]


@frozen
class Protection:
    """One row of an exception table, in instruction indices: `start <= index < end` is handled at
    `target`.
    """

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


class Code:
    """A code object decoded for the interpreter; made once for each code object by `decode`."""

    __slots__ = (
        "argument_count",
        "code",
        "callers",
        "handled_by",
        "hidden",
        "instructions",
        "keyword_only_count",
        "lines",
        "live",
        "local_count",
        "local_names",
        "offsets",
        "opcodes",
        "shared_frames",
        "simple",
        "stand_ins",
        "unsupported",
    )

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.argument_count = code.co_argcount
        self.keyword_only_count = code.co_kwonlyargcount
        self.local_names = _local_names(code)
        self.local_count = len(self.local_names)
        # Arguments are exactly the first locals: no *args, **kwargs or keyword-only ones.
        self.simple = (
            not (code.co_flags & (VARARGS_FLAG | VARKEYWORDS_FLAG)) and not code.co_kwonlyargcount
        )
        self.instructions: list[tuple[Handler, Any]] = []
        self.opcodes: list[tuple[str, Any]] = []
        self.offsets: list[int] = []
        self.lines: list[int | None] = []
        self.handled_by: list[Protection | None] = []
        self.unsupported: str | None = None
        self.hidden = False
        self.live: list[int] | None = None
        self.callers: dict[int, CodeType] = {}  # by line
        # What tracebacks show (`frame_objects.py`): frame objects by instruction, and the code of
        # all of them by instruction and names of locals.
        self.shared_frames: dict[int, FrameType] = {}
        self.stand_ins: dict[tuple[int, Any], CodeType] = {}


def _local_names(code: CodeType) -> tuple[str, ...]:
    """Names of the fast slots, in CPython's order: locals, other cells, free variables."""
    cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    return code.co_varnames + cells + code.co_freevars


class Resumable(Protocol):
    """What the frame of a generator's body uses of the generator (`generators.Generator`)."""

    frame: Frame

    @property
    def is_of_c(self) -> bool:
        """Whether it stands for an iterator of C, which lets a StopIteration out."""

    def suspend(self, machine: Any) -> Frame | None:
        """The body yields; gives the frame of its caller."""

    def returned(self) -> None:
        """The body came to its end."""

    def failed(self, error: BaseException) -> BaseException:
        """The body raised; gives what its caller sees."""

    def go_on_with(self, rest: Any) -> None:
        """From here on, the body yields what a native iterator gives."""


class Frame:
    """One activation of a code object.

    `index` is the next instruction (the loop moves it on before it calls the handler, and back on a
    Break). `locals` are CPython's fast slots: locals, cells and free variables, `NULL` where
    unbound. `handled` is the exception that this frame handles. `continuation` says what to do with
    the result if not push it on the stack of `back` (see `continuations.py`).
    """

    __slots__ = (
        "back",
        "builtins",
        "code",
        "continuation",
        "depth",
        "function",
        "generator",
        "globals",
        "handled",
        "index",
        "instructions",
        "locals",
        "locals_dict",
        "names",
        "stack",
        "shown",
    )

    def __init__(
        self,
        code: Code,
        globals_: dict[str, Any],
        builtins: Mapping[str, Any],
        locals_: list[Any],
        names: Any = None,
    ) -> None:
        self.code = code
        self.instructions = code.instructions
        self.globals = globals_
        self.builtins = builtins
        self.locals = locals_
        self.names = names
        self.stack: list[Any] = []
        self.index = 0
        self.depth = 0  # how many frames were entered before it
        self.handled: BaseException | None = None
        self.back: Frame | None = None
        self.function: FunctionType | None = None  # of what makes a generator: it has its names
        self.generator: Resumable | None = None
        self.continuation: Any = None  # a Continuation
        self.shown: Any = None  # a weak reference to the FrameView that shows it
        self.locals_dict: Any = None  # what `locals()` has given, if it was called

    @property
    def line(self) -> int | None:
        """The source line of the instruction at `index`."""
        return self.code.lines[min(self.index, len(self.code.lines) - 1)]

    @property
    def offset(self) -> int:
        """The bytecode offset of the instruction at `index`."""
        return self.code.offsets[min(self.index, len(self.code.offsets) - 1)]

    def copy(self, memo: dict[int, Any]) -> Frame:
        """A frame with lists of its own, native iterators forked; `back` still points at the
        original's caller.
        """
        twin = Frame(
            self.code,
            self.globals,
            self.builtins,
            [copy_iterator(v, memo) for v in self.locals],
            self.names,
        )
        twin.stack = [copy_iterator(v, memo) for v in self.stack]
        twin.index, twin.handled, twin.back = self.index, self.handled, self.back
        twin.depth = self.depth
        twin.generator, twin.continuation = self.generator, self.continuation
        twin.locals_dict = self.locals_dict
        twin.instructions = self.instructions  # those of a merged return, perhaps
        return twin

    def restore(self, saved: Frame) -> None:
        """Become what `saved`, a copy of this frame, holds; the copy must not be used again."""
        self.locals, self.stack, self.index, self.handled = (
            saved.locals,
            saved.stack,
            saved.index,
            saved.handled,
        )
        self.back, self.generator, self.continuation = (
            saved.back,
            saved.generator,
            saved.continuation,
        )
        self.instructions, self.locals_dict = saved.instructions, saved.locals_dict

    def values_by_name(self) -> dict[str, Any]:
        """What the locals hold, `NULL` where one is unbound."""
        return dict(zip(self.code.local_names, self.locals))

    def is_watched(self) -> bool:
        """Whether the program holds a frame object that shows this frame."""
        return self.shown is not None and self.shown() is not None

    def let_go(self) -> None:
        """Nobody reads the locals any more. They die in the order of their slots, as in CPython: a
        list lets go of its last item first."""
        if not self.is_watched():
            self.locals.reverse()

    def __repr__(self) -> str:
        return f"<Frame {self.code.code.co_qualname} at {self.code.code.co_filename}:{self.line}>"


class Unsupported(Exception):
    """An instruction that no handler does; its code object is called natively as a whole."""


ASYNC_FLAGS = 0x80 | 0x100 | 0x200  # coroutine, iterable coroutine, async generator


def decode(
    code: CodeType,
    table: Mapping[str, Handler],
    prepare: Mapping[str, Callable[[CodeType, int], Any]],
) -> Code:
    """Decode `code` with the handlers of `table`; `prepare[opname](code, arg)` turns a raw argument
    into what the handler wants.

    Jump targets become instruction indices. A code object with an opcode that has no handler comes
    back with `unsupported` set to its name.
    """
    decoded = Code(code)
    if code.co_flags & ASYNC_FLAGS:
        decoded.unsupported = "coroutine"
        return decoded
    if code.co_filename == VIEWS_FILE:
        decoded.unsupported = "a view of a frame"
        return decoded
    raw, start_of = instructions_of(code)
    line_at = _line_table(code)
    for offset, name, arg in raw:
        handler = table.get(name)
        if handler is None:
            decoded.unsupported = name
            return decoded
        try:
            value = _argument(code, (offset, name, arg), start_of, prepare)
        except Unsupported as reason:
            decoded.unsupported = str(reason)
            return decoded
        decoded.instructions.append((handler, value))
        decoded.opcodes.append((name, arg))
        decoded.offsets.append(offset)
        decoded.lines.append(line_at(offset))
    decoded.handled_by = _protections(code, start_of, len(raw))
    return decoded


def _argument(
    code: CodeType,
    instruction: Instruction,
    start_of: Callable[[int], int],
    prepare: Mapping[str, Callable[[CodeType, int], Any]],
) -> Any:
    _, name, arg = instruction
    if name in JUMPS:
        arg = start_of(arg)
    if name in prepare:
        return prepare[name](code, arg)
    return arg


def _line_table(code: CodeType) -> Callable[[int], int | None]:
    lines: list[int | None] = []
    for start, end, line in code.co_lines():
        lines += [line] * ((end - start) // 2)
    return lambda offset: lines[offset // 2]


def _protections(
    code: CodeType, start_of: Callable[[int], int], count: int
) -> list[Protection | None]:
    handled_by: list[Protection | None] = [None] * count
    for entry in handler_rows(code):
        row = Protection(
            start_of(entry.start),
            start_of(entry.end),
            start_of(entry.target),
            entry.depth,
            entry.lasti,
        )
        for index in range(row.start, row.end):
            handled_by[index] = row
    return handled_by


def users_frame(frame: Frame | None) -> Frame | None:
    """From a frame outwards: the first that runs code of the program's own, else the first that
    runs a library's; none of our polyfills."""
    library = None
    while frame is not None:
        if not frame.code.hidden:
            if not is_library(str(frame.globals.get("__name__", ""))):
                return frame
            library = library or frame
        frame = frame.back
    return library


def locate(code: Code, index: int) -> Location:
    """The location of an instruction in the user's source, with columns where the code has them."""
    real = code.code
    line = code.lines[index] or real.co_firstlineno
    at, column, end = code.offsets[index] // 2, 0, 0
    for start_line, end_line, start, stop in islice(real.co_positions(), at, at + 1):
        if start is not None and start_line == end_line and stop is not None:
            column, end = start, stop
    return Location(real.co_filename, line, column, end, real.co_qualname)


def handled_exception(frame: Frame | None) -> BaseException | None:
    """What `sys.exception()` is in `frame`: the innermost exception being handled in it or its
    callers.
    """
    while frame is not None:
        if frame.handled is not None:
            return frame.handled
        frame = frame.back
    return None
