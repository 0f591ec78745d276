"""Results whose graph the program has gone through already, inside of what is compiled.

In: a function and the positions of such results. Out: the function, whose results there require
gradients, and say so where somebody goes through them again, as in eager torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Run = Callable[..., tuple[Any, ...]]
_NOBODYS = torch.zeros((), requires_grad=True)
"""A leaf of which nobody wants a gradient."""


class Spent(torch.autograd.Function):
    """Results whose graph the program has gone through already, as autograd sees them. They are
    handed over in a list: of a tensor among the arguments, the result would be a view."""

    @staticmethod
    def forward(ctx: Any, marker: torch.Tensor, results: list[torch.Tensor]) -> Any:
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        raise RuntimeError(SPENT)


SPENT = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Specify retain_graph=True if you need to backward through the "
    "graph a second time"
)


def spending(run: Run, spent: Sequence[int]) -> Run:
    """The function, whose results at these positions require gradients and have none to give."""

    def marking(*arguments: Any) -> tuple[Any, ...]:
        outs = list(run(*arguments))
        owners = [_owner(outs[position]) for position in spent]
        different = {id(owner): owner for owner in owners}
        with torch.enable_grad():
            made = dict(zip(different, Spent.apply(_NOBODYS, [*different.values()])))
            for position, owner in zip(spent, owners):
                result, marked = outs[position], made[id(owner)]
                outs[position] = marked if result is owner else _viewed(marked, result)
        return tuple(outs)

    return marking


def _owner(result: torch.Tensor) -> torch.Tensor:
    """What a view is a view of, where autograd knows nothing of that either; a view that a function
    gives back may not be written."""
    base = result._base
    alike = base is not None and base.dtype == result.dtype and not base.requires_grad
    return base if alike and base is not None else result


def _viewed(owner: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    return owner.as_strided(result.shape, result.stride(), result.storage_offset())
