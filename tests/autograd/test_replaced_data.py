"""`x.data = new` in compiled functions: values, versions, and what shares memory are eager's. Where
no gradients of `x` are to come and nobody could tell that the assignment is done at the end, it is
part of the segment: averages of weights, as they are written for teachers, and what SAM does.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape.capture.recording.replaced_tensors import Replaced
from anyshape.capture.tensors import replaced_data
from anyshape.ir.graph import Node

Program = Callable[[Tensor, Tensor, Tensor], Any]
PROGRAMS: dict[str, tuple[Program, bool]] = {}


def program(one_segment: bool) -> Callable[[Program], Program]:
    def note(function: Program) -> Program:
        PROGRAMS[function.__name__] = function, one_segment
        return function

    return note


@program(True)
def averaged(a, b, x):
    a.data = a.data * 0.9 + b.data * 0.1 + x.sum()
    return a


@program(True)
def read_afterwards(a, b, x):
    a.data = a * 2
    return a + b, torch.cat([a, b]), x * 2


@program(True)
def replaced_twice(a, b, x):
    a.data = a * 2
    b.data = a + 1
    a.data = a + b
    return a * 1, x


@program(True)
def beside_a_view_of_what_was_there(a, b, x):
    part = a[:2]
    a.data = b + 1
    part.mul_(2)
    return part, x


@program(True)
def of_what_is_written_later(a, b, x):
    a.mul_(2)
    made = a + b
    a.data = made
    made.add_(1)
    return made, a * 2, x


@program(True)
def written_afterwards(a, b, x):
    made = b * 2
    a.data = made
    a.add_(1)
    made.mul_(3)
    torch.add(a, 1, out=a)
    return a * 3, made, x


@program(True)
def written_by_its_data(a, b, x):
    a.data = b * 2
    a.data.add_(1)
    a.data -= x.sum()
    return a * 3, x


@program(True)
def given_back_what_it_had(a, b, x):
    own = a.data
    a.data = b * 2
    a.mul_(2)
    made = a + 1
    a.data = own
    a.add_(1)
    return made, a * 2, own, x


KNOWN: dict[Tensor, Tensor] = {}
KNOWN_FLAT = torch.zeros(5)


@program(True)
def kept_in_a_dict(a, b, x):
    for each in (a, b):
        KNOWN[each] = each.clone()
        each.add_(x.sum())
    for each in (a, b):
        each.data = KNOWN[each]
        each.mul_(0.5)
    return x


@program(False)
def recorded_afterwards(a, b, x):
    weight = b.detach().clone().requires_grad_()
    with torch.no_grad():
        weight.data = a * 2
    (weight * x.sum()).sum().backward()
    return weight, weight.grad


@program(False)
def viewed_afterwards(a, b, x):
    a.data = b * 2
    a[:2].zero_()
    return x


@program(True)
def shared(a, b, x):
    a.data = b.data
    b.add_(1)
    made = a * 1
    a.mul_(2)
    return x, made, b * 1, a + b


@program(True)
def exchanged(a, b, x):
    a.data, b.data = b.data, a.data
    a.add_(1)
    made = a * 3, b * 2
    b.mul_(x.sum())
    return x + 1, made, a * 1, b * 1


@program(True)
def of_what_gets_other_data(a, b, x):
    a.data = b
    b.data = b * 5 + x.sum()
    a.add_(1)
    return a * 1, b * 1


@program(True)
def given_to_two(a, b, x):
    own, other = a.data, b.data
    a.data = x.new_ones(3)
    b.data = a.data
    a.add_(x.sum())
    made = b * 2
    a.data, b.data = own, other
    b.add_(1)
    return made, a * 1, b * 1


@program(True)
def swapped_and_back(a, b, x):
    own = a.data
    a.data = b
    a.add_(1)
    b.mul_(2)
    made = a * x.sum()
    a.data = own
    a.add_(b)
    return made, a * 1


@program(True)
def a_part_of_another(a, b, x):
    own = a.data
    a.data = KNOWN_FLAT[1:4]
    KNOWN_FLAT.add_(1)
    made = a * 2
    a.mul_(0.5)
    a.data = own
    return made, KNOWN_FLAT * 1, x


@program(False)
def of_another_size(a, b, x):
    a.data = x * 2
    return a.shape, a


@pytest.mark.parametrize("name", PROGRAMS)
def test_replaced_data_is_eagers(name: str) -> None:
    function, one_segment = PROGRAMS[name]

    def outcome(run: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        KNOWN_FLAT.zero_()
        a, b, log = torch.randn(3), torch.randn(3), []
        for call in range(5):
            made = run(a, b, torch.full((3 + call % 2,), float(call)))
            ours = a.clone(), b.clone(), a._version, b._version, a.data_ptr() == b.data_ptr()
            log.append((made, ours))
        return log

    fast = anyshape.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(outcome(fast), outcome(function))
    assert (fast.stats().segments == 1) == one_segment
    if one_segment:  # that it lies elsewhere in each call is seen by the first one
        assert fast.stats().specializations == 1


SAVED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda w, a: (w * a).sum(),
    "derived": lambda w, a: (w * a.sin().cos()).sum(),
    "matrices": lambda w, a: F.linear(a[None], w[None]).sum(),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("first", [True, False])
def test_what_autograd_has_saved_is_eagers(name: str, first: bool) -> None:
    def outcome(compile: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        w, a = torch.randn(3, requires_grad=True), torch.randn(3)

        def program(x: Tensor) -> Tensor:
            if first:
                a.data = a * 2
            made = SAVED[name](w, a) * x.sum()
            if not first:
                a.data = a * 2
            return made

        run = compile(program)
        for count in (3, 4, 5):
            run(torch.ones(count)).backward()
        return w.grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(outcome(anyshape.compile), outcome(lambda run: run))


def test_a_teacher_whose_data_is_replaced_is_one_segment() -> None:
    def trained(compile: Callable[..., Any]) -> tuple[Any, ...]:
        torch.manual_seed(0)
        student, teacher = (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(2))
        teacher.requires_grad_(False)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

        def step(x: Tensor) -> Tensor:
            with torch.no_grad():
                for own, other in zip(teacher.parameters(), student.parameters()):
                    own.data = own.data * 0.9 + other.data * 0.1
                expected = teacher(x)
            loss = F.mse_loss(student(x), expected)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = compile(step)
        losses = [run(torch.randn(count, 4)) for count in (3, 5, 2, 4, 3)]
        return run, losses, [*student.parameters()], [*teacher.parameters()]

    fast, *ours = trained(anyshape.compile)
    _, *theirs = trained(lambda run: run)
    torch.testing.assert_close(ours, theirs)
    versions = [[p._version for p in found[2]] for found in (ours, theirs)]
    assert versions[0] == versions[1]
    assert (fast.stats().segments, fast.stats().graph_breaks) == (1, 0)


class SharpnessAware(torch.optim.Optimizer):
    """As it is written everywhere: the state keeps where the weights were."""

    def __init__(self, parameters: Any, rate: float) -> None:
        super().__init__(parameters, {"rho": 0.05})
        self.base = torch.optim.SGD(self.param_groups, lr=rate, momentum=0.9)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        parameters = self.param_groups[0]["params"]
        norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in parameters]), p=2)
        for p in parameters:
            self.state[p]["old_p"] = p.data.clone()
            p.add_(p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for p in self.param_groups[0]["params"]:
            p.data = self.state[p]["old_p"]
        self.base.step()
        self.zero_grad()


def test_a_step_that_evaluates_an_average_of_its_weights_is_one_segment() -> None:
    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        averages = [p.detach().clone() for p in net.parameters()]
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x, net=net, averages=averages, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                own = [p.data for p in net.parameters()]
                for p, average in zip(net.parameters(), averages):
                    average.lerp_(p, 0.5)
                    p.data = average
                score = net(x).square().mean()
                for p, data in zip(net.parameters(), own):
                    p.data = data
            return loss.detach(), score

        run = anyshape.compile(step) if compiled else step
        made = [run(torch.ones(rows, 3)) for rows in (4, 1, 3)]
        state = [(p.detach(), p._version, p.grad) for p in net.parameters()]
        found.append((made, state, averages, [a._version for a in averages]))
        if compiled:
            assert (run.stats().segments, run.stats().graph_breaks) == (1, 0)
    torch.testing.assert_close(*found)


def test_sharpness_aware_steps_are_one_segment() -> None:
    def trained(compile: Callable[..., Any]) -> tuple[Any, ...]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
        optimizer = SharpnessAware(net.parameters(), 0.1)

        def step(x: Tensor) -> Tensor:
            loss = net(x).square().mean()
            loss.backward()
            optimizer.first_step()
            net(x).square().mean().backward()
            optimizer.second_step()
            return loss.detach()

        run = compile(step)
        losses = [run(torch.randn(count, 4)) for count in (3, 5, 2, 4)]
        own = [*net.parameters()]
        kept = [optimizer.state[p]["old_p"] for p in own]
        shared = [p.data_ptr() == q.data_ptr() for p, q in zip(own, kept)]
        versions = [t._version for t in (*own, *kept)]
        return run, losses, own, kept, shared, versions

    fast, *ours = trained(anyshape.compile)
    _, *theirs = trained(lambda run: run)
    torch.testing.assert_close(ours, theirs)
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.specializations) == (1, 0, 2)


def test_nodes_are_looked_through_once_however_many_tensors_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: Counter[str] = Counter()
    inputs, is_recorded = Node.inputs, replaced_data._is_recorded

    def counted(node: Node) -> Any:
        looked_at["nodes"] += 1
        return inputs(node)

    def watched(*args: Any) -> bool:
        looked_at["questions"] += 1
        with monkeypatch.context() as patch:
            patch.setattr(Node, "inputs", counted)
            return is_recorded(*args)

    monkeypatch.setattr(replaced_data, "_is_recorded", watched)

    def looked(count: int) -> int:
        looked_at.clear()
        weights = [torch.ones(2) for _ in range(count)]

        def average(x: Tensor) -> Tensor:
            for weight in weights:
                weight.data = weight.data * 0.9
            return x + 1

        anyshape.compile(average)(torch.ones(3))
        assert looked_at["questions"] >= count
        return looked_at["nodes"]

    assert looked(32) < 2.2 * looked(16)


def test_nodes_that_were_taken_back_or_put_in_between_are_looked_through_again() -> None:
    class Reads:
        def __init__(self, *names: str) -> None:
            self.names = names

        def inputs(self) -> tuple[str, ...]:
            return self.names

    replaced: Any = Replaced()
    x, both, y = Reads("x"), Reads("x", "y"), Reads("y")
    assert list(replaced.readers([x, y], "y")) == [y]
    assert list(replaced.readers([x, y, both], "x")) == [x, both]
    assert list(replaced.readers([x], "y")) == []
    assert list(replaced.readers([both, x], "y")) == [both]
    assert list(replaced.readers([both, y, x], "y")) == [both, y]
