"""What a segment's graph becomes: buffers and an ordered list of steps, all that the runtime needs.

Made by the scheduler, read by ``runtime.host``, which prints it as one Python function. Each step
says what it does (``ir/effects.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import ClassVar, Literal, Self, TypeAlias

from anyshape.ir.buffers import (
    BufferRef,
    Buffers,
    NativeArg,
    Placement,
    SizeInMemory,
    StepArg,
    TensorArg,
    references,
)
from anyshape.ir.effects import Effects
from anyshape.ir.graph import Location
from anyshape.ir.loops import Kernel, PointerParam
from anyshape.ir.scalars import Operand, ScalarInput
from anyshape.ir.slots import Slot
from anyshape.ir.variants import Variants
from anyshape.nouns import frozen, replace
from anyshape.symbolic import Atom, Condition, Dim, Facts, Symbol


@frozen
class Allocate(Effects):
    """Uninitialised memory for a buffer of role temp or output: new memory, or all of that of
    ``over``, a buffer laid out alike, which nothing reads after the buffer is first written."""

    buffer: str
    over: str | None = None

    def defines(self) -> Iterator[str]:
        yield self.buffer

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield from buffers[self.buffer].layout()


@frozen
class Free(Effects):
    """The buffers are dead from here on."""

    buffers: tuple[str, ...]


@frozen
class Launch(Effects):
    """Runs a generated kernel. ``args`` go with ``kernel.params`` one by one: ``BufferRef`` for a
    pointer, a ``Dim`` for a size, an ``Operand`` for a scalar.

    ``offsets`` (elements, by parameter name) are added to pointers where a buffer is entered
    midway. The first of ``variants`` whose predicate holds says how the kernel is walked.
    """

    kernel: Kernel
    args: tuple[BufferRef | SizeInMemory | Operand, ...]
    offsets: Mapping[str, Dim] = field(default_factory=dict)
    variants: Variants = ()

    def reads(self) -> Iterator[str]:
        yield from self._pointers("read")
        yield from (arg.name for arg in self.args if isinstance(arg, SizeInMemory))

    def writes(self) -> Iterator[str]:
        return self._pointers("write")

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield from self.args
        yield from self.offsets.values()

    def launched(self) -> tuple[Launch, ...]:
        return (self,)

    def parts(self) -> Iterator[Launch]:
        """The launches that are done at once."""
        kernel, count = self.kernel, len(self.kernel.pointers)
        if kernel.parts == 1:
            yield self
            return
        own = count // kernel.parts
        for start in range(0, count, own):
            args = (*self.args[start : start + own], *self.args[count:])
            yield replace(self, kernel=kernel.first_part(), args=args)

    def _pointers(self, access: Literal["read", "write"]) -> Iterator[str]:
        for parameter, arg in zip(self.kernel.params, self.args, strict=True):
            if isinstance(parameter, PointerParam) and isinstance(arg, BufferRef):
                if parameter.access in (access, "update"):
                    yield arg.name


@frozen
class LaunchList(Effects):
    """Launches of one kernel at once: none touches what another writes. ``divided``: the last two
    sizes of each say which cell is its first, and how many, so that a part of it is a launch."""

    launches: tuple[Launch, ...]
    divided: bool

    def reads(self) -> Iterator[str]:
        return (name for launch in self.launches for name in launch.reads())

    def writes(self) -> Iterator[str]:
        return (name for launch in self.launches for name in launch.writes())

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        return (arg for launch in self.launches for arg in launch.arguments(buffers))

    def launched(self) -> tuple[Launch, ...]:
        return self.launches


@frozen
class Call(Effects):
    """Calls a dotted Python function (``torch.mm``) on tensors and numbers; see its two kinds.

    ``outputs`` name the buffers of role result that it returns, flat (an empty name is dropped).
    Where ``restride`` is set, results whose strides differ from the buffer's are copied to it.
    Where ``guessed`` is set, a result of another type, or one that shares memory with an
    argument, fails as a check does.
    """

    function: str
    args: tuple[StepArg, ...]
    kwargs: Mapping[str, StepArg]
    outputs: tuple[str, ...]
    restride: bool = False
    location: Location | None = None
    guessed: bool = False
    may_fail: ClassVar[bool] = True

    @property
    def may_alias(self) -> bool:
        """May a result lie in an argument's memory? A row says so of itself (``OpDef.alias``), and
        then results are left as they are; of guessed ones it is tested."""
        return not self.restride and not self.guessed

    def reads(self) -> Iterator[str]:
        yield from references(self.args)
        yield from references(tuple(self.kwargs.values()))

    def may_lie_in(self) -> Iterator[str]:
        return self.reads() if self.may_alias else iter(())

    def defines(self) -> Iterator[str]:
        return filter(None, self.outputs)

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield from self.args
        yield from self.kwargs.values()
        for buffer in (buffers[name] for name in self.outputs if name in buffers):
            yield from buffer.asserted_strides() if self.restride else ()
            yield from buffer.shape if self.guessed else ()


@frozen
class ExternCall(Call):
    """A library does the operator, on purpose. ``new_memory``: nothing else refers to the memory of
    its result, so that the program may write there once the result is dead."""

    new_memory: bool = False


@frozen
class CountedCall(Call):
    """The host does not know how much it makes: ``outputs`` are a buffer with room for all that
    there may be, and one int64 that says how much there is."""

    @property
    def may_alias(self) -> bool:
        return False


@frozen
class EagerCall(Call):
    """An operator that has no lowering: eager torch does it."""


@frozen
class View(Effects):
    """The memory of ``base`` from element ``offset`` on, laid out as the buffer ``output``."""

    output: str
    base: str
    offset: Dim = 0

    def reads(self) -> Iterator[str]:
        yield self.base

    def may_lie_in(self) -> Iterator[str]:
        return self.reads()

    def defines(self) -> Iterator[str]:
        yield self.output

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield from buffers[self.output].layout()
        yield self.offset


@frozen
class ViewCall(Effects):
    """A view that a function of torch's makes, of the first of its arguments: what no element
    depends on, as the stride of a dimension of one element, is eager's then too."""

    function: str
    args: tuple[StepArg, ...]
    kwargs: Mapping[str, StepArg]
    output: str

    @property
    def base(self) -> str:
        return next(references(self.args))

    def reads(self) -> Iterator[str]:
        yield from references(self.args)

    def may_lie_in(self) -> Iterator[str]:
        return self.reads()

    def defines(self) -> Iterator[str]:
        yield self.output

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield from self.args
        yield from self.kwargs.values()


