"""Program -> program: launches of one kernel that may be done at once become one list.

    launch k(%p, 256); launch k(%q, 999); ...   ->   at once: k(%p, 0, 256), k(%q, 0, 999), ...

An optimizer's update is a kernel for each parameter, and each would start threads. Where a kernel
computes each element from those at the same index, its one extent becomes two numbers of the
launch, the first cell and how many: launches on any sizes are one kernel, whose cells are shared
out as if they were those of one tensor. Launches of other kernels share a list where they are equal
up to sizes. A launch goes to the last list of its kernel if nothing since then writes what it
touches, or touches what it writes.

In: the steps of a program, before native regions are formed. Out: the same, fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from anyshape.ir.buffers import Buffer, SizeInMemory, StepArg
from anyshape.ir.effects import memory_shared
from anyshape.ir.loops import (
    Axis,
    Element,
    Kernel,
    Load,
    Position,
    ScalarParam,
    SizeParam,
    Store,
    index_names,
)
from anyshape.ir.program import Allocate, Free, Launch, LaunchList, Program, Step, View
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.nouns import mutable, replace
from anyshape.symbolic import Dim, Expr, substitute
from anyshape.targets.cpu.schedules import variants

Form: TypeAlias = tuple[Kernel, tuple[StepArg, ...]]
"""Launches of one form share a list: the kernel, and the numbers that they have in common."""


def with_launch_lists(program: Program) -> Program:
    """See the module; of the programs inside it, too."""
    return with_lists(program, "cpu", ThreadLists)


def with_lists(program: Program, kind: str, lists: Callable[[], Lists]) -> Program:
    """The program, and those inside it, where launches on devices of this kind are lists."""
    inner = program.with_bodies(lambda b: replace(b, program=with_lists(b.program, kind, lists)))
    if sum(isinstance(step, Launch) for step in inner.steps) < 2:
        return inner
    own = lists()
    own.bases = memory_shared(inner.steps)
    steps: list[Step] = []
    run: list[Step] = []
    for step in inner.steps:
        if _moves(step, inner.buffers, kind):
            run.append(step)
            continue
        steps += (*own.of(run), step)
        run = []
    return replace(inner, steps=(*steps, *own.of(run)))


def _moves(step: Step, buffers: Mapping[str, Buffer], kind: str) -> bool:
    """May launches be moved across the step, if they touch nothing of its own?"""
    match step:
        case Launch():
            devices = {buffers[name].device.partition(":")[0] for name in step.mentions()}
            return devices == {kind}
        case Allocate(over=None) | Free() | View():
            return True
    return False


@mutable(eq=False)
class _Group:
    """A view, or launches of one form, and the memory that they touch."""

    steps: list[Launch | View] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def lets(self, touched: set[str], written: set[str]) -> bool:
        """Does it not write what is touched, nor touch what is written?"""
        return touched.isdisjoint(self.written) and written.isdisjoint(self.touched)


@mutable(eq=False)
class Lists:
    """What a target makes lists of, and what a list is. ``bases``: in whose memory buffers lie."""

    bases: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def form(self, step: Launch) -> Form | None:
        """What launches of a list have in common; None of what is done alone."""
        raise NotImplementedError

    def done(self, launches: Sequence[Launch]) -> Sequence[Step]:
        """Several launches of one form."""
        raise NotImplementedError

    def of(self, run: Sequence[Step]) -> Sequence[Step]:
        """The run with its lists."""
        if sum(isinstance(step, Launch) for step in run) < 2:
            return run
        groups: list[_Group] = []
        latest: dict[Form, int] = {}
        for step in run:
            if not isinstance(step, Launch | View):
                continue
            touched, written = self._memory(step.mentions()), self._memory(step.writes())
            if isinstance(step, View):
                written.add(step.output)
            form = None if isinstance(step, View) or step.offsets else self.form(step)
            number = None if form is None else latest.get(form)
            if number is None or not all(p.lets(touched, written) for p in groups[number:]):
                number = len(groups)
                groups.append(_Group())
            if form is not None:
                latest[form] = number
            group = groups[number]
            group.steps.append(step)
            group.touched |= touched
            group.written |= written
        if all(len(group.steps) == 1 for group in groups):
            return run
        return _with_memory([step for group in groups for step in self._steps(group.steps)], run)

    def _steps(self, steps: Sequence[Launch | View]) -> Sequence[Step]:
        launches = tuple(step for step in steps if isinstance(step, Launch))
        return self.done(launches) if len(launches) > 1 else steps

    def _memory(self, names: Iterable[str]) -> set[str]:
        names = tuple(names)
        return {*names}.union(*(self.bases.get(name, frozenset()) for name in names))


@mutable(eq=False)
class ThreadLists(Lists):
    """Lists that one team of threads does."""

    divided: dict[Kernel, Kernel | None] = field(default_factory=dict)

    def form(self, step: Launch) -> Form | None:
        if any(isinstance(arg, SizeInMemory) for arg in step.args):
            return None
        return self._divided(step.kernel) or step.kernel, tuple(same_numbers(step))

    def _divided(self, kernel: Kernel) -> Kernel | None:
        if kernel not in self.divided:
            self.divided[kernel] = divided_kernel(kernel)
        return self.divided[kernel]

    def done(self, launches: Sequence[Launch]) -> Sequence[Step]:
        kernel = self._divided(launches[0].kernel)
        if kernel is None:
            return (LaunchList(tuple(launches), divided=False),)
        ways = variants(kernel)
        parts = (Launch(kernel, (*one.args, 0, cells(one)), variants=ways) for one in launches)
        return (LaunchList(tuple(parts), divided=True),)


def _with_memory(steps: Sequence[Step], run: Sequence[Step]) -> list[Step]:
    """The steps with the run's memory: allocated where it is first touched, freed where last."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for name in step.mentions():
            first.setdefault(name, number)
            last[name] = number
    before: dict[int, list[Step]] = {}
    behind: dict[int, list[str]] = {}
    for step in run:
        if isinstance(step, Allocate):
            before.setdefault(first.get(step.buffer, len(steps)), []).append(step)
        elif isinstance(step, Free):
            for name in step.buffers:
                behind.setdefault(last.get(name, -1), []).append(name)
    made: list[Step] = []
    for number in range(-1, len(steps) + 1):
        made += (*before.get(number, ()), *steps[max(number, 0) : number + 1])
        if number in behind:
            made.append(Free(tuple(behind[number])))
    return made


