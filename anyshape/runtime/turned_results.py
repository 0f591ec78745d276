"""Results in memory of their own, turned as eager's are.

In: the results of a call that lie in one storage, and how eager's lie in theirs. Out: copies, which
lie in one storage as well if there are several: views of the one that eager calls no view.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anyshape.nouns import frozen
from anyshape.runtime.gradient_layouts import storage_of
from anyshape.version_counters import set_version, version_of

Tensor = torch.Tensor


@frozen
class Laid:
    """How a tensor lies. ``storage`` is the same number for those in one storage, which has room
    for ``length`` elements."""

    shape: torch.Size
    strides: tuple[int, ...]
    begins: int
    storage: int
    length: int
    is_view: bool


def described(tensors: Sequence[Tensor]) -> tuple[Laid, ...]:
    """How these lie."""
    numbers: dict[int, int] = {}
    return tuple(
        [
            Laid(
                t.shape,
                t.stride(),
                int(t.storage_offset()),
                numbers.setdefault(storage_of(t), len(numbers)),
                t.untyped_storage().nbytes() // t.element_size(),
                t._is_view(),
            )
            for t in tensors
        ]
    )


def turned(tensors: Sequence[Tensor], laid: Sequence[Laid]) -> list[Tensor] | None:
    """Copies that lie so; None where eager's lie in several storages, or as no copy can."""
    if len({like.storage for like in laid}) > 1 or len({t.dtype for t in tensors}) > 1:
        return None
    versions = set(map(version_of, tensors))
    if len(tensors) > 1 and (len(versions) > 1 or any(t.requires_grad for t in tensors)):
        return None
    root: Tensor = tensors[0].new_empty((laid[0].length,))
    whole = next((n for n, like in enumerate(laid) if not like.is_view), None)
    if whole is not None:
        root = root.as_strided(laid[whole].shape, laid[whole].strides, laid[whole].begins).detach()
    made = []
    for position, (tensor, like) in enumerate(zip(tensors, laid, strict=True)):
        part = root
        if position != whole:
            part = root.as_strided(like.shape, like.strides, like.begins)
        made.append(part.copy_(tensor))
    for part, tensor in zip(made, tensors, strict=True):
        set_version(part, version_of(tensor))
    return made
