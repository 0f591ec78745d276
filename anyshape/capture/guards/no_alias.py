"""Tensors that are written and share no memory with others: a graph relies on it, a call tests it.

In: sources of arguments, and the tensors that are the same in each call. Out: whether no element
that is written is another input's, too. Parts of one tensor that do not overlap (parameters that
are views of one vector) are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

import torch

from anyshape.capture.heap.sources import Source, read_source
from anyshape.nouns import frozen
from anyshape.version_counters import set_version, version_of

Span = tuple[int, int, bool]
"""Bytes: the address of the first, that behind the last, and whether they are written."""


@frozen
class Fixed:
    """Tensors that are the same in each call, and lie in the same places.

    ``recorded``: the numbers of the storages of those that autograd knows, as ``NoAlias`` says.
    ``disjoint``: what is written of them lies in none of the others, and is counted with none where
    autograd knows one of the two. ``starts``: the addresses of all storages, and of those that are
    written; None where memory that torch does not own is among them.
    """

    storages: tuple[Span, ...]
    elements: tuple[Span, ...]
    recorded: frozenset[int]
    disjoint: bool
    starts: tuple[frozenset[int], frozenset[int]] | None

    @classmethod
    def of(
        cls,
        written: Sequence[torch.Tensor],
        others: Sequence[torch.Tensor],
        recorded: Sequence[torch.Tensor] = (),
    ) -> Fixed:
        known = {*map(id, recorded)}
        marked = [(t, True) for t in written] + [(t, False) for t in others]
        elements = sorted(element_span(*pair) for pair in marked)
        storages = sorted((storage_span(*pair), id(pair[0]) in known) for pair in marked)
        of_written = {id(t) for t in written}
        disjoint = (
            are_disjoint(elements)
            and not any(map(overlaps_itself, written))
            and not _are_counted_together([*written, *others], of_written, known)
        )
        starts = starts_of_own([*written, *others])
        return cls(
            tuple(span for span, _ in storages),
            tuple(elements),
            frozenset(number for number, (_, is_known) in enumerate(storages) if is_known),
            disjoint,
            None if starts is None else (frozenset(starts), frozenset(starts[: len(written)])),
        )


def _are_counted_together(
    tensors: Sequence[torch.Tensor], written: Set[int], recorded: Set[int]
) -> bool:
    """Does a write to one of these move the version of another one, of which autograd knows one?"""
    together: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        if not tensor.is_inference():
            together.setdefault(storage_of(tensor), []).append(tensor)
    for in_one_storage in together.values():
        ids = {id(tensor) for tensor in in_one_storage}
        if len(ids) == 1 or ids.isdisjoint(written) or ids.isdisjoint(recorded):
            continue
        counters: dict[int, set[int]] = {}
        for tensor, counter in zip(in_one_storage, _counters(in_one_storage)):
            counters.setdefault(counter, set()).add(id(tensor))
        for ids in counters.values():
            if len(ids) > 1 and not (ids.isdisjoint(written) or ids.isdisjoint(recorded)):
                return True
    return False


def _counters(tensors: Sequence[torch.Tensor]) -> list[int]:
    """A number for each that tells whose version moves with its own. What lies in one storage may
    have counters of its own (``x.data = part``)."""
    before = [*map(version_of, tensors)]
    try:
        for number, tensor in enumerate(tensors):
            set_version(tensor, number)
        return [*map(version_of, tensors)]
    finally:
        for tensor, version in zip(tensors, before):
            set_version(tensor, version)


@frozen
class NoAlias:
    """Inputs that are written share no element with any other input, nor do their elements with
    one another: the graph relies on it.

    ``others`` are the other arguments. ``recorded``: the numbers of those arguments, the written
    ones first, of which a formula of autograd's may keep something, or which autograd sees written.
    They share no storage with what is written, and where they are written, with nothing: writes to
    parts of one tensor are counted together. So do those of the tensors that are ``fixed``.
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
        if self._are_separate(written, others):
            return True
        storages = [storage_span(t, True) for t in written]
        storages += [storage_span(t, False) for t in others]
        if are_disjoint([*storages, *fixed.storages]):
            return True
        elements = [element_span(t, True) for t in written]
        elements += [element_span(t, False) for t in others]
        return are_disjoint([*elements, *fixed.elements]) and self._are_recorded_disjoint(storages)

    def _are_separate(
        self, written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
    ) -> bool:
        """Is all of it memory that torch owns, and does what is written lie in storages of its own?
        What torch owns begins where nothing else lies."""
        mine, starts = starts_of_own(written), self.fixed.starts
        theirs = None if mine is None else starts_of_own(others)
        if mine is None or theirs is None or starts is None:
            return False
        every, of_written = starts
        own = set(mine)
        return (
            len(own) == len(mine)
            and own.isdisjoint(theirs)
            and every.isdisjoint(mine)
            and of_written.isdisjoint(theirs)
        )

    def _are_recorded_disjoint(self, storages: Sequence[Span]) -> bool:
        """Does what autograd knows lie in other storages than what is written?"""
        fixed, known = self.fixed, self.recorded
        marked = [
            *((span, number in known, True) for number, span in enumerate(storages)),
            *(
                (span, number in fixed.recorded, False)
                for number, span in enumerate(fixed.storages)
            ),
        ]
        reach, together = 0, (0, False, False, False)
        for (start, end, is_written), is_recorded, is_given in sorted(marked):
            met = together if start < reach else (0, False, False, False)
            count, written, recorded, given = met
            together = (
                count + 1, written or is_written, recorded or is_recorded, given or is_given,
            )  # fmt: skip
            if count and all(together):
                return False
            reach = max(reach, end)
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


def starts_of_own(tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """Where their storages begin; None where one of them has memory that torch does not own and
    something else may lie in, as an array of numpy's: it cannot be resized."""
    starts = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if not storage.resizable():
            return None
        starts.append(storage.data_ptr() or storage._cdata)
    return starts


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
