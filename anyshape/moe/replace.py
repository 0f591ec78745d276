"""All the experts of a Hugging Face model, replaced in one call.

In: a model. Out: the same model, changed in place, and a report of what was replaced and what was
not, with the reason. Blocks of the families in `hf.FAMILIES` are replaced whole; of any other
family that has transformers' common interface for experts, the experts are, and its own router
stays. A replacement keeps the original's children, so parameters are the same objects under the
same names: `state_dict`, `save_pretrained` and `to` work as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from anyshape.moe.experts import Experts
from anyshape.moe.hf import (
    Family,
    Refusal,
    experts_family,
    family_of,
    is_experts,
    read_experts,
    read_parts,
    refuse_hooks,
)
from anyshape.moe.layer import MoE, add_routed, inference_only, new_zeros
from anyshape.moe.router import Plan, Routing
from anyshape.moe.shuffling import index_shuffling


@dataclass(frozen=True, slots=True)
class Replaced:
    """One module that now runs on our kernels; `top_k` is None if the router stayed its own."""

    path: str
    block: str
    experts: int
    top_k: int | None
    shared: bool

    def __str__(self) -> str:
        routing = "its own router" if self.top_k is None else f"top {self.top_k}"
        shared = ", shared expert" if self.shared else ""
        return f"{self.path}: {self.block}, {self.experts} experts, {routing}{shared}"


@dataclass(frozen=True, slots=True)
class Refused:
    """One module that stays as it was, and why."""

    path: str
    block: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or 'the model'}: {self.block} left as it was: {self.reason}"


@dataclass(frozen=True, slots=True)
class Replacements:
    """What `replace_experts` did; `str()` is a line for each module."""

    replaced: tuple[Replaced, ...]
    refused: tuple[Refused, ...]

    def __str__(self) -> str:
        title = f"replaced {len(self.replaced)} expert blocks, left {len(self.refused)}"
        return "\n".join([title, *(f"  {row}" for row in (*self.replaced, *self.refused))])


def replace_experts(
    model: nn.Module, *, router_outputs: bool = False, relayout: bool = False
) -> Replacements:
    """Replaces the expert blocks in `model`, in place, and says what it replaced.

    Weights are shared, not copied. `router_outputs=True` also runs the original routers of whole
    blocks, for models that are asked for `output_router_logits`. `relayout=True` rewrites the
    memory of transposed weights (Llama 4, gpt-oss), in place, in the order that the fastest GPU
    kernels read. What looks like experts but cannot be replaced is listed with the reason.
    """
    replaced: list[Replaced] = []
    refused: list[Refused] = []
    done: list[str] = []
    for path, module in list(model.named_modules()):
        if any(is_below(path, parent) for parent in done):
            continue
        family = family_of(module)
        if family is None and not is_experts(module):
            continue
        try:
            new = replacement(module, family, router_outputs)
            put(model, path, new)
        except Refusal as refusal:
            if not any(is_below(path, row.path) for row in refused):
                refused.append(Refused(path, type(module).__name__, str(refusal)))
            continue
        done.append(path)
        if relayout:
            new.experts_of().straighten()
        replaced.append(new.described(path, type(module).__name__))
        refused = [row for row in refused if not is_below(path, row.path)]
    return Replacements(tuple(replaced), tuple(refused))


def is_below(path: str, parent: str) -> bool:
    """Whether the module at `path` is inside the one at `parent` (the model itself is at "")."""
    return path != parent and (not parent or path.startswith(f"{parent}."))


def replacement(
    module: nn.Module, family: Family | None, router_outputs: bool
) -> ReplacedBlock | ReplacedExperts:
    """What stands in for `module`; `Refusal` if nothing can."""
    if family is None:
        refuse_hooks(module)
        return ReplacedExperts(module)
    refuse_hooks(module, called=family.router if router_outputs else "")
    return ReplacedBlock(module, family, router_outputs)


def put(model: nn.Module, path: str, new: nn.Module) -> None:
    """Sets the module at `path`."""
    if not path:
        raise Refusal("it is the model itself; use MoE.from_hf")
    parent, _, child = path.rpartition(".")
    setattr(model.get_submodule(parent), child, new)


Made = TypeVar("Made")
Slot = tuple[dict[str, Tensor | None], str, Tensor | None]


class Following(Generic[Made]):
    """Something made of a module's tensors, made again when others have taken their place.

    `to` and `load_state_dict(assign=True)` do that to buffers and parameters.
    """

    def __init__(self, module: nn.Module, make: Callable[[nn.Module], Made]) -> None:
        self._module, self._make = module, make
        self._made, self._slots = make(module), tensors_of(module)

    def get(self) -> Made:
        if not all(owner[name] is tensor for owner, name, tensor in self._slots):
            self._made, self._slots = self._make(self._module), tensors_of(self._module)
        return self._made


def tensors_of(module: nn.Module) -> tuple[Slot, ...]:
    """Every parameter and buffer below `module`: what holds it, its name, and its value now."""
    return tuple(
        (owner, name, tensor)
        for child in module.modules()
        for owner in (child.__dict__["_parameters"], child.__dict__["_buffers"])
        for name, tensor in owner.items()
    )


def make_layer(family: Family, module: nn.Module) -> MoE:
    """The layer of a module with the children of a block of `family`."""
    return MoE.of(*read_parts(module, family))


class ReplacedBlock(nn.Module):
    """Stands where a block stood, with its children, and returns what the block returned.

    The second output that Llama 4 and gpt-oss blocks have (router logits or scores, which their
    decoder layers ignore) is None unless `router_outputs`; then the original router runs as well,
    with its hooks.
    """

    def __init__(self, block: nn.Module, family: Family, router_outputs: bool = False) -> None:
        super().__init__()
        for name, child in block.named_children():
            self.add_module(name, child)
        self._family, self._router_outputs = family, router_outputs
        self._layer = Following(self, functools.partial(make_layer, family))
        self.train(block.training)

    @property
    def layer(self) -> MoE:
        """The layer that computes; its tensors are this module's children's."""
        return self._layer.get()

    def forward(self, hidden_states: Tensor) -> Tensor | tuple[Tensor, Tensor | None]:
        tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
        extra = self._router_output(tokens)
        out = self.layer(tokens if self._family.flat else hidden_states)
        return (out, extra) if self._family.extra else out

    def _router_output(self, tokens: Tensor) -> Tensor | None:
        if not self._router_outputs:
            return None
        first, second, *_ = getattr(self, self._family.router)(tokens)
        return second

    def experts_of(self) -> Experts:
        experts = self.layer.experts
        assert isinstance(experts, Experts)
        return experts

    def described(self, path: str, block: str) -> Replaced:
        layer = self.layer
        routing, shared = layer.routing, layer.shared is not None
        return Replaced(path, block, routing.num_experts, routing.top_k, shared)

    def extra_repr(self) -> str:
        return f"anyshape.moe, {self.layer.routing}"


class ReplacedExperts(nn.Module):
    """Stands where a model's experts stood, with their parameters, children and other attributes.

    hidden_states [T, D], top_k_index [T, K] and top_k_weights [T, K], as the model's own router
    made them, to [T, D].
    """

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.__dict__.update(experts.__dict__)
        self._experts = Following(
            self, functools.partial(read_experts, family=experts_family(experts))
        )
        self.train(experts.training)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        experts = self._experts.get()
        with torch.no_grad():
            plan = plan_of_choices(top_k_index, top_k_weights, experts.num_experts)
            routing = Routing(experts.num_experts, top_k_index.shape[1])
            out = add_routed(
                experts, hidden_states, plan, routing, lambda: new_zeros(hidden_states)
            )
        return inference_only(out, hidden_states, experts.gate_up)

    def experts_of(self) -> Experts:
        return self._experts.get()

    def described(self, path: str, block: str) -> Replaced:
        return Replaced(path, block, self._experts.get().num_experts, None, False)


def plan_of_choices(index: Tensor, weights: Tensor, num_experts: int) -> Plan:
    """The plan for choices [T, K] that are made already."""
    tokens, top_k = index.shape
    shape = (tokens, num_experts)
    scores = torch.full(shape, float("-inf"), device=index.device).scatter_(1, index, 0.0)
    factors = torch.zeros(shape, device=index.device).scatter_(1, index, weights.float())
    return Plan(*index_shuffling(scores, top_k), factors, None)