@frozen
class Assign(Effects):
    """``function(target, *args)`` copies into an argument of the program; ``counted``: autograd is
    notified."""

    function: str
    target: str
    args: tuple[StepArg, ...]
    counted: bool = True

    def reads(self) -> Iterator[str]:
        return references(self.args)

    def writes(self) -> Iterator[str]:
        yield self.target

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        return iter(self.args)


@frozen
class Assertion(Effects):
    """Fails where the one-element buffer is true. On the host the segment has not happened;
    ``deferred``: a device notes it, and the error comes at a later call."""

    buffer: str
    deferred: bool = False
    location: Location | None = None
    may_fail: ClassVar[bool] = True

    def reads(self) -> Iterator[str]:
        yield self.buffer


@frozen
class LibraryCall(Effects):
    """``call`` as native code makes it, inside a native region.

    ``function`` is a function of the target's library that writes into its first argument; or one
    that gives its results through its last ones (``returned``), or an operator by name
    (``dispatched``): then results are memory of the library's.
    """

    call: Call
    function: str
    args: tuple[NativeArg, ...]
    dispatched: bool = False
    returned: bool = False
    may_fail: ClassVar[bool] = True

    @property
    def gives_memory(self) -> bool:
        return self.dispatched or self.returned

    def reads(self) -> Iterator[str]:
        return self.call.reads()

    def defines(self) -> Iterator[str]:
        return self.call.defines()

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        for _, value in self.args:
            if not isinstance(value, TensorArg):
                yield value


@frozen
class _SizeStep(Effects):
    symbol: Symbol
    buffer: str

    def reads(self) -> Iterator[str]:
        yield self.buffer

    def binds(self) -> Iterator[Symbol]:
        yield self.symbol


