"""All the expert blocks of a Hugging Face model, replaced in one call.

In: a model. Out: the same model, changed in place, and a report of what was replaced and what was
not, with the reason. A replaced block keeps the original's children, so parameters are the same
objects under the same names: `state_dict`, `save_pretrained` and `to` work as before. What computes
is a `MoE` beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from anyshape.moe.hf import Family, Refusal, family_of, read_parts
from anyshape.moe.layer import MoE


@dataclass(frozen=True, slots=True)
class Replaced:
    """One block that now runs as a `MoE`."""

    path: str
    block: str
    experts: int
    top_k: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """One block that stays as it was, and why."""

    path: str
    block: str
    reason: str


@dataclass(frozen=True, slots=True)
class Replacements:
    """What `replace_experts` did; `str()` is a line for each block."""

    replaced: tuple[Replaced, ...]
    refused: tuple[Refused, ...]

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)} expert blocks, left {len(self.refused)}"]
        lines += [
            f"  {row.path}: {row.block}, {row.experts} experts, top {row.top_k}"
            + (", shared expert" if row.shared else "")
            for row in self.replaced
        ]
        lines += [f"  {row.path}: {row.block} left as it was: {row.reason}" for row in self.refused]
        return "\n".join(lines)


class ReplacedBlock(nn.Module):
    """Stands where a block stood, with its children; forward returns what the block's forward
    returned.

    The second output that Llama 4 and gpt-oss blocks have (router logits or scores, which their
    decoder layers ignore) is None unless `router_outputs`; then the original router runs as well,
    with its hooks.
    """

    def __init__(self, block: nn.Module, family: Family, router_outputs: bool = False) -> None:
        super().__init__()
        for name, child in block.named_children():
            self.add_module(name, child)
        self._family, self._router_outputs = family, router_outputs
        self._layer = (MoE.of(*read_parts(self, family)),)  # in a tuple: no child, names stay
        self._held = tensors_of(self)
        self.train(block.training)

    @property
    def layer(self) -> MoE:
        """The layer that computes, with the tensors of this module's children as they are now.

        `to` and `load_state_dict(assign=True)` may put other tensors in their place; then it is
        made again.
        """
        if not all(owner[name] is tensor for owner, name, tensor in self._held):
            self._layer = (MoE.of(*read_parts(self, self._family)),)
            self._held = tensors_of(self)
        return self._layer[0]

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

    def extra_repr(self) -> str:
        return f"anyshape.moe, {self.layer.routing}"


def replace_experts(model: nn.Module, *, router_outputs: bool = False) -> Replacements:
    """Replaces every expert block that anyshape.moe knows in `model`, in place, and says what it
    replaced.

    Weights are shared, not copied. `router_outputs=True` also runs the original routers, for models
    that are asked for `output_router_logits`. Blocks that look like experts but cannot be replaced
    are listed with the reason.
    """
    replaced: list[Replaced] = []
    refused: list[Refused] = []
    for path, block in list(model.named_modules()):
        family = family_of(block)
        if family is None or not path:
            continue
        name = type(block).__name__
        try:
            new = ReplacedBlock(block, family, router_outputs)
        except Refusal as refusal:
            refused.append(Refused(path, name, str(refusal)))
            continue
        parent, _, child = path.rpartition(".")
        setattr(model.get_submodule(parent), child, new)
        routing = new.layer.routing
        shared = new.layer.shared is not None
        replaced.append(Replaced(path, name, routing.num_experts, routing.top_k, shared))
    return Replacements(tuple(replaced), tuple(refused))


Slot = tuple[dict[str, Tensor | None], str, Tensor | None]


def tensors_of(module: nn.Module) -> tuple[Slot, ...]:
    """Every parameter and buffer below `module`: the dictionary that holds it, its name, and what
    is there now.
    """
    return tuple(
        (owner, name, tensor)
        for child in module.modules()
        for owner in (child.__dict__["_parameters"], child.__dict__["_buffers"])
        for name, tensor in owner.items()
    )
