"""The judge of results must itself be able to say no."""

from __future__ import annotations

import math

import pytest
import torch

from anyshape.tools.accuracy import judge, relative_error

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_equal_results_are_right() -> None:
    assert judge(X, X, X.double()).right


def test_twice_eagers_error_and_an_ulp_is_allowed_and_more_is_not() -> None:
    truth, eager = X.double(), X * (1 + 1e-5)
    assert judge(X * (1 + 1.9e-5), eager, truth).right
    assert not judge(X * (1 + 2.2e-5), eager, truth).right


def test_nan_where_eager_has_none_is_wrong_and_where_both_have_it_is_right() -> None:
    broken = X.clone()
    broken[0, 0] = math.nan
    assert not judge(broken, X, X.double()).right
    assert not judge(X, X, broken.double()).right
    assert judge(broken, broken, broken.double()).right


def test_one_infinity_in_the_reference_does_not_hide_the_rest() -> None:
    truth = X.clone()
    truth[0, 0] = math.inf
    off = truth.clone()
    off[2, 3] += 0.5
    assert relative_error(off, truth) > 0.1


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (X.double(), "dtype"),
        (X.reshape(4, 3), "shape"),
        (X.t().contiguous().t(), "strides"),
        (X.clone().requires_grad_(), "requires_grad"),
        ((X, X), "2 outputs"),
    ],
)
def test_what_else_must_be_eagers(result: object, fault: str) -> None:
    assert fault in judge(result, X, X.double()).fault


def test_strides_of_dimensions_of_size_one_do_not_matter() -> None:
    row = torch.randn(1, 4)
    other = torch.empty_strided((1, 4), (9, 1)).copy_(row)
    assert judge(other, row, row.double()).right


def test_integers_must_be_equal() -> None:
    counts = torch.arange(4)
    assert judge(counts, counts, counts).right
    assert not judge(counts + 1, counts, counts).right
