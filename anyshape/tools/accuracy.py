"""Is a result right? Against eager in float64, no worse than eager's own dtype allows.

The bound: relative error (norm of the difference over norm of the reference) at most twice
eager's own plus one unit in the last place of the output's dtype; integers and bools exactly;
dtype, shape and strides as eager's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from anyshape.nouns import frozen, replace
from anyshape.reference import strides_that_matter
from anyshape.tools import models
from anyshape.tools.models import Recipe


@frozen
class Verdict:
    """The worst output of one call: its error, what the bound allows, and what else is wrong with
    it.
    """

    error: float
    allowed: float
    fault: str = ""

    @property
    def right(self) -> bool:
        return not self.fault and self.error <= self.allowed


def reference_model(name: str, module: nn.Module, recipe: Recipe) -> nn.Module:
    """The same weights in float64; experts as a loop over them, which float64 has."""
    if name == "qwen3-moe":
        built = models.build(name, replace(recipe, experts="eager"))
        built.load_state_dict(module.state_dict())
        return built.double()
    return copy.deepcopy(module).double()


def in_float64(arguments: Mapping[str, object]) -> dict[str, object]:
    """The same arguments with floating tensors in float64."""
    return {
        key: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for key, value in arguments.items()
    }


def relative_error(result: Tensor, reference: Tensor) -> float:
    """Norm of the difference over norm of the reference; infinite where only one is NaN or
    infinite.
    """
    a, b = result.detach().double(), reference.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(same, 0.0, a - b).norm().item()
    if difference == 0.0:
        return 0.0
    scale = torch.where(same & ~b.isfinite(), 0.0, b).norm().item()
    return difference / scale if math.isfinite(difference) and scale > 0 else math.inf


def judge(result: object, eager: object, reference: object) -> Verdict:
    """The verdict on one call's outputs, given eager's in the same dtype and in float64."""
    ours, theirs, truths = (list(models.tensors(x)) for x in (result, eager, reference))
    if not len(ours) == len(theirs) == len(truths):
        return Verdict(math.inf, 0.0, f"{len(ours)} outputs, eager has {len(theirs)}")
    verdicts = [judge_tensor(*each) for each in zip(ours, theirs, truths)]
    return max(
        verdicts, key=lambda v: (bool(v.fault), v.error - v.allowed), default=Verdict(0.0, 0.0)
    )


def judge_tensor(ours: Tensor, eager: Tensor, truth: Tensor) -> Verdict:
    for aspect, mine, expected in (
        ("dtype", ours.dtype, eager.dtype),
        ("shape", tuple(ours.shape), tuple(eager.shape)),
        ("strides", strides_that_matter(ours), strides_that_matter(eager)),
        ("requires_grad", ours.requires_grad, eager.requires_grad),
    ):
        if mine != expected:
            return Verdict(math.inf, 0.0, f"{aspect} is {mine}, eager's is {expected}")
    if not eager.is_floating_point():
        return Verdict(0.0, 0.0, "" if torch.equal(ours, eager) else "integers differ from eager's")
    own = relative_error(eager, truth)
    if not math.isfinite(own):
        return Verdict(math.inf, 0.0, "eager itself is not finite where the reference is")
    ulps = 16 if eager.dtype == torch.float64 else 1  # the reference is rounded in float64 itself
    return Verdict(relative_error(ours, truth), 2 * own + ulps * torch.finfo(eager.dtype).eps)
