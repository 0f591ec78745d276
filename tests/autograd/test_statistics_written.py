"""Running statistics that are written between a call of a batch norm and its backward: eager's
formula keeps them, and refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same

Norm = nn.BatchNorm1d


def nothing(norm: Norm) -> None:
    pass


def mean(norm: Norm) -> None:
    norm.running_mean.add_(1)  # type: ignore[union-attr]


def variance(norm: Norm) -> None:
    norm.running_var.mul_(2)  # type: ignore[union-attr]


def all_of_them(norm: Norm) -> None:
    norm.reset_running_stats()


def count(norm: Norm) -> None:
    norm.num_batches_tracked.add_(1)  # type: ignore[union-attr]


def by_another_call(norm: Norm) -> None:
    """Of which version counters know nothing."""
    norm(torch.randn(3, 4, dtype=torch.double))


def bias(norm: Norm) -> None:
    if norm.bias is not None:
        norm.bias.add_(1)


NORMS: dict[str, Callable[[], Norm]] = {
    "training": lambda: Norm(4),
    "without weights": lambda: Norm(4, affine=False),
    "an average of all": lambda: Norm(4, momentum=None),
    "without statistics": lambda: Norm(4, track_running_stats=False),
    "evaluated": lambda: Norm(4).eval(),
}
WRITES = (nothing, mean, variance, all_of_them, count, by_another_call, bias)


def outcomes(
    make: Callable[[], Norm], write: Callable[[Norm], None], compiled: bool
) -> list[Tensor | str | None]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), make()).double()
    run = anyshape.compile(net, fullgraph=True) if compiled else net
    found: list[Tensor | str | None] = []
    norm = net[1]
    assert isinstance(norm, Norm)
    if norm.running_mean is None and write in (mean, variance, all_of_them, count):
        return []
    for rows in (5, 3, 8):
        x = torch.randn(rows, 4, dtype=torch.double, requires_grad=True)
        made = run(x)
        with torch.no_grad():
            write(norm)
        try:
            made.sin().sum().backward()
            found.append(x.grad)
        except RuntimeError as error:
            found.append(str(error)[:60])
    if compiled:
        stats = run.stats()  # type: ignore[union-attr]
        assert (stats.specializations, stats.eager_graphs) == (1, ())
    return found


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("norm", NORMS)
def test_statistics_that_a_formula_keeps_are_not_written(
    norm: str, write: Callable[[Norm], None]
) -> None:
    assert_same(*(outcomes(NORMS[norm], write, compiled) for compiled in (True, False)), 1e-9)
