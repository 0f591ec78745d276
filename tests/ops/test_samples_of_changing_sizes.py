"""Operators of torch's database whose result, random numbers or refusal hang on a size or a number
that changes: each program is compiled once, and called as the samples of the database go on.

Compared as random programs are: values, layouts, gradients, errors and the state of the random
numbers afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from tests.fuzz.oracle import call, differences

Sample = tuple[Any, ...]


def attended(q: Tensor, k: Tensor, v: Tensor, p: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=p)


def added_in_place(x: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    x, m = x.detach(), m.detach()
    return x.addmv_(m, v.detach()), m.addr_(x, v.detach(), beta=0, alpha=0)


def added_to_nothing(x: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 2).addmv_(m, v, beta=0), torch.addr(x[:, None] * 2, m[:, 0], v, beta=0)


def windows(rows: int, size: int) -> Callable[[], Tensor]:
    """That overlap: two strides of theirs are equal."""
    return lambda: torch.arange(rows * 6.0).view(rows, 3, 2).unfold(0, size, 1)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Sample]]] = {
    "attention_that_drops_nothing_any_more_draws_nothing": (
        lambda x, p: attended(x, x, x, p),
        [((3, 4), p) for p in (0.5, 0.2, 0.0)],
    ),
    "attention_of_nothing_has_the_batch_of_its_query": (
        attended,
        [
            ((2, 3, 8), (4, 2, 6, 8), (4, 2, 6, 5), 0.5),
            ((2, 3, 8), (0, 2, 6, 8), (0, 2, 6, 5), 0.5),
            ((0, 3, 8), (2, 0, 6, 8), (2, 0, 6, 5), 0.5),
        ],
    ),
    "rrelu_whose_gradient_is_asked_for_later_draws_once": (
        lambda x, recorded: F.rrelu(x if recorded else x.detach(), 0.0, 1.0, training=True),
        [((20,), False), ((20,), True)],
    ),
    "addmv_of_an_empty_matrix_has_the_shape_of_its_addend": (
        lambda x, m, v: torch.addmv(x, m, v, beta=0.2),
        [((1,), (5, 3), (3,)), ((1,), (5, 0), (0,)), ((), (0, 3), (3,))],
    ),
    "products_added_in_place_are_compiled": (
        added_in_place,
        [((3,), (3, 4), (4,)), ((1,), (1, 2), (2,)), ((2,), (3, 2), (2,))],
    ),
    "what_is_added_to_a_product_is_no_larger": (
        lambda x, m, v: torch.addmv(x, m, v),
        [((1,), (1, 2), (2,)), ((3,), (1, 2), (2,))],
    ),
    "what_is_added_to_a_sum_of_products_is_no_larger": (
        lambda x, m: x.detach().addbmm_(m.detach(), m.detach()),
        [((1, 1), (2, 1, 1)), ((3, 1), (2, 1, 1))],
    ),
    "vectors_that_products_are_added_to_are_as_long": (
        lambda x, m, v: x.detach().addmv_(m.detach(), v.detach()),
        [((1,), (1, 2), (2,)), ((3,), (1, 2), (2,)), ((0,), (1, 2), (2,))],
    ),
    "what_no_product_is_added_to_has_a_gradient_of_zeros": (
        added_to_nothing,
        [((3,), (3, 4), (4,)), ((1,), (1, 2), (2,))],
    ),
    "products_of_all_elements_and_of_rows_where_several_are_0": (
        lambda x: (x.prod(), x[0].prod(0)),
        [(lambda: torch.tensor([[0.0, 0.0, torch.nan, 2.0]]).requires_grad_(),)],
    ),
    "glu_rounds_once_and_keeps_signs_of_zero": (
        lambda x: torch.autograd.grad(F.glu(x).sum(), x)[0].signbit(),
        [(lambda: torch.tensor([-1.0, 2, -3, 40, -200, 90]).bfloat16().requires_grad_(),)],
    ),
    "windows_that_overlap_are_ordered_by_how_many_there_are": (
        lambda x: x - 1,
        [(windows(5, 4),), (windows(6, 4),), (windows(8, 3),)],
    ),
    "response_norm_of_nothing_is_its_argument": (
        lambda x: F.local_response_norm(x, 1),
        [((1, 2, 3),), ((1, 2, 0),)],
    ),
    "unique_columns_of_none_lie_in_rows": (
        lambda x: torch.unique(x.detach(), dim=1).stride(),
        [((3, 2),), ((3, 0),)],
    ),
    "logsumexp_along_no_dimension_is_refused": (
        lambda x: x.logsumexp(()),
        [((3, 2),), ((3, 0),), ((),)],
    ),
}


def made(sample: Sample) -> list[Any]:
    """Tensors of the shapes among the arguments, which require gradients; what functions make."""
    drawn = torch.Generator().manual_seed(1)

    def argument(part: Any) -> Any:
        if isinstance(part, tuple):
            return torch.randn(part, generator=drawn).requires_grad_()
        return part() if callable(part) else part

    return [argument(part) for part in sample]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", PROGRAMS)
def test_samples_one_after_another(name: str) -> None:
    program, samples = PROGRAMS[name]
    fast = anyshape.compile(program)
    for sample in samples:
        found, wanted = call(fast, made(sample)), call(program, made(sample))
        assert not [*differences(found, wanted, exact=False)], sample
    assert not fast.stats().internal_errors
