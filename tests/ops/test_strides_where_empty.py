"""TensorIterator sorts a dimension of no element inside a later one of one: strides of what it makes
of row-major operands then, and what is asked for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

import anyshape
from anyshape.runtime import chosen_layouts

WHERE_EMPTY = {
    "a number added": lambda x: x + 1,
    "behind a product": lambda x: x @ x.t() + 1,
    "behind a sum": lambda x: x.sum(1, keepdim=True) * 2,
    "of no rows": lambda x: x[:0] + 1,
    "of one column": lambda x: x[:, :1] - 1,
    "turned": lambda x: (x > 0).t(),
    "strides read before": lambda x: [(t := x * 2).stride(), t][1],
}


@pytest.mark.parametrize("name", WHERE_EMPTY)
def test_a_size_of_0_before_one_of_1_turns_an_elementwise_result(name: str) -> None:
    program = WHERE_EMPTY[name]
    fast = anyshape.compile(program)
    for shape in itertools.product((2, 1, 0), repeat=2):
        x = torch.ones(shape)
        assert fast(x).stride() == program(x).stride(), shape


BY_ELEMENT: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "quotient": lambda x, y: x / y,
    "quotient by a number": lambda x, y: x / 2.0,
    "rounded quotient": lambda x, y: torch.div(x, 2, rounding_mode="floor"),
    "floor": lambda x, y: x // y,
    "floor, reflected": lambda x, y: 2.0 // x,
    "remainder": lambda x, y: x % 2,
    "remainder, reflected": lambda x, y: 2 % x,
    "fmod": lambda x, y: torch.fmod(x, y),
    "difference, reflected": lambda x, y: 1 - x,
    "clamp": lambda x, y: x.clamp(y),
    "clamp_min": lambda x, y: torch.clamp_min(x, y),
    "clamp_max": lambda x, y: torch.clamp_max(x, y),
    "lerp": lambda x, y: torch.lerp(x, x, y),
    "where": lambda x, y: torch.where(x > 0, x, y),
}


@pytest.mark.parametrize("name", BY_ELEMENT)
def test_a_size_of_0_before_one_of_1_turns_what_any_operator_makes_by_element(name: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return BY_ELEMENT[name](x.sum(1, keepdim=True), y)

    fast, y = anyshape.compile(program), torch.tensor(2.0)
    for shape in ((0, 3), (2, 3), (0, 1)):
        x = torch.ones(shape)
        assert fast(x, y).stride() == program(x, y).stride(), shape


def test_how_arguments_lie_is_not_asked_where_a_result_turns_only_if_it_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[torch.Tensor] = []
    is_odd = chosen_layouts.is_odd
    monkeypatch.setattr(
        chosen_layouts, "is_odd", lambda *given: asked.append(given[0]) or is_odd(*given)
    )
    fast = anyshape.compile(lambda x, y: (x @ x.t()) / y)
    fast(torch.ones(1, 3), torch.tensor(2.0))
    assert asked == []
    anyshape.compile(lambda x: x + x)(torch.ones(1, 3))
    assert len(asked) == 1
