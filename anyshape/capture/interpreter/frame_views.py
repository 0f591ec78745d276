"""What the virtual program sees of its own frames: `sys._getframe()`, `inspect.currentframe()`,
`generator.gi_frame`.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, MutableMapping
from types import CellType, FrameType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import LOST, NULL, contents
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.frame_objects import shows
from anyshape.capture.interpreter.versions import PYTHON
from anyshape.errors import AnyshapeError

WRITTEN_THROUGH = PYTHON >= (3, 13)
"""Whether `f_locals` of a function's frame is a view of it (PEP 667)."""


class FrameView:
    """The attributes of a Python frame object, read off a virtual frame."""

    __slots__ = ("__weakref__", "_frame", "_machine")

    def __init__(self, machine: Interpreter, frame: Frame) -> None:
        self._machine = machine
        self._frame = frame

    @classmethod
    def of(cls, machine: Interpreter, frame: Frame) -> FrameView:
        """The one view of a frame, as long as the program holds it."""
        view: FrameView | None = None if frame.shown is None else frame.shown()
        if view is None:
            view = cls(machine, frame)
            frame.shown = weakref.ref(view)
        return view

    def read(self, machine: Interpreter, name: str) -> Any:
        """An attribute; of a frame of another segment, nothing can be relied on."""
        if machine.recording and machine is not self._machine:
            raise broken("unknown-call", "a frame of an earlier segment")
        return getattr(self, name)

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> type:
        return FrameType

    def stands_for(self, real: Any) -> bool:
        """Whether a traceback's frame object stands for the same frame."""
        return type(real) is FrameType and shows(self._frame.code, real)

    @property
    def f_code(self) -> Any:
        return self._frame.code.code

    @property
    def f_globals(self) -> Any:
        return self._frame.globals

    @property
    def f_builtins(self) -> Any:
        return self._frame.builtins

    @property
    def f_locals(self) -> Any:
        frame, machine = self._frame, self._machine
        if frame.names is not None or not WRITTEN_THROUGH:
            return locals_of(machine, frame)
        if machine.recording:
            raise broken("unknown-call", "f_locals, which is a view of the frame,")
        return FrameLocals(frame)

    @property
    def f_lineno(self) -> int | None:
        frame = self._frame
        return frame.code.lines[max(frame.index - 1, 0)]

    @property
    def f_lasti(self) -> int:
        frame = self._frame
        return frame.code.offsets[max(frame.index - 1, 0)]

    @property
    def f_trace(self) -> None:
        return None

    @property
    def f_back(self) -> FrameView | FrameType | None:
        frame = self._frame.back
        while frame is not None and frame.code.hidden:
            frame = frame.back
        if frame is not None:
            return FrameView.of(self._machine, frame)
        runs = any(running is self._frame for running in self._machine.frames())
        return outer_frame(self._machine) if runs else None

    def clear(self) -> None:
        """Frames are cleared when they end."""


def outer_frame(machine: Interpreter) -> FrameType | None:
    """That of who has called the whole function: another one in each call."""
    if machine.recording:
        raise broken("unknown-call", "the frame of who called the function")
    frame = inspect.currentframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "anyshape"


class FrameLocals(MutableMapping[str, Any]):
    """`f_locals` since 3.13, of a frame that is not recorded: what is written goes into the frame;
    names that are no locals lie in a dict of their own."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> Any:
        frame = self._frame
        slot = _slot_of(frame, name)
        value = NULL if slot is None else _local_value(frame, slot)
        if value is not NULL:
            return value
        if slot is None and frame.locals_dict is not None and name in frame.locals_dict:
            return frame.locals_dict[name]
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        frame = self._frame
        slot = _slot_of(frame, name)
        if slot is None:
            frame.locals_dict = {} if frame.locals_dict is None else frame.locals_dict
            frame.locals_dict[name] = value
        elif type(frame.locals[slot]) is CellType and _is_shared(frame, name):
            frame.locals[slot].cell_contents = value
        else:
            frame.locals[slot] = value

    def __delitem__(self, name: str) -> None:
        if _slot_of(self._frame, name) is not None:
            raise ValueError("cannot remove local variables from FrameLocalsProxy")
        if self._frame.locals_dict is None:
            raise KeyError(name)
        del self._frame.locals_dict[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.copy())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self.copy())

    def __repr__(self) -> str:
        return repr(self.copy())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrameLocals):
            return self._frame is other._frame
        return isinstance(other, dict) and self.copy() == other

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: Any) -> Any:
        return self.copy() | dict(other)

    def __ror__(self, other: Any) -> Any:
        return dict(other) | self.copy()

    def copy(self) -> dict[str, Any]:
        """The names that have values now."""
        frame = self._frame
        local_values = {
            name: _local_value(frame, slot) for slot, name in enumerate(frame.code.local_names)
        }
        bound = {name: value for name, value in local_values.items() if value is not NULL}
        return {**bound, **(frame.locals_dict or {})}


def _slot_of(frame: Frame, name: str) -> int | None:
    names = frame.code.local_names
    return names.index(name) if name in names else None


def _local_value(frame: Frame, slot: int) -> Any:
    """What a local of a frame that is not recorded holds."""
    value, name = frame.locals[slot], frame.code.local_names[slot]
    if value is LOST:
        raise _lost(None, frame, name)
    return contents(value) if type(value) is CellType and _is_shared(frame, name) else value


def locals_of(machine: Interpreter, frame: Frame) -> Any:
    """What `locals()` gives in a frame. Before 3.13 that of a function is one dict for the frame,
    which each call brings up to date: what the program has stored under other names stays."""
    if frame.names is not None:
        return frame.names
    bound = _bound_locals(machine, frame)
    if WRITTEN_THROUGH:
        return machine.heap.create({**bound, **(frame.locals_dict or {})})
    if frame.locals_dict is None:
        frame.locals_dict = machine.heap.create(bound)
        return bound
    for name in frame.code.local_names:
        if name in bound:
            machine.native(dict.__setitem__, (frame.locals_dict, name, bound[name]), {})
        else:
            machine.native(dict.pop, (frame.locals_dict, name, None), {})
    return frame.locals_dict


def _bound_locals(machine: Interpreter, frame: Frame) -> dict[str, Any]:
    """The locals of a function that have a value, cells looked through."""
    bound = {}
    for slot, name in enumerate(frame.code.local_names):
        value = _value(machine, frame, slot)
        if value is LOST:
            raise _lost(machine, frame, name)
        if value is not NULL:
            bound[name] = value
    return bound


def _lost(machine: Interpreter | None, frame: Frame, name: str) -> BaseException:
    if machine is not None and machine.recording:
        return broken("escape", f"the local {name} of a frame")
    return AnyshapeError(
        "E201",
        what=f"the local {name!r} of {frame.code.code.co_qualname} is asked for by its frame",
        why="a graph break has dropped it: nothing reads it by its name any more",
        hint=f"call locals() in {frame.code.code.co_name}, or what looks at its frame outside",
    )


def _value(machine: Interpreter, frame: Frame, slot: int) -> Any:
    value, name = frame.locals[slot], frame.code.local_names[slot]
    if type(value) is not CellType or not _is_shared(frame, name):
        return value
    return machine.heap.cell(value, name) if machine.recording else contents(value)


def _is_shared(frame: Frame, name: str) -> bool:
    code = frame.code.code
    return name in code.co_cellvars or name in code.co_freevars
