"""Of several writes to one place the last one stays, in the order of the indices, however what is
written lies in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

F = torch.nn.functional


def of_shuffled_pixels(x: Tensor) -> Tensor:
    t = F.pixel_shuffle(x, 2) * 1
    return t.scatter_(-1, F.pixel_shuffle(x, 2).argsort(-2), t.clone())


def of_columns(x: Tensor) -> Tensor:
    rows = (x[0, 0].mT > 0).long()
    columns = (x[0, 1].mT > 0).long()
    return x.new_zeros(2, 2).index_put((rows, columns), x[0, 2].mT)


def of_a_flattened_turn(x: Tensor) -> Tensor:
    turned = x[0].permute(2, 0, 1)
    return x.new_zeros(3).scatter(0, turned.flatten().long().abs() % 3, turned.flatten())


WRITES = (of_shuffled_pixels, of_columns, of_a_flattened_turn)


def written_in_order(program: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a plain loop over the indices leaves."""
    if program is of_shuffled_pixels:
        t = F.pixel_shuffle(x, 2)
        made, at = t.clone(), t.argsort(-2)
        for n, c, r, i in torch.cartesian_prod(*map(torch.arange, t.shape)).tolist():
            made[n, c, r, at[n, c, r, i]] = t[n, c, r, i]
        return made
    if program is of_columns:
        made = x.new_zeros(2, 2)
        for row, column, value in zip(*(x[0, n].mT.flatten().tolist() for n in range(3))):
            made[int(row > 0), int(column > 0)] = value
        return made
    made = x.new_zeros(3)
    for value in x[0].permute(2, 0, 1).flatten().tolist():
        made[abs(int(value)) % 3] = value
    return made


@pytest.mark.parametrize("program", WRITES)
def test_the_last_write_stays(program: Callable[[Tensor], Tensor]) -> None:
    fast = anyshape.compile(program)
    for seed, size in enumerate((3, 5, 2)):
        x = torch.randint(-4, 5, (2, 4, size, size), generator=torch.manual_seed(seed)).float()
        assert torch.equal(fast(x), written_in_order(program, x))
