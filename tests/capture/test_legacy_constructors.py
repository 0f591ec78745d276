"""`x.new(...)` and the classes of tensors take a size or the data, and tell them apart by class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

OF_A_SIZE: dict[str, Callable[[Tensor], Any]] = {
    "new of a shape": lambda x: x.new(x.shape),
    "new of a size": lambda x: x.new(torch.Size((2, 3))),
    "new of a longer size": lambda x: x.new(torch.Size((2,)) + x.shape),
    "new of a part of a shape": lambda x: x.new(x.shape[:1]),
    "new of no dimensions": lambda x: x.new(torch.Size([])),
    "new of numbers": lambda x: x.new(x.shape[0], 3),
    "new of nothing": lambda x: x.new(),
    "new by name": lambda x: x.new(size=(2, 3)),
    "new on a device": lambda x: x.new(x.shape, device="cpu"),
    "a class": lambda x: torch.FloatTensor(x.shape),
    "Tensor": lambda x: torch.Tensor(x.shape),
}
OF_DATA: dict[str, Callable[[Tensor], Any]] = {
    "new of a tuple": lambda x: x.new((2.0, 3.0)),
    "new of a list of sizes": lambda x: x.new([x.shape[0], 2.5]),
    "new of nested lists": lambda x: x.new([[1, 2], [3, 4]]),
    "a filled size": lambda x: x.new(x.shape).fill_(2) * x,
    "drawn": lambda x: x.new(torch.Size((2,)) + x.shape).exponential_() / x,
    "a class": lambda x: torch.FloatTensor([1, 2]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_A_SIZE)
def test_a_size_is_no_data(name: str) -> None:
    program, fast = OF_A_SIZE[name], anyshape.compile(OF_A_SIZE[name])
    for rows in (3, 1, 0, 5):
        x = torch.rand(rows, 2)
        made, wanted = fast(x), program(x)
        assert made.shape == wanted.shape
        assert made.dtype is wanted.dtype


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_DATA)
def test_data_is_no_size(name: str) -> None:
    program, fast = OF_DATA[name], anyshape.compile(OF_DATA[name])
    for rows in (3, 1, 0, 5):
        x = torch.rand(rows, 2)
        torch.manual_seed(0)
        wanted = program(x)
        torch.manual_seed(0)
        torch.testing.assert_close(fast(x), wanted)


def test_what_is_neither_is_refused_as_in_eager() -> None:
    fast = anyshape.compile(lambda x: x.new(True))
    with pytest.raises(TypeError):
        fast(torch.rand(2))


def test_the_name_of_a_tensors_class_is_known() -> None:
    def program(x: Tensor) -> Any:
        return x * 2, x.type(), x.int().type(), (x > 0).type()

    fast = anyshape.compile(program, fullgraph=True)
    for x in (torch.rand(3), torch.rand(3).double(), torch.rand(2).bfloat16()):
        assert fast(x)[1:] == program(x)[1:]
