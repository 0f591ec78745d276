"""Hugging Face's mixture-of-experts blocks, read: one row a family, weights used and not copied.

In: a block of a transformers model (5.17 to 5.23 have the same blocks). Out: the parts of a `MoE`,
which hold the block's own parameters. Blocks are distinguished by their class's name and module, so
nothing is imported from transformers, and their structure is checked: what does not look as
expected is refused with a reason, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor, nn

from anyshape.moe.experts import Activation, Experts, Kind
from anyshape.moe.router import Router, Routing
from anyshape.moe.shared import SharedExpert

# The classes of transformers' ACT2FN that compute what a kernel computes.
ACTIVATIONS: Mapping[str, Kind] = MappingProxyType(
    {
        "SiLU": "silu",
        "SiLUActivation": "silu",
        "GELUActivation": "gelu",
        "GELUTanh": "gelu_tanh",
        "PytorchGELUTanh": "gelu_tanh",
        "NewGELUActivation": "gelu_tanh",
        "FastGELUActivation": "gelu_tanh",
    }
)


class Refusal(Exception):
    """Why a block cannot be turned into a `MoE`."""


def named_activation(function: object) -> Activation:
    """The activation that an entry of ACT2FN computes, by its class."""
    name = type(function).__name__
    if name not in ACTIVATIONS:
        raise Refusal(f"its activation {name} has no kernel")
    if getattr(function, "approximate", "none") == "tanh":
        return Activation("gelu_tanh")
    return Activation(ACTIVATIONS[name])


def act_fn(experts: nn.Module) -> Activation:
    """The activation that experts keep as `act_fn`."""
    return named_activation(getattr(experts, "act_fn", None))


def interleaved_act_fn(experts: nn.Module) -> Activation:
    """The same, with gate and up in alternate columns."""
    return replace(act_fn(experts), interleaved=True)


def clamped_activation(experts: nn.Module) -> Activation:
    """gpt-oss's clamped SwiGLU, with gate and up in alternate columns."""
    alpha, limit = number(experts, "alpha"), number(experts, "limit")
    return Activation("gpt_oss", float(alpha), float(limit), interleaved=True)


def as_it_is(routing: Routing, router: nn.Module) -> Routing:
    """Families whose router has no settings beside top-k."""
    return routing


def renormalized(routing: Routing, router: nn.Module) -> Routing:
    """What Qwen3-MoE and OLMoE keep in their router."""
    return replace(routing, renormalize=bool(number(router, "norm_topk_prob")))


def grouped(routing: Routing, router: nn.Module) -> Routing:
    """What DeepSeek-V3 keeps in its router."""
    groups = int(number(router, "num_group"))
    return replace(
        routing,
        renormalize=bool(number(router, "norm_topk_prob")),
        groups=groups,
        top_groups=int(number(router, "topk_group")),
        group_best=min(2, routing.num_experts // groups),
        scale=float(number(router, "routed_scaling_factor")),
    )


def number(module: nn.Module, name: str) -> float:
    """A number (or a bool) that is an attribute of `module`; `Refusal` if there is none."""
    value = getattr(module, name, None)
    if not isinstance(value, (bool, int, float)):
        raise Refusal(f"{type(module).__name__} has no number {name!r}")
    return value


@dataclass(frozen=True, slots=True)
class Family:
    """Where a family's block keeps things and how it routes.

    `routing` is filled with the experts and top-k of the block, and with what `settings` reads from
    its router. `extra` names what forward returns beside the hidden states: "" (nothing), "logits"
    or "scores".
    """

    router: str
    routing: Routing
    settings: Callable[[Routing, nn.Module], Routing] = as_it_is
    activation: Callable[[nn.Module], Activation] = act_fn
    bias: str | None = None
    transposed: bool = False
    expert_bias: bool = False
    shared: str | None = None
    flat: bool = False
    extra: str = ""


SOFTMAX = Routing(1)
SIGMOID = Routing(1, function="sigmoid")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "Qwen3MoeSparseMoeBlock": Family("gate", SOFTMAX, renormalized),
        "OlmoeSparseMoeBlock": Family("gate", SOFTMAX, renormalized),
        "MixtralSparseMoeBlock": Family("gate", replace(SOFTMAX, renormalize=True)),
        "DeepseekV3MoE": Family(
            "gate",
            replace(SIGMOID, bias="ranking"),
            grouped,
            bias="e_score_correction_bias",
            shared="shared_experts",
        ),
        "Llama4TextMoe": Family(
            "router",
            replace(SIGMOID, apply_to="input"),
            transposed=True,
            shared="shared_expert",
            flat=True,
            extra="logits",
        ),
        "GptOssMLP": Family(
            "router",
            replace(SOFTMAX, renormalize=True),
            activation=clamped_activation,
            bias="bias",
            transposed=True,
            expert_bias=True,
            extra="scores",
        ),
    }
)


def family_of(module: nn.Module) -> Family | None:
    """The row for `module`'s own class, None for subclasses and anything else."""
    cls = type(module)
    if not cls.__module__.startswith("transformers.models."):
        return None
    return FAMILIES.get(cls.__name__)


class Parts(NamedTuple):
    """What a layer is made of, in the order of `MoE.of`."""

    router: Router
    experts: Experts
    shared: SharedExpert | None
    routing: Routing


