"""A size that would be negative is refused where eager refuses it, also when nothing is made of that size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

SIZED: dict[str, Callable[[Tensor, int], Tensor]] = {
    "zeros": lambda x, n: torch.zeros(n),
    "ones": lambda x, n: torch.ones(2, n),
    "ones of nothing": lambda x, n: torch.ones(n, 0),
    "empty": lambda x, n: torch.empty(n, 2),
    "full": lambda x, n: torch.full((n,), 2.0),
    "eye": lambda x, n: torch.eye(n),
    "eye of columns": lambda x, n: torch.eye(2, n),
    "linspace": lambda x, n: torch.linspace(0, 1, n),
    "arange": lambda x, n: torch.arange(n),
    "rand": lambda x, n: torch.rand(n),
    "randint": lambda x, n: torch.randint(0, 5, (n,)),
    "randperm": lambda x, n: torch.randperm(n),
    "tril_indices": lambda x, n: torch.tril_indices(n, 3),
    "new_zeros": lambda x, n: x.new_zeros(n),
    "new_full": lambda x, n: x.new_full((2, n), 1),
    "split": lambda x, n: x.split([5 - n, n])[1],
    "the other part of a split": lambda x, n: x.split([5 - n, n])[0],
    "chunk": lambda x, n: x.chunk(n)[0],
    "equal parts": lambda x, n: x.split(n)[0],
    "narrow": lambda x, n: x.narrow(0, 0, n),
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "repeat": lambda x, n: x.repeat(n),
    "tile": lambda x, n: x.tile(n),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n),
    "pad": lambda x, n: F.pad(x, (2 * n, n)),
    "expand": lambda x, n: x.expand(n - 1, 5),
    "topk": lambda x, n: x.topk(n)[0],
    "view": lambda x, n: x.view(n, -1),
    "as_strided": lambda x, n: x.as_strided((n,), (1,)),
    "vander": lambda x, n: torch.vander(x, n),
    "conv1d": lambda x, n: F.conv1d(x[None, None, : n + 2].float(), torch.ones(1, 1, 3)),
    "of data": lambda x, n: torch.ones(int(x[:1].sum()) + n),
}
READ: dict[str, Callable[[Tensor], Any]] = {
    "elements": lambda t: t,
    "sum": lambda t: t.sum(),
    "shape": lambda t: t.shape,
    "not at all": lambda t: 3,
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("name", SIZED)
@pytest.mark.filterwarnings("ignore")
def test_a_negative_size_is_refused(name: str, read: str) -> None:
    def program(x: Tensor, n: int) -> Any:
        return READ[read](SIZED[name](x, n))

    fast = anyshape.compile(program)
    for n in (2, 0, -1, -3, 1):
        assert _class_of(fast, n) == _class_of(program, n), n


def _class_of(program: Callable[..., Any], n: int) -> str:
    """What is raised, if anything."""
    try:
        program(torch.arange(5), n)
    except Exception as error:
        return type(error).__name__
    return "nothing"
