"""Program -> program: runs of steps that need no Python become stretches, each one C function.

    launch k0; t1 = mm(t0, w); launch k1; del t0, t1   ->   stretch(k0, mm, k1)

Buffers that live and die inside a stretch get a place in its arena: a place serves several buffers
that live at different times and are known to fit, an elementwise result may take its operand's
place, and so does memory from outside that dies in the stretch. What outlives it is allocated
before it. A step stays outside where a library must be called through Python; ``PRODUCTS`` are
done by BLAS directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anyshape.ir.dtypes import DType, float32, float64
from anyshape.ir.loops import Load, PointerParam
from anyshape.ir.program import (
    Allocate,
    Buffer,
    BufferRef,
    Call,
    Free,
    Launch,
    Program,
    Step,
    StepArg,
    Stretch,
)
from anyshape.ir.scalars import Operand, Scalar, ScalarInput
from anyshape.symbolic import Dim, Expr, Facts, Symbol, evaluate, le

ALIGNMENT = 64
VIEW = "torch.as_strided"
LINEAR = "torch.nn.functional.linear"
PRODUCTS = frozenset({"torch.mm", LINEAR})
PRODUCT_DTYPES: frozenset[DType] = frozenset({float32, float64})
MIN_COMPUTE_STEPS = 2
# Library calls whose result is memory of its own, which may be written once the result is dead.
FRESH_RESULTS = frozenset({"torch.nn.functional.scaled_dot_product_attention", "torch._grouped_mm"})


def form_stretches(program: Program, facts: Facts) -> Program:
    """Groups what can be done without Python."""
    last_use = _last_uses(program)
    steps: list[Step] = []
    buffers = dict(program.buffers)
    run: list[tuple[int, Step]] = []
    for index, step in enumerate(program.steps):
        if is_native(step, program.buffers):
            run.append((index, step))
            continue
        steps += _close(run, program, last_use, facts, buffers)
        run = []
        steps.append(step)
    steps += _close(run, program, last_use, facts, buffers)
    symbols = (*program.symbols, *_newly_used(program, steps, buffers))
    return replace(program, steps=tuple(steps), buffers=buffers, symbols=symbols)


def _newly_used(
    program: Program, steps: Iterable[Step], buffers: Mapping[str, Buffer]
) -> Iterable[Symbol]:
    """Entry sizes that only stretches and their allocations read: products named none."""
    used: set[Symbol] = set()
    for step in steps:
        if isinstance(step, Stretch):
            used.update(step.sizes)
        elif isinstance(step, Allocate):
            buffer = buffers[step.buffer]
            dims = (*buffer.shape, *buffer.strides)
            used.update(s for dim in dims if isinstance(dim, Expr) for s in dim.symbols)
    shapes = (buffers[name].shape for name in program.inputs if name in buffers)
    given = {dim.symbol for shape in shapes for dim in shape if isinstance(dim, Expr)}
    return sorted((used & given) - set(program.symbols), key=lambda s: s.name)


def is_native(step: Step, buffers: Mapping[str, Buffer]) -> bool:
    """Can C do this step by itself?"""
    match step:
        case Allocate(buffer=name):
            return buffers[name].device == "cpu"
        case Free():
            return True
        case Launch(args=args):
            references = (arg for arg in args if isinstance(arg, BufferRef))
            return all(buffers[reference.name].device == "cpu" for reference in references)
        case Call(kind="view", function="torch.as_strided") | Call(kind="check"):
            return True
        case Call(function=function) if function in PRODUCTS:
            return _is_blas_product(step, buffers)
    return False


def _is_blas_product(step: Call, buffers: Mapping[str, Buffer]) -> bool:
    references = [arg for arg in step.args if isinstance(arg, BufferRef)]
    operands = [buffers[reference.name] for reference in references]
    result = buffers[step.outputs[0]]
    if any(b.device != "cpu" or b.dtype not in PRODUCT_DTYPES for b in (*operands, result)):
        return False
    if step.kwargs or len({b.dtype for b in (*operands, result)}) > 1:
        return False
    if not is_row_major(result):
        return False
    if step.function == LINEAR:
        return is_row_major(operands[0]) and all(is_row_major(b) for b in operands[1:])
    return all(matrix_layout(operand) is not None for operand in operands)


def is_row_major(buffer: Buffer) -> bool:
    """Are the elements dense and in order, whatever the sizes?"""
    expected: Dim = 1
    for size, stride in zip(reversed(buffer.shape), reversed(buffer.strides), strict=True):
        if stride is not expected and stride != expected and size != 1:
            return False
        expected = expected * size
    return True


def matrix_layout(buffer: Buffer) -> tuple[bool, Dim] | None:
    """(transposed, leading dimension) of a matrix that BLAS can read, or None."""
    rows, columns = buffer.strides
    if isinstance(columns, int) and columns == 1 and rows != 0:
        return False, rows
    if isinstance(rows, int) and rows == 1 and columns != 0:
        return True, columns
    return None


def _last_uses(program: Program) -> dict[str, int]:
    """The last step, or the end, where each buffer is mentioned (frees do not count)."""
    last: dict[str, int] = {}
    for index, step in enumerate(program.steps):
        for name in mentioned(step):
            last[name] = index
    for name in references(program.outputs):
        last[name] = len(program.steps)
    return last


def mentioned(step: Step) -> Iterable[str]:
    """The buffers that a step reads, writes or makes."""
    match step:
        case Allocate(buffer=name):
            yield name
        case Launch(args=args):
            yield from references(args)
        case Call():
            yield from references(step.args)
            yield from references(tuple(step.kwargs.values()))
            yield from filter(None, step.outputs)
        case Stretch():
            for inner in step.steps:
                yield from mentioned(inner)
        case Free():
            return
        case _:
            if name := getattr(step, "buffer", None):
                yield name


def references(arg: StepArg) -> Iterable[str]:
    """The buffers that an argument refers to."""
    if isinstance(arg, BufferRef):
        yield arg.name
    elif isinstance(arg, tuple):
        for item in arg:
            yield from references(item)


def _close(
    run: list[tuple[int, Step]],
    program: Program,
    last_use: Mapping[str, int],
    facts: Facts,
    buffers: dict[str, Buffer],
) -> list[Step]:
    """The run as [allocations of what outlives it, the stretch, its frees, views seen outside]."""
    compute = sum(isinstance(s, Launch) or _is_product(s) for _, s in run)
    if compute < MIN_COMPUTE_STEPS:
        return [step for _, step in run]
    return _Grouping(run, program, last_use, facts, buffers).steps()


def _is_product(step: Step) -> bool:
    return isinstance(step, Call) and step.function in PRODUCTS


@dataclass(frozen=True, slots=True)
class _Life:
    """A buffer from the step that first touches it, its maker, to its last mention."""

    name: str
    start: int
    maker: Step | None
    end: int


@dataclass(slots=True, eq=False)
class _Grouping:
    run: list[tuple[int, Step]]
    program: Program
    last_use: Mapping[str, int]
    facts: Facts
    buffers: dict[str, Buffer]
    made: dict[str, int] = field(default_factory=dict)
    freed: dict[str, int] = field(default_factory=dict)
    views: dict[str, Call] = field(default_factory=dict)
    outside_bases: set[str] = field(default_factory=set)

    def steps(self) -> list[Step]:
        views_outside = self._find_made()
        untouched = self._dead_before()
        before: list[Step] = [Free(untouched)] if untouched else []
        before += [Allocate(name) for name in self.made if not self._is_inner(name)]
        inner = tuple(name for name in self.made if self._is_inner(name))
        offsets, arena_bytes, lent = self._plan(inner)
        kept = (*(self._view_of(*pair) for pair in lent.items()), *self._kept())
        outer = tuple(
            name
            for name in dict.fromkeys(n for step in kept for n in mentioned(step))
            if name not in offsets and name not in lent and not self._made_by_view(name)
        )
        stretch = Stretch(
            kept, outer, offsets, arena_bytes, *free_numbers(kept, self._dims(outer, offsets))
        )
        dead = tuple(
            name
            for _, step in self.run
            if isinstance(step, Free)
            for name in step.buffers
            if name not in offsets and not (self._made_by_view(name) and name not in views_outside)
            if name not in untouched and name not in lent
        )
        return [*before, stretch, *views_outside.values(), *([Free(dead)] if dead else [])]

    def _dead_before(self) -> tuple[str, ...]:
        """What the run frees without having touched it: freed before anything is allocated."""
        touched = {name for _, step in self.run for name in mentioned(step)}
        freed = (name for _, step in self.run if isinstance(step, Free) for name in step.buffers)
        return tuple(name for name in freed if name not in touched)

    def _find_made(self) -> dict[str, Call]:
        """Notes what the run allocates; returns the views it makes that are used after it."""
        end = self.run[-1][0]
        for index, step in self.run:
            if isinstance(step, Allocate):
                self.made[step.buffer] = index
            elif isinstance(step, Call) and step.kind == "view":
                self.views[step.outputs[0]] = step
            elif _is_product(step):
                self.made[step.outputs[0]] = index  # type: ignore[union-attr]
            elif isinstance(step, Free):
                self.freed.update(dict.fromkeys(step.buffers, index))
        outside = {n: step for n, step in self.views.items() if self.last_use.get(n, -1) > end}
        self.outside_bases.update(base for name in outside for base in self._bases(name))
        return {n: s for n, s in self.views.items() if n in outside or n in self.outside_bases}

    def _bases(self, name: str) -> Iterable[str]:
        """What a view made in the run views, all the way."""
        while name in self.views:
            (name,) = references(self.views[name].args)
            yield name

    def _made_by_view(self, name: str) -> bool:
        return name in self.views

    def _is_inner(self, name: str) -> bool:
        end = self.run[-1][0]
        return (
            self.last_use.get(name, -1) <= end
            and name in self.freed
            and name not in self.outside_bases
            and self.buffers[name].role in ("temp", "result")
        )

    def _kept(self) -> Iterable[Step]:
        for _, step in self.run:
            if not isinstance(step, (Allocate, Free)):
                yield step

    def _plan(self, inner: tuple[str, ...]) -> tuple[dict[str, Dim], Dim, dict[str, str]]:
        """Places in the arena, its size, and which buffer is lent the memory of which outer one.

        The largest buffers first, each in the first place that is known to be large enough and
        whose buffers live at other times, or in a new one. Outer memory that dies here comes first.
        """
        donors = self._donors()
        lives = self._lives((*donors, *inner))
        sizes = {name: size_bytes(self.buffers[name]) for name in inner}
        places: list[tuple[Dim, list[str]]] = [(exact_bytes(self.buffers[n]), [n]) for n in donors]
        for name in sorted(inner, key=lambda n: (-_magnitude(sizes[n]), lives[n].start)):
            for room, tenants in places:
                apart = all(self._apart(lives[name], lives[other]) for other in tenants)
                if apart and self._fits(sizes[name], room):
                    tenants.append(name)
                    break
            else:
                places.append((sizes[name], [name]))
        offsets: dict[str, Dim] = {}
        top: Dim = 0
        lent = {name: n for n, (_, (_, *rest)) in zip(donors, places) for name in rest}
        for room, tenants in places[len(donors) :]:
            offsets.update(dict.fromkeys(tenants, top))
            top = top + room
        return offsets, top, lent

    def _donors(self) -> tuple[str, ...]:
        """Memory from outside that is touched here for the last time, and seen by nothing else."""
        own = {name for _, step in self.run for name in mentioned(step)} - {*self.made, *self.views}
        viewed = {
            name
            for step in self.program.steps
            if isinstance(step, Call) and step.kind == "view" and step.outputs[0] not in self.views
            for name in references(step.args)
        }
        fresh = {n for step in self.program.steps for n in _fresh(step)} - viewed
        return tuple(
            name
            for name in self.freed
            if name in own & fresh and self.last_use.get(name, -1) <= self.run[-1][0]
        )

    def _view_of(self, name: str, donor: str) -> Call:
        buffer = self.buffers[name]
        args = (BufferRef(donor), buffer.shape, buffer.strides)
        return Call(VIEW, args, {}, (name,), "view")

    def _lives(self, inner: tuple[str, ...]) -> dict[str, _Life]:
        last = self._last_mentions()
        first: dict[str, tuple[int, Step]] = {}
        for index, step in self.run:
            if not isinstance(step, (Allocate, Free)):
                for name in mentioned(step):
                    first.setdefault(name, (index, step))
        return {
            name: _Life(name, *first.get(name, (self.made.get(name, 0), None)), last.get(name, 0))
            if name in self.made
            else _Life(name, -1, None, last[name])
            for name in inner
        }

    def _apart(self, a: _Life, b: _Life) -> bool:
        """May two buffers have one place? Not while both live, unless one becomes the other."""
        if a.start > b.start:
            a, b = b, a
        if a.end == b.start and isinstance(b.maker, Launch):
            seen_as_view = any(a.name in self._bases(name) for name in mentioned(b.maker))
            return not seen_as_view and writes_over(b.maker, a.name, b.name)
        return a.end < b.start

    def _last_mentions(self) -> dict[str, int]:
        """The index of each buffer's last mention in the run, views of it counted as itself."""
        last: dict[str, int] = {}
        for index, step in self.run:
            for name in mentioned(step):
                for whole in (name, *self._bases(name)):
                    last[whole] = index
        return last

    def _fits(self, size: Dim, room: Dim) -> bool:
        if size is room or size == room:
            return True
        relation = le(size, room)
        return relation if isinstance(relation, bool) else self.facts.known(relation) is True

    def _dims(self, outer: tuple[str, ...], offsets: Mapping[str, Dim]) -> Iterable[Dim]:
        yield from offsets.values()
        for _, step in self.run:
            if _is_product(step):
                for name in mentioned(step):
                    yield from self.buffers[name].shape
                    yield from self.buffers[name].strides