def read_block(block: nn.Module) -> Parts:
    """The parts of a block of one of FAMILIES; raises `Refusal` with the reason otherwise."""
    family = family_of(block)
    if family is None:
        raise Refusal(f"{type(block).__name__} is not a block that anyshape.moe knows")
    return read_parts(block, family)


def read_parts(block: nn.Module, family: Family) -> Parts:
    """The parts of a module with the children of a block of `family`; may raise `Refusal`."""
    router, experts = part(block, family.router), part(block, "experts")
    weight = tensor(router, "weight")
    top_k = int(number(router, "top_k"))
    routing = replace(family.routing, num_experts=weight.shape[0], top_k=top_k)
    routing = family.settings(routing, router)
    bias = None if family.bias is None else tensor(router, family.bias)
    shared = None if family.shared is None else read_shared(part(block, family.shared))
    return Parts(Router(weight, bias), read_experts(experts, family), shared, routing)


def read_experts(experts: nn.Module, family: Family) -> Experts:
    """The block's experts; their weights stay where they are."""
    names = ("gate_up_proj_bias", "down_proj_bias") if family.expert_bias else ()
    return Experts(
        tensor(experts, "gate_up_proj"),
        tensor(experts, "down_proj"),
        *(tensor(experts, name) for name in names),
        activation=family.activation(experts),
        transposed=family.transposed,
    )


def read_shared(shared: nn.Module) -> SharedExpert:
    """A gated MLP without biases, Hugging Face's usual one."""
    function = getattr(shared, "act_fn", None) or getattr(shared, "activation_fn", None)
    gate, up, down = (linear_weight(shared, f"{name}_proj") for name in ("gate", "up", "down"))
    return SharedExpert(gate, up, down, named_activation(function))


def linear_weight(module: nn.Module, name: str) -> Tensor:
    """The weight of a plain nn.Linear without bias."""
    linear = part(module, name)
    if type(linear) is not nn.Linear or linear.bias is not None:
        raise Refusal(f"its {name} is {type(linear).__name__}, not a plain nn.Linear without bias")
    return linear.weight


def part(module: nn.Module, name: str) -> nn.Module:
    """A child module; `Refusal` if there is none."""
    child = getattr(module, name, None)
    if not isinstance(child, nn.Module):
        raise Refusal(f"{type(module).__name__} has no module {name!r}")
    return child


def tensor(module: nn.Module, name: str) -> Tensor:
    """A floating-point parameter or buffer of `module` itself; `Refusal` if there is none."""
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise Refusal(f"{type(module).__name__} has no tensor {name!r}")
    if not value.is_floating_point() or value.itemsize < 2:
        raise Refusal(f"its {name} is {value.dtype}: quantized weights are not supported")
    return value


# transformers' common interface for experts: the module that has it, and what every class with it
# carries.
INTERFACE = "transformers.integrations.moe"
EXPERTS_FLAGS = ("has_gate", "has_bias", "is_transposed", "is_concatenated")


def is_experts(module: nn.Module) -> bool:
    """Whether `module` has transformers' common interface for experts."""
    cls = type(module)
    return cls.__module__.startswith("transformers.models.") and all(
        isinstance(getattr(module, name, None), bool) for name in EXPERTS_FLAGS
    )


def experts_family(experts: nn.Module) -> Family:
    """A row for any family's experts, from the flags of their interface; may raise `Refusal`."""
    if not flag(experts, "has_gate"):
        raise Refusal("its experts have no gate")
    if flag(experts, "has_post_expert_norm"):
        raise Refusal("its experts end in a norm")
    if flag(experts, "_is_expert_parallel"):
        raise Refusal("its experts are spread over ranks already")
    return Family(
        router="",
        routing=SOFTMAX,
        activation=activation_reader(experts),
        transposed=flag(experts, "is_transposed"),
        expert_bias=flag(experts, "has_bias"),
    )


def activation_reader(experts: nn.Module) -> Callable[[nn.Module], Activation]:
    """What reads the activation of experts with the common interface."""
    cls = type(experts)
    gate = getattr(cls, "_apply_gate", None)
    if getattr(gate, "__module__", "") == INTERFACE:
        return act_fn if flag(experts, "is_concatenated") else interleaved_act_fn
    if cls.__name__ == "GptOssExperts":
        return clamped_activation
    raise Refusal("its experts have a gate of their own")


def flag(module: nn.Module, name: str) -> bool:
    """A bool that is an attribute of `module`; False if there is none."""
    return bool(getattr(module, name, False))


def refuse_hooks(module: nn.Module, called: str = "") -> None:
    """`Refusal` if calling `module` runs hooks too: the user's, or accelerate's.

    Those of the child `called` do not count: it is called as before.
    """
    for name, child in module.named_modules():
        hooks = (child.__dict__[kind] for kind in ("_forward_hooks", "_forward_pre_hooks"))
        counts = not called or name != called
        if counts and (any(hooks) or hasattr(child, "_hf_hook")):
            raise Refusal(f"{name or 'it'} has forward hooks, which would no longer run")


def known_blocks() -> str:
    """The names of the blocks that `read_block` takes."""
    return ", ".join(FAMILIES)
