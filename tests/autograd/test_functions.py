"""`torch.autograd.Function` in compiled steps: its own backward is captured, once, and eager's
numbers come of it; where it is not captured, a break says why and the numbers are eager's too."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import anyshape
from tests.autograd.beside_eager import assert_same, assert_same_parameters


class Swish(Function):
    """Saves an argument and what it computes; its gradient is not that of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        y = torch.sigmoid(x * scale)
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return x * y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        return g * (y + x * y * (1 - y) * ctx.scale) * 2, None


class Reversed(Function):
    """The argument itself; two calls are not one."""

    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * g, None


class Linear(Function):
    """Makes the gradients that are needed; writes what it has made itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        out = torch.empty(x.shape[0], weight.shape[0])
        out.copy_(x @ weight.t())
        if bias is not None:
            out += bias
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = g @ weight
        if ctx.needs_input_grad[1]:
            dw = (g.t() @ x) * 3
        if bias is not None and ctx.needs_input_grad[2]:
            db = g.sum(0)
        return dx, dw, db


class Parts(Function):
    """Three results: a number that has no gradient, one that may have none, one of integers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, ...]:
        low, high, order = x.sin(), x.cos(), x.argsort(-1)
        count = x.abs().sum()
        ctx.mark_non_differentiable(count)
        ctx.save_for_backward(x)
        return low, high, count, order

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Tensor:
        assert len(given) == 4
        (x,) = ctx.saved_tensors
        low, high = given[:2]
        return low * x.cos() - high * x.sin() + given[2] * 0


class PartsOrNone(Parts):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return Parts.forward(ctx, x)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        assert given[3] is None
        made = torch.zeros_like(x)
        for position, part in enumerate(given[:2]):
            if part is not None:
                made = made + part * (position + 2)
        return made


