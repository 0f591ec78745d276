"""`x.new(...)` and the classes of tensors take a size or the data, and tell them apart by class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import PerformanceWarning

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


def test_classes_are_called_in_one_graph() -> None:
    """Neither a mode nor a default device changes what they make."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        rows = x.shape[0]
        with torch.device("meta"):
            filled = torch.Tensor(rows, 2).fill_(3)
            sized = torch.FloatTensor(x.shape).zero_()
        return (
            filled,
            sized,
            torch.Tensor((rows, 2)),
            torch.Tensor([[rows, 2.5], [True, 1]]),
            torch.LongTensor([2.7, -1.5, rows]),
            torch.BoolTensor([rows > 2, False]),
            torch.Tensor(),
            torch.Tensor([1.0, 2.0]).mul_(2) + x,
        )

    fast = anyshape.compile(program, fullgraph=True)
    before = torch.get_default_dtype()
    try:
        for rows, dtype in ((3, torch.float32), (0, torch.float32), (1, torch.float64)):
            torch.set_default_dtype(dtype)
            x = torch.ones(rows, 2, dtype=torch.float32)
            for made, wanted in zip(fast(x), program(x), strict=True):
                torch.testing.assert_close(made, wanted, check_stride=True)
    finally:
        torch.set_default_dtype(before)


def test_what_a_class_is_handed_besides_is_torchs() -> None:
    shares = anyshape.compile(lambda x: torch.Tensor(x))
    x = torch.rand(3)
    with pytest.warns(PerformanceWarning):
        assert shares(x).data_ptr() == x.data_ptr()
    with pytest.raises(TypeError, match="got bool"), pytest.warns(PerformanceWarning):
        anyshape.compile(lambda x: torch.Tensor(x.shape[0] > 2))(x)
