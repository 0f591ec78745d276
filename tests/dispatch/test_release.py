"""What callers hand in is let go of when they drop it: modules, optimizers, containers, tensors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import AnyshapeWarning


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(4, 4)), 2.0

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight) * self.scale


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Scaled(), Scaled()
        self.log: list[Tensor] = []
        self.bound = self.forward  # a cycle through its own dictionary

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.second(x)


class Holder:
    def __init__(self) -> None:
        self.model, self.table = Model(), {"weight": torch.randn(4, 4)}


def trained() -> torch.optim.Optimizer:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    return optimizer


def stepped(optimizer: Any, x: Tensor) -> Tensor:
    optimizer.step()
    return x * 2


def broken(model: Any, x: Tensor) -> Tensor:
    y = model(x)
    y = y * 2 if y.sum() > 0 else y[:1] * 3
    return model.first(y)


def kept(model: Any, x: Tensor) -> tuple[Any, Tensor]:
    model.log.append(x * 2)
    return model, model(x)


def parts(handed: Any) -> list[Any]:
    """All modules and tensors that are reached from what was handed in."""
    model = handed.model if isinstance(handed, Holder) else handed
    model = model[0] if isinstance(model, list) else getattr(model, "__self__", model)
    if isinstance(model, torch.optim.Optimizer):
        states = [t for state in model.state.values() for t in state.values()]
        return [model, *states, *model.param_groups[0]["params"]]
    return [*model.modules(), *model.parameters()]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "a module": (lambda model, x: model(x), Model),
    "a method": (lambda method, x: method(x), lambda: Model().forward),
    "a list": (lambda models, x: models[0](x), lambda: [Model()]),
    "an object": (lambda holder, x: holder.model(x) @ holder.table["weight"], Holder),
    "an optimizer": (stepped, trained),
    "across a break": (broken, Model),
    "written to and returned": (kept, Model),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_handed_in_dies_when_the_caller_drops_it(name: str, gradients: bool) -> None:
    program, make = PROGRAMS[name]
    fast = anyshape.compile(program)
    handed = make()
    held = [weakref.ref(part) for part in parts(handed)]
    with torch.set_grad_enabled(gradients):
        for rows in (3, 5, 1):
            fast(handed, torch.randn(rows, 4))
    assert fast.stats().specializations
    del handed
    gc.collect()
    assert [ref() for ref in held if ref() is not None] == []


def test_what_was_compiled_for_a_module_that_is_gone_is_still_told() -> None:
    fast, model = anyshape.compile(lambda model, x: model(x)), Model()
    with torch.no_grad():
        fast(model, torch.randn(3, 4))
        before = fast.stats()
        del model
        gc.collect()
        assert (fast.stats(), len(fast.graphs())) == (before, 1) and "extern" not in fast.guards()
        assert "an object that is gone" in fast.guards() and fast.code()
        other, x = Model(), torch.randn(2, 4)
        torch.testing.assert_close(fast(other, x), other(x))
    assert fast.stats().recompiles == 1


def test_a_module_made_anew_in_each_call_is_an_argument_in_the_end() -> None:
    fast, x = anyshape.compile(lambda model, x: model(x)), torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(8):
            model = Model()
            torch.testing.assert_close(fast(model, x), model(x))
    assert fast.stats().specializations == 4


def test_a_module_handed_in_is_seen_as_it_is_in_each_call() -> None:
    fast, model, x = anyshape.compile(lambda model, x: model(x)), Model(), torch.randn(2, 4)

    def replaced(name: str, value: Any) -> Callable[[], object]:
        return lambda: setattr(model, name, value)

    changes: list[Callable[[], object]] = [
        lambda: setattr(model.first, "scale", 5.0),
        replaced("second", Scaled()),
        lambda: setattr(model.first.weight, "data", torch.randn(4, 4)),
        replaced("__dict__", dict(model.__dict__)),
        replaced("_modules", {**model._modules, "first": Scaled()}),
        replaced("forward", lambda x: x * 7),
        lambda: delattr(model, "forward"),
        replaced("__class__", type("Other", (Model,), {"forward": lambda self, x: x * 9})),
    ]
    with torch.no_grad():
        torch.testing.assert_close(fast(model, x), model(x))
        for change in changes:
            change()
            torch.testing.assert_close(fast(model, x), model(x))


LIVE: list[bool] = []
STEPS: list[weakref.ref[Any]] = []
FAILING: list[Exception] = []


@torch.library.custom_op("anyshape_tests::fails_once", mutates_args=())
def fails_once(x: Tensor) -> Tensor:
    """Notes which tensors of earlier calls are alive; raises what lies in `FAILING`."""
    LIVE[:] = [step() is not None for step in STEPS]
    STEPS.append(weakref.ref(x.untyped_storage()))
    if FAILING:
        raise FAILING.pop()
    return x.clone()


@fails_once.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_a_failed_calls_tensors_are_freed_before_eager_runs_it() -> None:
    fast = anyshape.compile(lambda x: fails_once(x * 2 + 1).sum())
    x = torch.ones(100)
    assert fast(x) == 300
    STEPS.clear()
    FAILING.append(RuntimeError("out of memory"))
    assert fast(x) == 300
    assert LIVE == [False]  # the second run of this call, by eager: the first one's is gone


def moded(x: Tensor, mode: str, weight: list[Tensor]) -> tuple[Tensor, str]:
    return x * weight[0] + len(mode), mode


def held_by(fast: Any) -> list[weakref.ref[Any]]:
    """What each specialization has made, the newest first: its guards' test, its function, its
    program."""
    return [
        weakref.ref(made)
        for point in fast._lazy.machinery.points.values()
        for v in point.specializations
        for made in (v.entry, v.run, v.compiled.translation)
    ]


@pytest.mark.filterwarnings("ignore:E222")
def test_past_the_limit_the_oldest_is_given_up_and_freed() -> None:
    fast = anyshape.compile(moded, options={"max_variants": 3})
    x, weight = torch.randn(5), [torch.randn(5)]
    for mode in ("a", "ab", "abc"):
        assert torch.equal(fast(x, mode, weight)[0], moded(x, mode, weight)[0])
    held = held_by(fast)
    assert len(held) == 9 and fast.stats().recompiles == 2
    assert torch.equal(fast(x, "abcd", weight)[0], moded(x, "abcd", weight)[0])
    gc.collect()
    assert [ref() is None for ref in held] == [False] * 6 + [True] * 3
    for mode in ("abc", "ab", "abcd"):
        fast(x, mode, weight)
    assert fast.stats().recompiles == 3 and fast.stats().specializations == 3
    fast(x, "a", weight)
    gc.collect()
    assert [ref() is None for ref in held] == [False] * 3 + [True] * 6
    assert fast.stats().recompiles == 4 and fast.stats().specializations == 3


def test_too_many_in_turn_are_compiled_ever_more_seldom() -> None:
    fast, x, weight = anyshape.compile(moded), torch.randn(5), [torch.randn(5)]
    with pytest.warns(AnyshapeWarning, match="E222") as seen:
        for turn in range(300):
            mode = "m" * (turn % 11)
            assert fast(x, mode, weight)[1] == mode
    assert len(seen) == 1
    assert fast.stats().recompiles <= 7 + 1 + 9 and fast.stats().specializations <= 8


def test_what_shares_the_oldest_program_is_given_up_with_it() -> None:
    def widened(x: Tensor, model: nn.Module) -> Tensor:
        return model(x)

    fast = anyshape.compile(widened, options={"max_variants": 1})
    models = [nn.Linear(4, width).eval() for width in (2, 2, 3)]
    with torch.no_grad():
        for model in models[:-1]:
            fast(torch.randn(3, 4), model)
        assert (fast.stats().programs, fast.stats().specializations) == (1, 2)
        fast(torch.randn(3, 4), models[-1])
    assert (fast.stats().programs, fast.stats().specializations) == (1, 1)
    assert fast.stats().recompiles == 2


def test_a_first_call_leaves_no_cycles_of_what_it_was_compiled_by() -> None:
    """The recorder, the interpreter and the drafts of kernels are let go of without a collection."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).argmax(-1)

    anyshape.compile(lambda x: (x + 3).argmax(-1))(torch.ones(3, 4))  # tables are made once
    fast = anyshape.compile(program)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        fast(torch.ones(3, 4))
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left.isdisjoint({"Recorder", "SymbolicDomain", "Machine", "Draft", "Lowering"})
