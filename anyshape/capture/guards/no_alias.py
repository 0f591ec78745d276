"""Arguments that are written and share no memory with others: a graph relies on it, a call tests
it.

In: sources of arguments, tensors. Out: whether their storages are different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anyshape.capture.heap.sources import Source, read_source
from anyshape.nouns import frozen


@frozen
class NoAlias:
    """Arguments that are written share no memory with any other input, nor do their elements with
    one another: the graph relies on it.

    ``others`` are the other arguments; of parameters the storages are known beforehand.
    """

    written: tuple[Source, ...]
    others: tuple[Source, ...]
    fixed_written: frozenset[int]
    fixed: frozenset[int]

    def holds(self, written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
        """Whether no written storage is another input's, by the identity of storages."""
        if any(map(overlaps_itself, written)):
            return False
        mine = [storage_of(tensor) for tensor in written]
        theirs = [storage_of(tensor) for tensor in others]
        if len(set(mine)) != len(mine) or not self.fixed.isdisjoint(mine):
            return False
        return not set(mine).intersection(theirs) and self.fixed_written.isdisjoint(theirs)

    def holds_for(self, slots: list[Any]) -> bool:
        """Whether it holds for what is handed in."""
        written, others = (
            [read_source(source, slots) for source in sources]
            for sources in (self.written, self.others)
        )
        return self.holds(written, others)

    def __str__(self) -> str:
        names = ", ".join(map(str, self.written)) or "parameters that are written"
        return f"{names} share no memory with other inputs"


def storage_of(tensor: torch.Tensor) -> int:
    """What two views of one tensor have in common: the address, as memory that numpy or dlpack
    shares has two storages."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() or storage._cdata


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie at one address, as in an expanded tensor."""
    if tensor.is_contiguous():
        return False
    reach = 0  # of the dimensions inside
    for step, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and step <= reach:
            return True
        reach += step * (size - 1)
    return False
