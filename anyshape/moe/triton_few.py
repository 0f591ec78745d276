"""A layer of so few tokens that hardly two of them share an expert, in Triton: four short launches.

The first makes parts of the router's logits, the second chooses each token's experts. In the third,
each (token, expert) pair has programs of its own, which multiply the token with some of its gate
and up rows: nothing is sorted, and nothing padded. In the fourth, programs make some columns of a
token, summed over its pairs. All weights are read with ordinary loads of 16 bytes a thread, and may
be float8 with a scale a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import REGISTERS, ceil_div, processors, quick
from anyshape.kernels.overlap import follow, get_ready, overlap
from anyshape.moe import gluon_few
from anyshape.moe.triton_activation import gated
from anyshape.moe.triton_routing import Choice, experts_of_columns, partial_logits, weigh
from anyshape.moe.triton_rows import count_arguments, count_rows, once

# A program reads this many elements of a row at once (twice as many of float8), of so many rows
# that a thread has 16 bytes, and so many times (of gate and up, or of down) before it needs any.
BLOCK_K = 256
GATE_BATCH, DOWN_BATCH = 8, 12
WARPS = 8
# programs of the first product: two for each of 132 multiprocessors, whose loops never stop; twice
# as many where one token's float8 is all there is
GATE_PROGRAMS = 264


@quick
@triton.jit
def _choose_few(
    logits,
    router_biases,
    logit_biases,
    split_stride,
    top_k,
    top_groups,
    group_best,
    scale,
    experts,
    weights,
    SPLITS: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    EXPERTS: tl.constexpr,
    GROUPS: tl.constexpr,
    SIGMOID: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    LOGIT_BIASED: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Program t: the experts of token t, best first, and their weights. The rank of an expert is
    the number of better ones, ties to the lower: keys are integers, and none is the largest.
    """
    get_ready(OVERLAP)
    follow(OVERLAP)
    BLOCK_E: tl.constexpr = BLOCK_G * BLOCK_S
    token = tl.program_id(0)
    expert, real = experts_of_columns(EXPERTS, GROUPS, BLOCK_G, BLOCK_S)
    row = token + tl.zeros([1], tl.int32)
    _, keys, all_weights = weigh(
        *(logits, router_biases, logit_biases, row, real[None, :], expert, real),
        *(split_stride, top_groups, group_best, SPLITS),
        *(EXPERTS, GROUPS, SIGMOID, MASKED, BIASED, LOGIT_BIASED, 1, BLOCK_G, BLOCK_S),
    )
    keys = once(tl.reshape(keys, [BLOCK_E]))
    column = tl.arange(0, BLOCK_E)
    lower = (column[:, None] < column[None, :]).to(tl.int32)
    position = tl.sum((keys[:, None] + lower > keys[None, :]).to(tl.int32), 0)
    weight = tl.reshape(all_weights, [BLOCK_E])
    if RENORMALIZE:
        weight = weight / (tl.sum(tl.where(position < top_k, weight, 0.0)) + 1e-20)
    pair = token * top_k + position
    tl.store(experts + pair, expert, mask=position < top_k)
    tl.store(weights + pair, weight * scale, mask=position < top_k)


