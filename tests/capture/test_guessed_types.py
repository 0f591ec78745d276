"""Operators without a row: their types are worked out at samples of sizes, and tested at each
call."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.capture.tensors import meta


def polar(x: Tensor) -> Tensor:
    return torch.polar(x.abs(), x)


def written_polar(x: Tensor) -> Tensor:
    x.mul_(1)
    return torch.polar(x.abs(), x)


@pytest.mark.parametrize("shape", [(1, 1), (2, 33, 1, 1), (1,) * 7, (1,) * 9], ids=str)
@pytest.mark.parametrize("options", [{}, {"verify": True}], ids=["plain", "verified"])
def test_two_sizes_of_1_are_not_taken_for_one(
    shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    fast = anyshape.compile(polar, options=options)
    for position in (None, *range(len(shape))):
        x = torch.randn([size + 2 * (i == position) for i, size in enumerate(shape)])
        torch.testing.assert_close(fast(x), polar(x))
    sizes = ", ".join(f"s{i}" for i in range(len(shape)))
    (graph,) = fast.graphs()
    assert f"complex64[{sizes}]" in graph


@pytest.mark.filterwarnings("ignore::anyshape.errors.AnyshapeWarning")
def test_a_wrong_guess_is_no_mistake_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = meta._assignments

    def the_first_alone(*given: Any) -> Any:
        return itertools.islice(samples(*given), 1)

    monkeypatch.setattr(meta, "_assignments", the_first_alone)
    fast = anyshape.compile(written_polar, options={"verify": True})
    for shape in ((2, 3), (5, 7)):
        x = torch.randn(shape)
        torch.testing.assert_close(fast(x), polar(x))
