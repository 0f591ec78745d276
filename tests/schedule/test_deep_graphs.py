"""Long chains: no recursion over their length, and work that grows as they do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anyshape
from benchmarks import growth

Function = Callable[[torch.Tensor], torch.Tensor]


def elementwise(turns: int) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(turns):
            x = x.sin()
        return x

    return run


def selected(turns: int) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(turns):
            x = torch.where(x > 0, x + 1, x * 0.5)
        return x

    return run


def turned(turns: int) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for _ in range(turns):
            y = y.t()
        return y * 2

    return run


def updated(turns: int) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        for _ in range(turns):
            y.add_(1).mul_(0.5)
        return y

    return run


def rolled(turns: int) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(turns):
            x = torch.cat([x[1:], x[:1] * 2])
        return x

    return run


def shortened(turns: int) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(turns):
            x = x[1:]
        return x * 2

    return run


def nested(depth: int, work: Callable[[], torch.Tensor]) -> torch.Tensor:
    return work() if depth == 0 else nested(depth - 1, work)


@pytest.mark.parametrize(
    ("program", "turns"),
    [
        (elementwise, 95),
        (selected, 90),
        (turned, 600),
        (updated, 90),
        (rolled, 30),
        (shortened, 30),
    ],
)
def test_a_long_chain_compiles_deep_in_the_callers_stack(
    program: Callable[[int], Function], turns: int
) -> None:
    run = program(turns)
    fast = anyshape.compile(run, fullgraph=True)
    for rows in (4, 1, 17, 33):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(nested(500, lambda: fast(x)), run(x))
    assert fast.stats().specializations == 1


def test_launches_grow_with_the_chain_and_kernels_do_not() -> None:
    seen = []
    for turns in (500, 1000, 2000):
        run = elementwise(turns)
        fast = anyshape.compile(run, fullgraph=True)
        x = torch.randn(2, 3)
        torch.testing.assert_close(fast(x), run(x))
        stats = fast.stats()
        seen.append((stats.kernels, stats.launches))
    assert all(kernels <= 3 for kernels, _ in seen)
    assert [launches for _, launches in seen] == [6, 11, 21]


def test_slices_of_slices_by_data_compile_deep_in_the_callers_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Views of views, each with a size of its own, are looked through without recursion. Without
    the verifier, which takes longer than all else."""
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    run, inputs = growth.sliced_again(600)
    fast = anyshape.compile(run, fullgraph=True)
    torch.testing.assert_close(nested(500, lambda: fast(*inputs)), run(*inputs))
    assert fast.stats().specializations == 1
