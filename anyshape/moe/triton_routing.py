"""Router scores in Triton: logits (those of many tokens by torch), and one pass over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import ceil_div, power_of_two, quick
from anyshape.kernels.overlap import follow, overlap
from anyshape.moe.triton_rows import TAKEN_KEY, best_of, keys_of, once, scores_of

# Up to this many tokens the router's product is ours, in about this many programs.
FEW_TOKENS = 64
ROUTER_PROGRAMS = 128


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
def experts_of_columns(
    EXPERTS: tl.constexpr, GROUPS: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_S: tl.constexpr
):
    """(expert, whether there is one) of each column. Columns are padded group by group, so that
    their order stays that of the experts.
    """
    SIZE: tl.constexpr = EXPERTS // GROUPS
    column = tl.arange(0, BLOCK_G * BLOCK_S)
    real = (column // BLOCK_S < GROUPS) & (column % BLOCK_S < SIZE)
    return column // BLOCK_S * SIZE + column % BLOCK_S, real


@triton.jit
def weigh(
    logits,
    router_biases,
    logit_biases,
    token,
    mask,
    expert,
    real,
    split_stride,
    top_groups,
    group_best,
    SPLITS: tl.constexpr,
    EXPERTS: tl.constexpr,
    GROUPS: tl.constexpr,
    SIGMOID: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    LOGIT_BIASED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """(what experts are ranked by, keys of the same order, weights) of BLOCK_T tokens' rows, whose
    logits are sums of SPLITS parts.
    """
    position = token.to(tl.int64)[:, None] * EXPERTS + expert[None, :]
    x = tl.load(logits + position, mask=mask, other=0.0).to(tl.float32)
    for split in tl.static_range(1, SPLITS):
        x += tl.load(logits + split * split_stride + position, mask=mask, other=0.0).to(tl.float32)
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
        kept = _kept_groups(once(keys), top_groups, group_best, BLOCK_T, BLOCK_G, BLOCK_S, GROUPS)
        inside = tl.broadcast_to(kept[:, :, None], [BLOCK_T, BLOCK_G, BLOCK_S])
        inside = tl.reshape(inside, [BLOCK_T, BLOCK_G * BLOCK_S])
        ranked = tl.where(inside, ranked, float("-inf"))
        keys = tl.where(real[None, :], keys_of(ranked), TAKEN_KEY)
    return ranked, keys, weights


@quick
@triton.jit
def _scores(
    logits,
    router_biases,
    logit_biases,
    split_stride,
    top_k,
    top_groups,
    group_best,
    scale,
    scores,
    factors,
    tokens,
    SPLITS: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    OVERLAP: tl.constexpr,
    EXPERTS: tl.constexpr,
    GROUPS: tl.constexpr,
    SIGMOID: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    LOGIT_BIASED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """A program makes BLOCK_T rows."""
    follow(OVERLAP)
    BLOCK_E: tl.constexpr = BLOCK_G * BLOCK_S
    column = tl.arange(0, BLOCK_E)
    expert, real = experts_of_columns(EXPERTS, GROUPS, BLOCK_G, BLOCK_S)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    position = token.to(tl.int64)[:, None] * EXPERTS + expert[None, :]
    mask = (token < tokens)[:, None] & real[None, :]
    ranked, keys, weights = weigh(
        *(logits, router_biases, logit_biases, token, mask, expert, real),
        *(split_stride, top_groups, group_best, SPLITS),
        *(EXPERTS, GROUPS, SIGMOID, MASKED, BIASED, LOGIT_BIASED, BLOCK_T, BLOCK_G, BLOCK_S),
    )
    if RENORMALIZE:
        total = tl.zeros([BLOCK_T], tl.float32)
        for _ in range(top_k):
            best = best_of(keys, column[None, :], BLOCK_E)
            taken = column[None, :] == best[:, None]
            total += tl.sum(tl.where(taken, weights, 0.0), 1)
            keys = tl.where(taken, TAKEN_KEY, keys)
        weights = weights / (total + 1e-20)[:, None]
    tl.store(scores + position, ranked, mask=mask)
    tl.store(factors + position, weights * scale, mask=mask)


@quick
@triton.jit
def _partial_logits(
    tokens,
    weights,
    out,
    count,
    experts,
    inner,
    x_row,
    w_row,
    span,
    OVERLAP: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Program (i, j, s): BLOCK_T tokens, BLOCK_E experts, and the s-th `span` of their columns."""
    follow(OVERLAP)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    expert = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E)
    first = tl.program_id(2) * span
    x = tokens + token.to(tl.int64)[:, None] * x_row
    w = weights + expert.to(tl.int64)[:, None] * w_row
    acc = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for start in range(first, first + span, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K))[None, :]
        a = tl.load(x + k, mask=(token < count)[:, None] & (k < inner), other=0.0)
        b = tl.load(w + k, mask=(expert < experts)[:, None] & (k < inner), other=0.0)
        acc = tl.dot(a, b.T, acc)
    row = (tl.program_id(2) * count + token).to(tl.int64)[:, None] * experts
    mask = (token < count)[:, None] & (expert < experts)[None, :]
    tl.store(out + row + expert[None, :], acc, mask=mask)


