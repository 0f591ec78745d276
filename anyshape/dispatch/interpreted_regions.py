"""Interpreted regions of a program between graph breaks that hold too little for a segment.

In: where segments began and ended, and how many operators they had. Out: the frames, gone on
natively through cheap interpreted regions. To hand over from one segment to the next takes as long
as eager torch takes for some operators, and what differs from call to call makes a specialization.
So a loop over a list of another length each time, which ends a segment in every turn, turns
natively if there is little in it; what follows it is a segment again.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import field
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import torch

from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.segments.capturing import LostRegion
from anyshape.capture.segments.native_steps import Native, Returned, run_through
from anyshape.capture.segments.program_points import ProgramPoint
from anyshape.costs import COSTS
from anyshape.dispatch.profitability import CallRecord, largest
from anyshape.nouns import mutable

Position: TypeAlias = tuple[tuple[Code, int], ...]
"""Code and instruction of a frame, or of a frame and its callers: a wrapper that many functions
share, such as a library's hook, may be cheap where one of them calls it."""
CALLERS = 8  # frames of the longer positions
NOWHERE: frozenset[int] = frozenset()
Outcome: TypeAlias = tuple[bool, Any]
"""Whether the program has returned, and what."""


@mutable
class InterpretedRegion:
    """What began at one position so far: the most operators, and where the segments ended."""

    nodes: int = 0
    ends: dict[Code, set[int]] = field(default_factory=dict)

    def ends_in(self, frame: Frame) -> Set[int]:
        """Those in the code of this frame."""
        return self.ends.get(frame.code, NOWHERE)


@mutable
class InterpretedRegions:
    """The interpreted regions of one compiled function. `captured` are the functions that lie in
    segments, `cut` those with a point between segments, `slow` the interpreted regions that took
    long after all."""

    captured: Set[CodeType]
    regions: dict[Position, InterpretedRegion] = field(default_factory=dict)
    cut: set[CodeType] = field(default_factory=set)
    slow: set[Position] = field(default_factory=set)

    def note(self, point: ProgramPoint, end: tuple[Code, int] | None, nodes: int) -> None:
        """A segment was made from this point on; `end` None means that it returns."""
        self.cut.update(part[0].code for part in point.key[:-1])
        position = tuple([part[:2] for part in point.key[:-1]])
        for begin in {position[:1], position[:CALLERS]}:
            known = self.regions.setdefault(begin, InterpretedRegion())
            known.nodes = max(known.nodes, nodes)
            if end is not None:
                known.ends.setdefault(end[0], set()).add(end[1])

    def note_lost(self, point: ProgramPoint, lost: LostRegion) -> None:
        """No segment could be made from this point on."""
        self.cut.update(lost.codes)
        self.note(point, lost.end, lost.operators)

    def go_on(self, machine: Machine, call: CallRecord) -> Outcome:
        """Goes on natively from the current instruction for as long as interpreted regions are
        cheap."""
        domain = machine.domain
        assert isinstance(domain, Native)
        domain.calls = self._is_whole
        try:
            return self._go_on(machine, call)
        finally:
            domain.calls = None

    def go_past(self, machine: Machine, lost: LostRegion, call: CallRecord) -> Outcome:
        """Goes on natively through the instruction at which a segment from here on has ended, as
        what the program holds there cannot be handed on. A segment from any instruction before
        it would most likely end so too, and would have to be captured to know."""
        domain, (code, index) = machine.domain, lost.end
        assert isinstance(domain, Native)
        domain.calls = self._is_whole
        try:
            ends = frozenset({index})
            outcome = run_through(
                machine, lambda frame: ends if frame.code is code else NOWHERE, call
            )
        finally:
            domain.calls = None
        return (True, outcome.value) if isinstance(outcome, Returned) else (False, None)

    def _is_whole(self, fn: FunctionType, args: tuple[Any, ...]) -> bool:
        """Whether a function was captured without a break in it: it is called natively. What is
        done by a module made of others may be long."""
        code = fn.__code__
        if code not in self.captured or code in self.cut:
            return False
        module = args[0] if args and issubclass(type(args[0]), torch.nn.Module) else None
        return module is None or not vars(module).get("_modules")  # none while it is being made

    def _go_on(self, machine: Machine, call: CallRecord) -> Outcome:
        while True:
            frame = machine.current()
            begin = next((at for at in _positions(frame) if self._is_cheap(at, frame)), None)
            if begin is None:
                return False, None
            region = self.regions[begin]
            outcome = run_through(machine, region.ends_in, call)
            if isinstance(outcome, Returned):
                return True, outcome.value
            if outcome == "long":
                self.slow.add(begin)
                return False, None

    def _is_cheap(self, begin: Position, frame: Frame) -> bool:
        region = self.regions.get(begin)
        if region is None or begin in self.slow:
            return False
        if not region.nodes:
            return True
        return not COSTS.is_worth_a_segment(region.nodes, largest((*frame.locals, *frame.stack)))


def _positions(frame: Frame) -> Iterator[Position]:
    """That of the frame alone, and that with its callers."""
    parts = [(frame.code, frame.index)]
    yield tuple(parts)
    current = frame.back
    while current is not None and len(parts) < CALLERS:
        parts.append((current.code, current.index))
        current = current.back
    yield tuple(parts)
