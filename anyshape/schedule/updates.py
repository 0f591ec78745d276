"""Kernels that compute what is assigned to arguments write it there, last of all in a program.

    launch %n <- f(%p, %g); ...; assign(%p, %n)   ->   ...; launch %p <- f(%p, %g); bump(%p)

An optimizer's step needs no second copy of what it updates. It cannot be done twice, so it is done
where nothing may fail any more: behind every other step, and in front of assignments that are left.
A kernel may read what it writes where each of its cells reads the one element that it writes. What
another of these kernels reads of an argument's old value keeps the assignment; the new value they
read where it is written.

In: the steps of a program, before anything is freed. Out: the same, fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from anyshape.ir.buffers import Buffer, BufferRef, StepArg, references
from anyshape.ir.effects import memory_shared
from anyshape.ir.program import Allocate, Assign, BumpVersion, Launch, Step, View
from anyshape.ir.verify_program import reads_where_it_writes
from anyshape.nouns import frozen, replace
from anyshape.ops.layout import dense_order
from anyshape.symbolic import Dim

Shape: TypeAlias = tuple[Dim, ...]


def write_where_assigned(
    steps: Sequence[Step],
    buffers: Mapping[str, Buffer],
    outputs: tuple[StepArg, ...],
    simplify: Callable[[Shape], Shape],
) -> list[Step]:
    """See the module. ``simplify`` gives sizes as the facts have them."""
    if not any(isinstance(step, Assign) for step in steps):
        return list(steps)
    buffers = {
        name: replace(b, shape=simplify(b.shape), strides=simplify(b.strides))
        for name, b in buffers.items()
    }
    steps = _without_same_views(steps, buffers, frozenset(references(outputs)))
    homes = {u.source: u.target for u in _updates(steps, buffers, frozenset(references(outputs)))}
    if not homes:
        return steps
    first: list[Step] = []
    moved: list[Step] = []
    last: list[Step] = []
    for step in steps:
        if isinstance(step, Launch) and not homes.keys().isdisjoint(step.writes()):
            moved.append(_into_homes(step, homes))
        elif isinstance(step, (Assign, BumpVersion)):
            last.append(_marked(step, homes))
        elif not (isinstance(step, Allocate) and step.buffer in homes):
            first.append(step)
    return [*first, *moved, *last]


def _without_same_views(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], returned: frozenset[str]
) -> list[Step]:
    """What a view shows that is all of its base, and that nobody else reads, is the base."""
    same = {
        step.output: step.base
        for step in steps
        if isinstance(step, View) and step.offset == 0 and step.output not in returned
        if _layout(buffers[step.output]) == _layout(buffers[step.base])
    }
    for step in steps:
        if not isinstance(step, Assign):
            for name in step.reads():
                same.pop(name, None)
    return [
        replace(step, args=tuple(_renamed(arg, same) for arg in step.args))
        if isinstance(step, Assign)
        else step
        for step in steps
        if not (isinstance(step, View) and step.output in same)
    ]


def _renamed(arg: StepArg, names: Mapping[str, str]) -> StepArg:
    return BufferRef(names.get(arg.name, arg.name)) if isinstance(arg, BufferRef) else arg


def _layout(buffer: Buffer) -> tuple[object, ...]:
    return buffer.dtype, buffer.device, buffer.shape, buffer.strides


@frozen(eq=False)
class _Update:
    """``launch`` writes ``source``, all of which is assigned to ``target`` by ``assign``."""

    launch: Launch
    source: str
    target: str
    assign: Assign


def _updates(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], returned: frozenset[str]
) -> list[_Update]:
    readers: dict[str, list[Step]] = {}
    for step in steps:
        for name in dict.fromkeys(step.reads()):
            readers.setdefault(name, []).append(step)
    makers = _only_writers(steps)
    found = []
    for source, target, assign in _assigned(steps):
        launch = makers.get(source)
        if (
            launch is not None
            and source not in returned
            and _alike(buffers[source], buffers[target])
        ):
            found.append(_Update(launch, source, target, assign))
    shown = memory_shared(steps)
    while True:
        launches = {id(update.launch): update.launch for update in found}
        near = _readers_of_memory(launches.values(), shown)
        kept = [
            update
            for update in found
            if _moves(update, launches, readers)
            and all(_lets(one, update, shown) for one in near.get(update.target, ()))
        ]
        if len(kept) == len(found):
            return kept
        found = kept


def _only_writers(steps: Iterable[Step]) -> Mapping[str, Launch]:
    """The launch that fills each buffer, where nothing else writes it. (A scatter writes what a
    launch before it has filled: the argument's old value would be read between the two.)"""
    writers: dict[str, list[Step]] = {}
    for step in steps:
        for name in dict.fromkeys(step.writes()):
            writers.setdefault(name, []).append(step)
    return {n: s[0] for n, s in writers.items() if len(s) == 1 and isinstance(s[0], Launch)}


def _moves(
    update: _Update, launches: Mapping[int, Launch], readers: Mapping[str, Sequence[Step]]
) -> bool:
    """Is what its launch writes read by assignments and by launches that are done last, too? What
    is written to the argument, by the one assignment."""
    for name in update.launch.writes():
        others = [step for step in readers.get(name, ()) if id(step) not in launches]
        if not all(isinstance(step, Assign) for step in others):
            return False
        if name == update.source and others != [update.assign]:
            return False
    return True


def _assigned(steps: Sequence[Step]) -> Iterator[tuple[str, str, Assign]]:
    """What is copied to an argument, to which, and by which step; each argument but once."""
    assigns = [step for step in steps if isinstance(step, Assign)]
    targets = Counter(step.target for step in assigns)
    for step in assigns:
        if targets[step.target] == 1:
            (source,) = references(step.args)
            yield source, step.target, step


def _alike(source: Buffer, target: Buffer) -> bool:
    """Does a kernel that fills the one fill the other?"""
    dense = dense_order(target.shape, target.strides) is not None
    return dense and _layout(source) == _layout(target)


def _readers_of_memory(
    launches: Iterable[Launch], shown: Mapping[str, frozenset[str]]
) -> dict[str, list[Launch]]:
    """For each buffer the launches that read it, or what may lie in its memory."""
    found: dict[str, list[Launch]] = {}
    for launch in launches:
        names = set(launch.reads())
        for name in names.union(*(shown.get(name, ()) for name in names)):
            found.setdefault(name, []).append(launch)
    return found


def _lets(launch: Launch, update: _Update, shown: Mapping[str, frozenset[str]]) -> bool:
    """Whether the launch, done before or after the update is written, reads what it did."""
    if any(update.target in shown.get(name, ()) for name in launch.reads()):
        return False
    if update.target not in launch.reads():
        return True
    if launch is not update.launch:
        return False
    (result,) = _parameters(launch, update.source)
    sources = _parameters(launch, update.target)
    return all(reads_where_it_writes(launch, source, result) for source in sources)


def _parameters(launch: Launch, name: str) -> list[str]:
    pairs = zip(launch.kernel.params, launch.args, strict=True)
    return [p.name for p, arg in pairs if isinstance(arg, BufferRef) and arg.name == name]


def _into_homes(launch: Launch, homes: Mapping[str, str]) -> Launch:
    args = (
        BufferRef(homes.get(arg.name, arg.name)) if isinstance(arg, BufferRef) else arg
        for arg in launch.args
    )
    return replace(launch, args=tuple(args))


def _marked(step: Assign | BumpVersion, homes: Mapping[str, str]) -> Step:
    """A kernel has written it."""
    done = isinstance(step, Assign) and not homes.keys().isdisjoint(references(step.args))
    if not isinstance(step, Assign) or not done:
        return step
    return BumpVersion(step.target, step.counted)
