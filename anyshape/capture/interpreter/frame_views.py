"""What the virtual program sees of its own frames: `sys._getframe()`, `inspect.currentframe()`,
`generator.gi_frame`.
"""

from __future__ import annotations

from types import FrameType, MappingProxyType
from typing import Any

from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.frame_objects import shows
from anyshape.capture.interpreter.versions import PYTHON

WRITTEN_THROUGH = PYTHON >= (3, 13)
"""Whether `f_locals` of a function's frame is a view of it (PEP 667)."""


class FrameView:
    """The attributes of a Python frame object, read off a virtual frame."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    @classmethod
    def of(cls, frame: Frame) -> FrameView:
        """The one view of a frame."""
        if frame.shown is None:
            frame.shown = cls(frame)
        view: FrameView = frame.shown
        return view

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
        """Since 3.13 the frame's own, where what is written goes into the frame: one that takes
        nothing, so that nothing is lost without a word."""
        frame = self._frame
        if frame.names is not None:
            return frame.names
        return MappingProxyType(frame.bound_locals()) if WRITTEN_THROUGH else frame.bound_locals()

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
    def f_back(self) -> FrameView | None:
        frame = self._frame.back
        while frame is not None and frame.code.hidden:
            frame = frame.back
        return None if frame is None else FrameView.of(frame)

    def clear(self) -> None:
        """Frames are cleared when they end."""
