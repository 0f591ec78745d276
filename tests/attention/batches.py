"""Batches that every version of attention is tested on: one description, from which tensors are made.

Pages lie in random order, and everything that must not be read is NaN: rows behind a sequence's last key, pages that
no sequence has. Entries of the page table behind the last page name pages that do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from anyshape.attention import arguments, reference
from anyshape.attention.rules import Rules

NO_PAGE = 10**6


@dataclass(frozen=True)
class Case:
    """(queries, keys) of each sequence, and what all of them have in common."""

    sequences: tuple[tuple[int, int], ...]
    heads: int = 4
    key_heads: int = 2
    size: int = 32
    value_size: int = 32
    page_size: int = 16
    options: dict[str, Any] = field(default_factory=dict)
    sinks: bool = False
    scales: int = 0
    pages: torch.dtype | None = None
    tail: int = 0
    absent: int = 0
    shared: int = 0
    """Sequences after the first have as many of its keys, in the same pages."""

    def rules(self) -> Rules:
        given = {"scale": None, "causal": True, "window": None, "soft_cap": None} | self.options
        return arguments.make_rules(
            self.size, **{name: given[name] for name in ("scale", "causal", "window", "soft_cap")}
        )


DECODE = ((1, 1), (1, 17), (1, 64), (1, 100))
MIXED = ((1, 50), (5, 5), (0, 30), (40, 70), (0, 0), (1, 130), (3, 20))
CASES: dict[str, Case] = {
    "one": Case(((1, 40),)),
    "decode": Case(DECODE),
    "mixed": Case(MIXED),
    "nothing": Case(((0, 0), (0, 0))),
    "no keys": Case(((2, 0), (1, 5))),
    "more queries than keys": Case(((30, 10), (2, 1))),
    "one head": Case(MIXED, heads=1, key_heads=1),
    "many heads": Case(MIXED, heads=6, key_heads=1),
    "three a group": Case(MIXED, heads=6, key_heads=2),
    "tail": Case(MIXED, tail=7, absent=3),
    "not causal": Case(MIXED, options={"causal": False}),
    "window": Case(MIXED, options={"window": 20}),
    "window of one": Case(MIXED, options={"window": 1}),
    "window to both sides": Case(MIXED, options={"window": 9, "causal": False}),
    "soft cap": Case(MIXED, options={"soft_cap": 2.0}),
    "scale": Case(MIXED, options={"scale": 0.7}),
    "sinks": Case(MIXED, sinks=True),
    "everything": Case(
        MIXED, options={"window": 33, "soft_cap": 3.0}, sinks=True, tail=2, absent=1
    ),
    "float8": Case(MIXED, scales=1, pages=torch.float8_e4m3fn),
    "float8 with a scale a head": Case(DECODE, scales=2, pages=torch.float8_e4m3fn),
    "float8 without scales": Case(DECODE, pages=torch.float8_e5m2),
    "size 80": Case(MIXED, size=80, value_size=80),
    "larger keys than values": Case(MIXED, size=48, value_size=16),
    "larger values than keys": Case(DECODE, size=16, value_size=40),
    "pages of 64": Case(MIXED, page_size=64),
    "pages of 256": Case(DECODE, page_size=256),
    "pages of 24": Case(MIXED, page_size=24),
    "shared prefix": Case(((1, 70), (1, 50), (4, 66), (20, 64)), shared=48),
}


@dataclass(frozen=True)
class Batch:
    """What `ragged_paged_attention` is called with."""

    case: Case
    q: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_table: Tensor
    starts: Tensor
    lengths: Tensor
    sequences: Tensor | None
    sinks: Tensor | None
    k_scale: Tensor | None
    v_scale: Tensor | None

    def positional(self) -> tuple[Tensor, ...]:
        return self.q, self.k_pages, self.v_pages, self.page_table, self.starts, self.lengths

    def keywords(self) -> dict[str, Any]:
        names = ("sequences", "sinks", "k_scale", "v_scale")
        return {name: getattr(self, name) for name in names} | self.case.options

    def to(self, device: str) -> Batch:
        moved = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def expected(self) -> Tensor:
        """In float64, by the reference, on the CPU."""
        here = self.to("cpu")
        side = (here.sinks, here.k_scale, here.v_scale)
        return reference.ragged_paged_attention(
            *here.positional(), here.sequences, self.case.rules(), *side
        )


def spoiled(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor of NaN."""
    return torch.full(shape, float("nan")).to(dtype)


