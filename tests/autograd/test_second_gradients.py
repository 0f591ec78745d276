"""Gradients that are differentiated again (`create_graph=True`) in whole steps, and dicts that are
written twice meanwhile: penalties on gradients, forces, differential equations, inner loops of
meta-learning. Three calls of three shapes beside eager, in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import anyshape
from anyshape.capture.heap.effects import Effect, without_overwritten
from anyshape.capture.tensors import second_gradients
from tests.autograd.test_training_programs import EXACT, flat, parts, told

INPUTS, COUNTS = 6, (4, 2, 5)
grad = torch.autograd.grad
Loss = Callable[[nn.Module, Tensor], Any]


pytestmark = pytest.mark.usefixtures("doubles")


def judge(activation: Callable[[], nn.Module], *more: nn.Module, outputs: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, 8),
        *more,
        activation(),
        nn.Linear(8, 8),
        activation(),
        nn.Linear(8, outputs),
    )


# ---- losses --------------------------------------------------------------------------------------
def penalized(net, x):
    """WGAN-GP."""
    mix = torch.rand(len(x), 1)
    between = (mix * x + (1 - mix) * torch.randn_like(x)).requires_grad_(True)
    made = net(between)
    (g,) = grad(made, between, torch.ones_like(made), create_graph=True, retain_graph=True)
    return made.mean() - net(x).mean() + 10 * ((g.norm(2, dim=1) - 1) ** 2).mean()


def penalty_alone(net, x):
    """The last bias gets no gradient; the first one gets zeros, or some."""
    leaf = x.clone().requires_grad_()
    (g,) = grad(net(leaf).sum(), leaf, create_graph=True)
    return g.square().sum(1).mean()


def squared_norm_of_all(net, x):
    loss = net(x).square().mean()
    gradients = grad(loss, [*net.parameters()], create_graph=True)
    return loss + 0.1 * sum(g.square().sum() for g in gradients)


def equation(net, x):
    """Gradients of gradients of gradients."""
    at = x.clone().requires_grad_()
    u = net(at)
    (first,) = grad(u, at, torch.ones_like(u), create_graph=True)
    (second,) = grad(first[:, :1].sum(), at, create_graph=True)
    return (first[:, 1:2] + u * first[:, :1] - 0.1 * second[:, :1]).square().mean()


def adapted(net, x):
    fast = dict(net.named_parameters())
    for _ in range(2):
        loss = functional_call(net, fast, (x,)).square().mean()
        gradients = grad(loss, [*fast.values()], create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), gradients)}
    return functional_call(net, fast, (x * 0.5,)).square().mean()


def adapted_without_second_order(net, x):
    own = dict(net.named_parameters())
    loss = functional_call(net, own, (x,)).square().mean()
    gradients = grad(loss, own.values())
    fast = {name: p - 0.1 * g for (name, p), g in zip(own.items(), gradients)}
    return functional_call(net, fast, (x * 0.5,)).square().mean()


def lengths_of_paths(net, x):
    """With respect to what lies on the way."""
    hidden = net[0](x)
    made = net[1:](hidden)
    (g,) = grad((made * torch.randn_like(made)).sum(), hidden, create_graph=True)
    return (g.square().sum(1).sqrt() - 1).square().mean()


def perturbed_on_the_way(net, x):
    hidden = net[0](x)
    loss = net[1:](hidden).square().mean()
    (g,) = grad(loss, hidden, retain_graph=True)
    return loss + net[1:](hidden + 0.1 * g).square().mean()


def asked_what_requires_gradients(net, x):
    """Eager's answers, of a gradient that nothing is made of and one that weights are in."""
    leaf = x.clone().requires_grad_()
    (plain,) = grad(leaf.sum() * 2, leaf, create_graph=True)
    (other,) = grad((net[0](leaf)).sum(), leaf, create_graph=True)
    assert (plain.requires_grad, other.requires_grad) == (False, True)
    return (other * plain).square().sum() + net(x).mean()


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: judge(nn.ReLU),
    "leaky": lambda: judge(lambda: nn.LeakyReLU(0.2)),
    "tanh": lambda: judge(nn.Tanh),
    "silu": lambda: judge(nn.SiLU, nn.LayerNorm(8)),
    "gelu": lambda: judge(nn.GELU),
    "softplus": lambda: judge(nn.Softplus, nn.GroupNorm(2, 8)),
    "dropout": lambda: judge(nn.Tanh, nn.Dropout(0.3)),
}
PROGRAMS: list[tuple[str, Loss]] = [
    *((name, penalized) for name in NETWORKS),
    *((name, penalty_alone) for name in ("relu", "tanh", "silu", "dropout")),
    ("gelu", squared_norm_of_all),
    ("tanh", equation),
    ("gelu", adapted),
    ("gelu", adapted_without_second_order),
    ("tanh", lengths_of_paths),
    ("tanh", perturbed_on_the_way),
    ("relu", asked_what_requires_gradients),
]


