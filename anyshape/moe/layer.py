"""A mixture-of-experts layer whose routing never leaves the device.

In: tokens [..., D]. Out: the same shape. Tokens are sorted by expert on the device, so every expert's
rows lie together, nothing is padded, nothing is sliced, and no size goes to the host. The router and the
shared expert run on two streams; the routed experts then have the whole GPU. docs/moe.md has the picture;
`graphed.py` records one CUDA graph for every number of tokens, `parallel.py` spreads a layer over ranks.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyshape.errors import AnyshapeError
from anyshape.moe import checks
from anyshape.moe.activation import silu_mul
from anyshape.moe.experts import Activation, Experts, Fp8Experts, Scatter, hold
from anyshape.moe.routing import routing_scores
from anyshape.moe.shuffling import index_shuffling

# Above this many tokens the shared expert alone fills the GPU, and a second stream only adds waits
# (benchmarks/moe.py prints both, so that the number can be checked again).
TWO_STREAM_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Routing:
    """How a token chooses its experts and what weight each choice gets.

    `bias` says what the router's bias is part of: the logits (gpt-oss), or only the ranking and not the
    weights (DeepSeek-V3's correction bias). `groups` > 1 first keeps the `top_groups` groups whose `group_best`
    best experts sum highest. `scale` multiplies every weight, `apply_to` says what the weight multiplies.
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
    group_best: int = 2

    def __post_init__(self) -> None:
        checks.check_range("num_experts", self.num_experts, 1, 1024, "what the kernels take")
        checks.check_range("top_k", self.top_k, 1, self.num_experts, "the number of experts")
        checks.check_choice("function", self.function, ("softmax", "sigmoid"))
        checks.check_choice("apply_to", self.apply_to, ("input", "output"))
        checks.check_choice("bias", self.bias, ("logits", "ranking"))
        checks.check_range("groups", self.groups, 1, self.num_experts, "the number of experts")
        checks.check_range("top_groups", self.top_groups, 1, self.groups, "the number of groups")
        if self.num_experts % self.groups != 0:
            checks.fail("groups", f"a divisor of the {self.num_experts} experts", self.groups)
        reachable = self.top_groups * (self.num_experts // self.groups)
        checks.check_range("top_k", self.top_k, 1, reachable, "the experts of top_groups groups")


class Plan(NamedTuple):
    """Where every row of the routed experts comes from, sorted by expert and then by token.

    token_counts [E] int32; expert_indices and token_indices [K*T] int32; scaling_factors [T, E] float32;
    valid_rows: None when all K*T rows are used, else counts on the device whose sum is their number.
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

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        hold(self, weight=weight, bias=bias)

    def forward(self, tokens: Tensor, routing: Routing, valid_tokens: Tensor | None = None) -> Plan:
        scores, factors = self.scores(tokens, routing)
        counts, experts, indices = index_shuffling(scores, routing.top_k, valid_tokens=valid_tokens)
        return Plan(counts, experts, indices, factors, None if valid_tokens is None else counts)

    def scores(self, tokens: Tensor, routing: Routing) -> tuple[Tensor, Tensor]:
        """(what experts are ranked by, the weight each gets if chosen), both [T, E] float32."""
        in_logits = routing.bias == "logits"
        return routing_scores(
            tokens,
            self.weight.t(),
            None if in_logits else self.bias,
            logit_biases=self.bias if in_logits else None,
            function=routing.function,
            top_k=routing.top_k,
            renormalize=routing.renormalize,
            groups=routing.groups,
            top_groups=routing.top_groups,
            group_best=routing.group_best,
            scale=routing.scale,
        )


class SharedExpert(nn.Module):
    """The dense expert that every token passes: down(act(gate(x)) * up(x)), in two halves.

    gate and up are two weights [F, D] (as Hugging Face keeps them) or one [2F, D] with `up=None`.
    """

    def __init__(
        self, gate: Tensor, up: Tensor | None, down: Tensor, activation: Activation
    ) -> None:
        super().__init__()
        hold(self, gate=gate, up=up, down=down)
        self.activation = activation

    def first_half(self, tokens: Tensor) -> Tensor:
        """Gate, up and activation: [T, F]."""
        gate = functional.linear(tokens, self.gate)
        if self.up is None:
            return silu_mul(gate, **self.activation.keywords())
        return silu_mul((gate, functional.linear(tokens, self.up)), **self.activation.keywords())

    def second_half(self, hidden: Tensor) -> Tensor:
        """Down: [T, D]."""
        return functional.linear(hidden, self.down)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.second_half(self.first_half(tokens))


class MoE(nn.Module):
    """Router, routed experts and an optional shared expert, for inference.

    x [..., D] -> [..., D]. Runs on the CPU (plain torch) and on CUDA (Triton), without a host sync, under
    `torch.compile` and inside a CUDA graph. `valid_tokens` (int32 [1], on the device) says how many leading
    tokens are real; the outputs of the others are not defined. Gradients raise E153.
    """

    def __init__(
        self,
        hidden_size: int,
        expert_size: int,
        routing: Routing,
        *,
        activation: Activation | None = None,
        shared_size: int | None = None,
        expert_bias: bool = False,
        router_bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        activation = Activation() if activation is None else activation
        new = functools.partial(new_weight, device=device, dtype=dtype)
        count = routing.num_experts
        experts = Experts(
            new(count, 2 * expert_size, hidden_size),
            new(count, hidden_size, expert_size),
            new(count, 2 * expert_size, fan_in=hidden_size) if expert_bias else None,
            new(count, hidden_size, fan_in=expert_size) if expert_bias else None,
            activation=activation,
        )
        shared = None
        if shared_size is not None:
            plain = Activation(kind=activation.kind)
            shared = SharedExpert(
                new(2 * shared_size, hidden_size), None, new(hidden_size, shared_size), plain
            )
        bias = new(count, fan_in=hidden_size) if router_bias else None
        super().__init__()
        self._set_parts(Router(new(count, hidden_size), bias), experts, shared, routing)

    @classmethod
    def of(
        cls,
        router: Router,
        experts: Experts | Fp8Experts,
        shared: SharedExpert | None,
        routing: Routing,
    ) -> Self:
        """A layer of parts that exist already; their weights are used, not copied."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._set_parts(router, experts, shared, routing)
        return layer

    def _set_parts(
        self,
        router: Router,
        experts: Experts | Fp8Experts,
        shared: SharedExpert | None,
        routing: Routing,
    ) -> None:
        if experts.num_experts != routing.num_experts:
            checks.fail("routing.num_experts", experts.num_experts, routing.num_experts)
        self.router, self.experts, self.shared = router, experts, shared
        self.routing = routing
        self.streams: Literal["auto", 1, 2] = "auto"

    @property
    def hidden_size(self) -> int:
        return self.router.weight.shape[1]

    def to_fp8(self) -> MoE:
        """The same layer with its routed experts in float8 (e4m3, one scale a weight row and a token)."""
        experts = self.experts
        if isinstance(experts, Experts):
            experts = Fp8Experts.quantize(experts)
        layer = MoE.of(self.router, experts, self.shared, self.routing)
        layer.streams = self.streams
        return layer.train(self.training)

    def forward(self, x: Tensor, *, valid_tokens: Tensor | None = None) -> Tensor:
        self._check_tokens(x)
        with torch.no_grad():
            out = self._forward(x.reshape(-1, self.hidden_size), valid_tokens).view(x.shape)
        return inference_only(out, x)

    def _forward(self, tokens: Tensor, valid_tokens: Tensor | None) -> Tensor:
        if self.shared is None:
            plan = self.router(tokens, self.routing, valid_tokens)
            return self.routed(
                tokens, plan, torch.zeros_like(tokens, memory_format=torch.contiguous_format)
            )
        if not self._two_streams(tokens):
            plan = self.router(tokens, self.routing, valid_tokens)
            return self.routed(tokens, plan, self.shared(tokens))
        main, side = torch.cuda.current_stream(tokens.device), side_stream(tokens.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            out = self.shared(tokens)
        plan = self.router(tokens, self.routing, valid_tokens)
        main.wait_stream(side)
        tokens.record_stream(side)
        out.record_stream(main)
        return self.routed(tokens, plan, out)

    def routed(self, tokens: Tensor, plan: Plan, out: Tensor) -> Tensor:
        """Adds the routed experts' results to `out` [T, D], in place, and returns it."""
        if self.routing.apply_to == "input":
            source, weights = (plan.expert_indices, plan.scaling_factors), None
        else:
            source, weights = (None, None), plan.row_weights()
        rows = self.experts.gather(tokens, plan.token_indices, *source, plan.valid_rows)
        scatter = Scatter(out, plan.token_indices, weights)
        self.experts(rows, plan.token_counts, plan.valid_rows, scatter)
        return out

    def _check_tokens(self, x: Tensor) -> None:
        weight = self.router.weight
        if x.dim() < 1 or x.shape[-1] != self.hidden_size:
            checks.fail("x", f"of size {self.hidden_size} in its last dimension", tuple(x.shape))
        checks.check_device("x", x, weight)

    def _two_streams(self, tokens: Tensor) -> bool:
        if not tokens.is_cuda or torch.compiler.is_compiling():
            return False
        if self.streams == "auto":
            return tokens.shape[0] <= TWO_STREAM_TOKENS
        return self.streams == 2

    def extra_repr(self) -> str:
        return f"{self.routing}"


class _NoGradient(torch.autograd.Function):
    """The identity, whose backward says that there is none: better than a gradient that is silently missing."""

    @staticmethod
    def forward(ctx: object, out: Tensor, x: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> tuple[Tensor, ...]:
        raise AnyshapeError(
            "E153",
            "anyshape.moe layers have no gradients",
            "they are for inference; without this error the gradient would silently miss the experts",
            "call the model under torch.no_grad(), or train with the original block",
        )


def inference_only(out: Tensor, x: Tensor) -> Tensor:
    """`out`, which raises E153 if anything asks for a gradient through it."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _NoGradient.apply(out, x)
    return out


def new_weight(
    *shape: int,
    fan_in: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Parameter:
    """A random parameter, uniform within 1 / sqrt(fan_in) as nn.Linear's are; fan_in is the last size by default."""
    bound = max(1, shape[-1] if fan_in is None else fan_in) ** -0.5
    return nn.Parameter(torch.empty(shape, device=device, dtype=dtype).uniform_(-bound, bound))


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The second stream of `device`: one for all layers, so that the allocator keeps one pool for it."""
    return torch.cuda.Stream(device)