@frozen
class KeepSize(_SizeStep):
    """From here on the symbol is the one int64 of the buffer, which the host does not read."""


@frozen
class BindSize(_SizeStep):
    """From here on the symbol is the size of dimension ``dim`` of a buffer that a call returned."""

    dim: int


@frozen
class BindItem(Effects):
    """Reads a one-element buffer to the host (a sync where it lies on another device)."""

    target: Symbol | ScalarInput
    buffer: str

    def reads(self) -> Iterator[str]:
        yield self.buffer

    def binds(self) -> Iterator[Symbol]:
        if isinstance(self.target, Symbol):
            yield self.target


@frozen
class BindNumber(Effects):
    """Computes a number on the host by a function that Python may raise in: then the segment has
    not happened."""

    target: Symbol | ScalarInput
    function: str
    operands: tuple[StepArg, ...]
    may_fail: ClassVar[bool] = True

    def binds(self) -> Iterator[Symbol]:
        if isinstance(self.target, Symbol):
            yield self.target

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        return iter(self.operands)


@frozen
class CheckStep(Effects):
    """The condition must hold, or the segment has not happened (DESIGN.md, idea 3)."""

    condition: Condition | bool
    message: str
    location: Location | None = None
    may_fail: ClassVar[bool] = True

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield self.condition


@frozen
class BumpVersion(Effects):
    """A kernel wrote into this input in place; ``counted``: autograd is notified."""

    buffer: str
    counted: bool = True

    def writes(self) -> Iterator[str]:
        yield self.buffer


