"""What a step clears first is let go of first: its memory is free while the step computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

import anyshape
from anyshape.capture.segments.cleared_gradients import let_go


class Step:
    """A model with a step; ``order`` says when gradients are cleared."""

    def __init__(self, order: str) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 4)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2, fused=True)
        self.order = order
        self.table = torch.arange(8.0)

    def __call__(self, x: Tensor, index: Tensor) -> Any:
        found = self.model.weight.grad
        norm = found.norm() if self.order == "read" and found is not None else 0.0
        if self.order != "late":
            self.optimizer.zero_grad()
        loss = (self.model(x) * self.table[index]).sum()
        if self.order == "late":
            self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), norm


def gradients(step: Step) -> list[Any]:
    return [p.grad for p in step.model.parameters()]


@pytest.mark.parametrize("order", ["first", "late", "read"])
def test_steps_are_eagers(order: str) -> None:
    eager, ours = Step(order), Step(order)
    fast = anyshape.compile(ours)
    kept: list[Any] = []
    for n in range(1, 6):
        x, index = torch.randn(n, 4), torch.randint(0, 8, (n, 1))
        torch.testing.assert_close(fast(x, index), eager(x, index))
        torch.testing.assert_close(gradients(ours), gradients(eager))
        kept.append([(g, g.clone()) for g in gradients(ours)])
    assert all(g.equal(copy) for pairs in kept for g, copy in pairs)  # each is the caller's
    assert fast.stats().specializations == 2 and fast.stats().graph_breaks == 0


@pytest.mark.parametrize(("order", "is_free"), [("first", True), ("late", False), ("read", False)])
def test_gradients_are_gone_before_the_step_computes(
    order: str, is_free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[StorageWeakRef] = []
    gone: list[bool] = []

    def watched(cleared: Any, run: Any) -> Any:
        def watching(*inputs: Any) -> Any:
            gone.extend(ref.expired() for ref in before)
            return run(*inputs)

        return let_go(cleared, watching)

    monkeypatch.setattr("anyshape.dispatch.specialize.let_go", watched)
    step = Step(order)
    fast = anyshape.compile(step)
    given = torch.randn(3, 4), torch.randint(0, 8, (3, 1))
    for _ in range(3):
        fast(*given)
    before += [StorageWeakRef(g.untyped_storage()) for g in gradients(step)]
    fast(*given)
    assert gone == [is_free] * 2


def test_a_step_that_fails_leaves_what_eagers_leaves() -> None:
    for order in ("first", "late"):
        eager, ours = Step(order), Step(order)
        fast = anyshape.compile(ours)
        for run in (eager, fast):
            for _ in range(3):
                run(torch.ones(2, 4), torch.tensor([[1], [2]]))
            with pytest.raises(IndexError):
                run(torch.ones(2, 4), torch.tensor([[1], [9]]))
        cleared = [[g is None for g in gradients(step)] for step in (ours, eager)]
        assert cleared[0] == cleared[1], order
        torch.testing.assert_close(*(list(s.model.parameters()) for s in (ours, eager)))


class Asking(Step):
    """It asks whether there are gradients before it clears them."""

    seen = -1

    def __call__(self, x: Tensor, index: Tensor) -> Any:
        found = self.model.bias.grad
        seen = 0 if found is None else found.dim() + 1
        self.optimizer.zero_grad()
        self.seen = seen
        return super().__call__(x, index)


def test_a_step_that_fails_and_runs_again_finds_that_there_were_gradients() -> None:
    steps = [Asking("first"), Asking("first")]
    fast = anyshape.compile(steps[1])
    for run in (steps[0], fast):
        for _ in range(3):
            run(torch.ones(2, 4), torch.tensor([[1], [2]]))
        with pytest.raises(IndexError):
            run(torch.ones(2, 4), torch.tensor([[1], [9]]))
        run(torch.ones(2, 4), torch.tensor([[1], [2]]))
        with pytest.raises(IndexError):
            run(torch.ones(2, 4), torch.tensor([[1], [9]]))
    assert [step.seen for step in steps] == [2, 2]
    assert [g is None for g in gradients(steps[1])] == [g is None for g in gradients(steps[0])]


class Keeping(Step):
    """It keeps a gradient that it clears."""

    def __call__(self, x: Tensor, index: Tensor) -> Any:
        kept = self.model.bias.grad
        made = super().__call__(x, index)
        self.last = kept
        return made, kept


def test_a_gradient_that_is_kept_is_the_one_that_was() -> None:
    eager, ours = Keeping("first"), Keeping("first")
    fast = anyshape.compile(ours)
    for n in range(4):
        given = torch.ones(2, 4) * n, torch.tensor([[1], [2]])
        before = ours.model.bias.grad
        torch.testing.assert_close(fast(*given)[1], eager(*given)[1])
        assert ours.last is before
        torch.testing.assert_close(ours.last, eager.last)
