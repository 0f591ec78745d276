"""The variance of ``gaussian_nll_loss``: a number, of the input's shape, or less, as eager reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

VARIANCES: dict[str, Callable[[Tensor], Tensor | float]] = {
    "one for each number": lambda x: x.abs() + 1,
    "one for each row, without its dimension": lambda x: x[..., 0].abs() + 1,
    "one for each row": lambda x: x[..., :1].abs() + 1,
    "one for each column": lambda x: x[:1].abs() + 1,
    "a number": lambda x: 2.0,
    "smaller than eps": lambda x: x.abs() * 1e-7,
    "infinite": lambda x: x.abs() / 0,
}
SHAPES = (3, 4), (4, 4), (2, 5), (5, 5), (1, 3)


def loss_with(
    variance: Callable[[Tensor], Tensor | float], **options: object
) -> Callable[[Tensor], Tensor]:
    return lambda x: F.gaussian_nll_loss(x, x * 2, variance(x), **options)  # type: ignore[arg-type]


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).requires_grad_()


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("variance", VARIANCES.values(), ids=VARIANCES.keys())
def test_values_and_gradients_are_eagers_and_nothing_runs_natively(
    variance: Callable[[Tensor], Tensor | float], reduction: str
) -> None:
    loss = loss_with(variance, full=True, reduction=reduction)
    fast = anyshape.compile(loss, fullgraph=True)
    for shape in SHAPES:
        x, y = numbers(*shape), numbers(*shape)
        ours, eager = fast(x), loss(y)
        torch.testing.assert_close(ours, eager)
        assert ours.stride() == eager.stride()
        torch.testing.assert_close(
            *(torch.autograd.grad(made.sum(), of)[0] for made, of in ((ours, x), (eager, y))),
            equal_nan=True,
        )
    assert not fast.stats().eager_graphs


REFUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "one number in a tensor": loss_with(lambda x: x.abs().sum()),
    "a row for all": loss_with(lambda x: x[:, 0, :].abs()),
    "two dimensions that differ": loss_with(lambda x: x[:1, :, :1].abs()),
    "a negative number": loss_with(lambda x: -2.0),
    "a negative element": loss_with(lambda x: x),
    "an integer": loss_with(lambda x: 2),
    "a reduction of another name": loss_with(lambda x: x.abs(), reduction="some"),
    "a mean by its old name": loss_with(lambda x: x.abs(), reduction="elementwise_mean"),
}


@pytest.mark.parametrize("loss", REFUSED.values(), ids=REFUSED.keys())
def test_what_eager_refuses_is_refused(loss: Callable[[Tensor], Tensor]) -> None:
    fast = anyshape.compile(loss)
    for shape in ((3, 4, 5), (2, 2, 3)):
        with pytest.raises(Exception) as eager:
            loss(numbers(*shape))
        with pytest.raises(eager.type):
            fast(numbers(*shape))


def test_a_loss_that_is_unused_refuses_a_reduction_that_there_is_not() -> None:
    def program(x: Tensor) -> Tensor:
        F.huber_loss(x, x, reduction="some")
        return x + 1

    with pytest.raises(ValueError, match="not a valid value"):
        anyshape.compile(program)(numbers(2, 3))
