"""Launches of one kernel that may be done at once are one list, which one team of threads does; what
they compute is eager's, for any sizes and any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape import driver
from anyshape.ir.program import Launch, LaunchList, Program, Step

SIZES = ((0,), (1,), (7, 3), (), (1 << 16,), (5000,), (333, 2), (1, 1), (64,), (40_000, 3))
"""Some are worth threads by themselves, and all of them together."""


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Program]]:
    """What is compiled, before native regions are formed."""
    found: list[Program] = []
    translated = driver.Driver._translated

    def watched(self: driver.Driver, graph: object) -> object:
        made = translated(self, graph)
        if not isinstance(made, str):
            found.append(made[0].flat)
        return made

    monkeypatch.setattr(driver.Driver, "_translated", watched)
    yield found


def launches(program: Program) -> list[Step]:
    return [step for step in program.steps if isinstance(step, Launch | LaunchList)]


def decayed(ps: list[Tensor], gs: list[Tensor]) -> None:
    for p, g in zip(ps, gs):
        p.mul_(0.9).addcmul_(g, g, value=0.1)


def into_new_memory(ps: list[Tensor], gs: list[Tensor]) -> list[Tensor]:
    return [(p * 3 + g).tanh() for p, g in zip(ps, gs)]


def by_rows(ps: list[Tensor], gs: list[Tensor]) -> list[Tensor]:
    return [p.softmax(-1) + g for p, g in zip(ps, gs)]


def by_columns(ps: list[Tensor], gs: list[Tensor]) -> list[Tensor]:
    return [(p * g).sum(0) for p, g in zip(ps, gs)]


def beside_eager(
    run: Callable[[list[Tensor], list[Tensor]], object], shapes: Sequence[tuple[int, ...]]
) -> None:
    fast = anyshape.compile(run, fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        ours = [[torch.randn(shape) for shape in shapes] for _ in range(2)]
        theirs = [[tensor.clone() for tensor in tensors] for tensors in ours]
        found, expected = fast(*ours), run(*theirs)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
@pytest.mark.parametrize("run", [decayed, into_new_memory], ids=lambda run: run.__name__)
def test_elementwise_launches_on_any_sizes_are_one_list(run, threads, programs) -> None:
    beside_eager(run, SIZES)
    many = [shape for shape in SIZES if shape not in ((), (1,), (1, 1))]  # kernels with a loop
    counts = [len(step.launched()) for step in launches(programs[-1])]
    assert max(counts) == len(many) and sum(counts) == len(SIZES) and len(counts) <= 3


@torch.no_grad()
@pytest.mark.parametrize("run", [by_rows, by_columns], ids=lambda run: run.__name__)
@pytest.mark.parametrize("shape", [(0, 5), (3, 1), (60, 70), (200, 70), (900, 70)])
def test_whole_launches_are_dealt_out(run, shape, threads, programs) -> None:
    """Fewer than there are threads, as many, and more; small ones and large ones."""
    for count in (2, 3, 8):
        beside_eager(run, [shape] * count)
    lists = [step for step in programs[-1].steps if isinstance(step, LaunchList)]
    assert any(len(step.launches) == 8 for step in lists)


@torch.no_grad()
def test_a_launch_that_reads_what_another_one_writes_is_not_in_its_list(programs) -> None:
    def chain(p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        p.mul_(2.0)
        q.mul_(2.0)
        return p.sum(), q.sum()

    def twice(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        a = torch.sort(x.tanh()).values
        b = torch.sort(y.tanh()).values
        c = a.cumsum(0).tanh()
        return c, b.tanh(), torch.sort(c).values.tanh()

    for run in (chain, twice):
        fast = anyshape.compile(run, fullgraph=True)
        for size in (3000, 5, 0, 1):
            ours = [torch.randn(size) for _ in range(2)]
            theirs = [tensor.clone() for tensor in ours]
            torch.testing.assert_close(fast(*ours), run(*theirs))
            torch.testing.assert_close(ours, theirs)


def test_an_optimizer_updates_all_parameters_by_a_handful_of_launches(programs) -> None:
    """Weights, biases and norms alike, and one team of threads at most for each launch."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(w, w + 8), nn.LayerNorm(w + 8)) for w in range(8, 104, 8)]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

    @anyshape.compile
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for rows in (4, 1, 3):
        step(torch.randn(rows, 8))
    written = {name for name in programs[-1].inputs if name.startswith("p_")}
    updates = [s for s in launches(programs[-1]) if not written.isdisjoint(s.writes())]
    assert sum(len(step.launched()) for step in updates) == len([*net.parameters()])
    assert len(updates) <= 2
    text = step.code()
    assert text.count("#pragma omp parallel if (cells") == text.count("omp_get_num_threads(), at")


def test_the_numbers_of_a_list_may_differ(programs) -> None:
    """Adam corrects each moment by its own tensor of steps."""
    torch.manual_seed(1)
    ours, theirs = ([torch.randn(n).requires_grad_() for n in (5, 900, 1, 33)] for _ in range(2))
    for a, b in zip(ours, theirs):
        b.data.copy_(a.data)
    optimizers = [torch.optim.Adam(parameters, lr=0.1) for parameters in (ours, theirs)]
    for own, optimizer in zip((ours, theirs), optimizers):
        own[1].grad = torch.ones(900)
        optimizer.step()  # the others' first step comes later

    def update(parameters: list[Tensor], optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        sum(F.softplus(p).square().sum() for p in parameters).backward()
        optimizer.step()

    fast = anyshape.compile(update)
    for _ in range(4):
        fast(ours, optimizers[0])
        update(theirs, optimizers[1])
        torch.testing.assert_close(ours, theirs)
    assert any(isinstance(s, LaunchList) and s.divided for s in programs[-1].steps)
