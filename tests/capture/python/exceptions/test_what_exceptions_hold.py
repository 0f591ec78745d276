"""An exception has a dictionary of attributes once somebody has asked for it, and `__reduce__` tells:
nobody but the program asks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyshape

WAYS: list[dict[str, Any]] = [{}, {"fullgraph": True}, {"options": {"break_every": 1}}]
WAYS += [{"options": {"break_every": 2}}, {"options": {"break_every": 3}}]


class Own(Exception):
    pass


def made(x: torch.Tensor, given: Any) -> Any:
    y = x + 1
    bare, noted = Own(1, 2), Own(3)
    noted.more = y.shape[0]  # type: ignore[attr-defined]
    found = [getattr(bare, "more", None), getattr(given, "more", None), hasattr(given, "args")]
    return y * 2, found, [error.__reduce__() for error in (bare, noted, OSError(2, "no", "f"))]


@pytest.mark.parametrize("ways", WAYS)
def test_nobody_gives_an_exception_a_dictionary(ways: dict[str, Any]) -> None:
    fast = anyshape.compile(made, **ways)
    for more in (False, False, True):
        given = Own(7), Own(7)
        for error in given if more else ():
            error.more = 5  # type: ignore[attr-defined]
        assert fast(torch.ones(3), given[0])[1:] == made(torch.ones(3), given[1])[1:]
        assert given[0].__reduce__() == given[1].__reduce__()