def make(case: Case, dtype: torch.dtype, seed: int = 0, capacity: int | None = None) -> Batch:
    """A batch of this case on the CPU; `capacity` widens the page table."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    page_size, count = case.page_size, len(case.sequences)
    queries = torch.tensor([n for n, _ in case.sequences])
    keys = [length for _, length in case.sequences]
    widths = [-(-length // page_size) for length in keys]
    common = case.shared // page_size
    needed = sum(widths) + 3
    order = torch.randperm(needed, generator=generator).tolist()
    width = max([1, *widths]) if capacity is None else capacity
    table = torch.full((count + case.absent, width), NO_PAGE, dtype=torch.int32)
    page_dtype = case.pages or dtype
    k_pages = spoiled(needed, page_size, case.key_heads, case.size, dtype=page_dtype)
    v_pages = spoiled(needed, page_size, case.key_heads, case.value_size, dtype=page_dtype)
    for s, length in enumerate(keys):
        for i in range(widths[s]):
            if s and i < common:
                table[s, i] = table[0, i]
                continue
            page = order.pop()
            table[s, i] = page
            used = min(page_size, length - i * page_size)
            for pages, size in ((k_pages, case.size), (v_pages, case.value_size)):
                pages[page, :used] = random(used, case.key_heads, size).to(page_dtype)
    total = int(queries.sum())
    q = random(total + case.tail, case.heads, case.size).to(dtype)
    q[total:] = float("nan")
    starts = torch.zeros(count + case.absent + 1, dtype=torch.int32)
    starts[1 : count + 1] = queries.cumsum(0)
    starts[count + 1 :] = NO_PAGE
    lengths = torch.tensor(keys + [NO_PAGE] * case.absent, dtype=torch.int32)
    scales = [
        torch.rand(1 if case.scales == 1 else case.key_heads, generator=generator) + 0.5
        for _ in range(2)
    ]
    return Batch(
        case,
        q,
        k_pages,
        v_pages,
        table,
        starts,
        lengths,
        torch.tensor([count], dtype=torch.int32) if case.absent else None,
        random(case.heads) if case.sinks else None,
        scales[0] if case.scales else None,
        scales[1] if case.scales else None,
    )


TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


def assert_close(
    mine: Tensor, theirs: Tensor, dtype: torch.dtype, factor: float = 1.0, *, zeros: bool = True
) -> None:
    """||mine - theirs|| / ||theirs|| is below what arithmetic in `dtype` allows, nothing is NaN, and `zeros` are zeros
    (but for gradients, which may be sums that cancel)."""
    mine, theirs = mine.detach().double().cpu(), theirs.detach().double().cpu()
    assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
    assert not mine.isnan().any(), f"{int(mine.isnan().sum())} NaN"
    assert not zeros or (mine[theirs == 0] == 0).all(), "rows that see nothing must be zeros"
    error = (mine - theirs).norm() / theirs.norm().clamp(min=1e-30)
    assert theirs.numel() == 0 or theirs.norm() == 0 or error < TOLERANCE[dtype] * factor, (
        f"error {error:.2e}"
    )


def packed(case: Case, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, ...]:
    """(q, k, v, starts, key_starts) of the same sequences without pages."""
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (torch.tensor([pair[i] for pair in case.sequences]) for i in (0, 1))
    rows, key_rows = int(queries.sum()) + case.tail, int(keys.sum()) + case.tail
    q = torch.randn(rows, case.heads, case.size, generator=generator).to(dtype)
    k = torch.randn(key_rows, case.key_heads, case.size, generator=generator).to(dtype)
    v = torch.randn(key_rows, case.key_heads, case.value_size, generator=generator).to(dtype)
    starts, key_starts = (
        torch.zeros(len(queries) + 1 + case.absent, dtype=torch.int32) for _ in range(2)
    )
    for target, counts in ((starts, queries), (key_starts, keys)):
        target[1 : len(counts) + 1] = counts.cumsum(0)
        target[len(counts) + 1 :] = NO_PAGE
    return q, k, v, starts, key_starts
