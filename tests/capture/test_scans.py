"""`associative_scan`: a linear recurrence is one row at any length; other scans are torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan
from torch._subclasses import FakeTensorMode

import anyshape
from anyshape.capture.tensors.torch_polyfills import is_mode_of

Step = Callable[[Any, Any], Any]
LENGTHS = (7, 16, 33, 2, 1, 17, 64)


def states(left: Any, right: Any) -> Any:
    (a, b), (c, d) = left, right
    return a * c, c * b + d


def states_the_other_way_round(left: Any, right: Any) -> Any:
    return right[0] * left[0], right[1] + left[1] * right[0]


def sums(left: Any, right: Any) -> Any:
    return left[0] + right[0], left[1] + right[1]


def doubled(left: Any, right: Any) -> Any:
    return left[0] * right[0], torch.add(left[1] * right[0], right[1], alpha=2)


def crossed(left: Any, right: Any) -> Any:
    return left[0] * right[0], left[0] * right[1] + left[1]


def scanning(step: Step, dim: int, *, reverse: bool = False) -> Callable[[Tensor, Tensor], Any]:
    return lambda a, b: associative_scan(
        step, (a, b), dim=dim, reverse=reverse, combine_mode="generic"
    )


def holds(program: Callable[[Tensor, Tensor], Any], dim: int, dtype: torch.dtype) -> Any:
    """Compares with torch's own at several lengths; gives the counts."""
    fast = anyshape.compile(program)
    for length in LENGTHS:
        generator = torch.Generator().manual_seed(length)
        shape = [2, 3, 4]
        shape.insert(dim, length)
        a, b = (torch.rand(shape, generator=generator).to(dtype) for _ in range(2))
        for made, wanted in zip(fast(a, b), program(a, b), strict=True):
            torch.testing.assert_close(made, wanted)
            assert made.stride() == wanted.stride()
    return fast.stats()


@pytest.mark.parametrize("dim", [0, 2, 3])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("step", [states, states_the_other_way_round])
def test_a_linear_recurrence_is_no_break_at_any_length(step: Step, reverse: bool, dim: int) -> None:
    stats = holds(scanning(step, dim, reverse=reverse), dim, torch.float32)
    assert stats.graph_breaks == 0
    assert stats.specializations <= 2  # one element is what was given


def test_a_linear_recurrence_of_doubles_is_one_of_doubles() -> None:
    assert holds(scanning(states, 1), 1, torch.float64).graph_breaks == 0


@pytest.mark.parametrize("step", [sums, doubled, crossed])
def test_other_scans_are_torch_s_own(step: Step) -> None:
    holds(scanning(step, 2), 2, torch.float64)


def test_gradients_go_through_a_linear_recurrence() -> None:
    program = scanning(states, 1)
    fast = anyshape.compile(program)
    for length in (5, 2, 9):
        a, b = (torch.rand(2, length, 3, dtype=torch.float64) for _ in range(2))
        grads = []
        for run in (fast, program):
            x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
            run(x, y)[1].sum().backward()
            grads.append((x.grad, y.grad))
        torch.testing.assert_close(*grads)


def test_a_scan_of_what_is_pointwise_is_the_same_row_on_a_gpu() -> None:
    """torch's own compiles it, and its gradients were off by some percent."""
    with FakeTensorMode():
        there, here = torch.empty(2, device="cuda"), torch.empty(2)
    assert is_mode_of("pointwise", [there, there]) and not is_mode_of("pointwise", [there, here])
    assert is_mode_of("generic", [here]) and not is_mode_of("other", [there])


def test_a_scan_that_is_said_to_be_pointwise_is_refused_on_a_processor() -> None:
    a, b = torch.rand(2, 3), torch.rand(2, 3)
    program = lambda a, b: associative_scan(states, (a, b), dim=0)
    with pytest.raises(ValueError, match="need to be on CUDA"):
        program(a, b)
    with pytest.raises(ValueError, match="need to be on CUDA"):
        anyshape.compile(program)(a, b)
