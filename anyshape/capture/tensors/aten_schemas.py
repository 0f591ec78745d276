"""What ATen's schemas say of an operator that has no row.

In: the dotted name of a function of torch's. Out: facts about the operators of its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from anyshape.ops.gradients.backward import SPARSE


def is_random(name: str) -> bool:
    """Whether torch says that an operator of this dotted name draws from a generator."""
    parts = (overload for part in name.split(".") for overload in _overloads(part))
    return any(torch.Tag.nondeterministic_seeded in overload.tags for overload in parts)


def sparse_options(name: str) -> dict[int, str]:
    """Where the operator is told, by position, that its gradients are sparse tensors."""
    schemas = (overload._schema for overload in _overloads(name.rpartition(".")[2]))
    numbered = (each for schema in schemas for each in enumerate(schema.arguments))
    return {i: p.name for i, p in numbered if p.name in SPARSE and not p.kwarg_only}


def _overloads(name: str) -> Iterator[Any]:
    packet = getattr(torch.ops.aten, name, None)
    if packet is not None:
        yield from (getattr(packet, overload) for overload in packet.overloads())
