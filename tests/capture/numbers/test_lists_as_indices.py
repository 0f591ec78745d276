"""`x[[...]]`: what a list or tuple of numbers means as an index, whatever the numbers are: constants,
sizes, numbers and bools from data, tensors of one element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Key = Callable[[Tensor, Tensor], Any]

# fmt: off
KEYS: dict[str, Key] = {
    "constants": lambda x, i: [0, 2],
    "pairs": lambda x, i: ([0, 2], (1, -1)),
    "bools": lambda x, i: ([True, False, True],),
    "bools beside ints": lambda x, i: ([True, 2, 0],),
    "floats": lambda x, i: ([0.5, 1.5],),
    "nothing": lambda x, i: [],
    "lists of lists": lambda x, i: ([[0, 1], [2, 0]],),
    "sizes": lambda x, i: [x.shape[0] - 1, 0],
    "a tuple of sizes": lambda x, i: ((x.shape[0] - 1, x.shape[0] - 2), slice(1, None)),
    "sizes in lists of lists": lambda x, i: ([[x.shape[0] - 1, 0], [1, x.shape[0] - 3]],),
    "bools of sizes": lambda x, i: [x.shape[1] > k for k in (3, 4, 5)],
    "bools of sizes beside ints": lambda x, i: [x.shape[1] > 4, 1, True],
    "tensors": lambda x, i: ((i[0], i[1]), (i[1], i[2])),
    "tensors beside numbers": lambda x, i: ([i[0], 1, x.shape[0] - 1, True],),
    "tensors of one element": lambda x, i: ([i[0].unsqueeze(0), i[1].view(1, 1)],),
    "tensors of bools": lambda x, i: ([v > 0 for v in i],),
    "tensors of bools beside ints": lambda x, i: ([i[0] > 0, 1, 0],),
    "tensors in lists of lists": lambda x, i: ([[i[0], 1], [x.shape[0] - 1, i[2]]],),
    "negative tensors": lambda x, i: ([-i[0], -1],),
    "outside lists": lambda x, i: (OUTSIDE, OUTSIDE_TENSORS),
    "beside all else": lambda x, i: (None, [i[0], 1], ..., [0, x.shape[1] - 1]),
    "zipped": lambda x, i: tuple(zip(*[(v, 1) for v in i])),
}
# fmt: on
OUTSIDE, OUTSIDE_TENSORS = [0, 1], [torch.tensor(2), torch.tensor(1)]


@torch.no_grad()
@pytest.mark.parametrize("name", KEYS)
def test_a_list_as_an_index(name: str) -> None:
    key = KEYS[name]

    def program(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        y[key(x, i)] = 7
        return x[key(x, i)] + 1, y

    fast = anyshape.compile(program, fullgraph=True)
    for shape, positions in (((3, 4), [0, 2, 1]), ((3, 5), [2, 1, 2]), ((3, 7), [1, 0, 0])):
        x, i = torch.arange(shape[0] * shape[1]).reshape(shape), torch.tensor(positions)
        for got, expected in zip(fast(x, i), program(x, i), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in KEYS if name != "nothing"])
def test_a_list_of_numbers_of_data_as_an_index(name: str) -> None:
    """What was a tensor is read first: numbers and bools that only the run knows."""
    key = KEYS[name]

    def program(x: Tensor, i: Tensor) -> Tensor:
        return x[read(key(x, i))] + 1

    fast = anyshape.compile(program)
    for shape, positions in (((3, 4), [0, 2, 1]), ((3, 5), [2, 1, 2]), ((3, 7), [1, 0, 0])):
        x, i = torch.arange(shape[0] * shape[1]).reshape(shape), torch.tensor(positions)
        torch.testing.assert_close(fast(x, i), program(x, i), rtol=0, atol=0)


def read(key: Any) -> Any:
    if isinstance(key, (list, tuple)):
        return type(key)([read(part) for part in key])
    return key.item() if isinstance(key, Tensor) else key


TAKEN_FOR_TUPLES: dict[str, Key] = {
    "tensors": lambda x, i: [i[0], i[1]],
    "lists": lambda x, i: [[0, 1], [1, 2]],
    "slices": lambda x, i: [slice(0, 2), 1],
    "sizes": lambda x, i: [[x.shape[0] - 1, 0], [0, 1]],
    "None": lambda x, i: [None, 1],
}


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("name", TAKEN_FOR_TUPLES)
def test_a_list_that_torch_takes_for_a_tuple(name: str) -> None:
    key = TAKEN_FOR_TUPLES[name]
    fast = anyshape.compile(lambda x, i: x[key(x, i)] + 1)
    for shape in ((3, 4), (4, 5)):
        x, i = torch.arange(shape[0] * shape[1]).reshape(shape), torch.tensor([0, 2, 1])
        torch.testing.assert_close(fast(x, i), x[key(x, i)] + 1, rtol=0, atol=0)