def writes_over(step: Launch, source: str, result: str) -> bool:
    """May the result take the source's memory: is each element read only where it is written?

    Only kernels without rows and with one store, so that no element is read after a write.
    """
    kernel = step.kernel
    if kernel.rows or kernel.ordered or len(kernel.stores) != 1 or step.offsets:
        return False
    names = {
        param.name: arg.name
        for param, arg in zip(kernel.params, step.args, strict=True)
        if isinstance(param, PointerParam) and isinstance(arg, BufferRef)
    }
    (store,) = kernel.stores
    if names.get(store.pointer) != result or store.per != "cell" or store.mask is not None:
        return False
    if store.mode != "set" or list(names.values()).count(result) != 1:
        return False
    width = kernel.pointer(store.pointer).dtype.size_bytes
    return (
        all(
            load.index == store.index
            and load.mask is None
            and kernel.pointer(load.pointer).dtype.size_bytes == width
            for load in kernel.elements
            if isinstance(load, Load) and names.get(load.pointer) == source
        )
        and source in names.values()
    )


def _magnitude(size: Dim) -> int:
    """The size where every symbol is 1000; only the order of the places depends on it."""
    if isinstance(size, int):
        return size
    return int(evaluate(size, dict.fromkeys(size.symbols, 1000)))


