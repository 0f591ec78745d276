"""Gradients of attention on packed sequences: one launch for the queries' gradients, by tiles of
queries, and one for those of keys and values, by tiles of keys.

Weights are computed again from the totals that the forward pass kept. No two programs add to the
same element, so the results are the same every time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.attention import launch_sizes
from anyshape.attention.launch_sizes import Blocks
from anyshape.attention.rules import Rules
from anyshape.attention.triton_plan import (
    KEY_TILES,
    TILES,
    count_sequences,
    find,
    rows_of,
    total_of,
)
from anyshape.attention.triton_prefill import range_of
from anyshape.attention.triton_tiles import LOG2E
from anyshape.kernels.launches import given, power_of_two, processors, quick


@triton.jit
def _weights(
    products, totals, j, keys, position, factor, soft_cap, window,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """(weights, the slope of a score over its product) of products of queries and keys, which may
    be rows and columns or the other way round: `totals`, key numbers `j` and `position` are given
    in the shapes of one side, [n, 1] or [1, n]. Without MASKED every query sees every key.
    """
    slope = factor
    scores = products * (factor * LOG2E)
    if CAPPED:
        bent = 1.0 - 2.0 / (1.0 + tl.exp2(products * (factor / soft_cap * 2.0 * LOG2E)))
        slope = factor * (1.0 - bent * bent)
        scores = bent * (soft_cap * LOG2E)
    if MASKED:
        seen = j < keys
        if CAUSAL:
            seen = seen & (j <= position)
        if WINDOWED:
            seen = seen & (j - position > -window)
            if not CAUSAL:
                seen = seen & (j - position < window)
        scores = tl.where(seen, scores, float("-inf"))
    safe = tl.where(totals == float("-inf"), 0.0, totals * LOG2E)
    return tl.exp2(scores - safe), slope


@triton.jit
def _block(
    pointer, token, head, token_stride, head_stride, ok, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows [len(token), BLOCK] of a packed tensor; zeros where not `ok`."""
    d = tl.arange(0, BLOCK)
    at = pointer + token.to(tl.int64) * token_stride + head * head_stride
    return tl.load(at[:, None] + d[None, :], mask=ok[:, None] & (d < SIZE)[None, :], other=0.0)


@triton.jit
def _to_queries(
    acc, low, high, rows_q, rows_grad, row_totals, row_shares, position, head, key_first, keys,
    k, v, k_token, k_head, v_token, v_head, scale, soft_cap, window,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    BN: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):  # fmt: skip
    """Add to acc [BM, BLOCK_D] what tiles `low` to `high` of keys give to the queries' gradient."""
    for tile in range(low, high):
        j = tile * BN + tl.arange(0, BN)
        rows_k = _block(k, key_first + j, head, k_token, k_head, j < keys, D, BLOCK_D)
        rows_v = _block(v, key_first + j, head, v_token, v_head, j < keys, DV, BLOCK_DV)
        products = tl.dot(rows_q, rows_k.T, input_precision="ieee")
        moved = tl.dot(rows_grad, rows_v.T, input_precision="ieee")
        weights, slope = _weights(
            products, row_totals[:, None], j[None, :], keys, position[:, None],
            scale, soft_cap, window, MASKED, CAUSAL, WINDOWED, CAPPED,
        )  # fmt: skip
        slopes = weights * (moved - row_shares[:, None]) * slope
        acc = tl.dot(slopes.to(rows_k.dtype), rows_k, acc, input_precision="ieee")
    return acc


