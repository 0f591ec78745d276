"""Which experts a token likes, and by how much: router logits to scores and scaling factors.

In: tokens [T, D] and the router's weights [D, E]. Out: two float32 [T, E] tensors, one to rank by
(`index_shuffling` takes it) and one to multiply with (`gather_mul` or a weighted sum takes it).
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.kernels import checks, operators
from anyshape.moe import reference
from anyshape.moe.backends import KERNELS

FUNCTIONS = ("softmax", "sigmoid")


def _fake(tokens: Tensor, router_weights: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    shape = (tokens.shape[0], router_weights.shape[1])
    scores = tokens.new_empty(shape, dtype=torch.float32)
    return scores, torch.empty_like(scores)


ROUTING_SCORES = operators.define(
    "routing_scores(Tensor tokens, Tensor router_weights, Tensor? router_biases, "
    "Tensor? logit_biases, "
    "str function, int top_k, bool renormalize, int groups, int top_groups, int group_best, "
    "float scale) "
    "-> (Tensor, Tensor)",
    reference=reference.routing_scores,
    fake=_fake,
    triton=KERNELS.get("routing_scores"),
)


def check_choice_arguments(
    experts: int, function: str, top_k: int, groups: int, top_groups: int, group_best: int
) -> None:
    """The arguments that say how experts are chosen."""
    checks.check_choice("function", function, FUNCTIONS)
    checks.check_range("top_k", top_k, 1, experts, "the number of experts")
    checks.check_range("groups", groups, 1, experts, "the number of experts")
    if experts % groups:
        checks.fail("groups", f"a divisor of {experts} (the number of experts)", groups)
    checks.check_range("top_groups", top_groups, 1, groups, "the number of groups")
    checks.check_range("group_best", group_best, 1, experts // groups, "experts in a group")
    if top_k > experts // groups * top_groups:
        checks.fail("top_k", f"at most {experts // groups * top_groups} (experts left)", top_k)


def routing_scores(
    tokens: Tensor,
    router_weights: Tensor,
    router_biases: Tensor | None = None,
    *,
    function: str = "softmax",
    top_k: int = 1,
    renormalize: bool = False,
    groups: int = 1,
    top_groups: int = 1,
    group_best: int = 1,
    logit_biases: Tensor | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Scores to rank experts by and factors to scale a chosen expert's rows with, both float32 [T,
    E].

    factors = function(tokens @ router_weights + logit_biases) * scale, divided by their sum over
    the
    `top_k` chosen experts when `renormalize`. scores = function(...) + router_biases
    (DeepSeek-V3's bias:
    it decides who is chosen, not how much they count), -inf outside the `top_groups` of `groups`
    groups
    of experts whose `group_best` best scores have the highest sum (1: DeepSeek-V2, 2: DeepSeek-V3).
    """
    checks.check_tensor("tokens", tokens, 2, checks.FLOAT_DTYPES)
    checks.check_tensor("router_weights", router_weights, 2, checks.FLOAT_DTYPES)
    checks.check_size("router_weights", router_weights, 0, tokens.shape[1], "columns of tokens")
    checks.check_device("router_weights", router_weights, tokens)
    experts = router_weights.shape[1]
    for name, value in (("router_biases", router_biases), ("logit_biases", logit_biases)):
        if value is not None:
            checks.check_vector(name, value, experts, "experts", checks.FLOAT_DTYPES)
            checks.check_device(name, value, tokens)
    check_choice_arguments(experts, function, top_k, groups, top_groups, group_best)
    return ROUTING_SCORES(
        tokens,
        router_weights,
        router_biases,
        logit_biases,
        function,
        top_k,
        renormalize,
        groups,
        top_groups,
        group_best,
        float(scale),
    )
