"""`torch.autograd.Function` and hooks of tensors where eager autograd takes the gradients: one graph
with the program's own backward in it; what does more than to compute runs natively, with eager's
numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

import anyshape
from tests.autograd.beside_eager import assert_same

SIZES = ((3, 4), (2, 5), (1, 1), (0, 3))
Program = Callable[[Tensor], Any]


def function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    made: Any = type(
        "Own",
        (Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )
    return made.apply  # type: ignore[no-any-return]


def saving_result(ctx: Any, x: Tensor) -> Tensor:
    result = x.exp()
    ctx.save_for_backward(result)
    ctx.factor = math.sqrt(x.shape[0])
    return result


def of_result(ctx: Any, g: Tensor) -> Tensor:
    (result,) = ctx.saved_tensors
    return g * result * ctx.factor


def saving_argument(ctx: Any, x: Tensor) -> Tensor:
    ctx.save_for_backward(x)
    return x**2


def of_argument(ctx: Any, g: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    made = g.clone()
    made[x < 0] = 0  # in its own memory
    return made * 3 * x


exponential = function(saving_result, of_result)
square = function(saving_argument, of_argument)
straight_through = function(lambda ctx, x: x.round(), lambda ctx, g: g)
reversed_gradient = function(lambda ctx, x: x.view_as(x), lambda ctx, g: g.neg() * 0.3)
several = function(
    lambda ctx, x: (x.sin(), x.cos(), x.argmax() if x.numel() else None),
    lambda ctx, a, b, c: a * 2 + b * 3,
)
unused = function(lambda ctx, x: x * 2, lambda ctx, g: None)


def hook_before_and_after(x: Tensor) -> Tensor:
    y = x * 2
    before = y + 1
    y.register_hook(lambda g: g * 2)
    return (before + y * 3).sum()


def hooks_in_order(x: Tensor) -> Tensor:
    y = x.sin()
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: None)
    y.register_hook(lambda g: g.clamp(max=2.5))
    return y * y


def hook_of_one_result(x: Tensor) -> Tensor:
    values, _ = x.sort()
    values.register_hook(lambda g: torch.where(g > 0.5, g, 0.1))
    return values.exp()


def hook_and_function(x: Tensor) -> Tensor:
    y = square(x)
    y.register_hook(lambda g: g * 2)
    return square(y) + exponential(x * 0.1)


def hook_of_what_was_handed_in(x: Tensor) -> Tensor:
    x.register_hook(lambda g: g * 2)
    y = x.tanh()
    x.register_hook(lambda g: g + 1)
    return y


ONE_GRAPH: dict[str, Program] = {
    "saves its result": lambda x: exponential(x * 2) + 1,
    "saves its argument": lambda x: square(x.tanh()),
    "handed out at once": lambda x: exponential(x),
    "one behind the other": lambda x: square(exponential(x.sin() * 0.1) * 0.1),
    "twice of one": lambda x: square(x) * square(x + 1),
    "not its forward's": lambda x: straight_through(x * 4) * x,
    "gives what it was handed": lambda x: reversed_gradient(x.sin()).sum(),
    "gives a view of what nobody sees": lambda x: reversed_gradient(x * 1.5),
    "all results": lambda x: several(x)[:2],
    "one result": lambda x: several(x)[1] * 2,
    "gives no gradient": lambda x: unused(x * 2) + x,
    "under no_grad": lambda x: square(x.detach()) + x,
    "a hook before and after": hook_before_and_after,
    "hooks in order": hooks_in_order,
    "a hook of one result": hook_of_one_result,
    "a hook and a function": hook_and_function,
    "a hook of what was handed in": hook_of_what_was_handed_in,
}


def printing(ctx: Any, g: Tensor) -> Tensor:
    print("backward", tuple(g.shape))
    return g * 2


def asking_strides(ctx: Any, g: Tensor) -> Tensor:
    return g * g.stride()[-1]


LOG: list[Any] = []


def keeping(ctx: Any, g: Tensor) -> Tensor:
    LOG.append(len(LOG))
    return g * (1 + len(LOG))


def branching(ctx: Any, g: Tensor) -> Tensor:
    return g * 2 if g.sum() > 0 else g * 3


def own(backward: Callable[..., Any]) -> Program:
    apply = function(lambda ctx, x: x * 2, backward)
    return lambda x: apply(x.sin())


def written_afterwards(x: Tensor) -> Tensor:
    y = exponential(x)
    y.add_(1)
    return y * 2


def write_of_what_was_saved(x: Tensor) -> Tensor:
    y = x * 2
    made = square(y)
    y.add_(1)
    return made


def context_written(x: Tensor) -> Tensor:
    box: list[Any] = []

    def forward(ctx: Any, x: Tensor) -> Tensor:
        box.append(ctx)
        ctx.factor = 2.0
        return x * 2

    made: Tensor = function(forward, lambda ctx, g: g * ctx.factor)(x)
    box.pop().factor = 5.0
    return made


def hook_that_prints(x: Tensor) -> Tensor:
    y = x * 2
    before = y + 1
    y.register_hook(lambda g: (print("hook"), g * 2)[1])
    return (before + y * 3).sum()


def hook_that_is_removed(x: Tensor) -> Tensor:
    y = x * 2
    before = y + 1
    handle = y.register_hook(lambda g: g * 2)
    made = (before + y * 3).sum()
    handle.remove()
    return made


def retained(x: Tensor) -> Any:
    y = x * 2
    before = y + 1
    y.retain_grad()
    (before + y * 3).sum().backward()
    return y.grad


NATIVE: dict[str, Program] = {
    "prints": own(printing),
    "asks for strides": own(asking_strides),
    "keeps something": own(keeping),
    "branches on data": own(branching),
    "draws": own(lambda ctx, g: g * torch.rand_like(g)),
    "writes its gradient": own(lambda ctx, g: g.mul_(3)),
    "asks for a number": own(lambda ctx, g: g / (1 + g.abs().sum().item())),
    "the result is written": written_afterwards,
    "what was saved is written": write_of_what_was_saved,
    "the context is written": context_written,
    "a hook that prints": hook_that_prints,
    "a hook that is removed": hook_that_is_removed,
    "a retained gradient": retained,
    "a view of what was handed in": lambda x: reversed_gradient(x),
}


def outcome(program: Program, x: Tensor) -> Any:
    torch.manual_seed(0)
    LOG.clear()
    try:
        made = program(x)
        tensors = [t for t in (made if isinstance(made, tuple) else (made,)) if t.requires_grad]
        if tensors:
            total: Any = sum((t * t.detach().cos() + t).sum() for t in tensors)
            total.backward()
    except RuntimeError as error:
        return type(error)
    return made, x.grad, [*LOG]


def assert_eager_s(program: Program, fast: Program) -> None:
    for shape in (*SIZES, SIZES[0]):
        ours, theirs = (torch.linspace(-2, 2, math.prod(shape)).reshape(shape) for _ in "ab")
        found = outcome(fast, ours.requires_grad_())
        expected = outcome(program, theirs.requires_grad_())
        assert_same(found, expected)


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_an_own_backward_is_part_of_the_graph(name: str) -> None:
    fast = anyshape.compile(ONE_GRAPH[name], fullgraph=True)
    assert_eager_s(ONE_GRAPH[name], fast)
    stats = fast.stats()
    assert stats.specializations <= 3 and not stats.eager_graphs and not stats.internal_errors


@pytest.mark.parametrize("name", NATIVE)
def test_what_does_more_than_to_compute_is_left_to_autograd(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = anyshape.compile(NATIVE[name])
    assert_eager_s(NATIVE[name], fast)
    printed = capsys.readouterr().out.splitlines()
    assert printed[::2] == printed[1::2] and fast.stats().internal_errors == 0


@pytest.mark.parametrize("name", ["saves its result", "saves its argument", "one behind the other"])
def test_an_own_backward_is_differentiated_again(name: str) -> None:
    fast = anyshape.compile(ONE_GRAPH[name], fullgraph=True)
    found = []
    for program in (fast, ONE_GRAPH[name]):
        x = torch.linspace(-1, 1, 6, requires_grad=True)
        (g,) = torch.autograd.grad(program(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(g.sin().sum(), x)
        found.append((g.detach(), second))
    assert_same(found[0], found[1])


def test_a_write_to_what_was_saved_is_eager_s_error() -> None:
    for program in (anyshape.compile(lambda x: exponential(x * 2)), lambda x: exponential(x * 2)):
        made = program(torch.ones(3, requires_grad=True))
        with torch.no_grad():
            made.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()


def test_what_a_function_is_handed_back_without_gradients_is_a_view_of_it() -> None:
    same = function(lambda ctx, x: x, lambda ctx, g: g)
    x = torch.ones(3)
    for program in (anyshape.compile(same), same):
        made = program(x)
        assert made is not x and made.data_ptr() == x.data_ptr()


def test_a_hook_that_raises_without_gradients_raises_eager_s_error() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda g: g)
        return y

    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        anyshape.compile(program)(torch.ones(3))


def test_hooks_of_a_module_that_the_program_registers_are_called() -> None:
    def program(x: Tensor) -> Tensor:
        module = torch.nn.ReLU()
        module.register_forward_hook(lambda module, args, made: made * 2)
        made: Tensor = module(x)
        return made

    x = torch.randn(3, 4)
    fast = anyshape.compile(program)
    for _ in range(3):
        assert_same(fast(x), program(x))
