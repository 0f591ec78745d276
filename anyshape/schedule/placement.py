"""Where the sizes are that data decides: on the host, or in memory alone.

In: a program, and what is known of its sizes. Out: the same, in which kernels read such sizes from
memory, with the placement of each. A size is on the host where a step needs its value there (a
library, a check, a view) or a buffer has no bound without it; the reason is kept. The others stay
where they were made: what they are the extents of has the capacity of their bounds, and what is
handed out is narrowed at the end, by one read of each size.

    n = nonzero(x); u0 = n.shape[0]; t = new (u0,); launch k(n, t, u0); return t
    n, c = counted(x); t = new (bound,); launch k(n, t, *c); u0 = read c; return t[:u0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import field

from anyshape.ir.buffers import Buffer, BufferRef, Placement, SizeInMemory, StepArg, references
from anyshape.ir.dtypes import int64
from anyshape.ir.established import established_in
from anyshape.ir.loops import Kernel, SizeParam
from anyshape.ir.program import (
    Allocate,
    BindItem,
    BindSize,
    Call,
    CountedCall,
    ExternCall,
    Free,
    KeepSize,
    Launch,
    Program,
    Step,
    View,
)
from anyshape.ir.variants import ChooseVariants, no_variants
from anyshape.nouns import frozen, mutable, replace
from anyshape.schedule.size_kernels import size_kernel
from anyshape.schedule.steps import insert_frees, numbers_in
from anyshape.symbolic import Dim, Expr, Facts, Symbol, symbols_of_all


@frozen
class SizesInMemory:
    """``counting``: functions that have another beside them, which takes memory for all that there
    may be and leaves in memory how much there is. ``rowwise``: those whose first operand may have
    more rows than there are, of which each makes a row of the result."""

    counting: Mapping[str, str]
    rowwise: frozenset[str]


NO_LIBRARY = SizesInMemory({}, frozenset())
Libraries = Callable[[str], SizesInMemory | None]
"""Of a device; None where its kernels read no sizes from memory."""


def assign_placements(
    program: Program, facts: Facts, libraries: Libraries, variants: ChooseVariants = no_variants
) -> Program:
    """The program with each size in memory alone that nothing needs on the host."""
    program = program.with_bodies(
        lambda body: replace(
            body, program=assign_placements(body.program, body.facts, libraries, variants)
        )
    )
    needs = _Needs(program, libraries, _capacities(program, facts))
    needs.find()
    assigned = replace(program, placements=needs.placements())
    return _InMemory(assigned, libraries, variants, needs).rewritten() if needs.memory else assigned


@frozen
class _Capacity:
    """What a buffer may hold, of sizes known at entry: ``shape``, where only its outermost extent
    needs a bound for that, and so many ``elements``."""

    elements: Dim
    shape: tuple[Dim, ...] | None


def _capacities(program: Program, facts: Facts) -> Mapping[str, _Capacity]:
    """Of the buffers that have bounds, by what has been tested where they are made."""
    inputs = (program.buffers[name] for name in program.inputs if name in program.buffers)
    given = _symbols(dim for buffer in inputs for dim in buffer.shape)
    entry = {*program.symbols, *given}
    tested = established_in(program, facts)
    found: dict[str, _Capacity] = {}
    for number, step in enumerate(program.steps):
        for name in step.defines():
            capacity = _capacity(program.buffers[name], tested.at(number), entry)
            if capacity is not None:
                found[name] = capacity
    return found


def _capacity(buffer: Buffer, facts: Facts, entry: Set[Symbol]) -> _Capacity | None:
    outer, inner = buffer.shape[:1], buffer.shape[1:]
    bounds = tuple(facts.upper(size, entry.__contains__) for size in outer)
    if entry >= _symbols((*inner, *buffer.strides)).keys() and None not in bounds:
        shape = (*(bound for bound in bounds if bound is not None), *inner)
        return _Capacity(_product(shape), shape)
    elements = facts.upper(_product(buffer.shape), entry.__contains__)
    return None if elements is None else _Capacity(elements, None)


def _product(dims: Iterable[Dim]) -> Dim:
    count: Dim = 1
    for size in dims:
        count = count * size
    return count


@mutable(eq=False)
class _Needs:
    """Which of the sizes that data decides are needed on the host, and why."""

    program: Program
    libraries: Libraries
    capacities: Mapping[str, _Capacity]
    reasons: dict[Symbol, str] = field(default_factory=dict)
    memory: dict[Symbol, str] = field(default_factory=dict)  # the buffer that has its value
    makers: dict[str, Step] = field(default_factory=dict)  # of each buffer
    written: dict[str, int] = field(default_factory=dict)  # where each buffer is last written

    def find(self) -> None:
        """What nothing needs on the host is left in ``memory``."""
        for number, step in enumerate(self.program.steps):
            self.makers |= dict.fromkeys(step.defines(), step)
            self.written |= dict.fromkeys(step.writes(), number)
        for number, step in enumerate(self.program.steps):
            self._make(number, step)
        for step in self.program.steps:
            self._step(step)

    def placements(self) -> Mapping[Symbol, Placement]:
        """Of every size that data decides."""
        on_host = {symbol: Placement(None, why) for symbol, why in self.reasons.items()}
        return on_host | {s: Placement(name, "") for s, name in self.memory.items()}

    def _make(self, number: int, step: Step) -> None:
        """The size that a step makes: in memory, where that device can leave it there."""
        for symbol in step.binds():
            name = self._memory_of(number, step)
            if name is not None:
                self.memory[symbol] = name
            else:
                self.reasons[symbol] = "it is made on the host"

    def _memory_of(self, number: int, step: Step) -> str | None:
        match step:
            case BindItem(buffer=name):
                buffer = self.program.buffers[name]
                on_device = self.libraries(buffer.device) is not None
                kept = not self._is_written_after(name, number)
                return name if buffer.dtype is int64 and on_device and kept else None
            case BindSize(buffer=name):
                library = self.libraries(self.program.buffers[name].device) or NO_LIBRARY
                maker = self.makers[name]
                counted = isinstance(maker, Call) and maker.function in library.counting
                return count_of(name) if counted else None
        return None

    def _is_written_after(self, name: str, number: int) -> bool:
        """May a step after this one write where the buffer lies?"""
        memory, waiting = {name}, [name]
        while waiting:
            maker = self.makers.get(waiting.pop())
            below = set() if maker is None else {*maker.may_lie_in()} - memory
            memory |= below
            waiting += below
        return any(self.written.get(below, -1) > number for below in memory)

    def is_counted(self, step: Step) -> bool:
        """Does the step leave a size in memory?"""
        return any(count_of(name) in self.memory.values() for name in step.defines())

    def is_in_memory(self, numbers: Iterable[StepArg]) -> bool:
        """Is there a size in these that the host does not have?"""
        return any(symbol in self.memory for symbol in _symbols(numbers))

    def is_rowwise(self, step: ExternCall) -> bool:
        """May the step be done for more rows than there are?"""
        (made, *more), first = step.outputs, step.args[0]
        library = self.libraries(self.program.buffers[made].device) or NO_LIBRARY
        if more or step.function not in library.rowwise or not isinstance(first, BufferRef):
            return False
        capacities = (self.capacities.get(name) for name in (made, first.name))
        outer = {self.program.buffers[name].shape[:1] for name in (made, first.name)}
        return all(
            capacity is not None and capacity.shape is not None for capacity in capacities
        ) and (len(outer) == 1 and self.is_in_memory(next(iter(outer))))

    def _host(self, numbers: Iterable[StepArg], why: str) -> None:
        for symbol in _symbols(numbers):
            if symbol in self.memory:
                del self.memory[symbol]
                self.reasons[symbol] = why

    def _step(self, step: Step) -> None:
        buffers = self.program.buffers
        match step:
            case BindSize() | BindItem() | Free():
                return
            case Launch():
                self._host(_no_sizes(step), "a kernel takes a number that is made of it")
            case Allocate(buffer=name):
                if name not in self.capacities:
                    self._host(buffers[name].shape, f"{name} has no bound without it")
            case Call() if self.is_counted(step):
                self._host((*step.args, *step.kwargs.values()), f"{step.function} takes it")
                self._whole(step.reads(), step.function)
            case ExternCall() if self.is_rowwise(step):
                first, *others = step.args
                self._host((*others, *step.kwargs.values()), f"{step.function} takes it")
                self._whole(references((*others, *step.kwargs.values())), step.function)
            case _:
                what = getattr(step, "function", type(step).__name__)
                self._host(step.arguments(buffers), f"{what} takes it")
                self._whole((*step.reads(), *step.writes(), *step.defines()), what)

    def _whole(self, names: Iterable[str], what: str) -> None:
        """A step takes these buffers as tensors, of their own sizes."""
        for name in names:
            self._host(_dims(self.program.buffers[name]), f"{what} takes {name}")


@mutable(eq=False)
class _InMemory:
    """Writes the program anew."""

    program: Program
    libraries: Libraries
    variants: ChooseVariants
    needs: _Needs
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    computed: dict[Expr, str] = field(default_factory=dict)  # the buffer that has its value
    renamed: dict[str, str] = field(default_factory=dict)  # made for as many rows as may be
    read: set[Symbol] = field(default_factory=set)

    def rewritten(self) -> Program:
        """Frees are worked out again, for the buffers that are new."""
        for name, buffer in self.program.buffers.items():
            in_memory = self.needs.is_in_memory(_dims(buffer))
            capacity = self.needs.capacities.get(name) if in_memory else None
            self.buffers[name] = replace(
                buffer, capacity=None if capacity is None else capacity.elements
            )
        for step in self.program.steps:
            self._step(step)
        outputs = tuple(self._output(output) for output in self.program.outputs)
        steps = insert_frees(self.steps, self.buffers, outputs)
        capacities = (b.capacity for b in self.buffers.values() if b.capacity is not None)
        known = {*self.program.symbols, *_symbols(capacities)}
        symbols = tuple(sorted(known, key=lambda symbol: symbol.name))
        return replace(
            self.program, buffers=self.buffers, steps=steps, outputs=outputs, symbols=symbols
        )

    def _step(self, step: Step) -> None:
        match step:
            case Free():
                return
            case BindSize(symbol=symbol) | BindItem(target=Symbol() as symbol) if (
                symbol in self.needs.memory
            ):
                self.steps.append(KeepSize(symbol, self.needs.memory[symbol]))
            case Launch():
                self.steps.append(self._launch(step))
            case Call() if self.needs.is_counted(step):
                self.steps.append(self._counted(step))
            case ExternCall() if self.needs.is_rowwise(step):
                self._rowwise(step)
            case _:
                self.steps.append(step)

    def _rowwise(self, step: ExternCall) -> None:
        """For as many rows as there may be; those behind the last hold anything."""
        first, *others = step.args
        assert isinstance(first, BufferRef)
        rows, made = self._all_rows(first.name), f"{step.outputs[0]}_rows"
        if rows not in self.buffers:
            self.buffers[rows] = self._with_room(first.name, rows)
            self.steps.append(View(rows, self.renamed.get(first.name, first.name)))
        self.buffers[made] = self._with_room(step.outputs[0], made)
        self.renamed[step.outputs[0]] = made
        self.steps.append(replace(step, args=(BufferRef(rows), *others), outputs=(made,)))

    def _all_rows(self, name: str) -> str:
        return self.renamed.get(name, f"{name}_rows")

    def _with_room(self, name: str, new: str) -> Buffer:
        """The buffer as a tensor of all that it may hold."""
        capacity = self.needs.capacities[name]
        assert capacity.shape is not None
        return replace(
            self.buffers[name], name=new, shape=capacity.shape, role="result", capacity=None
        )

    def _counted(self, step: Call) -> CountedCall:
        """The function that leaves in memory how much it has made."""
        (name,) = step.outputs
        device = self.buffers[name].device
        function = (self.libraries(device) or NO_LIBRARY).counting[step.function]
        count = count_of(name)
        self.buffers[count] = Buffer(count, int64, device, (1,), (1,), "result")
        return CountedCall(function, step.args, step.kwargs, (name, count), location=step.location)

    def _launch(self, step: Launch) -> Launch:
        kernel, args = step.kernel, list(step.args)
        params = list(kernel.params)
        for n, (param, arg) in enumerate(zip(kernel.params, step.args, strict=True)):
            if (
                isinstance(param, SizeParam)
                and isinstance(arg, Expr)
                and self.needs.is_in_memory((arg,))
            ):
                params[n] = replace(param, in_memory=True)
                args[n] = SizeInMemory(self._value(arg), arg)
            elif isinstance(arg, BufferRef):
                args[n] = BufferRef(self.renamed.get(arg.name, arg.name))
        if params == list(kernel.params):
            return replace(step, args=tuple(args))
        made = Kernel(
            tuple(params),
            *(kernel.axes, kernel.reduction_axes),
            *(kernel.elements, kernel.stores),
            kernel.ordered,
        )
        return replace(step, kernel=made, args=tuple(args))

    def _value(self, size: Expr) -> str:
        """The buffer that has the value of a size: where it was made, or a kernel computes it."""
        memory = self.needs.memory
        if size.symbol in memory:
            return memory[size.symbol]
        name = self.computed.get(size)
        if name is None:
            kernel, given = size_kernel(size, memory)
            name = self.computed[size] = f"size_{len(self.computed)}"
            device = self.buffers[next(memory[s] for s in memory if s in size.symbols)].device
            self.buffers[name] = Buffer(name, int64, device, (1,), (1,), "temp")
            variants = self.variants(kernel, device)
            launch = Launch(kernel, (*given, BufferRef(name)), variants=variants)
            self.steps += (Allocate(name), launch)
        return name

    def _output(self, output: StepArg) -> StepArg:
        """What is handed out, its sizes read."""
        if isinstance(output, tuple):
            return tuple(map(self._output, output))
        if not isinstance(output, BufferRef):
            self._read(_symbols((output,)))
            return output
        buffer = self.buffers[output.name]
        if not self.needs.is_in_memory(_dims(buffer)):
            return output
        self._read(_symbols(_dims(buffer)))
        narrow = f"{output.name}_narrowed"
        if narrow not in self.buffers:
            self.buffers[narrow] = replace(buffer, name=narrow, role="result", capacity=None)
            self.steps.append(View(narrow, self.renamed.get(output.name, output.name)))
        return BufferRef(narrow)

    def _read(self, symbols: Iterable[Symbol]) -> None:
        """From here on the host has these."""
        for symbol in symbols:
            if symbol in self.needs.memory and symbol not in self.read:
                self.read.add(symbol)
                self.steps.append(BindItem(symbol, self.needs.memory[symbol]))


def count_of(name: str) -> str:
    """The buffer that says how much of another one there is."""
    return f"{name}_count"


def _dims(buffer: Buffer) -> tuple[Dim, ...]:
    return (*buffer.shape, *buffer.strides)


def _no_sizes(step: Launch) -> Iterator[StepArg]:
    """What a launch is given beside addresses and sizes."""
    for param, arg in zip(step.kernel.params, step.args, strict=True):
        if not isinstance(param, SizeParam):
            yield arg
    yield from step.offsets.values()


def _expressions(dims: Iterable[Dim]) -> Iterator[Expr]:
    return (dim for dim in dims if isinstance(dim, Expr))


def _symbols(numbers: Iterable[StepArg]) -> dict[Symbol, None]:
    return symbols_of_all(each for number in numbers for each in numbers_in(number))
