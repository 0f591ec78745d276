"""What the cost model decides, not what its numbers are: a kernel that would be too large is cut,
and no result depends on where."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.costs import COSTS, CostModel
from benchmarks.costs import CHOSEN, MEASURED, verdict

ASKING = ("schedule.fuse", "passes.long_cats", "targets.cpu.native_regions")


def chain(count: int) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        for n in range(count):
            x = (x * 1.01).sin() if n % 2 else x + n
        return x

    return program


def joined(count: int) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cat([x * n for n in range(count)]).exp()


def nested(depth: int) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        for n in range(depth):
            x = torch.nn.functional.pad(x.sin(), (1, 1), value=float(n))
        return x

    return program


def kernels_of(program: Callable[[Tensor], Tensor]) -> int:
    """How many kernels run the program, which is right at every size."""
    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 0, 40):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1
    return fast.stats().launches


def with_costs(monkeypatch: pytest.MonkeyPatch, **changed: int) -> None:
    for name in ASKING:
        module = importlib.import_module(f"anyshape.{name}")
        monkeypatch.setattr(module, "COSTS", replace(COSTS, **changed))


def test_a_kernel_is_cut_where_it_has_operators_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels_of(chain(20)) == 1
    with_costs(monkeypatch, kernel_operators=10)
    assert kernels_of(chain(20)) > 1


def test_a_kernel_joins_no_more_parts_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels_of(joined(8)) == 1
    with_costs(monkeypatch, kernel_parts=4)
    assert kernels_of(joined(8)) > 1


def test_joins_inside_joins_are_cut_where_they_lie_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels_of(nested(3)) == 1
    with_costs(monkeypatch, nested_joins=1)
    assert kernels_of(nested(3)) > 1


def test_steps_that_are_worth_a_call_become_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        return (x @ x.T).relu() @ x

    def has_region() -> bool:
        fast = anyshape.compile(program)
        torch.testing.assert_close(fast(x), program(x))
        return "region_" in fast.code()

    x = torch.randn(5, 3)
    assert has_region()
    with_costs(monkeypatch, region_steps=100)
    assert not has_region()


def test_the_limits_are_told_apart() -> None:
    limits = (COSTS.kernel_operators, COSTS.kernel_parts, COSTS.nested_joins)
    assert COSTS.why_kernel_is_full(*limits) is None
    reasons = {
        COSTS.why_kernel_is_full(*(n + (which == here) for here, n in enumerate(limits)))
        for which in range(3)
    }
    assert len(reasons) == 3 and None not in reasons


def test_each_cost_is_measured_or_chosen_for_a_reason() -> None:
    names = [field.name for field in fields(CostModel)]
    assert sorted((*MEASURED, *CHOSEN)) == sorted(names)
    assert all(CHOSEN.values())


@pytest.mark.parametrize(
    ("model", "here", "said"),
    [(60.0, 45.0, ""), (60.0, 125.0, "differs"), (60.0, 0.0, "differs"), (2.0, 0.9, "differs")],
)
def test_a_machine_that_is_far_from_the_model_is_told(model: float, here: float, said: str) -> None:
    assert verdict(model, here) == said


def test_memory_is_taken_before_it_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no native region is formed, and the host does each step."""
    with_costs(monkeypatch, region_steps=100)

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        t = x + 1
        count = torch.nonzero(t).shape[0]
        t.view(-1)[-1:] = 0.5
        x[x.sum(1) > 4] = 2
        return t, torch.zeros(count)

    fast = anyshape.compile(program, options={"cache": False})
    for n in (2, 3, 1):
        x = torch.arange(3.0 * n).view(n, 3)
        found, wanted = fast(x.clone()), program(x.clone())
        assert all(map(torch.equal, found, wanted))
