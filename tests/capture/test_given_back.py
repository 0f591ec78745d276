"""What a compiled function is called with, and what it gives back beside tensors, as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import anyshape

F = torch.nn.functional


def annotated(x: Tensor) -> Any:
    class Made:
        pass

    made = {"y": list[int], "z": int | None, "return": dict[str, Made]}

    def inner(y: Any, z: Any = None) -> Any:
        return x + 1

    inner.__annotations__ = made
    several = [Tensor | None, list[Made] | Made, tuple[()], tuple[int, ...], next(iter(list[int]))]
    return inner, several, list[int], Made


def test_types_that_are_written_in_brackets_or_with_bars_are_given_back() -> None:
    fast = anyshape.compile(annotated, fullgraph=True)
    for size in (2, 3):
        found, expected = fast(torch.ones(size)), annotated(torch.ones(size))
        cls, other = found[-1], expected[-1]
        assert found[0].__annotations__ == {**expected[0].__annotations__, "return": dict[str, cls]}
        assert found[1] == [list[cls] | cls if t == list[other] | other else t for t in expected[1]]
        assert torch.equal(found[0](1), torch.ones(size) + 1)
        assert found[2] == list[int]


class Module(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def of_two(x: Tensor, y: Any) -> Any:
    return x + y


def of_a_keyword(x: Tensor, *, k: int) -> Any:
    return x * k


X = torch.ones(1)
CALLS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "too few": (of_two, lambda f: f(X)),
    "too many": (of_two, lambda f: f(X, 2, 3)),
    "of another name": (of_two, lambda f: f(X, z=3)),
    "none": (of_two, lambda f: f()),
    "a module": (Module(), lambda f: f()),
    "a method": (Module().forward, lambda f: f(X, 2)),
    "no keyword": (of_a_keyword, lambda f: f(X)),
    "by position": (of_a_keyword, lambda f: f(X, 3)),
    "inside": (lambda x: of_two(x), lambda f: f(X)),
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_arguments_that_do_not_fit_are_refused_in_pythons_words(name: str, fullgraph: bool) -> None:
    fn, call = CALLS[name]
    fast = anyshape.compile(fn, fullgraph=fullgraph)
    raised = []
    for run in (fn, fast):
        with pytest.raises(TypeError) as error:
            call(run)
        raised.append(str(error.value))
    assert raised[0] == raised[1]
    assert not fast.stats().internal_errors


def test_the_kernels_of_attention_are_chosen_inside() -> None:
    def program(q: Tensor) -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            a = F.scaled_dot_product_attention(q, q, q)
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
            b = F.scaled_dot_product_attention(q, q, q)
        return a, b, F.scaled_dot_product_attention(q, q, q)

    fast = anyshape.compile(program, fullgraph=True)
    for length in (4, 7):
        q = torch.rand(1, 2, length, 8)
        torch.testing.assert_close(fast(q), program(q))
    assert torch._C._get_overrideable_sdp_enabled()
