"""What the programs of all subjects are made with: inputs, sizes, and the mark of a program."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from benchmarks.zoo.entry import Entry, Sizes

MANY: tuple[Sizes, ...] = ((2, 7), (3, 16), (1, 33), (2, 2), (2, 1), (1, 1), (4, 50))
EMPTY: tuple[Sizes, ...] = ((2, 7), (3, 16), (1, 1), (2, 0), (1, 33), (4, 1), (3, 2))
IMAGES: tuple[Sizes, ...] = ((2, 16), (1, 32), (3, 24), (1, 16))


def normal(*shape: int, g: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=g)


def program(family, inputs, shapes=MANY, grad=False):
    """Marks a function or a module class as a program of the zoo."""

    def mark(made):
        def build():
            torch.manual_seed(0)
            return made().train(grad) if isinstance(made, type) else made

        name = made.__name__.replace("_", " ").strip()
        made.zoo_entry = Entry(name, family, build, inputs, shapes, grad)
        return made

    return mark


def entries_of(module: ModuleType) -> tuple[Entry, ...]:
    """The programs of a module, in the order in which they are written."""
    own = (
        made for made in vars(module).values() if getattr(made, "__module__", "") == module.__name__
    )
    return tuple(made.zoo_entry for made in own if "zoo_entry" in vars(made))


def x32(b, n, g):
    return {"x": normal(b, n, 32, g=g)}
