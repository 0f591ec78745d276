"""Buffers, and arguments of steps that refer to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from anyshape.ir.dtypes import DType
from anyshape.ir.graph import are_row_major
from anyshape.ir.scalars import Operand
from anyshape.nouns import frozen
from anyshape.symbolic import Dim

Role: TypeAlias = Literal["input", "constant", "output", "temp", "result", "flag"]


@frozen
class Buffer:
    """Memory with a type. ``strides`` are the layout in memory, in elements.

    ``input``: handed in by the caller; ``constant``: a tensor of the segment (a parameter, say);
    ``output``: allocated and handed out; ``temp``: allocated, dead after its last use;
    ``result``: made by a ``Call`` that allocates for itself, or a view. ``capacity``: the elements
    that there is memory for, of a dense buffer whose extents are in memory themselves. ``flag``: a
    byte of ``Traps``, which kernels set and the host reads, for the line of the program ``site``.
    """

    name: str
    dtype: DType
    device: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    role: Role
    capacity: Dim | None = None
    site: str = ""

    def allocated(self) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """The shape and the strides that memory is allocated for."""
        return (self.shape, self.strides) if self.capacity is None else ((self.capacity,), (1,))

    def in_rows(self) -> bool:
        """Whether all of it is row-major."""
        return self.capacity is None and are_row_major(self.strides, self.shape)

    def asserted_strides(self) -> tuple[Dim, ...]:
        """What a library's result is given its strides by: row-major ones are computed of its
        sizes, some of which a product with a size of 0 would not name."""
        return (*self.strides, *self.shape[1:]) if self.in_rows() else self.strides

    def layout(self) -> tuple[Dim, ...]:
        """The sizes that memory is allocated for, extents and strides."""
        shape, strides = self.allocated()
        return (*shape, *strides)


Buffers: TypeAlias = Mapping[str, Buffer]


@frozen
class BufferRef:
    """A buffer as an argument of a step."""

    name: str


@frozen
class SizeInMemory:
    """A size that a kernel reads: the one int64 of a buffer, which is ``size``."""

    name: str
    size: Dim


@frozen
class Placement:
    """Where a size is that data decides: in the one int64 of ``memory``, else, for ``reason``, on
    the host."""

    memory: str | None
    reason: str


StepArg: TypeAlias = (
    "BufferRef | SizeInMemory | Dim | Operand | complex | str | None | DType | slice"
    " | tuple[StepArg, ...]"
)


@frozen
class TensorArg:
    """A buffer's memory as a tensor of this shape, from its first element on."""

    buffer: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


NativeKind: TypeAlias = Literal["tensor", "tensor?", "float", "float?", "bool", "int", "int?"]
NativeArg: TypeAlias = "tuple[NativeKind, StepArg | TensorArg]"


def references(arg: StepArg) -> Iterator[str]:
    """The buffers that an argument refers to."""
    if isinstance(arg, BufferRef | SizeInMemory):
        yield arg.name
    elif isinstance(arg, tuple):
        for item in arg:
            yield from references(item)
