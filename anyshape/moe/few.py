"""The routed experts of a few tokens: every (token, expert) pair reads its expert's weights itself.

In: tokens [T, D], the router and the experts, in float8 perhaps. Out: results [T, D]. Nothing is
sorted and no rows are gathered, so there are four short launches instead of six or eight; weights
that two pairs share are read twice, so it pays while hardly any do (`pays`). Tokens are not rounded
to float8, only weights are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.kernels import operators
from anyshape.moe import reference
from anyshape.moe.backends import KERNELS

# More pairs than this never pay, and with more than one token at most one pair for so many experts.
FEW_PAIRS = 32
EXPERTS_A_PAIR = 4
# what the kernel ranks in one go
MOST_EXPERTS = 256


def _fake_gate(
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
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    experts = tokens.new_empty((tokens.shape[0] * top_k,), dtype=torch.int32)
    weights = torch.empty_like(experts, dtype=torch.float32)
    return tokens.new_empty((experts.shape[0], gate_up.shape[1] // 2)), experts, weights


def _fake_down(
    hidden: Tensor, experts: Tensor, weights: Tensor, down: Tensor, *rest: object
) -> Tensor:
    top_k = rest[-1]
    assert isinstance(top_k, (int, torch.SymInt)), "as the schema says"
    return hidden.new_empty((experts.shape[0] // top_k, down.shape[1]))


# (act(gate) * up * weight [T*K, F] of each pair, its expert [T*K] int32, its weight [T*K] float32),
# a token's best expert first. Arguments are those of `routing_scores` and then of `silu_mul`.
# Weights in float8 have a scale a row. With `on_input` the weight multiplies the token instead.
# What tokens from `valid` on give is unspecified.
GATE_FEW = operators.define(
    "gate_few(Tensor tokens, Tensor router_weights, Tensor? router_biases, "
    "Tensor? logit_biases, str function, int top_k, bool renormalize, int groups, "
    "int top_groups, int group_best, float scale, Tensor gate_up, Tensor? gate_up_scales, "
    "Tensor? gate_up_bias, Tensor? valid, bool on_input, str kind, float alpha, float limit, "
    "bool interleaved) -> (Tensor, Tensor, Tensor)",
    reference=reference.gate_few,
    fake=_fake_gate,
    triton=KERNELS.get("gate_few"),
)
# base [T, D] plus the sum over a token's pairs of down @ hidden + weight * bias, in float32,
# rounded once. On a GPU the operator that ran before must be the one that made `hidden`.
DOWN_FEW = operators.define(
    "down_few(Tensor hidden, Tensor experts, Tensor weights, Tensor down, Tensor? down_scales, "
    "Tensor? down_bias, Tensor? base, Tensor? valid, bool on_input, int top_k) -> Tensor",
    reference=reference.down_few,
    fake=_fake_down,
    triton=KERNELS.get("down_few"),
)


def pays(tokens: int, top_k: int, experts: int) -> bool:
    """Whether so few tokens share so few experts that each pair had better read its own."""
    pairs = tokens * top_k
    sparse = tokens == 1 or pairs * EXPERTS_A_PAIR <= experts
    return 0 < pairs <= FEW_PAIRS and sparse and experts <= MOST_EXPERTS
