"""What a program asserts of a tensor's values, and what it asks of every object."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import anyshape


def _said(function: object, *args: object) -> str | None:
    try:
        function(*args)  # type: ignore[operator]
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


@pytest.mark.parametrize("message", [None, "", "negative"])
def test_assert_async_on_the_cpu_is_a_check(message: str | None) -> None:
    more = () if message is None else (message,)

    def program(x: Tensor) -> Tensor:
        y = x + 1
        torch._assert_async((y > 0).all(), *more)
        return y * 2

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 0, 17):
        x = torch.ones(rows, 2)
        assert torch.equal(fast(x), program(x))
        assert _said(fast, -2 * x) == _said(program, -2 * x)
    assert fast.stats().specializations == 1


def test_assert_async_of_several_values_is_refused_as_eager_refuses_it() -> None:
    def program(x: Tensor) -> Tensor:
        torch._assert_async(x > 0)
        return x * 2

    fast = anyshape.compile(program)
    for rows in (3, 1, 0):
        assert _said(fast, torch.ones(rows)) == _said(program, torch.ones(rows))


def test_a_tensor_has_no_tangent_outside_forward_mode() -> None:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        y = x + 1
        primal, tangent = forward_ad.unpack_dual(y)
        return y * 2 if tangent is None else tangent, primal is y

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 0):
        result, same = fast(torch.ones(rows))
        assert same and torch.equal(result, torch.full((rows,), 4.0))


@pytest.mark.filterwarnings("ignore")
def test_and_has_one_within() -> None:
    fast = anyshape.compile(lambda x: forward_ad.unpack_dual(x * 3).tangent)
    assert fast(torch.ones(2)) is None
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.full((2,), 5.0))
        assert torch.equal(fast(dual), torch.full((2,), 15.0))


def test_callable_asks_the_class_of_what_is_in_the_graph() -> None:
    class Module(torch.nn.Module):
        def __call__(self, x: Tensor) -> Tensor:
            return x

    def program(x: Tensor, given: list[int]) -> tuple[object, ...]:
        y = x + 1
        asked = [x, y, x.shape, x.shape[0], y.sum, given, given[0], len, None, Module()]
        return y * 2, *[callable(value) for value in asked]

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1):
        x = torch.ones(rows)
        assert fast(x, [1])[1:] == program(x, [1])[1:]