class Halved(Function):
    """With the older name of its backward, and a gradient of another dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, unused: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g.double() / 2, None


class Within(Function):
    """Calls others, in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return Swish.apply(x, 1.0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * Swish.apply(x, 0.5)


class Net(nn.Module):
    def __init__(self, between: Callable[..., Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.extra = nn.Parameter(torch.linspace(-1, 1, 16))
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.last(self.between(self, self.first(x)))
        return made


def of_parts(function: Any, positions: tuple[int, ...]) -> Callable[[Net, Tensor], Tensor]:
    def between(net: Net, h: Tensor) -> Tensor:
        made = function.apply(h * net.extra)
        total: Tensor = sum(made[i] for i in positions)  # type: ignore[assignment]
        return total + made[2] + made[3]

    return between


CAPTURED: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "saved": lambda net, h: Swish.apply(h, 1.5),
    "one behind the other": lambda net, h: Swish.apply(Reversed.apply(Swish.apply(h, 0.5), 2.0), 2),
    "beside others": lambda net, h: Swish.apply(h, 1.5) + h * Reversed.apply(h, 0.1),
    "twice of one": lambda net, h: Reversed.apply(h, 3.0) * Reversed.apply(h, 0.25),
    "of a leaf": lambda net, h: h * Swish.apply(net.extra, 2.0) + net.extra,
    "of a leaf twice": lambda net, h: Linear.apply(h, net.extra.outer(net.extra), net.extra),
    "what is needed": lambda net, h: Linear.apply(h.detach(), torch.eye(16), net.extra) + h,
    "no bias": lambda net, h: Linear.apply(h, net.extra.outer(net.extra), None),
    "all parts": of_parts(Parts, (0, 1)),
    "one part": of_parts(Parts, (1,)),
    "all parts or none": of_parts(PartsOrNone, (0, 1)),
    "one part or none": of_parts(PartsOrNone, (1,)),
    "vjp": lambda net, h: Halved.apply(h, net.extra) * net.extra,
    "within": lambda net, h: Within.apply(h) + net.extra,
    "without gradients": lambda net, h: h + Swish.apply(h.detach(), 1.0) * net.extra,
}


def stepping(net: Net) -> Callable[[Tensor], Any]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def both(between: Callable[..., Tensor]) -> tuple[Net, Net]:
    torch.manual_seed(0)
    net = Net(between)
    return copy.deepcopy(net), copy.deepcopy(net)


def run(
    between: Callable[..., Tensor],
    make: Callable[[Net], Any],
    sizes: tuple[int, ...] = (3, 5, 1, 7),
) -> Any:
    net, other = both(between)
    expected, fast = make(net), anyshape.compile(make(other))
    for size in sizes:
        x = torch.randn(size, 8, generator=torch.Generator().manual_seed(size))
        assert_same(fast(x), expected(x))
        assert_same_parameters(other, net)
    return fast


@pytest.mark.parametrize("name", CAPTURED)
def test_a_function_in_a_whole_step_is_captured_with_its_own_backward(name: str) -> None:
    stats = run(CAPTURED[name], stepping).stats()
    assert stats.graph_breaks == 0 and not stats.eager_graphs, stats
    assert stats.specializations == 2  # the optimizer's first step has its own


def accumulating(net: Net) -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        for part in (x, x * 2):
            net(part).square().mean().backward()
        return net.first.weight.grad.sum()

    return step


def test_gradients_of_a_function_are_added_to_those_before() -> None:
    assert run(CAPTURED["beside others"], accumulating).stats().graph_breaks == 0


# ---- what is not captured ------------------------------------------------------------------------
class Doubled(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


class Wide(Function):
    """Its gradient is summed to the argument's size by autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.sum(0, keepdim=True).expand(2, *g.shape)


class Twice(Function):
    """Autograd knows the one tensor as the second result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> Tensor:
        return first * 10 + second


def twice(net: Net, h: Tensor) -> Tensor:
    one, other = Twice.apply(h)
    return one + other * 0.5


def written_afterwards(net: Net, h: Tensor) -> Tensor:
    made = Swish.apply(h, 1.0)
    made += net.extra
    return made


LEFT: dict[str, tuple[Callable[[Net, Tensor], Tensor], str]] = {
    "mark_dirty": (lambda net, h: Doubled.apply(h + 1), "mark_dirty"),
    "written": (written_afterwards, "written in place"),
    "twice": (twice, "twice"),
    "of another size": (lambda net, h: Wide.apply(h), "another size"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_captured_of_a_function_is_a_break_that_says_so(name: str) -> None:
    between, why = LEFT[name]
    assert run(between, stepping).stats().graph_breaks > 0
    torch.manual_seed(0)
    explained = anyshape.explain(stepping(Net(between)))(torch.randn(3, 8))
    assert "autograd.Function.apply that" in str(explained) or why in str(explained)
    assert why in str(explained)


def test_a_saved_tensor_that_is_written_is_eager_s_error() -> None:
    def between(net: Net, h: Tensor) -> Tensor:
        made = Swish.apply(h, 1.0)
        h.mul_(2)
        return made

    for make in (lambda net: net, stepping):
        torch.manual_seed(0)
        net = Net(between)
        fast = anyshape.compile(make(net))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made = fast(torch.randn(3, 8))
            made.sum().backward()


def test_a_function_of_a_model_has_its_own_backward_outside_of_a_step() -> None:
    for name, between in CAPTURED.items():
        net, other = both(between)
        fast = anyshape.compile(other)
        for size in (3, 1, 5):
            x = torch.randn(size, 8)
            made, expected = fast(x), net(x)
            assert_same(made.detach(), expected.detach())
            made.square().mean().backward()
            expected.square().mean().backward()
            assert_same_parameters(other, net)
        left = "all parts" in name or "one part" in name or name == "within"
        assert fast.stats().graph_breaks == 0 or left, anyshape.explain(other)(x)


def handing_out(net: Net) -> Callable[[Tensor], Any]:
    """A result of the function that `backward()` has not gone through."""

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        h = Swish.apply(net.first(x), 2.0)
        loss = net.last(h).square().mean()
        loss.backward()
        return loss, h * 2

    return step


def retaining(net: Net) -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        loss = net(x).square().mean()
        loss.backward(retain_graph=True)
        return loss

    return step


def test_a_graph_that_is_retained_goes_on_outside_through_the_function() -> None:
    net, other = both(CAPTURED["saved"])
    expected, fast = retaining(net), anyshape.compile(retaining(other))
    for size in (3, 5):
        x = torch.randn(size, 8)
        for made in (expected(x), fast(x)):
            made.backward()
        assert_same_parameters(other, net)


def test_a_result_that_is_handed_out_raises_where_its_graph_is_spent() -> None:
    net, other = both(CAPTURED["saved"])
    for step in (handing_out(net), anyshape.compile(handing_out(other))):
        _, made = step(torch.randn(3, 8))
        with pytest.raises(RuntimeError, match="second time"):
            made.sum().backward()


def test_the_order_of_what_backwards_do_is_eager_s() -> None:
    seen: list[str] = []

    class Told(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, name: str) -> Tensor:
            ctx.name = name
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            seen.append(ctx.name)
            return g * 2, None

    def between(net: Net, h: Tensor) -> Tensor:
        one = Told.apply(h, "one")
        return Told.apply(one, "two") + Told.apply(h, "three") + one

    net, other = both(between)
    for step in (stepping(net), anyshape.compile(stepping(other))):
        seen.clear()
        step(torch.randn(3, 8))
        assert seen == ["three", "two", "one"]


class Cast(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return g @ weight.t(), x.t() @ g


def under_autocast(net: Net) -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(x).float().square().mean()
        loss.backward()
        return loss

    return step


def test_a_function_under_autocast_is_eager_s() -> None:
    def between(net: Net, h: Tensor) -> Tensor:
        return Cast.apply(h, net.extra.outer(net.extra))

    net, other = both(between)
    expected, fast = under_autocast(net), anyshape.compile(under_autocast(other))
    for size in (3, 5):
        x = torch.randn(size, 8)
        assert_same(fast(x), expected(x), 2e-2)
        assert_same_parameters(other, net, 5e-2)


class Breaking(Function):
    """What its forward calls cannot be captured."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        y = x * 2
        torch._dynamo.graph_break()
        return y * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x * 8


@pytest.mark.filterwarnings("ignore")
def test_a_forward_that_breaks_the_graph_runs_natively_as_a_whole() -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        leaf = w.detach().requires_grad_()
        made = Breaking.apply(leaf * x)
        made.sum().backward()
        return leaf.grad

    fast = anyshape.compile(step)
    for rows in (3, 5, 3):
        x, w = torch.randn(rows, 4), torch.randn(4)
        assert_same(fast(x, w), step(x, w))
    assert fast.stats().internal_errors == 0