def _fresh(step: Step) -> tuple[str, ...]:
    """What the step makes in memory of its own."""
    if isinstance(step, Allocate):
        return (step.buffer,)
    if isinstance(step, Call) and (step.function in FRESH_RESULTS or _is_product(step)):
        return step.outputs
    return ()


def exact_bytes(buffer: Buffer) -> Dim:
    """What a dense buffer holds."""
    count: Dim = buffer.dtype.size_bytes
    for size in buffer.shape:
        count = count * size
    return count


def size_bytes(buffer: Buffer) -> Dim:
    """The room that a dense buffer takes, rounded up to ``ALIGNMENT``."""
    total = exact_bytes(buffer)
    return (total + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def free_numbers(
    steps: Iterable[Step], dims: Iterable[Dim]
) -> tuple[tuple[Symbol, ...], tuple[Operand, ...]]:
    """The symbols and scalars that the steps (and further sizes) read."""
    symbols: dict[Symbol, None] = {}
    scalars: dict[Operand, None] = {}

    def note(number: object) -> None:
        if isinstance(number, Expr):
            symbols.update(dict.fromkeys(sorted(number.symbols, key=lambda s: s.name)))
        elif isinstance(number, (Scalar, ScalarInput)):
            scalars[number] = None
        elif isinstance(number, tuple):
            for item in number:
                note(item)

    for step in steps:
        if isinstance(step, (Launch, Call)):
            note(step.args)
        if isinstance(step, Launch):
            note(tuple(step.offsets.values()))
    note(tuple(dims))
    return tuple(symbols), tuple(scalars)
