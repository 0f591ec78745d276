"""A mixture-of-experts layer whose routing never leaves the device.

In: tokens [..., D]. Out: the same shape. Tokens are sorted by expert on the device, so every
expert's rows lie together, nothing is padded, nothing is sliced, and no size goes to the host. The
router and the shared expert run on two streams; the routed experts then have the whole GPU.
docs/moe.md has the picture; `graphed.py` records one CUDA graph for every number of tokens,
`parallel.py` spreads a layer over ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, Self

import torch
from torch import Tensor, nn

from anyshape.errors import AnyshapeError
from anyshape.kernels import checks
from anyshape.moe import few
from anyshape.moe.experts import Activation, Experts, Fp8Experts, Scatter
from anyshape.moe.graphed import Graphed
from anyshape.moe.hf import Refusal, known_blocks, read_block
from anyshape.moe.routed import ROUTED
from anyshape.moe.router import Plan, Router, Routing
from anyshape.moe.shared import SharedExpert
from anyshape.moe.streams import fork, is_capturing, pays_to_fork, start


class MoE(nn.Module):
    """Router, routed experts and an optional shared expert, for inference.

    x [..., D] -> [..., D]. Runs on the CPU (plain torch) and on CUDA (Triton), without a host sync,
    under `torch.compile` and inside a CUDA graph. `valid_tokens` (int32 [1], on the device) says
    how many leading tokens are real; the outputs of the others are not defined. Gradients raise
    E153.
    """

    router: Router
    experts: Experts | Fp8Experts
    shared: SharedExpert | None

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
        self.assemble(Router(new(count, hidden_size), bias), experts, shared, routing)

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
        layer.assemble(router, experts, shared, routing)
        return layer

    @classmethod
    def from_hf(cls, block: nn.Module, *, relayout: bool = False) -> Self:
        """A layer that computes what a Hugging Face block computes, from the same parameters.

        Takes the blocks of Qwen3-MoE, OLMoE, Mixtral, DeepSeek-V3, Llama 4 and gpt-oss; E151 for
        others. Maps hidden states to hidden states of the same shape; `replace_experts` keeps what
        the block's own forward returns. `relayout`: see `Experts.straighten`.
        """
        try:
            parts = read_block(block)
        except Refusal as refusal:
            block_name, known = type(block).__name__, known_blocks()
            raise AnyshapeError("E151", why=str(refusal), block=block_name, known=known) from None
        if relayout:
            parts.experts.straighten()
        return cls.of(*parts).train(block.training)

    def assemble(
        self,
        router: Router,
        experts: Experts | Fp8Experts,
        shared: SharedExpert | None,
        routing: Routing,
    ) -> None:
        """Takes its parts; `MoE(...)` and `MoE.of(...)` call it once."""
        if experts.num_experts != routing.num_experts:
            checks.fail("routing.num_experts", f"{experts.num_experts}", routing.num_experts)
        self.router, self.experts, self.shared = router, experts, shared
        self.routing = routing
        self.streams: Literal["auto", 1, 2] = "auto"

    @property
    def hidden_size(self) -> int:
        return self.router.weight.shape[1]

    def to_fp8(self) -> MoE:
        """The same layer, its routed experts in e4m3 with a scale for each weight row and token."""
        experts = self.experts
        if isinstance(experts, Experts):
            experts = Fp8Experts.quantize(experts)
        layer = MoE.of(self.router, experts, self.shared, self.routing)
        layer.streams = self.streams
        return layer.train(self.training)

    def graphed(self, max_tokens: int) -> Graphed:
        """One CUDA graph of this layer for every number of tokens up to `max_tokens`."""
        device = self.router.weight.device
        dtype = self.experts.dtype
        return Graphed(self, max_tokens, self.hidden_size, dtype=dtype, device=device)

    def forward(self, x: Tensor, *, valid_tokens: Tensor | None = None) -> Tensor:
        check_tokens(x, self.hidden_size, self.experts)
        with torch.no_grad():
            out = self._forward(x.reshape(-1, self.hidden_size), valid_tokens).view(x.shape)
        return inference_only(out, x, self.experts.gate_up)

    def _forward(self, tokens: Tensor, valid_tokens: Tensor | None) -> Tensor:
        if torch.compiler.is_compiling():
            return self._compiled(tokens, valid_tokens)
        since = fork(tokens, self._two_streams(tokens))
        if self._are_few(tokens):
            return self._few(tokens, valid_tokens, since)
        # the router is launched first: it is what the experts wait for, and it needs few processors
        scores, factors = self.router.scores(tokens, self.routing)
        shared = start_shared(self.shared, tokens, since)
        plan = self.router.plan(scores, factors, self.routing, valid_tokens)
        return add_routed(self.experts, tokens, plan, self.routing, shared)

    def _compiled(self, tokens: Tensor, valid_tokens: Tensor | None) -> Tensor:
        """One operator, which chooses its kernels at each call: the number of tokens must not
        become part of a compiler's graph.
        """
        experts, routing = self.experts, self.routing
        (gate_up, down), (gate_up_scales, down_scales) = experts.weights(), experts.scales()
        result: Tensor = ROUTED(
            *(tokens, *self.router.operands(routing)),
            **routing.keywords(),
            **experts.activation.keywords(),
            gate_up=gate_up,
            gate_up_scales=gate_up_scales,
            gate_up_bias=experts.gate_up_bias,
            down=down,
            down_scales=down_scales,
            down_bias=experts.down_bias,
            base=None if self.shared is None else self.shared(tokens),
            valid=valid_tokens,
            on_input=routing.apply_to == "input",
        )
        return result

    def _are_few(self, tokens: Tensor) -> bool:
        return few.pays(tokens.shape[0], self.routing.top_k, self.routing.num_experts)

    def _few(
        self, tokens: Tensor, valid_tokens: Tensor | None, since: torch.cuda.Event | None
    ) -> Tensor:
        """So few tokens that every (token, expert) pair reads its expert's weights itself."""
        experts, routing, shared = self.experts, self.routing, self.shared
        base = None if shared is None else start(lambda: shared(tokens), since, tokens)
        (gate_up, down), (gate_up_scales, down_scales) = experts.weights(), experts.scales()
        on_input = routing.apply_to == "input"
        hidden, chosen, weights = few.GATE_FEW(
            *(tokens, *self.router.operands(routing)),
            **routing.keywords(),
            **experts.activation.keywords(),
            gate_up=gate_up,
            gate_up_scales=gate_up_scales,
            gate_up_bias=experts.gate_up_bias,
            valid=valid_tokens,
            on_input=on_input,
        )
        added = None if base is None else base()
        return few.DOWN_FEW(
            *(hidden, chosen, weights, down, down_scales, experts.down_bias),
            *(added, valid_tokens, on_input, routing.top_k),
        )

    def _two_streams(self, tokens: Tensor) -> bool:
        if self.shared is None:
            return is_capturing(tokens)
        if self.streams == "auto":
            return is_capturing(tokens) and pays_to_fork(tokens)
        return self.streams == 2 and tokens.is_cuda

    def extra_repr(self) -> str:
        return f"{self.routing}"