@dataclass(frozen=True, slots=True)
class Choice:
    """How experts are ranked and weighed; the arguments of `anyshape.moe.routing_scores`."""

    router_biases: Tensor | None
    logit_biases: Tensor | None
    function: str
    top_k: int
    renormalize: bool
    groups: int
    top_groups: int
    group_best: int
    scale: float

    def arguments(self, logits: Tensor) -> tuple[Tensor | float, ...]:
        """What kernels that rank experts begin with: logits [S, T, E], and how to rank them. The
        logits stand in for biases that nobody reads.
        """
        return (
            logits,
            logits if self.router_biases is None else self.router_biases.contiguous(),
            logits if self.logit_biases is None else self.logit_biases.contiguous(),
            logits.stride(0),
            *(self.top_k, self.top_groups, self.group_best, self.scale),
        )

    def constants(self, experts: int) -> dict[str, int | bool]:
        """What `weigh` and `experts_of_columns` are compiled for."""
        groups = self.groups if self.top_groups < self.groups else 1
        return {
            "EXPERTS": experts,
            "GROUPS": groups,
            "SIGMOID": self.function == "sigmoid",
            "RENORMALIZE": self.renormalize,
            "MASKED": self.top_groups < groups,
            "BIASED": self.router_biases is not None,
            "LOGIT_BIASED": self.logit_biases is not None,
            "BLOCK_G": power_of_two(groups),
            "BLOCK_S": power_of_two(max(experts // groups, 2)),
        }


def scores_of_logits(logits: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """What experts are ranked by, and what a chosen expert's row is multiplied with, from logits
    [S, T, E] that are still to be summed over S.
    """
    splits, tokens, experts = logits.shape
    scores = torch.empty(tokens, experts, dtype=torch.float32, device=logits.device)
    factors = torch.empty_like(scores)
    if scores.numel() == 0:
        return scores, factors
    constants = choice.constants(experts)
    block_e = constants["BLOCK_G"] * constants["BLOCK_S"]
    block_t = max(1, min(16, 2048 // block_e, power_of_two(tokens) // 256))
    _scores[(ceil_div(tokens, block_t),)](
        *choice.arguments(logits),
        *(scores, factors, tokens),
        SPLITS=splits,
        **constants,
        BLOCK_T=block_t,
        num_warps=max(1, min(4, block_t * block_e // 128)),
        **overlap(logits),
    )
    return scores, factors


def partial_logits(tokens: Tensor, router_weights: Tensor) -> Tensor:
    """Parts [S, T, E] of tokens @ router_weights in float32, whose sum over S is the product.

    Few tokens are spread over many programs, which each sum a part of the columns; many are one
    product of torch's, with S = 1.
    """
    count, inner = tokens.shape
    experts = router_weights.shape[1]
    half = tokens.dtype == router_weights.dtype and tokens.dtype != torch.float32
    ready = tokens.stride(1) == 1 and router_weights.stride(0) == 1
    if not half or not ready or not 0 < count <= FEW_TOKENS or inner == 0:
        return router_logits(tokens, router_weights)[None]
    blocks = ceil_div(count, 16), ceil_div(experts, 16)
    splits = max(1, min(ROUTER_PROGRAMS // (blocks[0] * blocks[1]), 16, ceil_div(inner, 128)))
    span = ceil_div(ceil_div(inner, splits), 128) * 128
    splits = ceil_div(inner, span)
    out = torch.empty(splits, count, experts, dtype=torch.float32, device=tokens.device)
    _partial_logits[(*blocks, splits)](
        *(tokens, router_weights, out, count, experts, inner),
        *(tokens.stride(0), router_weights.stride(1), span),
        BLOCK_T=16,
        BLOCK_E=16,
        BLOCK_K=128,
        num_stages=4,
        **{**overlap(tokens), "launch_pdl": False},  # measured: only those after it gain
    )
    return out


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
    choice = Choice(
        *(router_biases, logit_biases, function, top_k, renormalize),
        *(groups, top_groups, group_best, scale),
    )
    return scores_of_logits(partial_logits(tokens, router_weights), choice)
