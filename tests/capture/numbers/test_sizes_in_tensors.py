"""A size that a program puts into a tensor is still a size where it is read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

LENGTHS = (7, 16, 33, 64, 2, 1, 0, 17)


def windows(x: Tensor) -> Tensor:
    """As sliding attention counts its chunks."""
    count = torch.div(x.shape[1], 2, rounding_mode="trunc") + 1
    return x.new_zeros(count, 3) + x.sum()


def sliced(x: Tensor) -> Tensor:
    parts = [slice(None)] * x.ndim
    parts[1] = slice(1, 1 + x.shape[1] // 2)
    return x[tuple(parts)]


def padded(x: Tensor) -> Tensor:
    length = torch.tensor(x.shape[1])
    return torch.nn.functional.pad(x, (0, int(-length % 8)))


def written(x: Tensor) -> Any:
    count = torch.tensor(x.shape[1])
    view = count.view(1)
    view += x.shape[0]
    return x * count, count.item() + 1


def branched(x: Tensor) -> Tensor:
    half = torch.tensor(x.shape[1]) // 2
    return x[:, :half] * 2 if half > 2 else x


def least(x: Tensor) -> Tensor:
    a, b = torch.tensor(x.shape[1]), torch.full((), x.shape[0], dtype=torch.int64)
    return x.new_ones(torch.minimum(a, b * 3 - 1), torch.maximum(a.clone(), -b))


PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "windows": (windows, 1),
    "sliced": (sliced, 1),
    "padded": (padded, 1),
    "written in place": (written, 1),
    "branched": (branched, 2),
    "least": (least, 1),
    "an item": (lambda x: (x + 1, torch.tensor(x.shape[1]).item() * 2), 1),
    "shown": (lambda x: (x + 1, f"{torch.tensor(x.shape[1]) - 1:>4} of {(x > 0).sum()}"), 1),
    "a small dtype": (
        lambda x: x + torch.tensor(x.shape[1] * 40, dtype=torch.int64).to(torch.uint8),
        1,
    ),
    "negative": (lambda x: x + torch.div(3 - x.shape[1], 2, rounding_mode="trunc").item(), 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_size_in_a_tensor_is_no_break_and_no_specialization(name: str) -> None:
    program, most = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for length in LENGTHS:
        x = torch.rand(2, length, generator=torch.Generator().manual_seed(length)) - 0.5
        made, wanted = fast(x), program(x)
        if isinstance(wanted, tuple):
            assert made[1] == wanted[1]
            made, wanted = made[0], wanted[0]
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)
    assert fast.stats().specializations <= most


def test_a_quotient_under_one_side_of_a_branch_is_not_that_of_the_other() -> None:
    def program(x: Tensor) -> Tensor:
        rest = torch.tensor(x.shape[1]) - 4
        if x.shape[1] >= 4:
            half = torch.div(rest, 2, rounding_mode="trunc")
        else:
            half = torch.div(rest, 2, rounding_mode="trunc")
        return x + half.item()

    fast = anyshape.compile(program)
    for length in (8, 1, 3, 0, 5):
        x = torch.zeros(2, length)
        assert torch.equal(fast(x), program(x))


AS_A_NUMBER: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "view": lambda x, n: x.view(n, -1),
    "zeros": lambda x, n: torch.zeros((n, 2)),
    "expand": lambda x, n: x[:1].expand(n, x.shape[1]),
    "slice": lambda x, n: x[:n],
    "narrow": lambda x, n: x.narrow(0, n, 1),
    "arange": lambda x, n: torch.arange(n),
    "pad": lambda x, n: torch.nn.functional.pad(x, (n, 0)),
    "unflatten": lambda x, n: x.unflatten(0, (n, -1)),
    "select": lambda x, n: x.select(0, n),
    "diagonal": lambda x, n: x.diagonal(n),
    "a dimension": lambda x, n: x.sum(n - 2),
    "topk": lambda x, n: x.topk(n, 0)[0],
    "sizes of as_strided": lambda x, n: (x * 1).as_strided((n, 2), (1, 1)),
    "strides of as_strided": lambda x, n: (x * 1).as_strided((2, 2), (n, 1), n),
    "an argument's as_strided": lambda x, n: x.as_strided((n, 2), (1, 1)),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", AS_A_NUMBER)
def test_a_tensor_where_a_number_is_wanted(name: str, known: bool) -> None:
    read = AS_A_NUMBER[name]

    def program(x: Tensor, n: Tensor) -> Any:
        return read(x, torch.tensor(x.shape[0] // 2) if known else n)

    fast = anyshape.compile(program)
    for rows in (4, 6):
        x = torch.arange(rows * 3.0).reshape(rows, 3)
        torch.testing.assert_close(fast(x, torch.tensor(2)), program(x, torch.tensor(2)))
    assert fast.stats().internal_errors == 0
