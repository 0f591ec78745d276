"""The arguments of random programs: which sizes, dtypes and layouts they have in which call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Sizes = Mapping[str, int]

DEFAULT_SIZES: tuple[Sizes, ...] = tuple(
    {"a": a, "b": b, "c": c}
    for a, b, c in ((3, 4, 2), (1, 1, 1), (5, 1, 3), (0, 3, 2), (1, 6, 0), (4, 4, 4), (17, 9, 2))
)
GENERIC = ((3, 4, 5), (2, 5, 3), (4, 3, 2), (6, 2, 3), (5, 7, 2))
EQUAL = ((2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5))
WITH_ZERO = ((0, 3, 2), (3, 0, 2), (2, 3, 0), (0, 0, 0), (0, 1, 4), (1, 0, 3))
WITH_ONE = ((1, 1, 1), (1, 4, 3), (4, 1, 2), (3, 2, 1), (1, 1, 5), (1, 6, 1))
ANY = ((17, 9, 2), (2, 33, 1), (1, 2, 40), (8, 8, 3), (3, 3, 1), (16, 4, 4), (2, 2, 7), (0, 0, 3))
"""A program is called with one of each, in a random order."""

DTYPES = (
    *("float32",) * 9,
    *("int64",) * 3,
    *("bool", "bool", "float64", "float64", "bfloat16", "bfloat16", "float16", "float16"),
    *("int32", "uint8", "int8", "int16", "complex64"),
)
SHAPES = (
    *("a b", "a b", "a b", "b a", "a a", "a", "b", "a 1", "1 b", "a b c", "a b c", "a a a"),
    *("a b 2", "2 a b", "a 4", "a b 4", "", "1", "a c b 2"),
)
LAYOUTS = (
    *("plain",) * 6,
    *("transposed", "permuted", "stepped", "offset", "expanded", "reversed rows", "gaps"),
)
THEMES: Mapping[str, tuple[str, ...]] = {
    "linear": ("a 4", "4 4", "4 4"),
    "linear of three": ("a b 4", "4 4", "4"),
    "convolution": ("a 4 b c", "4 4 1 1", "4 4"),
    "convolution of three": ("a 4 b c", "4 4 3 3", "4"),
    "convolution over a line": ("a 4 b", "4 4 3", "4 4"),
    "attention": ("a 2 b 4", "a 2 b 4", "4 4"),
    "products": ("a b c", "a c b", "c c"),
}
"""Shapes that library functions take together."""


@dataclass(frozen=True, slots=True)
class Input:
    """An argument. ``view_of``: an expression over earlier arguments that it is instead; ``dtype``
    may be ``int`` or ``float``, for a number."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    layouts: tuple[str, ...]
    view_of: str = ""
    requires_grad: bool = False
    device: str = "cpu"

    def made(self, sizes: Sizes, case: int, number: int, earlier: Mapping[str, Any]) -> Any:
        """The argument in one call: always the same."""
        if self.view_of:
            return eval(self.view_of, {"torch": torch, **earlier})
        if self.dtype in ("int", "float"):
            value = (2, 0, -1, 1, 3, 7, 2)[(case + number) % 7]
            return value if self.dtype == "int" else value * 0.5
        shape = [sizes[n] if n.isalpha() else int(n) for n in self.shape]
        layout = self.layouts[case % len(self.layouts)]
        made = tensor(shape, self.dtype, layout, 1000 * case + number, self.device)
        return made.requires_grad_() if self.requires_grad else made


def tensor(shape: Sequence[int], dtype: str, layout: str, seed: int, device: str = "cpu") -> Tensor:
    """Small whole numbers in one of the layouts."""
    generator = torch.Generator().manual_seed(seed)

    def fill(size: Sequence[int]) -> Tensor:
        low = 0 if dtype in ("bool", "uint8") else -4
        high = 2 if dtype == "bool" else 5
        made = torch.randint(low, high, tuple(size), generator=generator).to(device)
        if dtype.startswith("complex"):
            return torch.complex(made.double(), (made.double() * 3) % 5 - 2).to(
                getattr(torch, dtype)
            )
        return made.to(getattr(torch, dtype))

    rank = len(shape)
    if not shape:
        return fill(())
    if layout == "transposed":
        return fill(shape[::-1]).permute(*range(rank)[::-1])
    if layout == "permuted":  # the last dimension outermost
        return fill([shape[-1], *shape[:-1]]).permute(*range(1, rank), 0)
    if layout == "stepped":
        return fill([*shape[:-1], 2 * shape[-1]])[..., ::2]
    if layout == "offset":
        return fill([shape[0] + 2, *shape[1:]])[2:]
    if layout == "reversed rows":
        return fill([3 * shape[0], *shape[1:]])[1::3]
    if layout == "gaps":
        return fill([*shape[:-1], shape[-1] + 3])[..., 2:-1]
    if layout == "expanded":
        return fill([1, *shape[1:]]).expand(shape)
    return fill(shape)
