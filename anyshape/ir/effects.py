"""What the steps of a program say of themselves; nothing else is asked of them.

A step *reads* the contents of buffers, *writes* into memory that another step has defined, and
*defines* buffers: from here on they have their names. It *binds* sizes that it alone knows.
Liveness, frees, arenas and native regions are made of these answers (``mentions`` is all three).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from anyshape.ir.buffers import Buffers, StepArg
from anyshape.symbolic import Symbol

if TYPE_CHECKING:
    from anyshape.ir.program import Body, Launch


class Effects:
    """What a step does, as its answers; a step that does none of it has these.

    ``may_fail``: may the segment end here, as if it had not happened? (Of a native region its steps
    say so.)
    """

    __slots__ = ("_mentions",)
    may_fail: ClassVar[bool] = False
    _mentions: Mapping[str, None]

    def reads(self) -> Iterator[str]:
        """The buffers whose contents, or whose sizes, it reads."""
        return iter(())

    def writes(self) -> Iterator[str]:
        """The buffers that it writes into, which are there already."""
        return iter(())

    def defines(self) -> Iterator[str]:
        """The buffers that it makes, allocated, computed or as views."""
        return iter(())

    def binds(self) -> Iterator[Symbol]:
        """The sizes that have values from here on."""
        return iter(())

    def may_lie_in(self) -> Iterator[str]:
        """The buffers in whose memory what it defines may lie."""
        return iter(())

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        """All that it is handed; where it is handed a buffer's layout, the layout's sizes."""
        return iter(())

    def inside(self) -> tuple[Body, ...]:
        """The programs inside it."""
        return ()

    def with_bodies(self, change: Callable[[Body], Body]) -> Self:
        """The step with its bodies changed."""
        return self

    def launched(self) -> tuple[Launch, ...]:
        """The launches that it is."""
        return ()

    def mentions(self) -> Mapping[str, None]:
        """The buffers that it reads, writes or defines, in this order, each once."""
        if not hasattr(self, "_mentions"):  # each step is asked many times
            mentions = dict.fromkeys((*self.reads(), *self.writes(), *self.defines()))
            object.__setattr__(self, "_mentions", mentions)
        return self._mentions


def memory_shared(steps: Iterable[Effects]) -> Mapping[str, frozenset[str]]:
    """In whose memory each buffer that steps define may lie, besides its own."""
    found: dict[str, frozenset[str]] = {}
    for step in steps:
        bases = tuple(step.may_lie_in())
        if bases:
            memory = frozenset(bases).union(*(found.get(base, frozenset()) for base in bases))
            found.update(dict.fromkeys(step.defines(), memory))
    return found
