"""New keys and values into their pages: a program takes a few rows of all heads."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.attention.launch_sizes import block_of, step_of
from anyshape.attention.triton_plan import (
    PAGE_TABLE,
    count_sequences,
    keys_of,
    note_faults,
    rows_of,
)
from anyshape.kernels.launches import ceil_div, given, power_of_two, quick
from anyshape.kernels.overlap import follow, overlap

ROWS = 4


@triton.jit
def _put(
    new, pages, scale, token, page, row, ok, new_token, new_head, to_page, to_row, to_head,
    HEADS: tl.constexpr, BLOCK_H: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    STEP: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    """Copy the rows of all heads, BLOCK_H * BLOCK elements a row."""
    element = tl.arange(0, BLOCK_H * BLOCK)
    head, d = element // BLOCK, element % BLOCK
    mask = ok[:, None] & ((d < SIZE) & (head < HEADS))[None, :]
    inside = head.to(tl.int64) * new_head + d
    value = tl.load(new + token[:, None] * new_token + inside[None, :], mask=mask, other=0.0)
    if STEP >= 0:
        factor = tl.load(scale + head * STEP, mask=head < HEADS, other=1.0)
        value = value.to(tl.float32)
        value = tl.div_rn(value, tl.broadcast_to(factor[None, :], value.shape))
    if LARGEST > 0:
        wide = value.to(tl.float32)
        value = tl.where(wide != wide, wide, tl.minimum(tl.maximum(wide, -LARGEST), LARGEST))
    to = page.to(tl.int64) * to_page + row.to(tl.int64) * to_row
    inside = head.to(tl.int64) * to_head + d
    tl.store(pages + to[:, None] + inside[None, :], value.to(pages.dtype.element_ty), mask=mask)


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "count_pages", "columns"])
def write_kernel(
    k, v, k_pages, v_pages, table, starts, lengths, sequences, k_scale, v_scale, faults,
    rows, capacity, count_pages, columns, k_token, k_head, v_token, v_head,
    k_page, k_row, k_to, v_page, v_row, v_to, table_row,
    PAGE: tl.constexpr, HEADS: tl.constexpr, BLOCK_H: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, BLOCK: tl.constexpr,
    BLOCK_S: tl.constexpr,
    K_STEP: tl.constexpr, V_STEP: tl.constexpr, LARGEST: tl.constexpr, GIVEN: tl.constexpr,
    FAULTS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """See the module."""
    follow(OVERLAP)
    most = columns * PAGE
    count = count_sequences(sequences, capacity, GIVEN)
    if FAULTS:
        if tl.program_id(0) == 0:
            note_faults(faults, count, starts, lengths, rows, most, True, True, 0, BLOCK_S)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # the sequence of a token: how many have ended before it
    s = tl.zeros([BLOCK], tl.int32)
    for block in range(0, count, BLOCK_S):
        other = block + tl.arange(0, BLOCK_S)
        ends = tl.load(starts + other + 1, mask=other < count, other=2147483647)
        s += tl.sum((ends[None, :] <= token[:, None]).to(tl.int32), 1)
    ok = (s < count) & (token < rows)
    start, queries = rows_of(starts, s, ok, rows)
    _, keys = keys_of(lengths, s, ok, most, True)
    j = keys - queries + token - start
    ok = ok & (token >= start) & (j >= 0) & (j < keys)
    page = tl.load(table + s.to(tl.int64) * table_row + j // PAGE, mask=ok, other=0)
    known = (page >= 0) & (page < count_pages)
    if FAULTS:
        if tl.max((ok & (known == 0)).to(tl.int32), 0) > 0:
            tl.atomic_or(faults, PAGE_TABLE)
    ok = ok & known
    token = token.to(tl.int64)
    _put(
        k, k_pages, k_scale, token, page, j % PAGE, ok, k_token, k_head, k_page, k_row, k_to,
        HEADS, BLOCK_H, D, BLOCK_D, K_STEP, LARGEST,
    )  # fmt: skip
    _put(
        v, v_pages, v_scale, token, page, j % PAGE, ok, v_token, v_head, v_page, v_row, v_to,
        HEADS, BLOCK_H, DV, BLOCK_DV, V_STEP, LARGEST,
    )  # fmt: skip


def write_pages(
    k: Tensor,
    v: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    faults: Tensor | None,
    sequences: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
) -> None:
    """See `anyshape.attention.write_pages`."""
    rows, heads, size = k.shape
    capacity = lengths.shape[0]
    if rows == 0 or capacity == 0:
        return
    k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (k, v))
    value_size = v.shape[2]
    blocks = (power_of_two(heads), power_of_two(size), power_of_two(value_size))
    write_kernel[(ceil_div(rows, ROWS),)](
        *(k, v, k_pages, v_pages, page_table, starts, lengths),
        *given(starts, sequences, k_scale, v_scale, faults),
        *(rows, capacity, k_pages.shape[0], page_table.shape[1], *k.stride()[:2], *v.stride()[:2]),
        *(*k_pages.stride()[:3], *v_pages.stride()[:3], page_table.stride(0)),
        PAGE=k_pages.shape[1],
        HEADS=heads,
        BLOCK_H=blocks[0],
        D=size,
        DV=value_size,
        BLOCK_D=blocks[1],
        BLOCK_DV=blocks[2],
        BLOCK=ROWS,
        BLOCK_S=block_of(capacity),
        K_STEP=step_of(k_scale),
        V_STEP=step_of(v_scale),
        LARGEST=torch.finfo(k_pages.dtype).max if k_pages.dtype.itemsize == 1 else 0.0,
        GIVEN=sequences is not None,
        FAULTS=faults is not None,
        **overlap(k),
    )
