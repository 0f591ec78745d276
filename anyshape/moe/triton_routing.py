"""Router scores in Triton: the product is torch's, everything after it one pass over the logits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.moe.triton_rows import TAKEN_KEY, best_of, keys_of, scores_of


@triton.jit
def _kept_groups(
    keys,
    top_groups,
    group_best,
    BLOCK_T: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """bool [BLOCK_T, BLOCK_G]: the groups whose `group_best` best scores have the highest sums."""
    flat = tl.reshape(keys, [BLOCK_T * BLOCK_G, BLOCK_S])
    columns = tl.arange(0, BLOCK_S)[None, :]
    totals = tl.zeros([BLOCK_T * BLOCK_G], tl.float32)
    for _ in range(group_best):
        best = best_of(flat, columns, BLOCK_S)
        totals += scores_of(tl.max(flat, 1))
        flat = tl.where(columns == best[:, None], TAKEN_KEY, flat)
    group = tl.arange(0, BLOCK_G)[None, :]
    ranked = tl.reshape(keys_of(totals), [BLOCK_T, BLOCK_G])
    ranked = tl.where(group < GROUPS, ranked, TAKEN_KEY)
    kept = tl.zeros([BLOCK_T, BLOCK_G], tl.int32)
    for _ in range(top_groups):
        best = best_of(ranked, group, BLOCK_G)
        kept += (group == best[:, None]).to(tl.int32)
        ranked = tl.where(group == best[:, None], TAKEN_KEY, ranked)
    return kept > 0


@triton.jit
def _scores(
    logits,
    router_biases,
    logit_biases,
    scores,
    factors,
    tokens,
    top_k,
    top_groups,
    group_best,
    scale,
    EXPERTS: tl.constexpr,
    GROUPS: tl.constexpr,
    SIGMOID: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    LOGIT_BIASED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """A program makes BLOCK_T rows. Columns are padded group by group, so that their order stays
    that of the experts.
    """
    SIZE: tl.constexpr = EXPERTS // GROUPS
    BLOCK_E: tl.constexpr = BLOCK_G * BLOCK_S
    column = tl.arange(0, BLOCK_E)
    real = (column // BLOCK_S < GROUPS) & (column % BLOCK_S < SIZE)
    expert = column // BLOCK_S * SIZE + column % BLOCK_S
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    place = token.to(tl.int64)[:, None] * EXPERTS + expert[None, :]
    mask = (token < tokens)[:, None] & real[None, :]
    x = tl.load(logits + place, mask=mask, other=0.0).to(tl.float32)
    if LOGIT_BIASED:
        x += tl.load(logit_biases + expert, mask=real, other=0.0).to(tl.float32)[None, :]
    if SIGMOID:
        weights = tl.sigmoid(x)
    else:
        x = tl.where(real[None, :], x, float("-inf"))
        powers = tl.exp(x - tl.max(x, 1)[:, None])
        weights = powers / tl.sum(powers, 1)[:, None]
    ranked = weights
    if BIASED:
        ranked += tl.load(router_biases + expert, mask=real, other=0.0).to(tl.float32)[None, :]
    keys = tl.where(real[None, :], keys_of(ranked), TAKEN_KEY)
    if MASKED:
        kept = _kept_groups(keys, top_groups, group_best, BLOCK_T, BLOCK_G, BLOCK_S, GROUPS)
        inside = tl.broadcast_to(kept[:, :, None], [BLOCK_T, BLOCK_G, BLOCK_S])
        ranked = tl.where(tl.reshape(inside, [BLOCK_T, BLOCK_E]), ranked, float("-inf"))
        keys = tl.where(real[None, :], keys_of(ranked), TAKEN_KEY)
    if RENORMALIZE:
        total = tl.zeros([BLOCK_T], tl.float32)
        for _ in range(top_k):
            best = best_of(keys, column[None, :], BLOCK_E)
            taken = column[None, :] == best[:, None]
            total += tl.sum(tl.where(taken, weights, 0.0), 1)
            keys = tl.where(taken, TAKEN_KEY, keys)
        weights = weights / (total + 1e-20)[:, None]
    tl.store(scores + place, ranked, mask=mask)
    tl.store(factors + place, weights * scale, mask=mask)


def scores_of_logits(
    logits: Tensor,
    router_biases: Tensor | None,
    logit_biases: Tensor | None,
    function: str,
    top_k: int,
    renormalize: bool,
    groups: int,
    top_groups: int,
    group_best: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """What experts are ranked by, and what a chosen expert's row is multiplied with, from logits
    [T, E].
    """
    tokens, experts = logits.shape
    scores = torch.empty(tokens, experts, dtype=torch.float32, device=logits.device)
    factors = torch.empty_like(scores)
    if scores.numel() == 0:
        return scores, factors
    groups = groups if top_groups < groups else 1
    block_g = triton.next_power_of_2(groups)
    block_s = triton.next_power_of_2(max(experts // groups, 2))
    block_t = max(1, min(16, 2048 // (block_g * block_s), triton.next_power_of_2(tokens) // 256))
    _scores[(triton.cdiv(tokens, block_t),)](
        logits.contiguous(),
        logits if router_biases is None else router_biases.contiguous(),
        logits if logit_biases is None else logit_biases.contiguous(),
        scores,
        factors,
        tokens,
        top_k,
        top_groups,
        group_best,
        scale,
        EXPERTS=experts,
        GROUPS=groups,
        SIGMOID=function == "sigmoid",
        RENORMALIZE=renormalize,
        MASKED=top_groups < groups,
        BIASED=router_biases is not None,
        LOGIT_BIASED=logit_biases is not None,
        BLOCK_T=block_t,
        BLOCK_G=block_g,
        BLOCK_S=block_s,
        num_warps=max(1, min(4, block_t * block_g * block_s // 128)),
    )
    return scores, factors


def router_logits(tokens: Tensor, router_weights: Tensor) -> Tensor:
    """tokens @ router_weights, summed and returned in float32."""
    if tokens.dtype == router_weights.dtype and tokens.dtype != torch.float32 and tokens.is_cuda:
        return torch.mm(tokens, router_weights, out_dtype=torch.float32)
    return tokens.float() @ router_weights.float()


def routing_scores(
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
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.routing_scores`."""
    return scores_of_logits(
        router_logits(tokens, router_weights),
        router_biases,
        logit_biases,
        function,
        top_k,
        renormalize,
        groups,
        top_groups,
        group_best,
        scale,
    )
