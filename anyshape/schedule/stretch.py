"""Program -> program: runs of steps that need no Python become stretches, each one C function.

    launch k0; t1 = mm(t0, w); launch k1; del t0, t1   ->   stretch(k0, mm, k1)

Buffers that live and die inside a stretch get an offset in its arena: places are reused for buffers that
are known to fit. What outlives the stretch is allocated before it. A step stays outside where a library
must be called through Python; ``PRODUCTS`` says which products are done by BLAS directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anyshape.ir.dtypes import DType, float32, float64
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
from anyshape.symbolic import Dim, Expr, Facts, Symbol, le

ALIGNMENT = 64
VIEW = "torch.as_strided"
LINEAR = "torch.nn.functional.linear"
PRODUCTS = frozenset({"torch.mm", LINEAR})
PRODUCT_DTYPES: frozenset[DType] = frozenset({float32, float64})
MIN_COMPUTE_STEPS = 2


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
    return replace(program, steps=tuple(steps), buffers=buffers)


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
        before = [Allocate(name) for name in self.made if not self._is_inner(name)]
        inner = tuple(name for name in self.made if self._is_inner(name))
        offsets, arena_bytes = self._plan(inner)
        kept = tuple(self._kept())
        outer = tuple(
            name
            for name in dict.fromkeys(n for step in kept for n in mentioned(step))
            if name not in offsets and not self._made_by_view(name)
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
        )
        return [*before, stretch, *views_outside.values(), *([Free(dead)] if dead else [])]

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

    def _plan(self, inner: tuple[str, ...]) -> tuple[dict[str, Dim], Dim]:
        """Places in the arena: the first free one that is known to be large enough, or a new one.

        A place is free again after the buffer's last mention, through views of it too.
        """
        offsets: dict[str, Dim] = {}
        free: list[tuple[Dim, Dim]] = []  # (offset, size in bytes)
        released: dict[int, list[tuple[Dim, Dim]]] = {}  # by index of the step after which
        last = self._last_mentions()
        top: Dim = 0
        for index, step in self.run:
            name = _made_name(step)
            if name is not None and name in inner:
                size = size_bytes(self.buffers[name])
                place = next((p for p in free if self._fits(size, p[1])), None)
                if place is None:
                    place = (top, size)
                    top = top + size
                else:
                    free.remove(place)
                released.setdefault(last[name], []).append(place)
                offsets[name] = place[0]
            free += released.pop(index, ())
        return offsets, top

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


def _made_name(step: Step) -> str | None:
    if isinstance(step, Allocate):
        return step.buffer
    return step.outputs[0] if _is_product(step) else None  # type: ignore[union-attr]


def size_bytes(buffer: Buffer) -> Dim:
    """The room that a dense buffer takes, rounded up to ``ALIGNMENT``."""
    count: Dim = 1
    for size in buffer.shape:
        count = count * size
    total = count * buffer.dtype.size_bytes
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
