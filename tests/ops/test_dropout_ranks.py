"""Dropout of each number of dimensions: what eager refuses, and whether the result is the argument
itself, a view of it, or memory of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anyshape

NAMES = "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout".split()
RANKS = range(7)


def _outcome(run: Callable[..., Any], rank: int) -> Any:
    x = torch.ones([2] * rank)
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(action="ignore"):
            made, inside = run(x)
    except RuntimeError:
        return "refused"
    return made.tolist(), inside, made is x, made.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_dropout_of_any_rank_is_eagers(name: str, training: bool, p: float) -> None:
    function = getattr(F, name)

    def program(x: torch.Tensor) -> Any:
        made = function(x, p, training)
        return made, made is x

    fast = anyshape.compile(program)
    wanted = [_outcome(program, rank) for rank in RANKS]
    assert [_outcome(fast, rank) for rank in RANKS] == wanted


@pytest.mark.parametrize("p", (2.0, -1.0, 1.0, 0.0))
@pytest.mark.parametrize("name", NAMES)
def test_a_probability_is_asked_for_though_nothing_is_dropped(name: str, p: float) -> None:
    def program(x: torch.Tensor, p: float) -> torch.Tensor:
        return getattr(torch.nn.functional, name)(x, p=p, training=False) + 1

    def told(function: Any) -> Any:
        try:
            return function(torch.ones(2, 3, 4), p).tolist()
        except (RuntimeError, ValueError) as error:
            return str(error)

    assert told(anyshape.compile(program)) == told(program)