def check_tokens(x: Tensor, hidden_size: int, experts: Experts | Fp8Experts) -> None:
    """x [..., D] of the layer's size, dtype and device; ValueError if not."""
    if x.dim() < 1 or x.shape[-1] != hidden_size:
        checks.fail("x", f"of size {hidden_size} in its last dimension", tuple(x.shape))
    if x.dtype != experts.dtype:
        checks.fail("x", f"of dtype {experts.dtype}, the experts'", x.dtype)
    checks.check_device("x", x, experts.gate_up)


class _NoGradient(torch.autograd.Function):
    """The identity, whose backward says that there is none."""

    @staticmethod
    def forward(ctx: object, out: Tensor, *inputs: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> tuple[Tensor, ...]:
        raise AnyshapeError("E153")


def inference_only(out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """`out`, which raises E153 if anything asks for a gradient of the input or of the weights."""
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _NoGradient.apply(out, x, weight)
    return out


def new_weight(
    *shape: int,
    fan_in: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Parameter:
    """A random parameter, uniform within 1 / sqrt(fan_in), which is the last size by default."""
    bound = max(1, shape[-1] if fan_in is None else fan_in) ** -0.5
    return nn.Parameter(torch.empty(shape, device=device, dtype=dtype).uniform_(-bound, bound))


def start_shared(
    shared: SharedExpert | None, tokens: Tensor, since: torch.cuda.Event | None
) -> Callable[[], Tensor]:
    """Starts the shared expert, or zeros without one; what comes back waits and has [T, D]."""
    if shared is not None:
        return start(lambda: shared(tokens), since, tokens)
    return start(lambda: new_zeros(tokens), since, tokens)


def new_zeros(tokens: Tensor) -> Tensor:
    """Zeros of tokens' shape, contiguous whatever the tokens' strides are."""
    return torch.zeros_like(tokens, memory_format=torch.contiguous_format)


def add_routed(
    experts: Experts | Fp8Experts,
    tokens: Tensor,
    plan: Plan,
    routing: Routing,
    base: Callable[[], Tensor],
) -> Tensor:
    """Adds the experts' results for the rows of `plan` to base() [T, D], and returns it."""
    on_input = routing.apply_to == "input"
    by_expert, scales = (plan.expert_indices, plan.scaling_factors) if on_input else (None, None)
    rows = experts.gather(tokens, plan.token_indices, by_expert, scales, plan.valid_rows, fuse=True)

    def scatter() -> Scatter:
        weights = None if on_input else plan.scaling_factors
        return Scatter(base(), plan.token_indices, weights)

    return experts(rows, plan.token_counts, plan.valid_rows, scatter)
