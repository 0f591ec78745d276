"""What one capture knows of calls of `autograd.Function.apply` where gradients are recorded
(``tensors/autograd_functions.py``, ``tensors/own_backwards.py``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from anyshape.capture.heap.values import TensorValue
from anyshape.ir.graph import Value
from anyshape.nouns import mutable


@mutable(eq=False)
class Applied:
    """One call. ``results`` are those of ``made`` that require gradients, by their position;
    ``saved`` is what must not be written while gradients are to come; ``end`` is the number of
    nodes behind the call."""

    function: object
    ctx: object
    args: tuple[object, ...]
    made: tuple[TensorValue | None, ...]
    results: dict[int, Value]
    saved: tuple[Value, ...]
    end: int
    materializes: bool
    is_spent: bool = False


@mutable(eq=False)
class Section:
    """A call whose `backward` is being interpreted. ``results`` are those that have gradients, by
    their position in what was ``made``, and ``stand_ins`` what stands for these; ``borrowed`` lie
    in memory that was there before. The numbers say how much there was of each when it began,
    ``taken`` and ``layouts_read`` what the recorder has of these names. ``outer``: the section that
    it is in."""

    args: tuple[Any, ...]
    made: tuple[Any, ...]
    several: bool
    results: dict[int, Value]
    stand_ins: dict[int, Value]
    saved: tuple[Value, ...] = ()
    borrowed: frozenset[Value] = frozenset()
    start: int = 0
    checks: int = 0
    effects: int = 0
    writes: int = 0
    mark: int = 0
    taken: set[Value] = field(default_factory=set)
    layouts_read: bool = False
    ctx: Any = None
    births: int = 0
    outer: Section | None = None


@mutable(eq=False)
class Alone:
    """A call in the graph with its own backward. ``results`` are pairs of what `forward` made and
    what `apply` gave for it; ``kept`` is what is read later, ``unsaved`` that part of it of which
    eager autograd does not ask whether it was written, and ``end`` the number of nodes behind the
    call."""

    results: tuple[tuple[Value, Value], ...]
    kept: tuple[Value, ...]
    borrowed: frozenset[Value]
    end: int
    ctx: Any = None
    kept_by_ctx: dict[str, Any] = field(default_factory=dict)
    unsaved: tuple[Value, ...] = ()

    @property
    def is_ctx_written(self) -> bool:
        """Whether the context holds something else than when `backward` was interpreted."""
        before, now = self.kept_by_ctx, getattr(self.ctx, "__dict__", {})
        return before.keys() != now.keys() or any(before[k] is not now[k] for k in before)


@mutable(eq=False)
class Functions:
    """``refused``: why none is captured, "" where they are; ``left``: the same, found just now.
    ``inside``: of how many the ``forward`` is being interpreted, or has raised. ``apply``: what
    stands for `apply`, where that is not the default; ``hooked``: what was handed in and is given
    hooks. ``watched``: the segment ends where autograd is told to watch the gradient of what it has
    made: what is made of it goes through that very tensor. ``leaves``: what the program has made
    leaves. ``section``: whose backward is being interpreted; ``transforms``: how many functions are
    that ``torch.func.grad`` differentiates. ``flagged``: what was handed in and is told to require
    gradients before anything reads it; ``freezes``: a leaf may be told not to. ``lays_out``: eager
    is asked how what ``torch.autograd.grad`` gives lies in memory. ``retained``: what the segment
    has made and keeps the gradient of, by the value that it was then; ``versions``: how often
    autograd has written a gradient that it gave. ``asked``: hooks that leaves have are part of the
    segment; ``asking``: they are being interpreted."""

    refused: str = ""
    left: str = ""
    inside: int = 0
    calls: list[Applied] = field(default_factory=list)
    alone: list[Alone] = field(default_factory=list)
    hooked: set[Value] = field(default_factory=set)
    watched: bool = False
    leaves: dict[Value, TensorValue] = field(default_factory=dict)
    apply: Callable[..., Any] | None = None
    section: Section | None = None
    transforms: int = 0
    flagged: dict[Value, None] = field(default_factory=dict)
    freezes: bool = True
    lays_out: bool = False
    retained: dict[Value, TensorValue] = field(default_factory=dict)
    versions: dict[Value, int] = field(default_factory=dict)
    asked: bool = False
    asking: bool = False
