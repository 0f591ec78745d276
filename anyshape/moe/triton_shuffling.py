"""Index shuffling and the row moves of expert parallelism, in Triton.

For few scores each expert has a program, which ranks all tokens itself and counts the choices of
lower experts (where its rows begin). For more, a first launch writes what each token chose. For
many choices each block of tokens has a program then: the first launch also writes how often each
expert was chosen, one sums that over the blocks, and the last one knows where each block's rows of
each expert begin. No atomics, so the order is that of the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import ceil_div, power_of_two, quick
from anyshape.kernels.overlap import follow, overlap
from anyshape.moe.triton_rows import TAKEN_KEY, best_of, count_arguments, count_rows, keys_of

ONE_LAUNCH_SCORES = 8192
ONE_LAUNCH_EXPERTS = 256
# up to so many choices, the program of each expert looks through all of them
EXPERT_CHOICES = 8192
CHOSEN_SCORES = 4096
CHOSEN_WARPS = 4
TAIL_BLOCKS = 8
# otherwise: scores of a block of tokens, and of how many experts and blocks a program adds counts
BLOCK_SCORES = 1024
BLOCK_WARPS = 2
SUMMED_EXPERTS = 4
SUMMED_BLOCKS = 1024
SUM_WARPS = 8
MOVE_PROGRAMS = 16384
TAIL_PROGRAMS = 256


@triton.jit
def _load_keys(
    scores, stride_t, stride_e, tokens, experts, start, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr
):
    """Keys [BLOCK_T, BLOCK_E] of the tokens from `start` on; columns past `experts` are as good as
    taken.
    """
    token = start + tl.arange(0, BLOCK_T)
    expert = tl.arange(0, BLOCK_E)
    known = (token < tokens)[:, None] & (expert < experts)[None, :]
    offsets = token.to(tl.int64)[:, None] * stride_t + expert[None, :] * stride_e
    values = tl.load(scores + offsets, mask=known, other=0.0).to(tl.float32)
    return tl.where((expert < experts)[None, :], keys_of(values), TAKEN_KEY)


@quick
@triton.jit
def _shuffle_once(
    scores,
    counts,
    expert_indices,
    token_indices,
    valid,
    stride_t,
    stride_e,
    tokens,
    experts,
    top_k,
    first,
    last,
    OVERLAP: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Program e writes the rows of expert e; program `experts` zeroes the tail."""
    follow(OVERLAP)
    mine = tl.program_id(0)
    keys = _load_keys(scores, stride_t, stride_e, tokens, experts, 0, BLOCK_T, BLOCK_E)
    token = tl.arange(0, BLOCK_T)
    columns = tl.arange(0, BLOCK_E)[None, :]
    present = token < count_rows(valid, tokens, VALUES, BLOCK_V)
    lower = tl.zeros([BLOCK_T], tl.int32)
    chosen = tl.zeros([BLOCK_T], tl.int32)
    for _ in range(top_k):
        best = best_of(keys, columns, BLOCK_E)
        keys = tl.where(columns == best[:, None], TAKEN_KEY, keys)
        owned = present & (best >= first) & (best < last)
        lower += (owned & (best < mine)).to(tl.int32)
        chosen += (owned & (best == mine)).to(tl.int32)
    base = tl.sum(lower)
    if mine < experts:
        row = base + tl.cumsum(chosen) - 1
        tl.store(counts + mine, tl.sum(chosen))
        tl.store(expert_indices + row, mine, mask=chosen > 0)
        tl.store(token_indices + row, token, mask=chosen > 0)
    else:
        for start in range(base, tokens * top_k, BLOCK_T):
            tl.store(expert_indices + start + token, 0, mask=start + token < tokens * top_k)
            tl.store(token_indices + start + token, 0, mask=start + token < tokens * top_k)