@frozen(eq=False)
class NativeRegion(Effects):
    """Steps that one native function does, with no Python between them: launches, products, views,
    library calls, and frees of what those return.

    ``outer`` are the program's buffers that it is handed, ``inner`` where those lie that live in
    its arena: in which of the ``slots``, how many bytes from its beginning; with ``separate_slots``
    it is handed the address of each.
    Constants reach the native region through a table made when it is linked. ``sizes`` are the
    symbols that it reads, and operations, deep in one another, that it is handed the values of.
    Floats are the last of the ``scalars``."""

    steps: tuple[Step, ...]
    outer: tuple[str, ...]
    inner: Mapping[str, tuple[int, Dim]]
    slots: tuple[Slot, ...]
    sizes: tuple[Atom, ...]
    scalars: tuple[Operand, ...]
    separate_slots: bool = False

    @property
    def slot_sizes(self) -> tuple[tuple[Dim, ...], ...]:
        """Each slot is as large as the largest of its sizes, in bytes."""
        return tuple(slot.sizes for slot in self.slots)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Its sizes where it lies in a body, whose head gives symbols alone."""
        found = tuple(atom for atom in self.sizes if isinstance(atom, Symbol))
        assert len(found) == len(self.sizes)
        return found

    def inside(self) -> tuple[Body, ...]:
        return tuple(body for step in self.steps for body in step.inside())

    def with_bodies(self, change: Callable[[Body], Body]) -> NativeRegion:
        return replace(self, steps=tuple(step.with_bodies(change) for step in self.steps))

    def reads(self) -> Iterator[str]:
        return (name for step in self.steps for name in step.reads() if name in self.outer)

    def writes(self) -> Iterator[str]:
        return (name for step in self.steps for name in step.writes() if name in self.outer)

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield from (atom.expr for atom in self.sizes)
        yield from self.scalars


Step: TypeAlias = (
    "Allocate | Free | Launch | LaunchList | Call | View | ViewCall | Assign | Assertion"
    " | LibraryCall | BindSize | BindItem | KeepSize | BindNumber | CheckStep | BumpVersion"
    " | NativeRegion | Loop | Branch | NativeNested"
)


@frozen
class Nested(Effects):
    """Runs bodies on what it is ``given``; what they return is ``outputs``, and may be what they
    were given, and ``numbers`` behind them. See its two kinds."""

    given: tuple[StepArg, ...]
    bodies: tuple[Body, ...]
    outputs: tuple[str, ...]
    numbers: tuple[Symbol | ScalarInput, ...] = ()
    may_fail: ClassVar[bool] = True

    def inside(self) -> tuple[Body, ...]:
        return self.bodies

    def reads(self) -> Iterator[str]:
        return references(self.given)

    def may_lie_in(self) -> Iterator[str]:
        return self.reads()

    def defines(self) -> Iterator[str]:
        return iter(self.outputs)

    def binds(self) -> Iterator[Symbol]:
        return (number for number in self.numbers if isinstance(number, Symbol))

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        yield from self.given
        for body in self.bodies:
            yield from (symbol.expr for symbol in body.around)

    def with_bodies(self, change: Callable[[Body], Body]) -> Self:
        return replace(self, bodies=tuple(map(change, self.bodies)))


@frozen
class Loop(Nested):
    """``given`` trips, what is carried and what is captured. The body runs so often, on the number
    of the turn, what is carried and what is captured; what it returns is carried on. Where the
    trips are a vector, its elements are the numbers of the turns."""


@frozen
class Branch(Nested):
    """``given`` a predicate and what is captured. The first of two bodies runs where the predicate
    is true, else the second, on what is captured."""


@frozen
class NativeNested(Effects):
    """A loop or branch inside a native region; each body is its outputs and one native region.

    The memory of the outputs is the program's. ``spares`` are buffers like those that a loop
    carries: a turn writes the outputs, the next one the spares, and the last one the outputs.
    ``numbers`` are buffers of one int64 each, for the numbers that the step gives.
    """

    step: Loop | Branch
    spares: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    may_fail: ClassVar[bool] = True

    def inside(self) -> tuple[Body, ...]:
        return self.step.bodies

    def with_bodies(self, change: Callable[[Body], Body]) -> NativeNested:
        return replace(self, step=self.step.with_bodies(change))

    def reads(self) -> Iterator[str]:
        return self.step.reads()

    def defines(self) -> Iterator[str]:
        yield from (*self.step.outputs, *self.spares, *self.numbers)

    def arguments(self, buffers: Buffers) -> Iterator[StepArg]:
        return self.step.arguments(buffers)


@frozen
class Program:
    """Steps in order. ``inputs`` name the graph's inputs in order: input and constant buffers, and
    numbers, which are none. ``outputs`` go with the graph's outputs; ``symbols`` are those that
    must be bound from the inputs' sizes (or handed in as scalars) before the first step.
    ``placements``: where the other sizes are, where that was asked.
    """

    buffers: Buffers
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[StepArg, ...]
    symbols: tuple[Symbol, ...]
    placements: Mapping[Symbol, Placement] = field(default_factory=dict)

    def nested(self) -> Iterator[Program]:
        """This program, and those in the bodies of its steps, at any depth: the outer ones first.
        No other function asks how deep programs are nested."""
        yield self
        for step in self.steps:
            for inner in step.inside():
                yield from inner.program.nested()

    def with_bodies(self, change: Callable[[Body], Body]) -> Program:
        """The program with the bodies of its steps changed."""
        if not any(step.inside() for step in self.steps):
            return self
        return replace(self, steps=tuple(step.with_bodies(change) for step in self.steps))

    def kernels(self) -> tuple[Kernel, ...]:
        """The different kernels, in order of first launch."""
        launched = (launch for step in self.flat_steps() for launch in step.launched())
        return tuple(dict.fromkeys(launch.kernel for launch in launched))

    def flat_steps(self) -> Iterator[Step]:
        """Every step, those in native regions and in bodies one by one, what native code does its
        own way (library calls, loops) as what it is."""
        for program in self.nested():
            yield from program.own_steps()

    def own_steps(self) -> Iterator[Step]:
        """As ``flat_steps``, without those in bodies."""
        for step in self.steps:
            if not isinstance(step, NativeRegion):
                yield step
                continue
            for inner in step.steps:
                known = inner.call if isinstance(inner, LibraryCall) else inner
                yield known.step if isinstance(known, NativeNested) else known


@frozen(eq=False)
class Body:
    """A program inside a step. It reads its inputs, and sizes ``around`` it, and nothing else."""

    program: Program
    facts: Facts
    around: tuple[Symbol, ...]
