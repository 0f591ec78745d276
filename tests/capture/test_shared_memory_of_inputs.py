"""Inputs that lie in one storage, of which some are written: parts that do not overlap are compiled, what
overlaps runs natively, whoever holds it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.capture.guards.no_alias import Fixed, NoAlias
from anyshape.errors import PerformanceWarning

Step = Callable[[Tensor], Any]


def tied_by_their_data() -> tuple[Step, nn.Module]:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight.data = first.weight.data
    net = nn.Sequential(first, nn.Tanh(), second)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, weight_decay=0.5)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            first.weight.mul_(0.9)
            return net(x), second.weight.sum()

    return step, net


def a_row_of_another_parameter() -> tuple[Step, nn.Module]:
    net = nn.Linear(4, 4)
    row = net.weight.data[1]

    def step(x: Tensor) -> Any:
        with torch.no_grad():
            before = net(x)
            row.add_(1.0)
            return before, net(x), net.weight.sum()

    return step, net


@pytest.mark.parametrize("make", [tied_by_their_data, a_row_of_another_parameter])
def test_parameters_that_overlap_are_seen_written(make: Callable[[], Any]) -> None:
    runs = []
    for compiled in (True, False):
        torch.manual_seed(0)
        step, net = make()
        run = anyshape.compile(step) if compiled else step
        made = [run(torch.ones(rows, 4)) for rows in (3, 1, 2)]
        runs.append([made, [p.detach() for p in net.parameters()]])
    torch.testing.assert_close(*runs)


def in_one_vector(net: nn.Module) -> Tensor:
    """Parameters and gradients that are parts of two vectors; that of the gradients."""
    vector = nn.utils.parameters_to_vector(net.parameters()).detach()
    nn.utils.vector_to_parameters(vector, net.parameters())
    gradients, start = torch.zeros_like(vector), 0
    for p in net.parameters():
        p.grad = gradients[start : start + p.numel()].view_as(p)
        start += p.numel()
    return gradients


def test_parts_of_one_vector_are_one_segment() -> None:
    runs = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        gradients = in_one_vector(net)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

        def step(x: Tensor, net: nn.Module = net, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad(set_to_none=False)
            loss: Tensor = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = anyshape.compile(step) if compiled else step
        seen = []
        for rows in (3, 1, 5):
            seen += [run(torch.ones(rows, 3)), gradients.clone()]
        runs.append([seen, gradients._version, [p._version for p in net.parameters()]])
        if compiled:
            stats = run.stats()  # type: ignore[attr-defined]
            assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
    torch.testing.assert_close(*runs)


def written_and_read(x: Tensor, y: Tensor) -> Tensor:
    before = y * 1
    x.add_(1)
    return before + y


def parts(first: slice, second: slice) -> tuple[Tensor, Tensor]:
    base = torch.arange(8.0)
    return base[first], base[second]


def of_arrays(first: slice, second: slice) -> tuple[Tensor, Tensor]:
    """Storages of their own, which overlap."""
    base = np.arange(8.0)
    return torch.from_numpy(base[first]), torch.from_numpy(base[second])


def test_parts_that_do_not_overlap_are_compiled_and_others_are_not() -> None:
    disjoint, meet = (slice(0, 4), slice(4, 8)), (slice(0, 4), slice(2, 6))
    fast = anyshape.compile(written_and_read)
    for make in (parts, of_arrays):
        for slices in (disjoint, meet, disjoint[::-1], meet[::-1]):
            ours, theirs = make(*slices), make(*slices)
            assert torch.equal(fast(*ours), written_and_read(*theirs))
            torch.testing.assert_close([*ours], [*theirs])
            assert [t._version for t in ours] == [t._version for t in theirs]
    assert fast.stats().segments == 1


def test_what_runs_natively_for_it_says_so_and_where() -> None:
    vector = torch.zeros(6)
    whole = anyshape.explain(written_and_read)(vector[:4], vector[2:])
    apart = anyshape.explain(written_and_read)(vector[:3], vector[3:])
    assert [found.id for found in whole.breaks] == ["shared-memory"] and not apart.breaks
    assert "x, which is written" in whole.breaks[0].reason
    location = whole.breaks[0].location
    assert location is not None and location.function == "written_and_read"
    fast = anyshape.compile(written_and_read, fullgraph=True)
    assert torch.equal(fast(torch.ones(3), torch.ones(3)), torch.full((3,), 2.0))
    with pytest.warns(PerformanceWarning, match="x, which is written"):
        fast(vector := torch.zeros(6), vector[:6])
    assert torch.equal(vector, torch.ones(6))


def test_a_part_that_a_formula_keeps_is_refused_where_eager_refuses_it() -> None:
    """Writes to one part of a tensor are counted as writes to the other one."""

    def program(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        loss = (y * w).sum()
        x.add_(1)
        loss.backward()
        return loss.detach()

    for run in (program, anyshape.compile(program)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(*parts(slice(0, 4), slice(4, 8)), torch.ones(4, requires_grad=True))


def kept_outside(kind: str) -> tuple[Tensor, Tensor]:
    kept, written = parts(slice(0, 4), slice(4, 8))
    if kind == "frozen":
        return nn.Parameter(kept, requires_grad=False), nn.Parameter(written, requires_grad=False)
    if kind == "counters of their own":
        return kept.data, written.data
    return kept, written


@pytest.mark.parametrize("kind", ["parts", "frozen", "counters of their own"])
def test_parts_that_are_no_arguments_are_refused_where_eager_refuses_them(kind: str) -> None:
    def made(compiled: bool) -> Any:
        (kept, written), w = kept_outside(kind), torch.ones(4, requires_grad=True)

        def program(x: Tensor) -> Tensor:
            loss = (w * kept * x).sum()
            written.add_(1)
            return loss

        run, found = anyshape.compile(program) if compiled else program, []
        for _ in range(2):
            w.grad = None
            try:
                run(torch.ones(4)).backward()  # type: ignore[no-untyped-call]
                found.append(w.grad)
            except RuntimeError as error:
                found.append(str(error)[:99])
        whole = compiled and run.stats().gradients  # type: ignore[attr-defined]
        return found, [kept._version, written._version, written.tolist()], whole

    ours, theirs = made(True), made(False)
    assert str(ours[:2]) == str(theirs[:2])
    assert bool(ours[2]) is (kind == "counters of their own")


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_part_that_is_an_argument_and_one_that_is_none(is_kept: bool) -> None:
    def made(compiled: bool) -> Any:
        base, w = torch.arange(8.0), torch.ones(4, requires_grad=True)
        first, second = base[:4], base[4:]

        def program(given: Tensor) -> Tensor:
            kept, written = (given, second) if is_kept else (second, given)
            loss = (w * kept).sum()
            written.add_(1)
            return loss

        run, found = anyshape.compile(program) if compiled else program, []
        for given in (torch.zeros(4), first, torch.zeros(4)):
            w.grad = None
            try:
                run(given).backward()  # type: ignore[no-untyped-call]
                found.append(w.grad)
            except RuntimeError as error:
                found.append(str(error)[:99])
        return str(found), base.tolist()

    assert made(True) == made(False)
    assert "modified by an inplace" in made(True)[0]


def test_a_call_asks_little_where_no_storage_is_shared() -> None:
    """Calls of functions, Python's and C's: nothing for what is the same in each call."""
    fixed, given = ([torch.zeros(2) for _ in range(100)] for _ in range(2))
    for tensors in (given, given[:1]):
        relied_on = NoAlias((), (), frozenset(), Fixed.of(fixed, []))
        calls = 0

        def count(frame: Any, event: str, _: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        holds = relied_on.holds([], tensors)
        sys.setprofile(None)
        assert holds and calls <= 6 * len(tensors) + 20
