"""Launches of the kernels for Hopper: whether they can take a batch, and what the copy engine needs
to know of it.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from anyshape.attention import gluon_split, launch_sizes
from anyshape.attention.gluon_prefill import Settings, prefill_kernel
from anyshape.attention.launch_sizes import Blocks
from anyshape.attention.rules import Rules
from anyshape.kernels.launches import REGISTERS, capability, given, power_of_two, processors

GLUON_DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
CHUNK = 64
ROWS = 64
LEAST_BOX = 16  # rows of a page that come together
THREADS = 384
# Rows of q for each sequence there is room for, below which sequences are taken to be short.
SHORT = 1024
SHARED_BYTES = 227 * 1024
Steps = tuple[int, int, int]


def on_hopper(q: Tensor) -> bool:
    """Whether there is a Hopper GPU."""
    return q.is_cuda and capability(q.device) == 9


def flat_of(pages: Tensor) -> tuple[Tensor, Steps] | None:
    """pages [P, page_size, KH, D] as a matrix, and where in it a page and a head begin: (rows from
    page to page, rows from head to head, columns from head to head). None if it is no matrix.
    """
    count, page_size, heads, size = pages.shape
    page, row, head, _ = pages.stride()
    if heads == 1:
        head = size
    if count == 1:
        page = row * page_size
    item = pages.element_size()
    if row <= 0 or page % row or row * item % 16 or pages.data_ptr() % 16 or page < 0:
        return None
    if head % row == 0 and head > 0:
        steps, columns = (page // row, head // row, 0), size
    elif head >= size and head * (heads - 1) + size <= row and head * item % 16 == 0:
        steps, columns = (page // row, 0, head), head * (heads - 1) + size
    else:
        return None
    rows = (count - 1) * steps[0] + (heads - 1) * steps[1] + page_size
    if rows >= 2**31:
        return None
    return pages.as_strided((rows, columns), (row, 1)), steps


def box_of(page_size: int, bn: int) -> int:
    """How many rows come together: as many as a page and a tile have in common; 0 if too few."""
    box = next((n for n in (128, 64, 32, 16) if page_size % n == 0 and bn % n == 0), 0)
    return box if box >= LEAST_BOX else 0


def prefill_blocks(size: int, value_size: int, *, short: bool) -> tuple[int, int]:
    """(keys at a time, stages). `short` sequences waste less on keys that are masked."""
    if size + value_size > 256:
        return 64, 2
    return (64, 4) if short else (128, 3 if size + value_size <= 128 else 2)


SPLIT_THREADS = 256
# Registers that are left for the launch that adds up, so that it is there before the parts are: a
# warp has them all from one quarter of a multiprocessor, 64 a thread.
COMBINING = 8192


def split_blocks(size: int, value_size: int) -> Blocks:
    """For a few queries, split along keys."""
    if size + value_size > 256:
        return Blocks(ROWS, 64, 4, 2, 1, 2)
    return Blocks(ROWS, 64, 4, 3, 2, 2)


def fits_split(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, capacity: int, rules: Rules, few: int
) -> bool:
    """Whether `split` can take these operands."""
    group = q.shape[1] // k_pages.shape[2]
    part = group // launch_sizes.parts_of(group)
    bn = split_blocks(q.shape[2], v_pages.shape[3]).bn
    return (
        fits(q, k_pages, v_pages, capacity, rules)
        and ROWS % part == 0
        and few * part <= ROWS
        and box_of(k_pages.shape[1], bn) > 0
    )


def split(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    slots: Tensor,
    sums: Tensor,
    rules: Rules,
    few: int,
    limit_queries: int,
    splits: int,
    programs: int,
    zero_tail: bool,
    sinks: Tensor | None,
    sequences: Tensor | None,
    faults: Tensor | None,
    counter: Tensor | None,
    blocks: Blocks,
) -> None:
    """The first launch of `triton_attention.split`, which see."""
    rows, heads, size = q.shape
    page_size, key_heads, value_size = k_pages.shape[1], k_pages.shape[2], v_pages.shape[3]
    parts = launch_sizes.parts_of(heads // key_heads)
    part, capacity = heads // key_heads // parts, starts.shape[0] - 1
    box = box_of(page_size, blocks.bn)
    flat_k, flat_v = flat_of(k_pages), flat_of(v_pages)
    assert flat_k is not None and flat_v is not None, "asked before"
    few_sequences = capacity <= 256
    registers = REGISTERS - COMBINING if few_sequences else REGISTERS
    limit = min(255, registers // (SPLIT_THREADS * blocks.programs)) // 8 * 8
    producer = 40 if few_sequences else 104
    tokens = max(8 // part, power_of_two(few))
    gluon_split.split_kernel[(programs,)](
        descriptor(q, [tokens, part, CHUNK]),
        descriptor(flat_k[0], [box, CHUNK]),
        descriptor(flat_v[0], [box, CHUNK]),
        *(starts, lengths, *given(starts, sequences), page_table),
        *(*given(starts, sinks), out, slots, sums, *given(starts, faults, counter)),
        *(rows, capacity, k_pages.shape[0], page_size * page_table.shape[1]),
        *(page_table.stride(0), *flat_k[1], *flat_v[1], *out.stride()[:2]),
        *(rules.scale, rules.soft_cap, rules.window),
        SET=gluon_split.Settings(
            group=part,
            parts=parts,
            heads=key_heads * parts,
            size=size,
            value_size=value_size,
            page=page_size,
            box=box,
            bn=blocks.bn,
            stages=blocks.stages,
            q_stages=1,
            q_registers=max(size, value_size) <= 128,
            consumers=1,
            q_rows=tokens * part,
            few=few,
            limit=limit_queries,
            block_s=launch_sizes.block_of(max(32, capacity)),
            programs=programs,
            min_tiles=blocks.min_tiles,
            splits=splits,
            causal=rules.causal,
            windowed=rules.window > 0,
            capped=rules.soft_cap > 0,
            sinks=sinks is not None,
            given=sequences is not None,
            totals=False,
            tail=zero_tail,
            faults=faults is not None,
            counts=counter is not None,
            overlap=True,
            consumer_registers=min(240, 2 * limit - producer) // 8 * 8,
            producer_registers=producer,
        ),
        num_warps=4,
        maxnreg=limit,
        launch_pdl=True,
    )


def fits_prefill(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, capacity: int, rules: Rules, *, paged: bool
) -> bool:
    """Whether `prefill` can take these operands."""
    bn, _ = prefill_blocks(q.shape[2], v_pages.shape[3], short=True)
    return (
        fits(q, k_pages, v_pages, capacity, rules)
        and ROWS % (q.shape[1] // k_pages.shape[2]) == 0
        and (not paged or box_of(k_pages.shape[1], bn) > 0)
    )


def fits(q: Tensor, k_pages: Tensor, v_pages: Tensor, capacity: int, rules: Rules) -> bool:
    """Whether the kernels for Hopper know these sizes, dtypes and strides."""
    return (
        on_hopper(q)
        and q.dtype in GLUON_DTYPES
        and k_pages.dtype == q.dtype
        and q.shape[2] in (64, 128, 192, 256)
        and v_pages.shape[3] in (64, 128, 256)
        and rules.scale > 0
        and capacity <= launch_sizes.MOST_SEQUENCES_AT_ONCE
        and q.stride(2) == 1
        and all(stride * q.element_size() % 16 == 0 for stride in q.stride()[:2])
        and q.data_ptr() % 16 == 0
        and min(q.stride()[:2]) > 0
        and flat_of(k_pages) is not None
        and flat_of(v_pages) is not None
    )


@cache
def shared_layout(shape: tuple[int, ...]) -> gl.NVMMASharedLayout:
    """How a block of 64 columns lies in shared memory."""
    return gl.NVMMASharedLayout(128, 16, rank=len(shape))


def descriptor(tensor: Tensor, block: list[int]) -> TensorDescriptor:
    """What the copy engine needs to know of a tensor that is read in blocks of this shape."""
    shape, strides = list(tensor.shape), list(tensor.stride())
    return TensorDescriptor(tensor, shape, strides, block, shared_layout(tuple(block)))


def prefill(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    totals: Tensor | None,
    rules: Rules,
    few: int,
    zero_tail: bool,
    batch_invariant: bool,
    sinks: Tensor | None,
    sequences: Tensor | None,
    faults: Tensor | None,
    counter: Tensor | None,
) -> None:
    """As `triton_attention.tiles`, which see."""
    rows, heads, size = q.shape
    page_size, key_heads, value_size = k_pages.shape[1], k_pages.shape[2], v_pages.shape[3]
    group, capacity = heads // key_heads, starts.shape[0] - 1
    short = not batch_invariant and rows < SHORT * capacity
    bn, stages = prefill_blocks(size, value_size, short=short)
    box = box_of(page_size, bn) if page_table is not None else bn
    flat_k, flat_v = flat_of(k_pages), flat_of(v_pages)
    assert flat_k is not None and flat_v is not None, "asked before"
    limit = REGISTERS // THREADS // 8 * 8
    producer = 40 if capacity <= 256 else 88
    block_s = launch_sizes.block_of(max(32, capacity))
    prefill_kernel[(processors(q.device),)](
        descriptor(q, [ROWS // group, group, CHUNK]),
        descriptor(flat_k[0], [box, CHUNK]),
        descriptor(flat_v[0], [box, CHUNK]),
        *(starts, lengths, *given(starts, sequences, page_table)),
        torch.zeros(1, dtype=torch.int32, device=q.device) if counter is None else counter,
        *(*given(starts, sinks), out, *given(out, totals), *given(starts, faults)),
        *(
            rows,
            capacity,
            k_pages.shape[0],
            page_size * (1 if page_table is None else page_table.shape[1]),
        ),
        *(0 if page_table is None else page_table.stride(0), *flat_k[1], *flat_v[1]),
        *(*out.stride()[:2], 0 if totals is None else totals.stride(0)),
        *(rules.scale, rules.soft_cap, rules.window),
        SET=Settings(
            group=group,
            heads=key_heads,
            size=size,
            value_size=value_size,
            page=0 if page_table is None else page_size,
            box=box,
            bn=bn,
            stages=stages,
            q_stages=2 if size <= 128 else 1,
            q_registers=False,
            consumers=2,
            few=few,
            block_s=block_s,
            tail=zero_tail,
            faults=faults is not None,
            overlap=counter is not None,
            causal=rules.causal,
            windowed=rules.window > 0,
            capped=rules.soft_cap > 0,
            sinks=sinks is not None,
            given=sequences is not None,
            totals=totals is not None,
            consumer_registers=min(240, (3 * limit - producer) // 2 // 8 * 8),
            producer_registers=producer,
        ),
        num_warps=4,
        maxnreg=limit,
        launch_pdl=counter is not None,
    )
