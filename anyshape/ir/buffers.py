"""Buffers, and arguments of steps that refer to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from anyshape.ir.dtypes import DType
from anyshape.ir.scalars import Operand
from anyshape.symbolic import Dim

Role: TypeAlias = Literal["input", "constant", "output", "temp", "result"]


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
