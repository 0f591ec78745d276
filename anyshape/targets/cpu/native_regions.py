"""Program -> program: runs of steps that need no Python become native regions, each one C function.

    launch k0; t1 = mm(t0, w); launch k1; del t0, t1   ->   native region(k0, mm, k1)

Buffers that live and die inside a native region get a slot in its arena (``arena.py``): a slot
serves several buffers that live at different times, an elementwise result may take its operand's
slot, and so does memory from outside that dies in the native region. What outlives it is allocated
before it, or takes all the memory of a buffer that dies in it. ``BLAS_PRODUCTS`` are done by BLAS
directly, the calls of ``library.py`` by torch's library; a step stays outside where a library must
be called through Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TypeAlias

from anyshape.costs import COSTS
from anyshape.ir.buffers import Buffer, BufferRef, SizeInMemory, references
from anyshape.ir.established import Established, established_in
from anyshape.ir.loops import Load
from anyshape.ir.program import (
    Allocate,
    BindItem,
    Body,
    Call,
    ExternCall,
    Free,
    Launch,
    LaunchList,
    LibraryCall,
    NativeNested,
    NativeRegion,
    Nested,
    Program,
    Step,
    View,
)
from anyshape.ir.scalars import Operand, Scalar, ScalarInput
from anyshape.ir.verify_program import reads_where_it_writes
from anyshape.nouns import frozen, mutable, replace
from anyshape.schedule.arena import Arena, Life, disjoint, plan_arena
from anyshape.symbolic import (
    AllOf,
    AnyOf,
    Atom,
    Condition,
    Dim,
    Expr,
    Facts,
    Relation,
    Symbol,
    symbols_of_all,
    unknowns_of_all,
)
from anyshape.targets.cpu.native_nesting import as_native_nested
from anyshape.targets.cpu.native_steps import BLAS_PRODUCTS, as_native

Run = list[tuple[int, Step]]
Overwriting: TypeAlias = tuple[str, str]
"""A buffer that a step reads, and one that it may write in the same memory."""


@frozen
class Native:
    """What C does on a kind of device: ``step`` gives a step as C does it, None where it cannot;
    ``nested``: loops and branches, too. A native region has ``most_steps`` that compute, if there
    is a limit, and from ``long_steps`` on (by default what ``COSTS`` says) it has two parts.
    ``separate_slots``: slots of its arena may be allocations of their own."""

    step: Callable[[Step, Mapping[str, Buffer]], Step | None]
    nested: bool = False
    long_steps: int | None = None
    most_steps: int | None = None
    separate_slots: bool = False


def form_native_regions(program: Program, facts: Facts, native: Native | None = None) -> Program:
    """Groups what can be done without Python, by default on the CPU, with torch's library."""
    native = native or on_cpu()
    return _grouped(_with_bodies_formed(program, native), facts, native)


def on_cpu(*, library: bool = True) -> Native:
    """``library``: can C call torch's library?"""
    return Native(partial(as_native, library=library), nested=True)


def _with_bodies_formed(program: Program, native: Native) -> Program:
    """The program with the bodies of its steps grouped. A step whose every body is one native
    region is native itself."""
    if not any(step.inside() for step in program.steps):
        return program
    steps: list[Step] = []
    buffers = dict(program.buffers)
    for step in program.steps:
        if not isinstance(step, Nested):
            steps.append(step)
            continue
        inner = step.with_bodies(
            lambda body: replace(body, program=_with_bodies_formed(body.program, native))
        )
        whole = inner.with_bodies(partial(_formed, native, True)) if native.nested else None
        found = as_native_nested(whole, buffers) if whole is not None else None
        if found is None:
            steps.append(inner.with_bodies(partial(_formed, native, False)))
            continue
        done, made = found
        buffers |= made
        steps.append(done)
        steps += [BindItem(n, name) for n, name in zip(step.numbers, done.numbers, strict=True)]
        if done.spares or done.numbers:
            steps.append(Free((*done.spares, *done.numbers)))
    outputs = {name for name in references(program.outputs) if buffers[name].role == "temp"}
    buffers |= {name: replace(buffers[name], role="output") for name in outputs}
    return replace(program, steps=tuple(steps), buffers=buffers)


def _formed(native: Native, whole: bool, body: Body) -> Body:
    return replace(body, program=_grouped(body.program, body.facts, native, whole=whole))


