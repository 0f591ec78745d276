"""What `backward()` inside a graph means on eager torch, the leaves where it ends, and what an
`autograd.Function` with its own backward does: again such a function, whose ``backward`` is the
region of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anyshape.eager import CheckFailed
from anyshape.version_counters import set_version

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


def gradients(
    of: Any,
    cotangents: Any,
    wanted: Any,
    retain: bool,
    more: bool,
    again: bool,
    orders: tuple[tuple[int, ...] | None, ...] | None = None,
) -> tuple[Tensor, ...]:
    """What ``backward()`` adds to the ``.grad`` of each of ``wanted``, in memory of its own.
    ``more``: others of the same ``backward()`` follow; ``again``: they are recorded; ``orders``:
    of dimensions in memory, innermost first, where it does not lie as the tensor does."""
    made = torch.autograd.grad(
        of,
        wanted,
        cotangents,
        retain_graph=retain or more,
        create_graph=again,
        allow_unused=True,
    )
    if any(gradient is None for gradient in made):
        raise CheckFailed("a tensor that requires gradients gets none")
    orders = orders or (None,) * len(made)
    return tuple([_laid_as(g, x, order) for g, x, order in zip(made, wanted, orders)])


def function_result(x: Tensor, number: int) -> Tensor:
    """What an ``autograd.Function`` has given, as a leaf: what lies behind it is differentiated by
    nodes of their own. ``number`` says which call it was."""
    return x.detach().requires_grad_()


def as_leaf(x: Tensor) -> Tensor:
    """What ``requires_grad_()`` makes of a tensor."""
    return x.detach().requires_grad_()


def _laid_as(gradient: Tensor, x: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """A copy of the gradient that has never been written."""
    made = torch.empty_like(x.detach())
    if order is not None:
        made = torch.empty_permuted(x.shape, order[::-1], dtype=x.dtype, device=x.device)
    elif made.stride() != x.stride():  # which has holes
        made = torch.empty_like(x.detach(), memory_format=torch.contiguous_format)
    made.copy_(gradient)
    set_version(made, 0)
    return made
