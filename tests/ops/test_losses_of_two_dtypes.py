"""Losses whose input, target and weight are of different types: the result is of eager's type."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "mse": lambda x, y, w: F.mse_loss(x, y),
    "mse of each": lambda x, y, w: F.mse_loss(x, y, reduction="none"),
    "l1": lambda x, y, w: F.l1_loss(x, y, reduction="sum"),
    "smooth l1": lambda x, y, w: F.smooth_l1_loss(x, y),
    "smooth l1 without a corner": lambda x, y, w: F.smooth_l1_loss(x, y, beta=0.0),
    "huber": lambda x, y, w: F.huber_loss(x, y),
    "huber of each": lambda x, y, w: F.huber_loss(x, y, reduction="none"),
    "soft margin": lambda x, y, w: F.soft_margin_loss(x, y.sign()),
    "logits": lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "logits of each": lambda x, y, w: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), reduction="none"
    ),
    "weighted logits": lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.sigmoid(), w),
    "logits of rare classes": lambda x, y, w: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), pos_weight=w
    ),
    "soft labels": lambda x, y, w: F.cross_entropy(x, y.softmax(-1)),
    "smoothed labels": lambda x, y, w: F.cross_entropy(x, y.softmax(-1), label_smoothing=0.1),
    "weighted labels": lambda x, y, w: F.cross_entropy(x, y.softmax(-1), w[0]),
    "weighted mse": lambda x, y, w: F.mse_loss(x, y, weight=w),
    "weighted l1": lambda x, y, w: F.l1_loss(x, y, weight=w),
    "weighted huber": lambda x, y, w: F.huber_loss(x, y, weight=w),
}


PAIRS = tuple(itertools.product(DTYPES, repeat=2))


def some(name: str) -> list[tuple[torch.dtype, torch.dtype]]:
    """Eight of the sixteen pairs: each dtype twice, and four of two dtypes, in which each is once
    on each side; three losses that follow each other have all of them."""
    count = len(DTYPES)
    apart = 1 + [*LOSSES].index(name) % (count - 1)
    unlike = [(x, DTYPES[(i + apart) % count]) for i, x in enumerate(DTYPES)]
    return [*unlike, *((dtype, dtype) for dtype in DTYPES)]


@torch.no_grad()
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_two_dtypes_is_of_eagers(name: str) -> None:
    assert_of_eagers(name, some(name))


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_any_two_dtypes_is_of_eagers(name: str) -> None:
    assert_of_eagers(name, PAIRS)


def test_losses_that_follow_each_other_have_every_pair() -> None:
    names = [*LOSSES]
    for first in range(len(names) - 2):
        assert {p for name in names[first : first + 3] for p in some(name)} == {*PAIRS}


def assert_of_eagers(name: str, pairs: Iterable[tuple[torch.dtype, torch.dtype]]) -> None:
    loss = LOSSES[name]
    fast = anyshape.compile(loss, fullgraph=True, options={"max_variants": 20})
    for dtypes in pairs:
        torch.manual_seed(0)
        x, y = (torch.randn(3, 4).to(dtype) for dtype in dtypes)
        w = torch.rand(3, 4).to(torch.float64 if dtypes[0] is dtypes[1] else torch.float32)
        found, expected = fast(x, y, w), loss(x, y, w)
        coarse = 3e-2 if torch.bfloat16 in dtypes else 5e-3 if torch.float16 in dtypes else 1e-5
        torch.testing.assert_close(found, expected, rtol=coarse, atol=coarse)


@pytest.mark.parametrize("name", ["mse", "logits", "soft labels"])
def test_gradients_are_of_the_types_of_what_they_are_of(name: str) -> None:
    loss = LOSSES[name]
    fast = anyshape.compile(loss, fullgraph=True)
    for dtypes in itertools.permutations((torch.float32, torch.bfloat16), 2):
        torch.manual_seed(0)
        given = [torch.randn(3, 4).to(dtype).requires_grad_() for dtype in dtypes]
        expected = torch.autograd.grad(loss(*given, given[0]), given)
        found = torch.autograd.grad(fast(*given, given[0]), given)
        torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)


@torch.no_grad()
@pytest.mark.parametrize("name", ["weighted mse", "weighted l1", "weighted huber"])
def test_weights_are_as_many_as_inputs(name: str) -> None:
    fast = anyshape.compile(LOSSES[name])
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(fast(x, y, y.abs()), LOSSES[name](x, y, y.abs()))
    with pytest.raises(ValueError, match="same size"):
        fast(x, y, y[:1].abs())


@torch.no_grad()
@pytest.mark.parametrize("target", [torch.int64, torch.bool], ids=str)
def test_what_eager_refuses_of_whole_numbers_is_refused(target: torch.dtype) -> None:
    x, y = torch.rand(2, 3), torch.ones(2, 3, dtype=target)
    for loss in (LOSSES["l1"], F.binary_cross_entropy_with_logits, F.huber_loss):
        given = (x, y, x) if loss is LOSSES["l1"] else (x, y)
        fast = anyshape.compile(loss)
        try:
            expected = loss(*given)
        except RuntimeError as error:
            with pytest.raises(type(error)):
                fast(*given)
        else:
            torch.testing.assert_close(fast(*given), expected)


@torch.no_grad()
def test_weights_of_samples_are_of_the_tables_type() -> None:
    def bags(table: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(
            torch.zeros(2, 2, dtype=torch.int64), table, per_sample_weights=weights, mode="sum"
        )

    fast = anyshape.compile(bags)
    table = torch.randn(3, 4)
    torch.testing.assert_close(fast(table, torch.ones(2, 2)), bags(table, torch.ones(2, 2)))
    with pytest.raises(RuntimeError, match="same type"):
        fast(table, torch.ones(2, 2, dtype=torch.float64))