@quick
@triton.jit
def _gate_few(
    tokens,
    experts,
    weights,
    gate_up,
    scales,
    bias,
    hidden,
    valid,
    count,
    columns,
    inner,
    x_row,
    x_inner,
    w_group,
    w_row,
    w_inner,
    bias_row,
    top_k,
    alpha,
    limit,
    each,
    ON_INPUT: tl.constexpr,
    KIND: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    SCALED: tl.constexpr,
    EXPERT_BIASED: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCKS: tl.constexpr,
    BATCH: tl.constexpr,
    EVEN: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Program (i, p): columns i * each up to (i + 1) * each of act(gate) * up of pair
    p = token * top_k + k, times the pair's weight. A row of x is read once for every row of
    weights, from the cache: that costs less than handing it from thread to thread.
    """
    follow(OVERLAP)
    pair = tl.program_id(1)
    token = pair // top_k
    if token < count_rows(valid, count, VALUES, BLOCK_V):
        expert = tl.load(experts + pair)
        weight = tl.load(weights + pair)
        matrix = gate_up + expert.to(tl.int64) * w_group
        source = tokens + token.to(tl.int64) * x_row
        row = tl.arange(0, BLOCK_F)[:, None]
        for start in range(tl.program_id(0) * each, (tl.program_id(0) + 1) * each, BLOCK_F):
            column = start + tl.arange(0, BLOCK_F)
            first = column * 2 if INTERLEAVED else column
            second = first + (1 if INTERLEAVED else columns)
            inside = column < columns
            gate_rows = matrix + first.to(tl.int64)[:, None] * w_row
            up_rows = matrix + second.to(tl.int64)[:, None] * w_row
            gate = tl.zeros([BLOCK_F, BLOCK_K], tl.float32)
            up = tl.zeros([BLOCK_F, BLOCK_K], tl.float32)
            for batch in tl.static_range((BLOCKS + BATCH - 1) // BATCH):
                loaded = ()
                for i in tl.static_range(batch * BATCH, min(batch * BATCH + BATCH, BLOCKS)):
                    k = i * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
                    mask = None if EVEN else inside[:, None] & (k < inner)
                    g = tl.load(gate_rows + k * w_inner, mask=mask, other=None if EVEN else 0.0)
                    u = tl.load(up_rows + k * w_inner, mask=mask, other=None if EVEN else 0.0)
                    loaded = loaded + (g, u)
                for i in tl.static_range(batch * BATCH, min(batch * BATCH + BATCH, BLOCKS)):
                    k = i * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
                    mask = None if EVEN else inside[:, None] & (k < inner)
                    at = source + k * x_inner + row * 0
                    x = tl.load(at, mask=mask, other=None if EVEN else 0.0).to(tl.float32)
                    gate += loaded[2 * (i - batch * BATCH)].to(tl.float32) * x
                    up += loaded[2 * (i - batch * BATCH) + 1].to(tl.float32) * x
            gates = tl.sum(gate, 1)
            ups = tl.sum(up, 1)
            if SCALED:
                of = scales + expert.to(tl.int64) * columns * 2
                gates *= tl.load(of + first, mask=inside, other=0.0)
                ups *= tl.load(of + second, mask=inside, other=0.0)
            if ON_INPUT:
                gates *= weight
                ups *= weight
            if EXPERT_BIASED:
                of = bias + expert.to(tl.int64) * bias_row
                gates += tl.load(of + first, mask=inside, other=0.0).to(tl.float32)
                ups += tl.load(of + second, mask=inside, other=0.0).to(tl.float32)
            value = gated(gates, ups, alpha, limit, KIND)
            if not ON_INPUT:
                value *= weight
            target = hidden + pair.to(tl.int64) * columns + column
            tl.store(target, value.to(hidden.dtype.element_ty), mask=inside)


@quick
@triton.jit
def _down_few(
    hidden,
    experts,
    weights,
    down,
    scales,
    bias,
    base,
    out,
    valid,
    count,
    columns,
    inner,
    w_group,
    w_row,
    w_inner,
    bias_row,
    base_row,
    TOP_K: tl.constexpr,
    ON_INPUT: tl.constexpr,
    SCALED: tl.constexpr,
    EXPERT_BIASED: tl.constexpr,
    BASED: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCKS: tl.constexpr,
    BATCH: tl.constexpr,
    EVEN: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Program (i, t): columns i * BLOCK_D and on of token t, summed over its experts. The first
    weights are asked for before the kernel that makes `hidden` is done: neither they nor `experts`
    come from it.
    """
    token = tl.program_id(1)
    row = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside = row < columns
    chosen = ()
    for position in tl.static_range(TOP_K):
        chosen = chosen + (tl.load(experts + token * TOP_K + position).to(tl.int64),)
    acc = tl.zeros([BLOCK_D, BLOCK_K], tl.float32)
    for batch in tl.static_range((TOP_K * BLOCKS + BATCH - 1) // BATCH):
        loaded = ()
        for i in tl.static_range(batch * BATCH, min(batch * BATCH + BATCH, TOP_K * BLOCKS)):
            k = i % BLOCKS * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
            mask = None if EVEN else inside[:, None] & (k < inner)
            rows = down + chosen[i // BLOCKS] * w_group + row.to(tl.int64)[:, None] * w_row
            w = tl.load(rows + k * w_inner, mask=mask, other=None if EVEN else 0.0)
            loaded = loaded + (w,)
        if batch == 0:
            follow(OVERLAP)
        for i in tl.static_range(batch * BATCH, min(batch * BATCH + BATCH, TOP_K * BLOCKS)):
            k = i % BLOCKS * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
            mask = None if EVEN else inside[:, None] & (k < inner)
            pair = token * TOP_K + i // BLOCKS
            source = hidden + pair.to(tl.int64) * inner + k + row[:, None] * 0
            h = tl.load(source, mask=mask, other=None if EVEN else 0.0).to(tl.float32)
            if SCALED:
                of = scales + chosen[i // BLOCKS] * columns + row
                h *= tl.load(of, mask=inside, other=0.0)[:, None]
            acc += loaded[i - batch * BATCH].to(tl.float32) * h
    total = tl.sum(acc, 1)
    if EXPERT_BIASED:
        for position in tl.static_range(TOP_K):
            added = tl.load(bias + chosen[position] * bias_row + row, mask=inside, other=0.0)
            weight = 1.0
            if not ON_INPUT:
                weight = tl.load(weights + token * TOP_K + position)
            total += added.to(tl.float32) * weight
    if BASED:
        at = base + token.to(tl.int64) * base_row + row
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    if token < count_rows(valid, count, VALUES, BLOCK_V):
        target = out + token.to(tl.int64) * columns + row
        tl.store(target, total.to(out.dtype.element_ty), mask=inside)


def lone(valid: Tensor | None) -> bool:
    """Whether at most one number says how many tokens there are."""
    return valid is None or valid.numel() == 1


def unit(bias: Tensor | None) -> Tensor | None:
    """A bias whose rows lie together."""
    return bias if bias is None or bias.stride(1) == 1 else bias.contiguous()


def blocks(weights: Tensor) -> tuple[int, int]:
    """(rows of weights, elements of each) that a program of WARPS warps reads at once: 16 bytes a
    thread.
    """
    if weights.element_size() > 1:
        return WARPS, BLOCK_K
    return (WARPS, 2 * BLOCK_K) if weights.shape[2] % (2 * BLOCK_K) == 0 else (2 * WARPS, BLOCK_K)


def share(programs: int) -> int:
    """The most registers of a thread with which so many programs share a multiprocessor. Unless it
    is told, the compiler takes more for rows that are no whole number of blocks (gpt-oss), and then
    one program is all that fits.
    """
    return min(255, REGISTERS // (32 * WARPS * programs))


def choose(
    tokens: Tensor, logits: Tensor, choice: Choice, experts: Tensor, weights: Tensor
) -> None:
    """Writes each token's experts and their weights, given parts of its logits [S, T, E]."""
    _choose_few[(tokens.shape[0],)](
        *(*choice.arguments(logits), experts, weights),
        SPLITS=logits.shape[0],
        **choice.constants(logits.shape[2]),
        **overlap(tokens),
        num_warps=4,
    )


def gate_few(
    tokens: Tensor,
    router_weights: Tensor,
    router_biases: Tensor | None,
    logit_biases: Tensor | None,
    function: str,
    top_k: int,
    renormalize: bool,
    groups: int,
    top_groups: int,
    group_best: int,
    scale: float,
    gate_up: Tensor,
    gate_up_scales: Tensor | None,
    gate_up_bias: Tensor | None,
    valid: Tensor | None,
    on_input: bool,
    kind: str,
    alpha: float,
    limit: float,
    interleaved: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `anyshape.moe.few`."""
    choice = Choice(
        *(router_biases, logit_biases, function, top_k, renormalize),
        *(groups, top_groups, group_best, scale),
    )
    count, inner = tokens.shape
    columns, pairs = gate_up.shape[1] // 2, count * top_k
    hidden = torch.empty(pairs, columns, dtype=tokens.dtype, device=tokens.device)
    experts = torch.empty(pairs, dtype=torch.int32, device=tokens.device)
    weights = torch.empty(pairs, dtype=torch.float32, device=tokens.device)
    if pairs == 0:
        return hidden, experts, weights
    choose(tokens, partial_logits(tokens, router_weights), choice, experts, weights)
    if columns == 0:
        return hidden, experts, weights
    slab = gluon_few.slab(tokens, gate_up)
    if slab is not None and gate_up_bias is None and not interleaved and lone(valid):
        gluon_few.launch(
            *(slab, tokens, experts, weights, gate_up, hidden, valid),
            *(top_k, on_input, kind, alpha, limit, overlap(tokens)),
        )
        return hidden, experts, weights
    bias, (counts, values, block_v) = unit(gate_up_bias), count_arguments(valid, experts)
    block_f, block_k = blocks(gate_up)
    programs = GATE_PROGRAMS * (1 + (count == 1 and gate_up.element_size() == 1))
    each = ceil_div(ceil_div(columns * pairs, programs), block_f) * block_f
    _gate_few[(ceil_div(columns, each), pairs)](
        *(tokens, experts, weights, gate_up),
        weights if gate_up_scales is None else gate_up_scales,
        *(experts if bias is None else bias, hidden, counts),
        *(count, columns, inner, *tokens.stride(), *gate_up.stride()),
        *(0 if bias is None else bias.stride(0), top_k, alpha, limit, each),
        ON_INPUT=on_input,
        KIND=kind,
        INTERLEAVED=interleaved,
        SCALED=gate_up_scales is not None,
        EXPERT_BIASED=bias is not None,
        VALUES=values,
        BLOCK_V=block_v,
        BLOCK_F=block_f,
        BLOCK_K=block_k,
        BLOCKS=ceil_div(inner, block_k),
        BATCH=GATE_BATCH,
        EVEN=inner % block_k == 0 and columns % each == 0,
        num_warps=WARPS,
        maxnreg=share(2),
        **overlap(tokens),
    )
    return hidden, experts, weights


def down_few(
    hidden: Tensor,
    experts: Tensor,
    weights: Tensor,
    down: Tensor,
    down_scales: Tensor | None,
    down_bias: Tensor | None,
    base: Tensor | None,
    valid: Tensor | None,
    on_input: bool,
    top_k: int,
) -> Tensor:
    """See `anyshape.moe.few`."""
    count = experts.shape[0] // top_k
    columns, inner = down.shape[1:]
    out = torch.empty(count, columns, dtype=hidden.dtype, device=hidden.device)
    if out.numel() == 0:
        return out
    bias, (counts, values, block_v) = unit(down_bias), count_arguments(valid, experts)
    base = base if base is None or base.stride(1) == 1 else base.contiguous()
    block_d, block_k = blocks(down)
    grid = (ceil_div(columns, block_d), count)
    # a program with a multiprocessor of its own has room for twice as much
    alone = grid[0] * count <= processors(down.device)
    _down_few[grid](
        *(hidden, experts, weights, down, weights if down_scales is None else down_scales),
        *(hidden if bias is None else bias, hidden if base is None else base, out, counts),
        *(count, columns, inner, *down.stride()),
        *(0 if bias is None else bias.stride(0), 0 if base is None else base.stride(0)),
        TOP_K=top_k,
        ON_INPUT=on_input,
        SCALED=down_scales is not None,
        EXPERT_BIASED=bias is not None,
        BASED=base is not None,
        VALUES=values,
        BLOCK_V=block_v,
        BLOCK_D=block_d,
        BLOCK_K=block_k,
        BLOCKS=ceil_div(inner, block_k),
        BATCH=DOWN_BATCH * (1 + alone),
        EVEN=inner % block_k == 0 and columns % block_d == 0,
        num_warps=WARPS,
        maxnreg=share(1 if alone else 2),
        **overlap(hidden, base is None),
    )
    return out
