"""Attributes that turn out to be missing only after a break inside ``__getattr__``."""

from __future__ import annotations

import torch

import anyshape


class Lacking:
    """Asks native code before it says that it has no such attribute."""

    def __getattr__(self, name: str) -> object:
        torch.ones(2).numpy().tobytes()
        raise AttributeError(name)


def test_the_default_of_getattr_outlives_a_break_inside_the_lookup() -> None:
    def program(x: torch.Tensor, obj: object, default: float) -> torch.Tensor:
        return (x + 1) * getattr(obj, "missing", default)

    found = anyshape.compile(program)(torch.ones(3), Lacking(), 5.0)
    assert found.tolist() == [10.0, 10.0, 10.0]
