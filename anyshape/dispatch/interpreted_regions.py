"""Interpreted regions of a program between graph breaks that hold too little for a segment.

In: where segments began and ended, and how many operators they had. Out: the frames, gone on
natively through light interpreted regions. To hand over from one segment to the next takes as long
as eager torch takes for some operators, and what differs from call to call makes a specialization.
So a loop over a list of another length each time, which ends a segment in every turn, turns
natively if there is little in it; what follows it is a segment again.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import torch

from anyshape.capture.interpreter import unwinding
from anyshape.capture.interpreter.continuations import Finished
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.machine import Machine
from anyshape.costs import COSTS
from anyshape.dispatch.profitability import CallRecord, largest
from anyshape.dispatch.trampoline import Native, Place

MANY_TENSORS = 5 * COSTS.few_operators
"""Met on the way through an interpreted region: there is more in it than it seemed."""
MANY_INSTRUCTIONS = 5_000

Position: TypeAlias = tuple[Code, int]
NOWHERE: frozenset[int] = frozenset()
Outcome: TypeAlias = tuple[bool, Any]
"""Whether the program has returned, and what."""


@dataclass(slots=True)
class InterpretedRegion:
    """What began at one position so far: the most operators, and where the segments ended."""

    nodes: int = 0
    ends: dict[Code, set[int]] = field(default_factory=dict)

    def ends_in(self, frame: Frame) -> Set[int]:
        """Those in the code of this frame."""
        return self.ends.get(frame.code, NOWHERE)


@dataclass(slots=True)
class InterpretedRegions:
    """The interpreted regions of one compiled function. `captured` are the functions that lie in
    segments, `cut` those with a place between segments, `heavy` the interpreted regions that took
    long after all."""

    captured: Set[CodeType]
    regions: dict[Position, InterpretedRegion] = field(default_factory=dict)
    cut: set[CodeType] = field(default_factory=set)
    heavy: set[Position] = field(default_factory=set)

    def note(self, place: Place, end: Position | None, nodes: int) -> None:
        """A segment was made from this place on; `end` None means that it returns."""
        self.cut.update(part[0].code for part in place.key[:-1])
        known = self.regions.setdefault(place.key[0][:2], InterpretedRegion())
        known.nodes = max(known.nodes, nodes)
        if end is not None:
            known.ends.setdefault(end[0], set()).add(end[1])

    def go_on(self, machine: Machine, call: CallRecord) -> Outcome:
        """Goes on natively from the current instruction for as long as interpreted regions are
        light."""
        domain = machine.domain
        assert isinstance(domain, Native)
        domain.calls = self._is_whole
        try:
            return self._go_on(machine, call)
        finally:
            domain.calls = None

    def _is_whole(self, fn: FunctionType, args: tuple[Any, ...]) -> bool:
        """Whether a function was captured without a break in it: it is called natively. What is
        done by a module made of others may be long."""
        code = fn.__code__
        if code not in self.captured or code in self.cut:
            return False
        module = args[0] if args and isinstance(args[0], torch.nn.Module) else None
        return module is None or not vars(module).get("_modules")  # none while it is being made

    def _go_on(self, machine: Machine, call: CallRecord) -> Outcome:
        while True:
            frame = machine.current()
            begin = frame.code, frame.index
            region = self.regions.get(begin)
            if region is None or begin in self.heavy or not _is_light(region, frame):
                return False, None
            try:
                if not _run(machine, region, call):
                    self.heavy.add(begin)
                    return False, None
            except Finished as finished:
                return True, finished.value


def _run(machine: Machine, region: InterpretedRegion, call: CallRecord) -> bool:
    """Through an interpreted region natively, and the instruction at its end; False where it is
    long."""
    tensors = 0
    frame = machine.current()
    ends = region.ends_in(frame)
    for _ in range(MANY_INSTRUCTIONS):
        at = frame.index
        call.instructions += 1
        handler, arg = frame.instructions[at]
        frame.index = at + 1
        try:
            switched = handler(machine, frame, arg)
        except Finished:
            raise
        except BaseException as error:
            raised: BaseException | None = error
        else:
            raised = None
        if raised is not None:
            if unwinding.unwind(machine, raised) is None:
                unwinding.leave(machine.escaped or raised)
            switched = machine.current()
        if at in ends:
            return True
        if switched is not None and switched is not frame:
            frame = switched
            ends = region.ends_in(frame)
        elif frame.stack and isinstance(frame.stack[-1], torch.Tensor):
            tensors += 1
            if tensors > MANY_TENSORS:
                break
    return False


def _is_light(region: InterpretedRegion, frame: Frame) -> bool:
    if not region.nodes:
        return True
    return not COSTS.is_worth_a_segment(region.nodes, largest((*frame.locals, *frame.stack)))
