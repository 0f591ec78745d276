"""What an `autograd.Function` with its own backward means on eager torch: again such a function,
whose ``backward`` is the region of the node; and the leaves where gradients inside a graph end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


class _WithBackward(torch.autograd.Function):
    """Results that were computed without gradients, and the function that makes these."""

    @staticmethod
    def forward(
        ctx: Any, backward: Any, results: Any, captured: Any, *arguments: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.backward_of_results = backward
        ctx.save_for_backward(*captured)
        made: tuple[Tensor, ...] = results
        return made

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        given = [g.contiguous() for g in cotangents]
        return None, None, None, *ctx.backward_of_results(*given, *ctx.saved_tensors)


def applied_function(
    arguments: tuple[Tensor, ...],
    results: tuple[Tensor, ...],
    captured: tuple[Tensor, ...],
    backward: Callable[..., Any],
) -> tuple[Tensor, ...]:
    """What an ``autograd.Function`` has given, whose own ``backward`` makes the gradients of the
    arguments from those of the results and what it has captured."""
    made = _WithBackward.apply(backward, results, captured, *arguments)
    return made if type(made) is tuple else (made,)


def function_result(x: Tensor, number: int) -> Tensor:
    """What an ``autograd.Function`` has given, as a leaf: what lies behind it is differentiated by
    nodes of their own. ``number`` says which call it was."""
    return x.detach().requires_grad_()


def as_leaf(x: Tensor) -> Tensor:
    """What ``requires_grad_()`` makes of a tensor."""
    return x.detach().requires_grad_()
