"""The tensor graph: ordered nodes over typed values.

A ``Graph`` is what capture makes and what every pass takes and returns. A ``Node`` applies one
operator (a row of ``anyshape.ops``, by name) to ``Arg``s and makes ``Value``s; sizes are no values
but symbolic expressions inside types and arguments. Nouns only: the typed way to build one is
``anyshape.ops.build``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from anyshape.ir.dtypes import DType, float32
from anyshape.ir.scalars import Kind, Operand, Scalar, ScalarInput
from anyshape.nouns import frozen
from anyshape.symbolic import Condition, Dim, Expr, Facts, Space, Symbol

HOST: Final = "cpu"
"""The device whose memory the host itself reads."""


@frozen
class Location:
    """A location in the user's source; columns are 0-based, ``line`` is 1-based."""

    file: str
    line: int
    column: int = 0
    end_column: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", in {self.function}" if self.function else "")


@frozen
class Modes:
    """The modes a node runs under. Autocast is already resolved into casts when a node is made.

    ``checkpoint``: the call of `torch.utils.checkpoint` that the node lies in, counted from 1;
    below 0, the backward that computes it again. ``backward``: the node computes a gradient.
    ``counted``: what it writes has its version counter moved.
    """

    grad: bool = False
    inference: bool = False
    autocast: tuple[tuple[str, DType], ...] = ()  # (device type, dtype) where enabled
    default_dtype: DType = float32
    default_device: str = HOST
    deterministic: bool = False
    matmul_precision: str = "highest"
    sdpa_backends: tuple[str, ...] = ()
    checkpoint: int = 0
    backward: bool = False
    counted: bool = True


@frozen
class TensorType:
    """What is known of a tensor before it exists. ``strides`` are logical: eager's, in elements.

    ``wrapped_number`` marks a 0-dim tensor that stands for a Python number in type promotion.
    """

    dtype: DType
    device: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    requires_grad: bool = False
    wrapped_number: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides of a dense row-major tensor: ``(a, b, c) -> (b*c, c, 1)``; as in torch, a size of 0
    counts as 1."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step if size.__class__ is int and size == 0 else step * size
    return tuple(reversed(strides))


def are_row_major(strides: tuple[Dim, ...], shape: Sequence[Dim]) -> bool:
    """Are these the strides of a dense row-major tensor? Those that were made before a size was
    known to be 0 hold a 0 then, where torch has 1."""
    if strides == row_major(shape):
        return True
    return 0 in shape and all(
        stride == math.prod(shape[d + 1 :]) for d, stride in enumerate(strides)
    )


@frozen
class ScalarType:
    """A host number that a node reads from data: an ``int`` is the symbol in ``expr``."""

    kind: Kind
    expr: Expr | Scalar | ScalarInput


Type: TypeAlias = TensorType | ScalarType


class Value:
    """One result of a node, or an input of the graph. Compared by identity; names are unique."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: Type) -> None:
        self.name = name
        self.type = type

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.tensor.shape

    @property
    def tensor(self) -> TensorType:
        if not isinstance(self.type, TensorType):
            raise TypeError(f"{self.name} is a {self.type}, not a tensor")
        return self.type

    def __repr__(self) -> str:
        return f"%{self.name}"


Arg: TypeAlias = "Value | Operand | complex | str | None | DType | slice | tuple[Arg, ...]"


@frozen(eq=False)
class Node:
    """One application of an operator. ``op`` is the name of a row; ``outputs`` is flat.

    ``regions`` are graphs that the operator runs (``nesting.py``).
    """

    op: str
    args: tuple[Arg, ...]
    kwargs: Mapping[str, Arg]
    outputs: tuple[Value, ...]
    location: Location | None = None
    modes: Modes | None = None
    regions: tuple[Graph, ...] = ()
    read: tuple[Value, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        read: list[Value] = []
        for arg in (*self.args, *self.kwargs.values()):
            if isinstance(arg, Value):
                read.append(arg)
            elif isinstance(arg, (tuple, slice)):
                read += values_in(arg)
        object.__setattr__(self, "read", tuple(read))

    @property
    def output(self) -> Value:
        (value,) = self.outputs
        return value

    def inputs(self) -> Iterator[Value]:
        """Every value the node reads, in order, repetitions included."""
        return iter(self.read)


InputKind = Literal["argument", "parameter", "constant"]


@frozen(eq=False)
class Input:
    """A value that exists before the graph runs, with the Python text of where it comes from."""

    value: Value
    kind: InputKind
    source: str


CHECK = "check"
"""The row ``check(condition, message)``: where the condition on sizes does not hold, the segment
has not happened. What the condition says is a fact behind the check."""


@frozen(eq=False)
class Graph:
    """Nodes in program order. ``outputs`` may nest tuples and hold sizes, scalars and constants.

    ``hints`` are example values of symbols: policy only, never semantics.
    """

    space: Space
    facts: Facts
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Arg, ...]
    hints: Mapping[Symbol, int] = field(default_factory=dict)

    def first_line(self) -> Location | None:
        """Where it begins in the user's source."""
        return next((node.location for node in self.nodes if node.location is not None), None)


def checked(check: Node) -> tuple[Condition, str]:
    """The condition and the message of a check."""
    condition, message = check.args
    assert isinstance(condition, Condition) and isinstance(message, str)
    return condition, message


def values_in(arg: Arg) -> Iterator[Value]:
    """The values inside an argument, depth first."""
    if isinstance(arg, Value):
        yield arg
        return
    if isinstance(arg, slice):
        arg = (arg.start, arg.stop, arg.step)
    if isinstance(arg, tuple):
        for item in arg:
            if isinstance(item, Value):  # most are: no further generator
                yield item
            elif isinstance(item, (tuple, slice)):
                yield from values_in(item)


def map_values(arg: Arg, function: Callable[[Value], Arg]) -> Arg:
    """The argument, each value replaced: ``map_values((a, [1, b]), f) -> (f(a), [1, f(b)])``."""
    if isinstance(arg, Value):
        return function(arg)
    if isinstance(arg, tuple):
        return tuple(map_values(item, function) for item in arg)
    if isinstance(arg, slice):
        parts = (map_values(part, function) for part in (arg.start, arg.stop, arg.step))
        return slice(*parts)
    return arg