@pytest.mark.parametrize("name, loss_of", PROGRAMS, ids=lambda p: getattr(p, "__name__", p))
def test_a_step_with_gradients_of_gradients_is_one_segment(name: str, loss_of: Loss) -> None:
    runs: list[list[Any]] = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = NETWORKS[name]()
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)

        def step(x: Tensor, net: Any = net, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(net, x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = fast = anyshape.compile(step) if compiled else step
        log: list[Any] = []
        for seed, count in enumerate(COUNTS):
            x = torch.randn(count, INPUTS, generator=torch.Generator().manual_seed(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = run(x)
            seen = [*flat([made, parts(net), parts(optimizer)])]
            tensors = [each for each in seen if isinstance(each, Tensor)]
            grads = [t.grad for t in tensors if t.is_leaf and t.grad is not None]
            values = [t.detach().clone() for t in (*tensors, *grads)]
            log.append(([told(each, {}) for each in seen], values))
        runs.append([log, torch.get_rng_state()])
        if compiled:
            stats = fast.stats()
            told_of = stats.segments, stats.graph_breaks, stats.eager_graphs, stats.internal_errors
            assert told_of == (1, 0, (), 0)
    (ours, our_state), (theirs, their_state) = runs
    for (told_of_ours, found), (told_of_theirs, expected) in zip(ours, theirs, strict=True):
        assert told_of_ours == told_of_theirs
        torch.testing.assert_close(found, expected, **EXACT)
    assert torch.equal(our_state, their_state)


def test_a_penalty_behind_a_step_of_an_optimizer_is_in_the_same_segment() -> None:
    """As critics are trained several times a call: what the optimizer does in between, with numbers
    that are known at run time alone, lies in front of the second penalty."""
    made = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = judge(nn.Tanh)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)

        def step(x: Tensor, net: Any = net, optimizer: Any = optimizer) -> Tensor:
            for _ in range(2):
                optimizer.zero_grad()
                loss = penalized(net, x)
                loss.backward()
                optimizer.step()
            return loss.detach()

        run = anyshape.compile(step) if compiled else step
        given = [torch.randn(n, INPUTS, generator=torch.Generator().manual_seed(n)) for n in COUNTS]
        losses = [run(x).clone() for x in given]
        made.append([losses, [p.detach() for p in net.parameters()], torch.get_rng_state()])
        if compiled:
            assert (run.stats().segments, run.stats().graph_breaks) == (1, 0)
            assert run.stats().eager_graphs == ()
    torch.testing.assert_close(*made, **EXACT)


# ---- what is left to eager -----------------------------------------------------------------------
def behind_data(net, x):
    leaf = x.clone().requires_grad_()
    (g,) = grad(net(leaf[leaf[:, 0] > 0]).sum(), leaf, create_graph=True)
    return g.square().sum()


def handed_out(net, x):
    leaf = x.clone().requires_grad_()
    (g,) = grad(net(leaf).square().sum(), leaf, create_graph=True)
    return g


def without_gradients(net, x):
    leaf = x.clone().requires_grad_()
    made = net(leaf).square().sum()
    with torch.no_grad():
        (g,) = grad(made, leaf, create_graph=True)
    return g.square().sum() + made


def accumulated(net, x):
    leaf = x.clone().requires_grad_()
    net(leaf).square().sum().backward(create_graph=True)
    return leaf.grad.square().sum()


@pytest.mark.parametrize("loss_of", [behind_data, handed_out, without_gradients, accumulated])
@pytest.mark.filterwarnings("ignore")
def test_other_ways_are_eagers(loss_of: Loss) -> None:
    runs: list[list[Any]] = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = judge(nn.Tanh)

        def step(x: Tensor, net: Any = net) -> Tensor:
            return loss_of(net, x)

        run = anyshape.compile(step) if compiled else step
        runs.append([])
        for count in (4, 3):
            net.zero_grad()
            made = run(torch.randn(count, INPUTS))
            made.sum().backward()
            grads = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
            runs[-1] += [made.detach(), made.requires_grad, *grads]
    torch.testing.assert_close(*runs)


def test_eager_is_asked_only_where_gradients_are_differentiated_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*args: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(second_gradients, "_run_again", refused)
    net = judge(nn.Tanh)

    def step(x: Tensor) -> Tensor:
        loss = net(x).square().mean()
        (g,) = grad(loss, [net[0].weight], retain_graph=True)
        loss.backward()
        return loss.detach() + g.sum()

    anyshape.compile(step, fullgraph=True)(torch.randn(3, INPUTS))


# ---- dicts that are written twice ----------------------------------------------------------------
def test_only_the_last_write_under_a_key_is_done_where_the_first_one_put_it() -> None:
    one: dict[Any, Any] = {}
    other: dict[Any, Any] = {}

    def put(target: dict[Any, Any], key: Any, value: Any) -> Effect:
        return Effect(dict.__setitem__, target, (key, value), {})

    effects = [put(one, "a", 1), put(one, "b", 2), put(other, "a", 3), put(one, "a", 4)]
    left = without_overwritten(effects, lambda target: target, ())
    assert left == [effects[3], effects[1], effects[2]]
    removed = Effect(dict.pop, one, ("a",), {})
    effects = [put(one, "a", 1), removed, put(one, "a", 2), put(one, 1, 3), put(one, True, 4)]
    assert without_overwritten(effects, lambda target: target, ()) == effects


KEPT: dict[str, Any] = {}


@pytest.mark.parametrize("taken_out", [False, True])
def test_a_dict_that_is_written_twice_has_its_order(taken_out: bool) -> None:
    def program(x: Tensor) -> Tensor:
        KEPT["a"] = x + 1
        KEPT["b"] = x + 2
        if taken_out:
            del KEPT["a"]
        KEPT["a"] = x + 3
        return F.relu(x)

    found = []
    for run in (anyshape.compile(program), program):
        KEPT.clear()
        for count in (3, 4):
            run(torch.ones(count))
            found.append([(key, value.tolist()) for key, value in KEPT.items()])
    assert found[:2] == found[2:]