def _grouped(program: Program, facts: Facts, native: Native, *, whole: bool = False) -> Program:
    """``whole``: as few native regions as there can be, whether they are worth it or not."""
    memory = _memory(program)
    done = _native_steps(program, memory, native)
    steps: list[Step] = []
    buffers = dict(program.buffers)
    tested = established_in(program, facts)
    run: Run = []
    into = None if whole else native

    for index, step in enumerate(program.steps):
        if index in done:
            run.append((index, done[index]))
            continue
        steps += _close(run, program, memory, tested, buffers, into)
        run = []
        steps.append(step)
    steps += _close(run, program, memory, tested, buffers, into)
    symbols = (*program.symbols, *_newly_used(program, steps, buffers))
    return replace(program, steps=tuple(steps), buffers=buffers, symbols=symbols)


def _native_steps(program: Program, memory: _Memory, native: Native) -> dict[int, Step]:
    """The steps that C can do, as C does them; what torch allocates must die where it is made."""
    found: dict[int, Step] = {}
    for index, step in enumerate(program.steps):
        done = native.step(step, program.buffers)
        if done is not None:
            found[index] = done
    for index, step in reversed(list(found.items())):
        if not _is_allocated_by_library(step):
            continue
        end = max(memory.needed.get(name, index) for name in step.defines())
        if any(later not in found for later in range(index, end + 1)):
            del found[index]
    return found


def _newly_used(
    program: Program, steps: Iterable[Step], buffers: Mapping[str, Buffer]
) -> Iterable[Symbol]:
    """Entry sizes that only native regions and their allocations read: products named none."""
    shapes = (buffers[name].shape for name in program.inputs if name in buffers)
    given = {dim.symbol for shape in shapes for dim in shape if isinstance(dim, Expr)}
    used: set[Symbol] = set()
    for step in steps:
        if isinstance(step, NativeRegion):
            dims: Iterable[Dim] = (atom.expr for atom in step.sizes)
        elif isinstance(step, Allocate):
            buffer = buffers[step.buffer]
            dims = (*buffer.shape, *buffer.strides)
        else:
            continue
        for dim in dims:
            if isinstance(dim, Expr):
                used |= dim.symbols & given
    return sorted(used - set(program.symbols), key=lambda s: s.name)


@frozen
class _Memory:
    """Of the whole program: what is made in memory of its own, what may lie in the memory of other
    buffers, and until which step a buffer's memory is needed: by the buffer itself or by anything
    that may lie there.
    """

    fresh: frozenset[str]
    lies_in: Mapping[str, tuple[str, ...]]
    needed: Mapping[str, int]

    def below(self, name: str) -> tuple[str, ...]:
        """All buffers that this one may lie in the memory of."""
        if name not in self.lies_in:
            return ()
        found = dict.fromkeys(self.lies_in[name])
        waiting = list(found)
        while waiting:
            bases = dict.fromkeys(self.lies_in.get(waiting.pop(), ()))
            waiting += (base for base in bases if base not in found)
            found |= bases
        return tuple(found)


def _memory(program: Program) -> _Memory:
    lies_in: dict[str, tuple[str, ...]] = {}
    for step in program.steps:
        if bases := tuple(step.may_lie_in()):
            lies_in.update(dict.fromkeys(step.defines(), bases))
    needed = _last_uses(program)
    for name, bases in reversed(lies_in.items()):  # what a buffer lies in is made before it
        for base in bases:
            needed[base] = max(needed[base], needed[name])
    return _Memory(frozenset(n for s in program.steps for n in _fresh(s)), lies_in, needed)


def _last_uses(program: Program) -> dict[str, int]:
    """The last step, or the end, where each buffer is mentioned (frees do not count)."""
    last: dict[str, int] = {}
    for index, step in enumerate(program.steps):
        last.update(dict.fromkeys(step.mentions(), index))
    for name in references(program.outputs):
        last[name] = len(program.steps)
    return last


def _close(
    run: Run,
    program: Program,
    memory: _Memory,
    tested: Established,
    buffers: dict[str, Buffer],
    into: Native | None,
) -> list[Step]:
    """The run as [allocations of what outlives it, the native region, its frees, views seen
    outside], for each of its parts; with None it is one, however short it is."""
    if not run:
        return []
    facts = tested.at(run[0][0])
    alone = any(isinstance(step, NativeNested | LaunchList) for _, step in run)
    if len(_computing(run)) < (1 if alone or into is None else COSTS.region_steps):
        return _Grouping(run, memory, facts, buffers, into is None).as_they_are(program.steps)
    parts = [run] if into is None else _parts(run, into, memory.needed)
    separate_slots = into is not None and into.separate_slots
    groups = (
        _Grouping(part, memory, facts, buffers, into is None).steps(separate_slots)
        for part in parts
    )
    return [step for group in groups for step in group]


