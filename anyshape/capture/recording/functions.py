"""What one capture knows of calls of `autograd.Function.apply` where gradients are recorded
(``tensors/autograd_functions.py``)."""

from __future__ import annotations

from dataclasses import dataclass, field

from anyshape.capture.heap.values import TensorValue
from anyshape.ir.graph import Value


@dataclass(slots=True, eq=False)
class Applied:
    """One call. ``results`` are those of ``made`` that require gradients, by their position;
    ``saved`` is what must not be written while gradients are to come; ``end`` is the number of
    nodes behind the call."""

    function: object
    ctx: object
    args: tuple[object, ...]
    made: tuple[TensorValue | None, ...]
    results: dict[int, Value]
    saved: tuple[Value, ...]
    end: int
    materializes: bool
    is_spent: bool = False


@dataclass(slots=True, eq=False)
class Functions:
    """``refused``: why none is captured, "" where they are; ``left``: the same, found just now.
    ``inside``: of how many the ``forward`` is being interpreted, or has raised."""

    refused: str = ""
    left: str = ""
    inside: int = 0
    calls: list[Applied] = field(default_factory=list)
