"""A scatter whose source is longer than its index: eager refuses the gradient of the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor], Tensor]

SCATTERS: dict[str, Program] = {
    "set": lambda x, i: x.scatter(0, i, x.clone()),
    "added": lambda x, i: x.scatter_add(0, i, x * 2),
    "set in place": lambda x, i: (x + 1).scatter_(0, i, x * 2),
    "added in place": lambda x, i: (x + 1).scatter_add_(0, i, x * 2),
    "set, of one column": lambda x, i: x.scatter(0, i[:, :1], x[:, :1] * 2),
    "a source without gradients": lambda x, i: x.scatter(0, i, x.detach() * 2),
}
SIZES = [(4, 4), (2, 3), (1, 4), (4, 4), (0, 4), (4, 1), (4, 0)]


def outcome(program: Callable[..., Any], sizes: tuple[int, int], *, whole: bool) -> Any:
    torch.manual_seed(0)
    x = torch.randn(4, 4, requires_grad=True)
    try:
        made = program(x, torch.zeros(sizes, dtype=torch.int64))
        if not whole:
            made.sum().backward()
    except RuntimeError as error:
        return str(error)
    return x.grad


@pytest.mark.parametrize("whole", [False, True], ids=["autograd", "a whole step"])
@pytest.mark.parametrize("name", SCATTERS)
def test_the_gradient_of_a_longer_source_is_refused_as_by_eager(name: str, whole: bool) -> None:
    scatter = SCATTERS[name]
    step = (lambda x, i: scatter(x, i).sum().backward()) if whole else scatter
    fast = anyshape.compile(step)
    for sizes in SIZES:
        ours = outcome(fast, sizes, whole=whole)
        eager = outcome(step, sizes, whole=whole)
        if isinstance(eager, str):
            assert ours == eager, sizes
        else:
            assert isinstance(ours, Tensor) and torch.equal(ours, eager), sizes


def test_a_source_as_long_as_its_index_has_a_compiled_gradient() -> None:
    fast = anyshape.compile(lambda x, i, y: x.scatter_add(0, i, y))
    for n in (3, 5):
        x, y = torch.zeros(9, 2, requires_grad=True), torch.ones(n, 2, requires_grad=True)
        fast(x, torch.zeros(n, 2, dtype=torch.int64), y).sum().backward()
    stats = fast.stats()
    assert not stats.recorded and stats.specializations == 1


@pytest.mark.parametrize("rank", [0, 1], ids=["of a scalar", "of a vector"])
@pytest.mark.parametrize("name", ["scatter", "scatter_add", "scatter_reduce"])
def test_a_scalar_index_takes_the_gradient_of_a_scalar_source_alone(name: str, rank: int) -> None:
    options = {"reduce": "sum"} if name == "scatter_reduce" else {}

    def step(x: Tensor, source: Tensor) -> Tensor:
        index = torch.tensor(0)
        made: Tensor = getattr(x, name)(0, index, source, **options)
        return made.sum()

    found = []
    for run in (step, anyshape.compile(step)):
        x, source = torch.ones(3, requires_grad=True), torch.ones((1,) * rank, requires_grad=True)
        try:
            run(x, source).backward()
            found.append((x.grad, source.grad))
        except RuntimeError as error:
            found.append(str(error))
    eager, ours = found
    if rank:
        assert eager == ours and "invalid gradient" in eager
    else:
        assert all(map(torch.equal, eager, ours))