def _computing(run: Run) -> list[int]:
    return [position for position, (_, step) in enumerate(run) if _is_compute(step)]


def _parts(run: Run, into: Native, needed: Mapping[str, int]) -> list[Run]:
    """Parts that are no longer than they may be, unless what torch allocates outlives them: what
    they leave is allocated before them, and what dies in them freed after them. The last is cut
    once more."""
    parts: list[Run] = []
    while into.most_steps is not None:
        starts = (_prepared(run, at) for at in _computing(run)[into.most_steps :])
        at = next((at for at in starts if not _outlives_its_part(run, at)), 0)
        if not at:
            break
        parts.append(run[:at])
        run = run[at:]
    long_steps = COSTS.long_region_steps if into.long_steps is None else into.long_steps
    at = _tail(run, needed) if len(_computing(run)) >= long_steps else 0
    return [*parts, run[:at], run[at:]] if at else [*parts, run]


def _prepared(run: Run, at: int) -> int:
    """Where the allocations and views begin that stand before ``at``."""
    while at and isinstance(run[at - 1][1], Allocate | View):
        at -= 1
    return at


def _tail(run: Run, needed: Mapping[str, int]) -> int:
    """Where the last steps begin: before the last outliving buffer is first touched; 0: nowhere."""
    end, compute = run[-1][0], _computing(run)
    first: dict[str, int] = {}
    for position, (_, step) in enumerate(run):
        if _is_compute(step):
            for name in step.mentions():
                first.setdefault(name, position)
    made = {s.buffer for _, s in run if isinstance(s, Allocate)}
    made |= {name for _, s in run if _is_product(s) for name in s.defines()}
    late = [first[name] for name in made if needed.get(name, -1) > end and name in first]
    if not late:
        return 0
    before = [position for position in compute if position <= max(late)]
    at = compute[min(len(before), len(compute) - COSTS.region_steps + 1) - 1]
    if at < compute[len(compute) // 2] or at == compute[0]:  # nothing would be done before it
        return 0
    at = _prepared(run, at)
    return 0 if _outlives_its_part(run, at) else at


def _outlives_its_part(run: Run, at: int) -> bool:
    """Would a result of torch's own outlive the part that makes it?"""
    library_owned = {n for _, s in run[:at] if _is_allocated_by_library(s) for n in s.defines()}
    for view in (step for _, step in run if isinstance(step, View)):
        if view.base in library_owned:
            library_owned.add(view.output)
    return any(name in library_owned for _, step in run[at:] for name in step.mentions())


def _is_compute(step: Step) -> bool:
    return isinstance(step, (Launch, LaunchList, LibraryCall, NativeNested)) or _is_product(step)


def _is_product(step: Step) -> bool:
    """Is the step's result allocated by us, though the program does not say so?"""
    if isinstance(step, LibraryCall):
        return not step.gives_memory
    if isinstance(step, NativeNested):
        return True
    return isinstance(step, Call) and step.function in BLAS_PRODUCTS


def _is_allocated_by_library(step: Step) -> bool:
    return isinstance(step, LibraryCall) and step.gives_memory


@mutable(eq=False)
class _Grouping:
    run: Run
    memory: _Memory
    facts: Facts
    buffers: dict[str, Buffer]
    inside: bool  # a body
    made: dict[str, int] = field(default_factory=dict)
    library_owned: set[str] = field(default_factory=set)
    freed: dict[str, int] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    overwriting: dict[int, tuple[Step, frozenset[Overwriting]]] = field(default_factory=dict)
    # by the step's id
    touched: list[tuple[int, Step, tuple[str, ...]]] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)

    def as_they_are(self, steps: Sequence[Step]) -> list[Step]:
        """The steps, each by itself; memory that another buffer takes is let go of behind that."""
        self._find_made()
        self._find_touched()
        self._find_taken()
        waiting, kept = set(self.taken.values()), list[Step]()
        for step in (steps[index] for index, _ in self.run):
            if isinstance(step, Allocate) and (over := self.taken.get(step.buffer)) is not None:
                kept.append(replace(step, over=over))
                waiting.discard(over)
                if self.freed[over] < self.made[step.buffer]:
                    kept.append(Free((over,)))
            elif not isinstance(step, Free) or waiting.isdisjoint(step.buffers):
                kept.append(step)
            elif left := tuple(name for name in step.buffers if name not in waiting):
                kept.append(Free(left))
        return kept

    def steps(self, separate_slots: bool) -> list[Step]:
        """One native region, what it needs before and what it leaves after it."""
        views_outside = self._find_made()
        self._find_touched()
        self._find_taken()
        untouched = self._dead_before()
        before: list[Step] = [Free(untouched)] if untouched else []
        before += [Allocate(name, self.taken.get(name)) for name in self._outliving()]
        arena = self._plan(tuple(name for name in self.made if self._is_inner(name)))
        kept = (*(View(*pair) for pair in arena.lent.items()), *self._kept())
        inside = {*arena.inner, *arena.lent, *self.views, *self.library_owned}
        mentions = dict.fromkeys(name for step in kept for name in step.mentions())
        outer = tuple(name for name in mentions if name not in inside)
        numbers = free_numbers(kept, self.buffers, self._dims(kept, arena), self.inside)
        region = NativeRegion(kept, outer, arena.inner, arena.slots, *numbers, separate_slots)
        dead = tuple(
            name
            for _, step in self.run
            if isinstance(step, Free)
            for name in step.buffers
            if name not in inside or name in views_outside
            if name not in untouched
        )
        return [*before, region, *views_outside.values(), *([Free(dead)] if dead else [])]

    def _dead_before(self) -> tuple[str, ...]:
        """What the run frees without having touched it: freed before anything is allocated."""
        touched = {name for *_, names in self.touched for name in names}
        freed = (name for _, step in self.run if isinstance(step, Free) for name in step.buffers)
        return tuple(name for name in freed if name not in touched)

    def _find_made(self) -> dict[str, View]:
        """Notes what the run allocates; returns the views it makes that are used after it."""
        for index, step in self.run:
            if isinstance(step, Allocate):
                self.made[step.buffer] = index
            elif isinstance(step, View):
                self.views[step.output] = step
            elif _is_product(step):
                self.made.update(dict.fromkeys(step.defines(), index))
            elif _is_allocated_by_library(step):
                self.library_owned.update(step.defines())
            elif isinstance(step, Free):
                self.freed.update(dict.fromkeys(step.buffers, index))
        return {name: step for name, step in self.views.items() if not self._dies(name)}

    def _dies(self, name: str) -> bool:
        """Is the buffer's memory needed no more after the run?"""
        return self.memory.needed[name] <= self.run[-1][0]

    def _is_inner(self, name: str) -> bool:
        kind = self.buffers[name].role in ("temp", "result")
        return kind and name in self.freed and self._dies(name)

    def _outliving(self) -> list[str]:
        """What is made here and not only for here."""
        return [name for name in self.made if not self._is_inner(name)]

    def _kept(self) -> Iterable[Step]:
        """What the native region does; what torch allocated inside it is freed as soon as it is
        dead."""
        for index, step, names in self.touched:
            if not isinstance(step, (Allocate, Free)):
                yield step
                library_owned = (name for name in names if name in self.library_owned)
                dead = tuple(name for name in library_owned if self.last[name] == index)
                if dead:
                    yield Free(dead)

    def _find_touched(self) -> None:
        """Notes what each step mentions, what that is a view of included, and who is the last."""
        for index, step in self.run:
            names = dict(step.mentions())
            for name in step.mentions():
                names |= dict.fromkeys(self.memory.below(name))
            self.touched.append((index, step, tuple(names)))
            self.last.update(dict.fromkeys(names, index))

    def _plan(self, inner: tuple[str, ...]) -> Arena:
        """Slots in the arena; outer memory that dies here comes first, then what outlives the
        native region, which is lent until its own first use."""
        outer = (*self._donors(), *self._outliving())
        taken = {*self.taken, *self.taken.values()}
        donors = tuple(name for name in outer if name not in taken)
        lives = self._lives((*donors, *inner))
        own, lent = ([lives[name] for name in names] for names in (inner, donors))
        return plan_arena(own, lent, self.buffers, self.facts, self._becomes)

    def _find_taken(self) -> None:
        """Which buffers that outlive the run take all the memory of one that dies in it."""
        outliving = [n for n in self._outliving() if self.buffers[n].role == "temp"]
        free = list(self._donors())
        lives = self._lives((*free, *outliving))
        for name in outliving:
            for donor in free:
                if self._alike(donor, name) and disjoint(lives[donor], lives[name], self._becomes):
                    self.taken[name] = donor
                    free.remove(donor)
                    break

    def _alike(self, a: str, b: str) -> bool:
        """Are the two laid out in one way?"""
        return replace(self.buffers[a], name=b, role=self.buffers[b].role) == self.buffers[b]

    def _donors(self) -> tuple[str, ...]:
        """Memory from outside that is touched here and needed no more after it."""
        inside = {*self.made, *self.views, *self.library_owned}
        touched = self.memory.fresh & self.last.keys() - inside
        return tuple(name for name in self.freed if name in touched and self._dies(name))

    def _lives(self, names: tuple[str, ...]) -> dict[str, Life]:
        last, after = self.last, self.run[-1][0] + 1
        first: dict[str, tuple[int, Step]] = {}
        for index, step in self.run:
            if not isinstance(step, (Allocate, Free)):
                for name in step.mentions():
                    first.setdefault(name, (index, step))
        lives = {}
        for name in names:
            if name in self.made:
                start, maker = first.get(name, (self.made[name], None))
                end = last.get(name, 0) if self._is_inner(name) else after
                lives[name] = Life(name, start, maker, end)
            else:
                lives[name] = Life(name, -1, None, last[name])
        return lives

    def _becomes(self, a: Life, b: Life) -> bool:
        """May b be written where a lies, at the step that reads a for the last time?"""
        return b.maker is not None and (a.name, b.name) in self._overwriting(b.maker)

    def _overwriting(self, step: Step) -> frozenset[Overwriting]:
        """What the step may write where what it reads lies. It is asked of each pair of buffers."""
        found = self.overwriting.get(id(step))
        if found is None:
            beneath = {base for name in step.mentions() for base in self.memory.below(name)}
            launches = step.launched()
            readers = Counter(name for launch in launches for name in launch.mentions())
            pairs = frozenset(
                (source, result)
                for launch in launches
                for source, result in overwriting(launch)
                if readers[source] == 1 and source not in beneath
            )
            found = self.overwriting[id(step)] = step, pairs
        return found[1]

    def _dims(self, kept: Iterable[Step], arena: Arena) -> Iterable[Dim]:
        yield from (size for slot in arena.slots for size in slot.sizes)
        yield from (offset for _, offset in arena.inner.values())
        for step in kept:
            if _is_product(step) or _is_allocated_by_library(step):
                for name in step.mentions():
                    yield from self.buffers[name].shape
                    yield from self.buffers[name].strides


