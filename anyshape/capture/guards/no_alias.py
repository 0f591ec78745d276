"""Tensors that are written and share no memory with others: a graph relies on it, a call tests it.

In: sources of arguments, and the tensors that are the same in each call. Out: whether no element
that is written is another input's, too. Parts of one tensor that do not overlap (parameters that
are views of one vector) are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from anyshape.capture.heap.sources import Source, read_source
from anyshape.nouns import frozen

Span = tuple[int, int, bool]
"""Bytes: the address of the first, that behind the last, and whether they are written."""


@frozen
class Fixed:
    """Tensors that are the same in each call, and lie in the same places.

    ``disjoint``: what is written of them lies in none of the others.
    """

    storages: tuple[Span, ...]
    elements: tuple[Span, ...]
    disjoint: bool

    @classmethod
    def of(cls, written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> Fixed:
        storages, elements = (
            tuple(sorted([*(span(t, True) for t in written), *(span(t, False) for t in others)]))
            for span in (storage_span, element_span)
        )
        disjoint = are_disjoint(elements) and not any(map(overlaps_itself, written))
        return cls(storages, elements, disjoint)


@frozen
class NoAlias:
    """Inputs that are written share no element with any other input, nor do their elements with
    one another: the graph relies on it.

    ``others`` are the other arguments. ``recorded``: the numbers of those arguments, the written
    ones first, of which a formula of autograd's may keep something, or which autograd sees written.
    They share no storage with what is written, and where they are written, with nothing: writes to
    parts of one tensor are counted together.
    """

    written: tuple[Source, ...]
    others: tuple[Source, ...]
    recorded: frozenset[int]
    fixed: Fixed

    def holds(self, written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
        """Whether it holds, by the addresses of storages, and of elements where these meet."""
        fixed = self.fixed
        if not fixed.disjoint or any(map(overlaps_itself, written)):
            return False
        storages = [storage_span(t, True) for t in written]
        storages += [storage_span(t, False) for t in others]
        if are_disjoint([*storages, *fixed.storages]):
            return True
        elements = [element_span(t, True) for t in written]
        elements += [element_span(t, False) for t in others]
        return are_disjoint([*elements, *fixed.elements]) and self._are_recorded_disjoint(storages)

    def _are_recorded_disjoint(self, storages: Sequence[Span]) -> bool:
        """Does what autograd knows lie in other storages than what is written?"""
        for number in self.recorded:
            start, end, is_written = storages[number]
            others = (*storages[:number], *storages[number + 1 :], *self.fixed.storages)
            if any(a < end and start < b and (w or is_written) for a, b, w in others):
                return False
        return True

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


def are_disjoint(spans: Iterable[Span]) -> bool:
    """Do no bytes that are written lie in another span, too?"""
    reach = of_written = 0
    for start, end, is_written in sorted(spans):
        if (start < of_written or (is_written and start < reach)) and start < end:
            return False
        if end > reach:
            reach = end
        if is_written and end > of_written:
            of_written = end
    return True


def storage_span(tensor: torch.Tensor, is_written: bool) -> Span:
    """Where its storage lies; memory that numpy or dlpack shares has two storages. Of one without
    memory (of a tensor on ``meta``) its own address tells."""
    storage = tensor.untyped_storage()
    start, size = storage.data_ptr(), storage.nbytes()
    if start:
        return start, start + size, is_written
    return storage._cdata, storage._cdata + min(size, 1), is_written


def element_span(tensor: torch.Tensor, is_written: bool) -> Span:
    """From its first element to its last one."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start, is_written
    if not start:
        return storage_span(tensor, is_written)
    reach = sum([(size - 1) * step for size, step in zip(tensor.shape, tensor.stride())])
    return start, start + (reach + 1) * tensor.element_size(), is_written


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
