"""What a segment's graph becomes: buffers and an ordered list of steps, all that the runtime needs.

Made by the scheduler, read by ``runtime.host`` (which prints it as one Python function) and by
``runtime.launch``. Buffers are named; a step refers to them by ``BufferRef``, to sizes by
expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Location
from anyshape.ir.loops import Kernel
from anyshape.ir.scalars import Operand, ScalarInput
from anyshape.symbolic import Condition, Dim, Symbol

Role: TypeAlias = Literal["input", "constant", "output", "temp", "result"]
CallKind: TypeAlias = Literal["extern", "eager", "view", "write", "check"]


NEW_MEMORY = frozenset(
    {"torch.mm", "torch.addmm", "torch.bmm", "torch._grouped_mm", "torch.nn.functional.linear"}
    | {"torch.nn.functional.scaled_dot_product_attention"}
    | {f"torch.nn.functional.conv{n}d" for n in (1, 2, 3)}
)
"""Functions of torch whose result is memory that nothing else refers to: the program may write
there once the result is dead."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory with a type. ``strides`` are the layout in memory, in elements.

    ``input``: handed in by the caller; ``constant``: a tensor of the segment (a parameter, say);
    ``output``: allocated and handed out; ``temp``: allocated, dead after its last use;
    ``result``: made by a ``Call`` that allocates for itself, or a view.
    """

    name: str
    dtype: DType
    device: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    role: Role


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer as an argument of a step."""

    name: str


StepArg: TypeAlias = (
    "BufferRef | Dim | Operand | complex | str | None | DType | slice | tuple[StepArg, ...]"
)


def references(arg: StepArg) -> Iterator[str]:
    """The buffers that an argument refers to."""
    if isinstance(arg, BufferRef):
        yield arg.name
    elif isinstance(arg, tuple):
        for item in arg:
            yield from references(item)


@dataclass(frozen=True, slots=True)
class Allocate:
    """Uninitialised memory for a buffer of role temp or output: new memory, or all of that of
    ``over``, a buffer laid out alike, which nothing reads after the buffer is first written.
    """

    buffer: str
    over: str | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """The buffers are dead from here on."""

    buffers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """Runs a generated kernel. ``args`` go with ``kernel.params`` one by one: ``BufferRef`` for a
    pointer, a ``Dim`` for a size, an ``Operand`` for a scalar.

    ``offsets`` (elements, by parameter name) are added to pointers where a buffer is entered
    midway.
    """

    kernel: Kernel
    args: tuple[BufferRef | Operand, ...]
    offsets: Mapping[str, Dim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """Calls a dotted Python function (``torch.mm``) on tensors and numbers.

    ``extern``: a library does it, on purpose; ``eager``: an operator that has no lowering;
    ``view``: no work, only a new view; ``write``: copies into its first argument, whose version
    counter it bumps; ``check``: the segment has not happened where its one-element argument is
    true.
    ``outputs`` name the buffers of role result that it returns, flat (an empty name is dropped).
    Where ``restride`` is set, results whose strides differ from the buffer's are copied to it.
    Where ``guessed`` is set, a result of another type, or one that shares memory with an
    argument, fails as a check does.
    """

    function: str
    args: tuple[StepArg, ...]
    kwargs: Mapping[str, StepArg]
    outputs: tuple[str, ...]
    kind: CallKind
    restride: bool = False
    location: Location | None = None
    guessed: bool = False

    @property
    def may_alias(self) -> bool:
        """May a result lie in an argument's memory? A row says so of itself (``OpDef.alias``), and
        then results are left as they are; of guessed ones it is tested.
        """
        return not self.restride and not self.guessed


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A buffer's memory as a tensor of this shape, from its first element on."""

    buffer: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


NativeKind: TypeAlias = Literal["tensor", "tensor?", "float", "float?", "bool", "int"]
NativeArg: TypeAlias = "tuple[NativeKind, StepArg | TensorArg]"


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """``call`` as C makes it, inside a native region.

    ``function`` is a C function of torch's library that writes into its first argument; or, where
    it is ``dispatched``, an operator by name, whose one result is memory of torch's own.
    """

    call: Call
    function: str
    args: tuple[NativeArg, ...]
    dispatched: bool = False


@dataclass(frozen=True, slots=True)
class BindSize:
    """From here on the symbol is the size of dimension ``dim`` of a buffer that a call returned."""

    symbol: Symbol
    buffer: str
    dim: int


@dataclass(frozen=True, slots=True)
class BindItem:
    """Reads a one-element buffer to the host (a sync where the device is not the CPU)."""

    target: Symbol | ScalarInput
    buffer: str


@dataclass(frozen=True, slots=True)
class BindNumber:
    """Computes a number on the host by a function that Python may raise in: then the segment has
    not happened."""

    target: Symbol | ScalarInput
    function: str
    operands: tuple[StepArg, ...]


@dataclass(frozen=True, slots=True)
class CheckStep:
    """The condition must hold, or the segment has not happened (DESIGN.md, idea 3)."""

    condition: Condition | bool
    message: str
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class BumpVersion:
    """A kernel wrote into this input in place; tell autograd."""

    buffer: str


@dataclass(frozen=True, slots=True, eq=False)
class NativeRegion:
    """Steps that one C function does, with no Python between them: launches, products, views,
    library calls, and frees of what those return.

    ``outer`` are the program's buffers that it is handed, ``inner`` where those lie that live in
    its arena: in which place, how many bytes from its beginning. A place is as large as the largest
    of its ``rooms``, in bytes. Constants reach the native region through a table made when it is
    linked."""

    steps: tuple[Step, ...]
    outer: tuple[str, ...]
    inner: Mapping[str, tuple[int, Dim]]
    rooms: tuple[tuple[Dim, ...], ...]
    sizes: tuple[Symbol, ...]
    scalars: tuple[Operand, ...]


Step: TypeAlias = (
    "Allocate | Free | Launch | Call | LibraryCall | BindSize | BindItem | BindNumber | CheckStep"
    " | BumpVersion | NativeRegion"
)


def bound_by(step: Step) -> Iterator[Symbol]:
    """The size that has a value from the step on."""
    if isinstance(step, BindSize):
        yield step.symbol
    elif isinstance(step, (BindItem, BindNumber)) and isinstance(step.target, Symbol):
        yield step.target


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in order. ``inputs`` name the graph's inputs in order: input and constant buffers, and
    numbers, which are none.

    ``outputs`` go with the graph's outputs; ``symbols`` are those that must be bound from the
    inputs' sizes (or handed in as scalars) before the first step.
    """

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[StepArg, ...]
    symbols: tuple[Symbol, ...]

    def kernels(self) -> tuple[Kernel, ...]:
        """The different kernels, in order of first launch."""
        launched = (step.kernel for step in self.flat_steps() if isinstance(step, Launch))
        return tuple(dict.fromkeys(launched))

    def flat_steps(self) -> Iterator[Step]:
        """Every step, those inside native regions one by one, library calls as what they are."""
        for step in self.steps:
            for inner in step.steps if isinstance(step, NativeRegion) else (step,):
                yield inner.call if isinstance(inner, LibraryCall) else inner
