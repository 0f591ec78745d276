"""`torch.func.grad` and `grad_and_value`: part of the segment where the function only computes, else
torch's own. Four calls of four shapes beside eager, in float64; how results lie, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import anyshape

ROWS = (4, 2, 5, 3)
Step = Callable[[Tensor, Tensor], Any]
Program = Callable[[], Step]


pytestmark = pytest.mark.usefixtures("doubles")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))


def detached(net: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def loss_of(net: nn.Module) -> Callable[[Any, Tensor, Tensor], Tensor]:
    return lambda p, x, y: F.cross_entropy(functional_call(net, p, (x,)), y)


# ---- part of the segment -------------------------------------------------------------------------
def descent_of_a_dict() -> Step:
    net = network()
    loss, p = loss_of(net), detached(net)

    def step(x, y):
        g = grad(loss)(p, x, y)
        for name in p:
            p[name] = p[name] - 0.1 * g[name]
        return dict(p)

    return step


def in_place_with_momentum() -> Step:
    net = network()
    loss, p = loss_of(net), detached(net)
    averages = {name: torch.zeros_like(value) for name, value in p.items()}
    gradients = grad_and_value(loss)

    def step(x, y):
        with torch.no_grad():
            g, value = gradients(p, x, y)
            for name in p:
                averages[name].mul_(0.9).add_(g[name])
                p[name].sub_(averages[name], alpha=0.1)
        return value, dict(p)

    return step


def several_arguments_and_a_loss_under_no_grad_inside() -> Step:
    w = torch.randn(6, 4)

    def f(x, y, w):
        with torch.no_grad():
            aim = (x @ w).softmax(-1)
        return ((x @ w).log_softmax(-1) * aim).sum() + x.square().sum() * y.sum()

    return lambda x, y: pytree.tree_map(lambda g: g.sum(), grad(f, argnums=(0, 2))(x, y, w))


def with_what_is_computed_besides() -> Step:
    net = network()
    p = detached(net)

    def f(p, x, y):
        made = functional_call(net, p, (x,))
        return F.cross_entropy(made, y), {"made": made * 2, "best": made.argmax(-1)}

    def step(x, y):
        g, (loss, more) = grad_and_value(f, has_aux=True)(p, x, y)
        flags = loss.requires_grad, more["made"].requires_grad
        return sum(each.square().sum() for each in g.values()), loss, more, flags

    return step


def an_argument_that_is_not_used() -> Step:
    return lambda x, y: grad(lambda a, b: a.square().sum(), argnums=(0, 1))(x, x * 2)[1] + x


WHOLE = (
    *(descent_of_a_dict, in_place_with_momentum, with_what_is_computed_besides),
    *(several_arguments_and_a_loss_under_no_grad_inside, an_argument_that_is_not_used),
)


# ---- left to torch -------------------------------------------------------------------------------
def of_parameters() -> Step:
    """What the function reads besides requires gradients, and so does the result."""
    scale = nn.Parameter(torch.randn(6))

    def step(x, y):
        g = grad(lambda a: (a * scale).square().sum())(x)
        g.sum().backward()
        return g.requires_grad, scale.grad.clone()

    return step


def handed_out() -> Step:
    return lambda x, y: grad(lambda a: (a.t() @ a).sum())(x)


def twice() -> Step:
    return lambda x, y: grad(lambda a: grad(lambda b: (b**3).sum())(a).sum())(x) + 0.0


def that_keeps_what_it_is_handed() -> Step:
    kept: list[Any] = []

    def f(a):
        kept.append(a.detach().clone())
        return a.square().sum()

    def step(x, y):
        made = grad(f)(x).sum()
        return made, len(kept), torch._C._functorch.is_functorch_wrapped_tensor(kept[-1])

    return step


def that_writes_an_argument() -> Step:
    def f(a, b):
        b.mul_(2)
        return (a * b).sum()

    def step(x, y):
        other = x + 1
        return grad(f)(x, other).sum(), other

    return step


def that_gives_an_argument_back() -> Step:
    def step(x, y):
        other = x + 1
        g, same = grad(lambda a, b: ((a * b).sum(), b), has_aux=True)(x, other)
        return g.sum(), same is other

    return step


def of_several_numbers() -> Step:
    def step(x, y):
        try:
            return grad(lambda a: a.square())(x).sum()
        except RuntimeError as error:
            return str(error).splitlines()[0]

    return step


def that_makes_a_leaf() -> Step:
    def step(x, y):
        try:
            return grad(lambda a: (a * a.sin().requires_grad_()).sum())(x).sum()
        except RuntimeError as error:
            return str(error).splitlines()[0]

    return step


def that_sets_a_flag() -> Step:
    def f(a):
        made = a.sin()
        made.requires_grad = True
        return (a * made).sum()

    def step(x, y):
        try:
            return grad(f)(x).sum()
        except RuntimeError as error:
            return str(error).splitlines()[0]

    return step


def that_goes_backward() -> Step:
    def f(a):
        b = a * 2
        return torch.autograd.grad(b.square().sum(), b)[0].sum() + a.sum()

    return lambda x, y: grad(f)(x).sum()


def that_writes_what_was_there() -> Step:
    total = torch.zeros(6)

    def f(a):
        total.add_(1)
        return (a * total).sum()

    def step(x, y):
        try:
            return grad(f)(x).sum()
        except RuntimeError as error:
            return str(error).splitlines()[0], total.clone()

    return step


def of_an_argument_that_is_written() -> Step:
    def step(x, y):
        try:
            return grad(lambda a: a.mul_(2).square().sum())(x * 1).sum()
        except RuntimeError as error:
            return str(error).splitlines()[0]

    return step


def in_an_object() -> Step:
    class Kept:
        value: Any = None

    kept = Kept()

    def f(a):
        kept.value = a * 2
        return (a * kept.value).sum()

    def step(x, y):
        made = grad(f)(x).sum()
        return made, torch._C._functorch.is_functorch_wrapped_tensor(kept.value)

    return step


def that_raises() -> Step:
    def f(a):
        raise KeyError("here")

    def step(x, y):
        try:
            return grad(f)(x)
        except KeyError as error:
            return str(error)

    return step


NATIVE = (
    *(of_parameters, handed_out, twice, that_keeps_what_it_is_handed, that_writes_an_argument),
    *(that_gives_an_argument_back, of_several_numbers, that_makes_a_leaf, that_raises),
    *(that_sets_a_flag, that_goes_backward, that_writes_what_was_there, in_an_object),
    of_an_argument_that_is_written,
)


def runs(make: Program, *, compiled: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    step = make()
    fast = anyshape.compile(step) if compiled else step
    log = []
    for seed, rows in enumerate(ROWS):
        stream = torch.Generator().manual_seed(seed)
        x = torch.randn(rows, 6, generator=stream)
        made = fast(x, torch.randint(0, 4, (rows,), generator=stream))
        log.append(pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) else v, made))
        log.append([v.stride() for v in pytree.tree_leaves(made) if isinstance(v, Tensor)])
    return log, fast


@pytest.mark.parametrize("make", [*WHOLE, *NATIVE])
def test_a_function_is_differentiated_as_in_eager(make: Program) -> None:
    ours, fast = runs(make, compiled=True)
    theirs, _ = runs(make, compiled=False)
    (found, spec), (expected, spec_of_eager) = map(pytree.tree_flatten, (ours, theirs))
    assert spec == spec_of_eager and [*map(type, found)] == [*map(type, expected)]
    for mine, other in zip(found, expected, strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-10)
        else:
            assert mine == other
    stats = fast.stats()
    assert stats.internal_errors == 0
    if make in WHOLE:
        assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