@triton.jit
def _to_keys(
    sum_k, sum_v, low, high, rows_k, rows_v, j, head, start, queries, keys,
    q, grad, totals, shares, q_token, q_head, grad_token, grad_head, total_token,
    scale, soft_cap, window,
    G: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr, BM: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Add what tiles `low` to `high` of rows of queries give to the gradients of keys and values.

    Keys are the rows of all products here, so that weights are operands as they come. Rows behind
    the last query are zeros, and so is what they give.
    """
    for tile in range(low, high):
        position = tile * BM + tl.arange(0, BM)
        query = position // G
        of = head * G + position % G
        real = query < queries
        token = start + query
        rows_q = _block(q, token, of, q_token, q_head, real, D, BLOCK_D)
        rows_grad = _block(grad, token, of, grad_token, grad_head, real, DV, BLOCK_DV)
        side = token.to(tl.int64) * total_token + of
        row_totals = tl.load(totals + side, mask=real, other=0.0)
        row_shares = tl.load(shares + side, mask=real, other=0.0)
        products = tl.dot(rows_k, rows_q.T, input_precision="ieee")
        moved = tl.dot(rows_v, rows_grad.T, input_precision="ieee")
        weights, slope = _weights(
            products, row_totals[None, :], j[:, None], keys, (keys - queries + query)[None, :],
            scale, soft_cap, window, MASKED, CAUSAL, WINDOWED, CAPPED,
        )  # fmt: skip
        slopes = weights * (moved - row_shares[None, :]) * slope
        sum_v = tl.dot(weights.to(rows_grad.dtype), rows_grad, sum_v, input_precision="ieee")
        sum_k = tl.dot(slopes.to(rows_q.dtype), rows_q, sum_k, input_precision="ieee")
    return sum_k, sum_v


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "most", "window"])
def queries_kernel(
    grad, q, k, v, totals, shares, starts, key_starts, sequences, dq, counter,
    rows, capacity, most, grad_token, grad_head, q_token, q_head, k_token, k_head,
    v_token, v_head, dq_token, dq_head, total_token, scale, soft_cap, window,
    G: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCK_S: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
    GIVEN: tl.constexpr,
):  # fmt: skip
    """dq; see the module."""
    count = count_sequences(sequences, capacity, GIVEN)
    total = total_of(
        count, starts, key_starts, rows, most, window,
        TILES, False, G, HEADS, 0, BM, BN, WINDOWED, 0, 1, BLOCK_S,
    )  # fmt: skip
    index = tl.arange(0, BM)
    d = tl.arange(0, BLOCK_D)
    at = tl.atomic_add(counter, 1)
    while at < total:
        s, base = find(
            at, count, starts, key_starts, rows, most, window,
            TILES, False, G, HEADS, 0, BM, BN, WINDOWED, 0, 1, BLOCK_S,
        )  # fmt: skip
        start, queries = rows_of(starts, s, True, rows)
        key_first, keys = rows_of(key_starts, s, True, most)
        tile = (queries * G + BM - 1) // BM - 1 - (at - base) // HEADS
        head = (at - base) % HEADS
        position = tile * BM + index
        query = position // G
        of = head * G + position % G
        real = query < queries
        token = start + query
        rows_q = _block(q, token, of, q_token, q_head, real, D, BLOCK_D)
        rows_grad = _block(grad, token, of, grad_token, grad_head, real, DV, BLOCK_DV)
        side = token.to(tl.int64) * total_token + of
        row_totals = tl.load(totals + side, mask=real, other=0.0)
        row_shares = tl.load(shares + side, mask=real, other=0.0)
        offset = keys - queries
        first = offset + tile * BM // G
        last = offset + tl.minimum((tile * BM + BM - 1) // G, queries - 1)
        low, from_all, to_all, high = range_of(first, last, keys, window, BN, CAUSAL, WINDOWED)
        acc = tl.zeros([BM, BLOCK_D], tl.float32)
        if WINDOWED:
            acc = _to_queries(
                acc, low, from_all, rows_q, rows_grad, row_totals, row_shares, offset + query,
                head, key_first, keys, k, v, k_token, k_head, v_token, v_head, scale, soft_cap,
                window, D, DV, BLOCK_D, BLOCK_DV, BN, True, CAUSAL, WINDOWED, CAPPED,
            )  # fmt: skip
        acc = _to_queries(
            acc, from_all, to_all, rows_q, rows_grad, row_totals, row_shares, offset + query,
            head, key_first, keys, k, v, k_token, k_head, v_token, v_head, scale, soft_cap,
            window, D, DV, BLOCK_D, BLOCK_DV, BN, False, CAUSAL, WINDOWED, CAPPED,
        )  # fmt: skip
        acc = _to_queries(
            acc, to_all, high, rows_q, rows_grad, row_totals, row_shares, offset + query,
            head, key_first, keys, k, v, k_token, k_head, v_token, v_head, scale, soft_cap,
            window, D, DV, BLOCK_D, BLOCK_DV, BN, True, CAUSAL, WINDOWED, CAPPED,
        )  # fmt: skip
        to = dq + token.to(tl.int64) * dq_token + of * dq_head
        tl.store(
            to[:, None] + d[None, :],
            acc.to(dq.dtype.element_ty),
            mask=real[:, None] & (d < D)[None, :],
        )
        at = tl.atomic_add(counter, 1)


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "most", "window"])
def keys_kernel(
    grad, q, k, v, totals, shares, starts, key_starts, sequences, dk, dv, counter,
    rows, capacity, most, grad_token, grad_head, q_token, q_head, k_token, k_head,
    v_token, v_head, dk_token, dk_head, dv_token, dv_head, total_token, scale, soft_cap, window,
    G: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCK_S: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
    GIVEN: tl.constexpr,
):  # fmt: skip
    """dk and dv; see the module."""
    count = count_sequences(sequences, capacity, GIVEN)
    total = total_of(
        count, starts, key_starts, rows, most, window,
        KEY_TILES, False, G, HEADS, 0, BM, BN, WINDOWED, 0, 1, BLOCK_S,
    )  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    d_v = tl.arange(0, BLOCK_DV)
    at = tl.atomic_add(counter, 1)
    while at < total:
        s, base = find(
            at, count, starts, key_starts, rows, most, window,
            KEY_TILES, False, G, HEADS, 0, BM, BN, WINDOWED, 0, 1, BLOCK_S,
        )  # fmt: skip
        start, queries = rows_of(starts, s, True, rows)
        key_first, keys = rows_of(key_starts, s, True, most)
        tile = (at - base) // HEADS
        head = (at - base) % HEADS
        j = tile * BN + tl.arange(0, BN)
        valid = j < keys
        rows_k = _block(k, key_first + j, head, k_token, k_head, valid, D, BLOCK_D)
        rows_v = _block(v, key_first + j, head, v_token, v_head, valid, DV, BLOCK_DV)
        # the rows of queries that see any of these keys, and from where all of them see all
        offset = keys - queries
        low = 0 * queries
        high = queries
        all_see = 0 * queries
        if CAUSAL:
            low = tl.maximum(tile * BN - offset, 0)
            all_see = tl.maximum(tile * BN + BN - 1 - offset, 0)
        if WINDOWED:
            high = tl.minimum(queries, tl.maximum(tile * BN + BN - 1 + window - offset, 0))
            all_see = queries
            if not CAUSAL:
                low = tl.maximum(tile * BN - window + 1 - offset, 0)
        low = low * G // BM
        high = tl.maximum((high * G + BM - 1) // BM, low)
        middle = tl.minimum(tl.maximum((all_see * G + BM - 1) // BM, low), high)
        sum_k = tl.zeros([BN, BLOCK_D], tl.float32)
        sum_v = tl.zeros([BN, BLOCK_DV], tl.float32)
        sum_k, sum_v = _to_keys(
            sum_k, sum_v, low, middle, rows_k, rows_v, j, head, start, queries, keys,
            q, grad, totals, shares, q_token, q_head, grad_token, grad_head, total_token,
            scale, soft_cap, window, G, D, DV, BLOCK_D, BLOCK_DV, BM, True, CAUSAL, WINDOWED,
            CAPPED,
        )  # fmt: skip
        if not WINDOWED:
            sum_k, sum_v = _to_keys(
                sum_k, sum_v, middle, high, rows_k, rows_v, j, head, start, queries, keys,
                q, grad, totals, shares, q_token, q_head, grad_token, grad_head, total_token,
                scale, soft_cap, window, G, D, DV, BLOCK_D, BLOCK_DV, BM, False, CAUSAL, WINDOWED,
                CAPPED,
            )  # fmt: skip
        key = (key_first + j).to(tl.int64)
        to = dk + key * dk_token + head * dk_head
        tl.store(
            to[:, None] + d[None, :],
            sum_k.to(dk.dtype.element_ty),
            mask=valid[:, None] & (d < D)[None, :],
        )
        to = dv + key * dv_token + head * dv_head
        tl.store(
            to[:, None] + d_v[None, :],
            sum_v.to(dv.dtype.element_ty),
            mask=valid[:, None] & (d_v < DV)[None, :],
        )
        at = tl.atomic_add(counter, 1)


def _tile(blocks: Blocks) -> dict[str, int]:
    """The sizes of a launch's blocks."""
    return {
        "BM": blocks.bm,
        "BN": blocks.bn,
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }


def ragged_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    totals: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    sequences: Tensor | None,
    sinks: Tensor | None,
    scale: float,
    causal: bool,
    window: int,
    soft_cap: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the sinks; rows of no sequence get zeros."""
    dq, dk, dv = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    shares = (grad.float() * out.float()).sum(2)
    dsinks = sink_gradients(shares, totals, starts, sequences, sinks, grad)
    if q.numel() == 0 or k.numel() == 0:
        return dq, dk, dv, dsinks
    rules = Rules(scale, causal, window, soft_cap)
    of_queries, of_keys = launch_sizes.backward_blocks(max(q.shape[2], v.shape[2]), q.dtype)
    counters = torch.zeros(2, dtype=torch.int32, device=q.device)
    capacity = starts.shape[0] - 1
    inputs = (grad, q, k, v, totals, shares, starts, key_starts, *given(starts, sequences))
    sizes = (q.shape[0], capacity, k.shape[0])
    strides = [stride for x in (grad, q, k, v) for stride in x.stride()[:2]]
    ending = (totals.stride(0), rules.scale, rules.soft_cap, rules.window)
    constants = {
        "G": q.shape[1] // k.shape[1],
        "HEADS": k.shape[1],
        "D": q.shape[2],
        "DV": v.shape[2],
        "BLOCK_D": max(16, power_of_two(q.shape[2])),
        "BLOCK_DV": max(16, power_of_two(v.shape[2])),
        "BLOCK_S": launch_sizes.block_of(capacity),
        "CAUSAL": rules.causal,
        "WINDOWED": rules.window > 0,
        "CAPPED": rules.soft_cap > 0,
        "GIVEN": sequences is not None,
    }
    queries_kernel[(processors(q.device) * of_queries.programs,)](
        *(*inputs, dq, counters[:1], *sizes, *strides, *dq.stride()[:2], *ending),
        **constants,
        **_tile(of_queries),
    )
    keys_kernel[(processors(q.device) * of_keys.programs,)](
        *(*inputs, dk, dv, counters[1:], *sizes, *strides),
        *(*dk.stride()[:2], *dv.stride()[:2], *ending),
        **constants,
        **_tile(of_keys),
    )
    return dq, dk, dv, dsinks


def sink_gradients(
    shares: Tensor,
    totals: Tensor,
    starts: Tensor,
    sequences: Tensor | None,
    sinks: Tensor | None,
    like: Tensor,
) -> Tensor:
    """[H]: a sink takes its weight away from all values; empty without sinks."""
    if sinks is None:
        return like.new_empty(0)
    last = starts[-1:] if sequences is None else starts.gather(0, sequences.reshape(1).long())
    inside = (torch.arange(shares.shape[0], device=shares.device) < last)[:, None]
    weights = (sinks.to(totals.dtype) - totals).exp()
    return -torch.where(inside, shares * weights, 0.0).sum(0).to(sinks.dtype)