def divided_kernel(kernel: Kernel) -> Kernel | None:
    """The kernel for a part of its cells; None where a cell reads or writes other indices than its
    own, or several cells are one reduction's.

    kernel(p0, p1); for i0 < 256: p1[i0] = f(p0[i0])
      -> kernel(p0, p1, n0, n1); for i0 < n1: p1[n0 + i0] = f(p0[n0 + i0])
    """
    if len(kernel.axes) != 1 or kernel.reduction_axes or kernel.ordered:
        return None
    (axis,) = kernel.axes
    if not all(_is_own_index(part, axis) for part in (*kernel.elements, *kernel.stores)):
        return None
    own = kernel.stores[0].index
    assert isinstance(own, Expr)
    taken, space = sum(isinstance(param, SizeParam) for param in kernel.params), own.space
    names = f"n{taken}", f"n{taken + 1}"
    first, count = (space.named(name) or space.symbol(name) for name in names)

    def moved(element: Element) -> Element:
        match element:
            case Load(index=index) | Position(index=index) if index == own:
                return replace(element, index=first + own)
        return element

    return Kernel(
        (*kernel.params, *map(SizeParam, names)),
        (Axis(axis.name, count),),
        (),
        tuple(map(moved, kernel.elements)),
        tuple(replace(store, index=first + own) for store in kernel.stores),
    )


def _is_own_index(part: Element | Store, axis: Axis) -> bool:
    """Does it read or write the cell's own index, or nothing that depends on where that is?"""
    match part:
        case Store(index=index, per=per, mode=mode):
            return per == "cell" and mode == "set" and str(index) == axis.name
        case Load(index=index) | Position(index=index):
            return str(index) == axis.name or axis.name not in index_names(part)
    return True


def same_numbers(launch: Launch) -> Iterator[StepArg]:
    """The numbers that launches of a list have in common: those that are no sizes, and known."""
    for param, arg in zip(launch.kernel.params, launch.args, strict=True):
        if isinstance(param, ScalarParam) and not isinstance(arg, Scalar | ScalarInput):
            yield arg


def cells(launch: Launch) -> Dim:
    """How many cells the launch runs."""
    sizes = {
        param.name: arg
        for param, arg in zip(launch.kernel.params, launch.args, strict=True)
        if isinstance(param, SizeParam) and isinstance(arg, (int, Expr))
    }
    count: Dim = 1
    for axis in (*launch.kernel.axes, *launch.kernel.reduction_axes):
        extent = axis.extent
        known = {s: sizes[s.name] for s in extent.symbols} if isinstance(extent, Expr) else {}
        count = count * substitute(extent, known)
    return count