def is_float(scalar: Operand) -> bool:
    """Is the scalar handed over as a double?"""
    return isinstance(scalar, (Scalar, ScalarInput)) and scalar.kind == "float"


def overwriting(step: Launch) -> frozenset[Overwriting]:
    """Of which sources may the result take the memory: is each element read only where it is
    written? That is for the verifier to say.

    Only kernels with one store, and no masked load of the source, so that no element is read after
    a write.
    """
    kernel = step.kernel
    if len(kernel.stores) != 1 or kernel.reduction_axes or kernel.ordered:
        return frozenset()
    written = kernel.stores[0].pointer
    parameters: dict[str, list[str]] = {}
    for param, arg in zip(kernel.params, step.args, strict=True):
        if isinstance(arg, BufferRef | SizeInMemory):
            parameters.setdefault(arg.name, []).append(param.name)
    result = next((name for name, own in parameters.items() if own == [written]), None)
    if result is None:
        return frozenset()
    masked = {e.pointer for e in kernel.elements if isinstance(e, Load) and e.mask is not None}
    return frozenset(
        (source, result)
        for source, own in parameters.items()
        if masked.isdisjoint(own) and all(reads_where_it_writes(step, p, written) for p in own)
    )


def _fresh(step: Step) -> tuple[str, ...]:
    """What the step makes in memory of its own."""
    if isinstance(step, Allocate):
        return (step.buffer,)
    if (isinstance(step, ExternCall) and step.new_memory) or _is_product(step):
        return tuple(step.defines())
    return ()


def free_numbers(
    steps: Iterable[Step], buffers: Mapping[str, Buffer], dims: Iterable[Dim], inside: bool
) -> tuple[tuple[Atom, ...], tuple[Operand, ...]]:
    """The symbols and scalars that the steps (and further sizes) read; floats are the last.

    Deep operations are computed before the native region, once for all that follow; ``inside`` a
    body, whose head gives symbols their values, they are computed there.
    """
    sizes: list[Expr | Condition] = []
    scalars: dict[Operand, None] = {}

    def note(number: object) -> None:
        if isinstance(number, (Expr, Relation, AllOf, AnyOf)):
            sizes.append(number)
        elif isinstance(number, (Scalar, ScalarInput)):
            scalars[number] = None
        elif isinstance(number, tuple):
            for item in number:
                note(item)

    for step in steps:
        note(tuple(step.arguments(buffers)))
    note(tuple(dims))
    ordered = sorted(scalars, key=is_float)
    read = tuple(symbols_of_all(sizes)) if inside else unknowns_of_all(sizes)
    return read, tuple(ordered)
