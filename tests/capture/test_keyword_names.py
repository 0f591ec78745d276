"""Every name that torch has for a parameter: its overloads, its methods and numpy name them differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

Program = Callable[[torch.Tensor], Any]
ONE, TWO = torch.tensor(1.0), torch.tensor([1])
PROGRAMS: dict[str, Program] = {
    "randint high": lambda x: torch.randint(high=5, size=(3,)),
    "randint, size by name": lambda x: torch.randint(5, size=x.shape),
    "randint all by name": lambda x: torch.randint(size=(3,), high=5, low=1),
    "randint_like high": lambda x: torch.randint_like(x, high=5),
    "randint_like both": lambda x: torch.randint_like(x, low=2, high=5),
    "random_ to": lambda x: torch.empty(3).random_(2, to=10),
    "uniform_ to": lambda x: torch.empty(3).uniform_(0.0, to=10.0),
    "uniform_ from": lambda x: torch.empty(3).uniform_(**{"from": 1.0, "to": 2.0}),
    "arange end": lambda x: torch.arange(end=x.shape[0], start=1, step=2),
    "heaviside values": lambda x: torch.heaviside(x, values=ONE),
    "heaviside_ values": lambda x: x.clone().heaviside_(values=ONE),
    "tensor_split sections": lambda x: torch.tensor_split(x, sections=2),
    "tensor_split indices": lambda x: torch.tensor_split(x, indices=(1, 2)),
    "hsplit sections": lambda x: torch.hsplit(x, sections=2),
    "vsplit indices": lambda x: x[:, None].vsplit(indices=(1,)),
    "dsplit sections": lambda x: torch.dsplit(x[None, None], sections=2),
    "swapaxes": lambda x: torch.swapaxes(x[None], axis0=0, axis1=1),
    "scatter value": lambda x: torch.scatter(x, 0, TWO, value=3.0),
    "scatter_ value": lambda x: x.clone().scatter_(0, TWO, value=3.0),
    "scatter_ reduce": lambda x: x.clone().scatter_(0, TWO, value=3.0, reduce="multiply"),
    "view dtype": lambda x: x.view(dtype=torch.int32),
    "view_copy size": lambda x: torch.view_copy(x, size=(1, -1)),
    "view_copy dtype": lambda x: torch.view_copy(x, dtype=torch.int32),
    "split tensor": lambda x: torch.split(tensor=x, split_size_or_sections=2, dim=0),
    "split split_size": lambda x: x.split(split_size=2),
    "split_copy split_size": lambda x: torch.split_copy(x, split_size=2),
    "isin element": lambda x: torch.isin(element=1, test_elements=x),
    "isin test_element": lambda x: torch.isin(x, test_element=1),
    "tensordot a, b": lambda x: torch.tensordot(a=x, b=x, dims=1),
    "sum axis": lambda x: torch.sum(x, axis=0, keepdims=True),
    "normal mean": lambda x: torch.normal(mean=0.0, std=1.0, size=x.shape),
    "multinomial": lambda x: torch.multinomial(num_samples=2, input=torch.ones(4)),
}
MISTAKES: dict[str, Program] = {
    "unknown name": lambda x: torch.add(x, x, foo=1),
    "nothing added": lambda x: torch.add(x),
    "no size of the parts": lambda x: x.split(),
    "no end": lambda x: torch.randint(size=(3,)),
    "two names of one": lambda x: torch.sum(x, dim=0, axis=0),
    "by position and by name": lambda x: x.sum(0, dim=0),
    "no source": lambda x: torch.scatter(x, 0, TWO),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_names(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for size in (4, 6):
        x = torch.randn(size)
        torch.manual_seed(0)
        expected = program(x)
        torch.manual_seed(0)
        torch.testing.assert_close(fast(x), expected)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_as_eager_refuses_them(name: str) -> None:
    program, x = MISTAKES[name], torch.randn(4)
    with pytest.raises(TypeError) as expected:
        program(x)
    with pytest.raises(TypeError) as found:
        anyshape.compile(program, fullgraph=True)(x)
    assert str(found.value) == str(expected.value)
