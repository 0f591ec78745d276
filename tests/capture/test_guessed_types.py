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


def asked_sizes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The sizes of each run of a meta kernel from now on."""
    asked: list[tuple[int, ...]] = []
    run = meta._run

    def noting(cx: Any, fn: Any, args: Any, kwargs: Any, sizes: Any, data: Any) -> Any:
        asked.append((*sizes.values(),))
        return run(cx, fn, args, kwargs, sizes, data)

    monkeypatch.setattr(meta, "_run", noting)
    return asked


def test_a_meta_kernel_is_asked_one_question_once(monkeypatch: pytest.MonkeyPatch) -> None:
    v, g = torch.randn(4, 3, 5), torch.randn(4, 1, 1)
    asked = asked_sizes(monkeypatch)

    def program(x: Tensor) -> Tensor:
        return x + torch._weight_norm(v, g).sum()

    fast = anyshape.compile(program, fullgraph=True)
    torch.testing.assert_close(fast(torch.ones(3)), program(torch.ones(3)))
    assert asked == [()]  # it has no size that is not known, and one row's layouts are not asked


def test_a_meta_kernel_that_loops_over_a_size_is_asked_at_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights = torch.nn.LSTM(4, 4)._flat_weights
    lstm = torch.ops.aten.lstm.input  # by this name nothing but its meta kernel knows it
    asked = asked_sizes(monkeypatch)

    def program(x: Tensor) -> Tensor:
        assert x.shape[2] == 4
        state = torch.zeros(1, x.shape[1], 4)
        return lstm(x, (state, state), weights, True, 1, 0.0, False, False, False)[0]

    fast = anyshape.compile(program, fullgraph=True)
    with torch.no_grad():
        for steps in (200, 3, 1, 47):
            x = torch.randn(steps, 2, 4)
            torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1
    assert len(asked) == len({*asked})
    assert sum(max(sizes) > 100 for sizes in asked) == 1  # the example's own
