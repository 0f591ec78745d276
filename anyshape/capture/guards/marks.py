"""What users say about a dimension: dynamic, unbacked or static, with a name and bounds.

Marks live on the tensor they were made for. torch's own marks (``torch._dynamo.mark_dynamic`` and
its kin) are attributes of the tensor, so they are understood without importing ``torch._dynamo``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from anyshape.nouns import frozen

MarkKind = Literal["dynamic", "maybe_dynamic", "unbacked", "static"]
ATTRIBUTE = "_anyshape_marks"
UNBOUNDED = 2**62  # torch writes "no maximum" as a number near the largest int


@frozen
class Mark:
    """``minimum`` and ``maximum`` bound the size, inclusively; equal sizes share ``name``."""

    kind: MarkKind
    name: str | None = None
    minimum: int = 0
    maximum: int | None = None


def set_mark(tensor: Any, dim: int, mark: Mark) -> None:
    """Marks dimension ``dim`` (negative ones count from the end); the last mark wins."""
    rank = tensor.dim()
    if not -rank <= dim < rank:
        raise IndexError(f"cannot mark dimension {dim} of a tensor with {rank} dimensions")
    setattr(tensor, ATTRIBUTE, {**getattr(tensor, ATTRIBUTE, {}), dim % rank: mark})


def marks_of(tensor: Any) -> dict[int, Mark]:
    """The marks of a tensor by dimension, torch's and ours; empty for nearly all tensors."""
    attributes = getattr(tensor, "__dict__", None)
    if not attributes:
        return {}
    return {**dict(_torch_marks(attributes)), **attributes.get(ATTRIBUTE, {})}


def _torch_marks(attributes: dict[str, Any]) -> Iterator[tuple[int, Mark]]:
    bounds = {r.dim: (r.min, r.max) for r in attributes.get("_dynamo_dynamic_range", ())}
    bounds |= attributes.get("_dynamo_unbacked_bounds", {})
    names = attributes.get("_dynamo_shape_ids", {})
    for attribute, kind in TORCH_MARKS:
        for dim in attributes.get(attribute, ()):
            minimum, maximum = bounds.get(dim, (None, None))
            open_ended = maximum is None or maximum >= UNBOUNDED
            yield dim, Mark(kind, names.get(dim), minimum or 0, None if open_ended else maximum)


# Later rows win, as in torch: what is unbacked or static is not merely dynamic.
TORCH_MARKS: tuple[tuple[str, MarkKind], ...] = (
    ("_dynamo_weak_dynamic_indices", "maybe_dynamic"),
    ("_dynamo_dynamic_indices", "dynamic"),
    ("_dynamo_unbacked_indices", "unbacked"),
    ("_dynamo_strict_unbacked_indices", "unbacked"),
    ("_dynamo_static_indices", "static"),
)
