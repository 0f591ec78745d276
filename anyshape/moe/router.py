"""Which experts each token goes to: the router, how it routes, and the plan that comes out.

In: tokens [T, D]. Out: a `Plan`, every (token, expert) pair as a row, sorted by expert, all on the
device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from anyshape.kernels import checks
from anyshape.moe.experts import hold
from anyshape.moe.routing import check_choice_arguments, routing_scores
from anyshape.moe.shuffling import index_shuffling


class RoutingKeywords(TypedDict):
    function: str
    top_k: int
    renormalize: bool
    groups: int
    top_groups: int
    group_best: int
    scale: float


@dataclass(frozen=True, slots=True)
class Routing:
    """How a token chooses its experts and what weight each choice gets.

    `bias` says what the router's bias is part of: the logits (gpt-oss), or only the ranking and not
    the weights (DeepSeek-V3's correction bias). `groups` > 1 first keeps the `top_groups` groups
    whose `group_best` best experts sum highest. `scale` multiplies every weight, `apply_to` says
    what the weight multiplies.
    """

    num_experts: int
    top_k: int = 1
    function: Literal["softmax", "sigmoid"] = "softmax"
    renormalize: bool = False
    groups: int = 1
    top_groups: int = 1
    scale: float = 1.0
    apply_to: Literal["input", "output"] = "output"
    bias: Literal["logits", "ranking"] = "logits"
    group_best: int = 1

    def __post_init__(self) -> None:
        checks.check_range("num_experts", self.num_experts, 1, 1024, "what the kernels take")
        check_choice_arguments(
            self.num_experts,
            self.function,
            self.top_k,
            self.groups,
            self.top_groups,
            self.group_best,
        )
        checks.check_choice("apply_to", self.apply_to, ("input", "output"))
        checks.check_choice("bias", self.bias, ("logits", "ranking"))

    def keywords(self) -> RoutingKeywords:
        """The keyword arguments of `routing_scores`, but for the biases."""
        return {
            "function": self.function,
            "top_k": self.top_k,
            "renormalize": self.renormalize,
            "groups": self.groups,
            "top_groups": self.top_groups,
            "group_best": self.group_best,
            "scale": self.scale,
        }


class Plan(NamedTuple):
    """Where every row of the routed experts comes from, sorted by expert and then by token.

    token_counts [E] int32; expert_indices and token_indices [K*T] int32; scaling_factors [T, E]
    float32; valid_rows: None when all K*T rows are used, else counts on the device whose sum is
    their number.
    """

    token_counts: Tensor
    expert_indices: Tensor
    token_indices: Tensor
    scaling_factors: Tensor
    valid_rows: Tensor | None

    def row_weights(self) -> Tensor:
        """The weight of each row [K*T] float32: its token's scaling factor for its expert."""
        flat = torch.add(
            self.expert_indices, self.token_indices, alpha=self.scaling_factors.shape[1]
        )
        return self.scaling_factors.reshape(-1).index_select(0, flat)


class Router(nn.Module):
    """weight [E, D] and an optional bias [E]; `routing.bias` says what the bias is part of."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        hold(self, weight=weight, bias=bias)

    def forward(self, tokens: Tensor, routing: Routing, valid_tokens: Tensor | None = None) -> Plan:
        return self.plan(*self.scores(tokens, routing), routing, valid_tokens)

    def plan(
        self, scores: Tensor, factors: Tensor, routing: Routing, valid_tokens: Tensor | None
    ) -> Plan:
        """The rows that the scores [T, E] stand for."""
        counts, experts, indices = index_shuffling(scores, routing.top_k, valid_tokens=valid_tokens)
        return Plan(counts, experts, indices, factors, None if valid_tokens is None else counts)

    def scores(self, tokens: Tensor, routing: Routing) -> tuple[Tensor, Tensor]:
        """(what experts are ranked by, the weight each gets if chosen), both [T, E] float32."""
        weights, ranking_bias, logit_bias = self.operands(routing)
        return routing_scores(
            tokens, weights, ranking_bias, logit_biases=logit_bias, **routing.keywords()
        )

    def operands(self, routing: Routing) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(weights [D, E], the bias of the ranking, the bias of the logits)."""
        in_logits = routing.bias == "logits"
        biases = (None, self.bias) if in_logits else (self.bias, None)
        return self.weight.t(), *biases
