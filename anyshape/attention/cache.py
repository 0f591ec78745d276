"""A cache of keys and values in pages: which sequence has which page, kept on the host.

In: sequences that begin, grow, share a prefix and end. Out: the tensors that attention reads,
always the same ones, so that a CUDA graph may hold them. A page belongs to as many sequences as
share it (a count of references); who writes to a shared page gets a copy of it first. Any page
serves any sequence, so pages never need to be moved together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from anyshape.kernels import checks


class Batch(NamedTuple):
    """What `write_pages` and `ragged_paged_attention` are given of a step: page_table [S, C],
    starts [S + 1], lengths [S], all int32, and how many sequences there are, int32 [1].
    """

    page_table: Tensor
    starts: Tensor
    lengths: Tensor
    sequences: Tensor


class OutOfPages(RuntimeError):
    """A step needs more pages than are free; nothing was changed."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(f"this step needs {needed} pages, and {free} are free")
        self.needed, self.free = needed, free


@dataclass(slots=True)
class _Sequence:
    length: int = 0
    pages: list[int] = field(default_factory=list)


class PagedCache:
    """Keys and values of up to `max_sequences` sequences of up to `max_keys` keys, in `pages` pages
    of `page_size` rows, for `layers` layers that share one page table.

    A page holds its rows head by head, so that what one head reads lies together.
    """

    def __init__(
        self,
        pages: int,
        page_size: int,
        key_heads: int,
        head_size: int,
        value_size: int | None = None,
        *,
        max_sequences: int,
        max_keys: int,
        layers: int = 1,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str = "cpu",
    ) -> None:
        sizes = {"pages": pages, "page_size": page_size, "key_heads": key_heads, "layers": layers}
        sizes |= {"head_size": head_size, "max_sequences": max_sequences, "max_keys": max_keys}
        for name, value in sizes.items():
            checks.check_range(name, value, 1, 2**31 - 1, "a count")
        self.page_size, self.max_keys = page_size, max_keys
        width = -(-max_keys // page_size)
        shape = (layers, pages, key_heads, page_size)
        self._k = torch.zeros(*shape, head_size, dtype=dtype, device=device)
        self._v = torch.zeros(*shape, value_size or head_size, dtype=dtype, device=device)
        device = self._k.device
        self._table = torch.zeros(max_sequences, width, dtype=torch.int32, device=device)
        # starts, lengths and the number of sequences go to the device as one tensor
        self._numbers = torch.zeros(2 * max_sequences + 2, dtype=torch.int32, device=device)
        self._shown: list[tuple[int, ...]] = [()] * max_sequences
        self._free = list(range(pages - 1, -1, -1))
        self._references = [0] * pages
        self._sequences: dict[int, _Sequence] = {}
        self._next_id = 0

    @property
    def free_pages(self) -> int:
        """How many pages belong to no sequence."""
        return len(self._free)

    @property
    def sequences(self) -> Sequence[int]:
        """The sequences there are, oldest first."""
        return tuple(self._sequences)

    def length(self, sequence: int) -> int:
        """How many keys a sequence has."""
        return self._get(sequence).length

    def pages_of(self, sequence: int) -> Sequence[int]:
        """The pages of a sequence, first keys first."""
        return tuple(self._get(sequence).pages)

    def references(self, page: int) -> int:
        """How many sequences have this page."""
        return self._references[page]

    def pages(self, layer: int = 0) -> tuple[Tensor, Tensor]:
        """(k_pages [P, page_size, KH, D], v_pages [P, page_size, KH, DV]) of a layer."""
        checks.check_range("layer", layer, 0, self._k.shape[0] - 1, "the layers")
        return self._k[layer].transpose(1, 2), self._v[layer].transpose(1, 2)

    def add(self, prefix_of: int | None = None, length: int | None = None) -> int:
        """A new sequence: empty, or with the first `length` keys of another one (all by default),
        whose pages it shares.
        """
        made = _Sequence()
        if prefix_of is not None:
            other = self._get(prefix_of, "prefix_of")
            made.length = other.length if length is None else length
            checks.check_range("length", made.length, 0, other.length, "the keys of prefix_of")
            made.pages = other.pages[: self._count(made.length)]
            for page in made.pages:
                self._references[page] += 1
        elif length is not None:
            checks.fail("length", "left out without prefix_of", length)
        self._sequences[self._next_id] = made
        self._next_id += 1
        return self._next_id - 1

    def free(self, sequence: int) -> None:
        """End a sequence; pages that no other has can be handed out again."""
        self._release(self._get(sequence).pages)
        del self._sequences[sequence]

    def truncate(self, sequence: int, length: int) -> None:
        """Forget all keys of a sequence but the first `length`."""
        entry = self._get(sequence)
        checks.check_range("length", length, 0, entry.length, "the keys of the sequence")
        kept = self._count(length)
        self._release(entry.pages[kept:])
        del entry.pages[kept:]
        entry.length = length

    def step(self, counts: Mapping[int, int]) -> Batch:
        """Room for `counts[sequence]` new keys of each sequence, and the step's batch, in the order
        of `counts`. Raises OutOfPages, with nothing changed, where pages are too few.

        The tensors are those of every other step, with new contents.
        """
        checks.check_range("counts", len(counts), 0, self._table.shape[0], "max_sequences")
        for sequence, count in counts.items():
            entry = self._get(sequence, "counts")
            checks.check_range(
                f"counts[{sequence}]", count, 0, self.max_keys - entry.length, "room in max_keys"
            )
        copies = self._shared_tails(counts)
        needed = len(copies) + sum(
            self._count(self._sequences[s].length + count) - len(self._sequences[s].pages)
            for s, count in counts.items()
        )
        if needed > len(self._free):
            raise OutOfPages(needed, len(self._free))
        self._copy(copies)
        for sequence, count in counts.items():
            entry = self._sequences[sequence]
            entry.length += count
            entry.pages += self._take(self._count(entry.length) - len(entry.pages))
        return self._show(counts)

    def _shared_tails(self, counts: Mapping[int, int]) -> list[int]:
        """Sequences that write to a page which others have too."""
        found, claims = [], dict[int, int]()
        for sequence, count in counts.items():
            entry = self._sequences[sequence]
            if not count or not entry.length % self.page_size:
                continue
            page = entry.pages[-1]
            claims[page] = claims.get(page, 0) + 1
            # The last one that has it may write to it.
            if claims[page] < self._references[page]:
                found.append(sequence)
        return found

    def _copy(self, sequences: Sequence[int]) -> None:
        """Give each of the sequences a last page of its own."""
        if not sequences:
            return
        entries = [self._sequences[sequence] for sequence in sequences]
        old = [entry.pages[-1] for entry in entries]
        new = self._take(len(old))
        device = self._k.device
        source, target = torch.tensor(old, device=device), torch.tensor(new, device=device)
        for pages in (self._k, self._v):
            pages[:, target] = pages[:, source]
        for entry, page in zip(entries, new, strict=True):
            self._release([entry.pages[-1]])
            entry.pages[-1] = page

    def _show(self, counts: Mapping[int, int]) -> Batch:
        """Write what the device reads."""
        lengths = [self._sequences[sequence].length for sequence in counts]
        starts = [0]
        for count in counts.values():
            starts.append(starts[-1] + count)
        most = self._table.shape[0]
        starts += [starts[-1]] * (most + 1 - len(starts))
        numbers = [*starts, *lengths, *[0] * (most - len(lengths)), len(counts)]
        self._numbers.copy_(torch.tensor(numbers, dtype=torch.int32))
        self._show_pages([tuple(self._sequences[sequence].pages) for sequence in counts])
        return Batch(
            self._table,
            self._numbers[: most + 1],
            self._numbers[most + 1 : -1],
            self._numbers[-1:],
        )

    def _show_pages(self, rows: Sequence[tuple[int, ...]]) -> None:
        """Write the rows of the table that are not there yet."""
        changed = [row for row, pages in enumerate(rows) if self._shown[row] != pages]
        if not changed:
            return
        width = max(1, *(len(rows[row]) for row in changed))
        padded = [[*rows[row], *[0] * (width - len(rows[row]))] for row in changed]
        where = torch.tensor(changed, device=self._table.device)
        new = torch.tensor(padded, dtype=torch.int32).to(self._table.device)
        self._table[:, :width].index_copy_(0, where, new)
        for row in changed:
            self._shown[row] = rows[row]

    def _count(self, keys: int) -> int:
        return -(-keys // self.page_size)

    def _get(self, sequence: int, argument: str = "sequence") -> _Sequence:
        if sequence not in self._sequences:
            checks.fail(argument, "a sequence of this cache", sequence)
        return self._sequences[sequence]

    def _take(self, count: int) -> list[int]:
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._references[page] = 1
        return taken

    def _release(self, pages: Sequence[int]) -> None:
        for page in reversed(pages):
            self._references[page] -= 1
            if not self._references[page]:
                self._free.append(page)
