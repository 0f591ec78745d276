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


def _drawn(bit: int) -> Side:
    """Half of the elements, in no order."""
    return lambda position, is_above: (position * 2654435761 >> bit) % 2 == 0


Side = Callable[[Tensor, Tensor], Tensor]
"""Which elements go to the other side: from their positions, and whether they lie above."""
SIDES: tuple[Side, ...] = (
    lambda position, is_above: torch.ones_like(is_above),
    lambda position, is_above: is_above,
    lambda position, is_above: ~is_above,
    lambda position, is_above: is_above == (position % 2 == 0),
    lambda position, is_above: is_above == (position % 2 == 1),
    *map(_drawn, (9, 14, 19)),
)
"""All of them, those above, those below, so that neighbours lie on different sides, and some."""


class OtherRoundings(TorchDispatchMode):
    """While it is on, operators that make new tensors, or write in place and give what they have
    written, round to other sides. Those that give views or draw numbers do what they do."""

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.side = side

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        exact = _exact(func, args, kwargs) if _rounds(func) else None
        made = func(*args, **kwargs)
        if exact is not None:
            for rounded, wide in zip(tree_leaves(made), tree_leaves(exact), strict=True):
                if isinstance(rounded, Tensor) and rounded.dtype in WIDER:
                    _move(_real(rounded), _real(wide), self.side)
        return made


class Overflows(TorchDispatchMode):
    """While it is on, notes whether an operator had no number for what wider ones have one for."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        exact = _exact(func, args, kwargs) if _rounds(func) else None
        made = func(*args, **kwargs)
        if exact is not None and not self.found:
            pairs = zip(tree_leaves(made), tree_leaves(exact), strict=True)
            self.found = any(_is_past(*pair) for pair in pairs)
        return made


def _is_past(rounded: Any, exact: Any) -> bool:
    if not isinstance(rounded, Tensor) or rounded.dtype not in WIDER:
        return False
    return rounded.shape == exact.shape and bool((~rounded.isfinite() & exact.isfinite()).any())


def _rounds(func: Any) -> bool:
    """Whether what it gives is new, or what it has written."""
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    given = [result.alias_info for result in func._schema.returns]
    return not drawn and all(alias is None or alias.is_write for alias in given)


def _exact(func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """What it gives for wider arguments, before it has written anything; None if it takes none, or
    if nothing among them is wider."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    if tensors and not any(t.dtype in WIDER for t in tensors):
        return None
    try:
        return func(*tree_map(_wide, args), **tree_map(_wide, kwargs))
    except RuntimeError:
        return None


def _wide(arg: Any) -> Any:
    if isinstance(arg, torch.dtype):
        return WIDER.get(arg, arg)
    return arg.to(WIDER.get(arg.dtype, arg.dtype), copy=True) if isinstance(arg, Tensor) else arg


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
    moves &= side(torch.arange(rounded.numel(), device=rounded.device), is_above).view(moves.shape)
    rounded.copy_(torch.where(moves, other, rounded))