@quick
@triton.jit
def _choose(
    scores,
    choices,
    block_counts,
    valid,
    stride_t,
    stride_e,
    tokens,
    experts,
    top_k,
    first,
    last,
    COUNTED: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """choices[t * top_k + k], int16: the k-th expert of token t, or `experts` where the choice has
    no row; and, if COUNTED, how many tokens of this block chose each expert.
    """
    start = tl.program_id(0) * BLOCK_T
    keys = _load_keys(scores, stride_t, stride_e, tokens, experts, start, BLOCK_T, BLOCK_E)
    token = start + tl.arange(0, BLOCK_T)
    expert = tl.arange(0, BLOCK_E)
    columns = expert[None, :]
    present = token < count_rows(valid, tokens, VALUES, BLOCK_V)
    chosen = tl.zeros([BLOCK_T, BLOCK_E], tl.int32)
    for k in range(top_k):
        best = best_of(keys, columns, BLOCK_E)
        keys = tl.where(columns == best[:, None], TAKEN_KEY, keys)
        owned = present & (best >= first) & (best < last)
        choice = tl.where(owned, best, experts)
        chosen += (columns == choice[:, None]).to(tl.int32)
        target = choices + token.to(tl.int64) * top_k + k
        tl.store(target, choice.to(tl.int16), mask=token < tokens)
    if COUNTED:
        position = block_counts + tl.program_id(0).to(tl.int64) * experts + expert
        tl.store(position, tl.sum(chosen, 0), mask=expert < experts)


@triton.jit
def _ranks(chosen):
    """How many ones come before each of the flags [ROWS, 32], in row-major order."""
    totals = tl.sum(chosen, 1)
    before = tl.cumsum(totals, 0) - totals
    return before[:, None] + tl.cumsum(chosen, 1) - chosen


@quick
@triton.jit
def _write_expert(
    choices,
    counts,
    expert_indices,
    token_indices,
    number,
    experts,
    top_k,
    BLOCK: tl.constexpr,
):
    """Program e writes the rows of expert e, in order of its choices; programs from `experts` on
    zero the tail.
    """
    mine = tl.minimum(tl.program_id(0), experts)
    index = tl.arange(0, BLOCK // 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    choice = tl.load(choices + index, mask=index < number, other=32767).to(tl.int32)
    base = tl.sum((choice < mine).to(tl.int32))
    if mine < experts:
        chosen = (choice == mine).to(tl.int32)
        row = base + _ranks(chosen)
        tl.store(counts + mine, tl.sum(chosen))
        tl.store(expert_indices + row, mine, mask=chosen > 0)
        tl.store(token_indices + row, index // top_k, mask=chosen > 0)
    else:
        first = (tl.program_id(0) - experts) * BLOCK
        step = (tl.num_programs(0) - experts) * BLOCK
        for start in range(first, number - base, step):
            here = base + start + index
            tl.store(expert_indices + here, 0, mask=here < number)
            tl.store(token_indices + here, 0, mask=here < number)


@quick
@triton.jit
def _sum_blocks(
    block_counts,
    counts,
    blocks,
    experts,
    OVERLAP: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Program p turns the counts of its experts in each block into those in all earlier blocks, and
    writes those in all blocks.
    """
    follow(OVERLAP)
    expert = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    carried = tl.zeros([BLOCK_E], tl.int32)
    for start in range(0, blocks, BLOCK_B):
        block = start + tl.arange(0, BLOCK_B)
        position = block_counts + block.to(tl.int64)[:, None] * experts + expert[None, :]
        known = (block < blocks)[:, None] & (expert < experts)[None, :]
        number = tl.load(position, mask=known, other=0)
        tl.store(position, carried[None, :] + tl.cumsum(number, 0) - number, mask=known)
        carried += tl.sum(number, 0)
    tl.store(counts + expert, carried, mask=expert < experts)


@quick
@triton.jit
def _write_block(
    choices,
    block_counts,
    counts,
    expert_indices,
    token_indices,
    tokens,
    experts,
    top_k,
    OVERLAP: tl.constexpr,
    TAIL: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Program b writes the rows of the b-th block of tokens, and its share of zeros to the tail."""
    follow(OVERLAP)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    expert = tl.arange(0, BLOCK_E)
    total = tl.load(counts + expert, mask=expert < experts, other=0)
    earlier = block_counts + tl.program_id(0).to(tl.int64) * experts + expert
    first = tl.cumsum(total, 0) - total + tl.load(earlier, mask=expert < experts, other=0)
    chosen = tl.zeros([BLOCK_T, BLOCK_E], tl.int32)
    for k in range(top_k):
        position = choices + token.to(tl.int64) * top_k + k
        choice = tl.load(position, mask=token < tokens, other=32767).to(tl.int32)
        chosen += (choice[:, None] == expert[None, :]).to(tl.int32)
    mine = (chosen > 0) & (expert < experts)[None, :]
    row = first[None, :] + tl.cumsum(chosen, 0) - 1
    tl.store(expert_indices + row, expert[None, :] + chosen * 0, mask=mine)
    tl.store(token_indices + row, token[:, None] + chosen * 0, mask=mine)
    if TAIL:
        for start in range(tl.sum(total), tokens * top_k, tl.num_programs(0) * BLOCK_T):
            here = start + token
            tl.store(expert_indices + here, 0, mask=here < tokens * top_k)
            tl.store(token_indices + here, 0, mask=here < tokens * top_k)


def index_shuffling(
    scores: Tensor,
    top_k: int,
    expert_range: Sequence[int] | None,
    valid_tokens: Tensor | None,
    init_tail: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `anyshape.moe.index_shuffling`."""
    tokens, experts = scores.shape
    number = tokens * top_k
    counts = torch.empty(experts, dtype=torch.int32, device=scores.device)
    expert_indices = torch.empty(number, dtype=torch.int32, device=scores.device)
    token_indices = torch.empty(number, dtype=torch.int32, device=scores.device)
    if number == 0:
        return counts.zero_(), expert_indices, token_indices
    first, last = (0, experts) if expert_range is None else expert_range
    tail = init_tail and (expert_range is not None or valid_tokens is not None)
    block_t, block_e = power_of_two(max(tokens, 16)), power_of_two(max(experts, 2))
    arguments = (*scores.stride(), tokens, experts, top_k, first, last)
    valid, values, block_v = count_arguments(valid_tokens, counts)
    results = (counts, expert_indices, token_indices)
    if block_t * block_e <= ONE_LAUNCH_SCORES and experts <= ONE_LAUNCH_EXPERTS:
        _shuffle_once[(experts + tail,)](
            *(scores, *results, valid, *arguments),
            VALUES=values,
            BLOCK_V=block_v,
            BLOCK_T=block_t,
            BLOCK_E=block_e,
            num_warps=max(1, min(16, block_t * block_e // 256)),
            **overlap(scores),
        )
        return results
    choices = torch.empty(number, dtype=torch.int16, device=scores.device)
    by_block = number > EXPERT_CHOICES
    block_t = max(1, min(64, (BLOCK_SCORES if by_block else CHOSEN_SCORES) // block_e))
    blocks = ceil_div(tokens, block_t)
    shape = (blocks if by_block else 0, experts)
    block_counts = torch.empty(shape, dtype=torch.int32, device=scores.device)
    _choose[(blocks,)](
        *(scores, choices, block_counts, valid, *arguments),
        COUNTED=by_block,
        VALUES=values,
        BLOCK_V=block_v,
        BLOCK_T=block_t,
        BLOCK_E=block_e,
        num_warps=BLOCK_WARPS if by_block else CHOSEN_WARPS,
    )
    if by_block:
        _write_blocks(choices, block_counts, results, block_t, top_k, tokens, tail)
    else:
        block = power_of_two(max(number, 128))
        _write_expert[(experts + TAIL_BLOCKS * tail,)](
            *(choices, *results, number, experts, top_k),
            BLOCK=block,
            num_warps=max(1, min(8, block // 256)),
        )
    return results


def _write_blocks(
    choices: Tensor,
    block_counts: Tensor,
    results: tuple[Tensor, Tensor, Tensor],
    block_t: int,
    top_k: int,
    tokens: int,
    tail: bool,
) -> None:
    """Write (counts, expert_indices, token_indices) of choices [tokens * top_k], of which each
    block of `block_t` tokens has block_counts [blocks, experts].
    """
    blocks, experts = block_counts.shape
    counts, expert_indices, token_indices = results
    _sum_blocks[(ceil_div(experts, SUMMED_EXPERTS),)](
        *(block_counts, counts, blocks, experts),
        BLOCK_B=min(SUMMED_BLOCKS, power_of_two(blocks)),
        BLOCK_E=SUMMED_EXPERTS,
        num_warps=SUM_WARPS,
        **overlap(choices),
    )
    _write_block[(blocks,)](
        *(choices, block_counts, counts, expert_indices, token_indices, tokens, experts, top_k),
        TAIL=tail,
        BLOCK_T=block_t,
        BLOCK_E=power_of_two(max(experts, 2)),
        num_warps=BLOCK_WARPS,
        **overlap(choices),
    )


@quick
@triton.jit
def _move_rows(
    source,
    target,
    token_counts,
    sums,
    rows,
    ranks,
    experts,
    first,
    last,
    padded_rows,
    columns,
    stride_source,
    splits,
    tails,
    COMBINE: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """A program copies part of what one rank has for one expert; `tails` more zero the tail, the
    last writes the sums.
    """
    program = tl.program_id(0)
    owned = last - first
    pieces = ranks * owned * splits
    rank = program // tl.maximum(owned * splits, 1)
    mine = first + program % tl.maximum(owned * splits, 1) // splits
    expert = tl.arange(0, BLOCK_E)
    inside = (expert >= first) & (expert < last)
    if program >= pieces:
        rank = ranks
        mine = experts
    rank_start = 0
    expert_start = program * 0
    count = 0
    totals = tl.zeros([BLOCK_E], tl.int32)
    for r in range(ranks):
        mask = expert < experts
        numbers = tl.load(token_counts + r * experts + expert, mask=mask, other=0).to(tl.int32)
        totals += numbers
        before = tl.sum(tl.where(expert < mine, numbers, 0))
        kept = tl.sum(tl.where(inside & (expert < mine), numbers, 0))
        here = tl.sum(tl.where(expert == mine, numbers, 0))
        expert_start += kept
        if r < rank:
            expert_start += here
            rank_start += tl.sum(numbers)
        if r == rank:
            count = here
            rank_start += before
            if padded_rows > 0:
                rank_start = r * padded_rows + before
    column = tl.arange(0, BLOCK_D)
    if program < pieces:
        for i in range(program % splits, count, splits):
            one = (rank_start + i).to(tl.int64)
            other = (expert_start + i).to(tl.int64)
            taken = one if COMBINE else other
            given = other if COMBINE else one
            for first_column in range(0, columns, BLOCK_D * BLOCKS):
                for block in tl.static_range(BLOCKS):
                    here = first_column + block * BLOCK_D + column
                    value = tl.load(source + taken * stride_source + here, mask=here < columns)
                    tl.store(target + given * columns + here, value, mask=here < columns)
    elif program < pieces + tails:
        for i in range(program - pieces, rows - expert_start, tails):
            for start in range(0, columns, BLOCK_D):
                position = target + (expert_start + i).to(tl.int64) * columns + start + column
                tl.store(position, 0, mask=start + column < columns)
    elif COMBINE:
        tl.store(sums + expert - first, totals, mask=inside)
        tl.store(sums + owned, tl.sum(tl.where(inside, totals, 0)))


INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _moved(
    tokens: Tensor,
    token_counts: Tensor,
    first: int,
    last: int,
    is_padded: bool,
    init_tail: bool,
    combine: bool,
) -> tuple[Tensor, Tensor]:
    tokens = tokens if tokens.stride(-1) == 1 else tokens.contiguous()
    rows, columns = tokens.shape
    ranks, experts = token_counts.shape
    make = torch.zeros if init_tail and not combine else torch.empty
    out = make(rows, columns, dtype=tokens.dtype, device=tokens.device)
    sums = torch.empty(last - first + 1, dtype=torch.int32, device=tokens.device)
    integer = INTEGERS[tokens.dtype.itemsize]
    block = min(1024, power_of_two(max(columns, 16)))
    parts = ranks * (last - first)
    splits = max(1, ceil_div(min(MOVE_PROGRAMS, rows), max(parts, 1)))
    tails = TAIL_PROGRAMS if init_tail and combine and columns > 0 else 0
    _move_rows[(parts * splits + tails + 1,)](
        tokens.view(integer),
        out.view(integer),
        token_counts.contiguous(),
        sums,
        rows,
        ranks,
        experts,
        first,
        last,
        rows // ranks if is_padded else 0,
        columns,
        tokens.stride(0),
        splits,
        tails,
        COMBINE=combine,
        BLOCK_E=power_of_two(max(experts, 2)),
        BLOCK_D=block,
        BLOCKS=min(8, ceil_div(max(columns, 1), block)),
    )
    return out, sums


def combine_shuffling(
    tokens: Tensor,
    token_counts: Tensor,
    expert_start: int,
    expert_end: int,
    is_padded: bool,
    init_tail: bool,
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.combine_shuffling`."""
    return _moved(tokens, token_counts, expert_start, expert_end, is_padded, init_tail, True)


def split_shuffling(
    tokens: Tensor,
    token_counts: Tensor,
    expert_start: int,
    expert_end: int,
    is_padded: bool,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.split_shuffling`."""
    return _moved(tokens, token_counts, expert_start, expert_end, is_padded, init_tail, False)[0]
