"""A call whose operators round to other sides: how far roundings carry in a program.

In: operators that run in a ``with`` of it, those of gradients too. Out: results that lie on the
other side of those in float64, which were rounded, as far from them and by one unit at least. What
needs no rounding (whole numbers, copies, a choice) stays. Operators as exact as eager's may give
such results, as in Monte Carlo arithmetic (Parker, 1997): to be so far from eager is no mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


Side = Callable[[Tensor, Tensor], Tensor]
"""Which elements go to the other side: from their positions, and whether they lie above."""
SIDES: tuple[Side, ...] = (
    lambda position, is_above: torch.ones_like(is_above),
    lambda position, is_above: is_above,
    lambda position, is_above: ~is_above,
    lambda position, is_above: is_above == (position % 2 == 0),
    lambda position, is_above: is_above == (position % 2 == 1),
)
"""All of them, those above, those below, and so that neighbours lie on different sides."""


class OtherRoundings(TorchDispatchMode):
    """While it is on, operators that make new tensors round to other sides. Those that write in
    place, give views or draw numbers do what they do."""

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.side = side

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        narrow = [t for t in tree_leaves(made) if isinstance(t, Tensor) and t.dtype in WIDER]
        if narrow and _makes_new(func):
            try:
                exact = func(*tree_map(_wide, args), **tree_map(_wide, kwargs))
            except RuntimeError:  # it takes no float64
                return made
            pairs = zip(tree_leaves(made), tree_leaves(exact), strict=True)
            for rounded, wide in pairs:
                if isinstance(rounded, Tensor) and rounded.dtype in WIDER:
                    _move(_real(rounded), _real(wide), self.side)
        return made


def _makes_new(func: Any) -> bool:
    returned = (result.alias_info for result in func._schema.returns)
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    return not (func._schema.is_mutable or drawn or any(returned))


def _wide(arg: Any) -> Any:
    if isinstance(arg, torch.dtype):
        return WIDER.get(arg, arg)
    return arg.to(WIDER[arg.dtype]) if isinstance(arg, Tensor) and arg.dtype in WIDER else arg


def _real(t: Tensor) -> Tensor:
    return torch.view_as_real(t) if t.is_complex() else t


def _move(rounded: Tensor, exact: Tensor, side: Side) -> None:
    """Puts each number that is not exact on that side of the one that is."""
    if rounded.shape != exact.shape:
        return
    mirrored = (2 * exact - rounded).to(rounded.dtype)
    there = torch.where(exact > rounded, torch.inf, -torch.inf).to(rounded.dtype)
    other = torch.where(mirrored == rounded, torch.nextafter(rounded, there), mirrored)
    moves = (rounded != exact) & other.isfinite() & rounded.isfinite()
    is_above = (rounded > exact).flatten()
    moves &= side(torch.arange(rounded.numel()), is_above).view(moves.shape)
    rounded.copy_(torch.where(moves, other, rounded))
