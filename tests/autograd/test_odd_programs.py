"""What people do around gradients, in compiled functions: hooks of all kinds, functions with gradients of their own,
gradients of gradients, checkpoints, mixed precision, transforms, parameters that are frozen, replaced or shared. Each is
what eager does, error or not; how much of it is compiled is not asked here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, graph
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import anyshape
from tests.autograd.beside_eager import (
    SIZES,
    assert_same,
    assert_same_parameters,
    batch,
    descend,
    model,
)

Program = Callable[[nn.Sequential, Tensor], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


# ---- hooks ---------------------------------------------------------------------------------------
@program
def hook_of_a_module(net, x):
    seen = []
    handle = net[0].register_full_backward_hook(lambda m, given, got: seen.append(got[0].shape))
    net(x).square().mean().backward()
    handle.remove()
    return seen


@program
def hook_that_changes_what_a_module_is_given(net, x):
    handle = net[1].register_full_backward_pre_hook(lambda m, got: (got[0] * 2,))
    net(x).square().mean().backward()
    handle.remove()


@program
def hook_of_a_result(net, x):
    made = net(x)
    made.register_hook(lambda g: g.clamp(-0.01, 0.01))
    made.sum().backward()


@program
def hook_of_a_parameter(net, x):
    handle = net[0].weight.register_hook(lambda g: g * 0.5)
    net(x).sum().backward()
    handle.remove()


@program
def hooks_of_what_is_saved(net, x):
    counts = [0]

    def pack(tensor):
        counts[0] += 1
        return tensor * 1

    with graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = net(x)
    made.sum().backward()
    return counts[0] > 0


@program
def hook_of_several(net, x):
    first, second, seen = net[0](x), net[0](x * 2), []
    handle = graph.register_multi_grad_hook((first, second), lambda gs: seen.append(len(gs)))
    (first * second).sum().backward()
    handle.remove()
    return seen


# ---- functions with gradients of their own -------------------------------------------------------
class Partly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        larger = a > b
        ctx.mark_non_differentiable(larger)
        return a * b, larger

    @staticmethod
    def backward(ctx, g, unused):
        a, b = ctx.saved_tensors
        return g * b * 3, (g * a * 2 if ctx.needs_input_grad[1] else None)


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 11


@program
def function_with_a_result_without_gradients(net, x):
    made, larger = Partly.apply(net(x), x[:, :4])
    made.sum().backward()
    return larger


@program
def function_that_writes(net, x):
    before = net(x) * 1
    after = InPlace.apply(before)
    after.sum().backward()
    return after.detach(), before.detach()


# ---- gradients that are asked for ----------------------------------------------------------------
@program
def gradients_inside(net, x):
    given = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(net.parameters(), given):
            parameter -= 0.1 * gradient


@program
def penalty_on_gradients(net, x):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    ((slope.norm(2, dim=1) - 1) ** 2).mean().backward()


@program
def parameters_after_a_step(net, x):
    named = dict(net.named_parameters())
    loss = torch.func.functional_call(net, named, (x,)).square().mean()
    given = torch.autograd.grad(loss, list(named.values()), create_graph=True)
    moved = {name: p - 0.1 * g for (name, p), g in zip(named.items(), given)}
    torch.func.functional_call(net, moved, (x,)).square().mean().backward()


@program
def many_cotangents_at_once(net, x):
    made = net(x).sum(0)
    (given,) = torch.autograd.grad(made, net[0].weight, torch.eye(4), is_grads_batched=True)
    return given.sum((1, 2))


@program
def of_some_inputs(net, x):
    net(x).sum().backward(inputs=[net[0].weight])
    return net[3].weight.grad is None


@program
def of_what_is_unused(net, x):
    unused = torch.ones(3, requires_grad=True)
    return torch.autograd.grad(net(x).sum(), [net[0].weight, unused], allow_unused=True)[1]


@program
def two_losses_of_one_part(net, x):
    hidden = net[0](x)
    net[3](hidden).sum().backward(retain_graph=True)
    hidden.square().sum().backward()


# ---- modes ---------------------------------------------------------------------------------------
@program
def anomalies_are_found(net, x):
    with torch.autograd.detect_anomaly():
        (net(x) * 0).sqrt().sum().backward()


@program
def gradients_turned_off_and_on(net, x):
    torch.set_grad_enabled(False)
    hidden = net[0](x)
    torch.set_grad_enabled(True)
    net[3](hidden).sum().backward()


@program
def inference_inside(net, x):
    with torch.inference_mode():
        mean = net(x).mean()
    net(x).sum().backward()
    return mean.item()


# ---- checkpoints ---------------------------------------------------------------------------------
@program
def checkpoint_without_reentry(net, x):
    checkpoint(net, x, use_reentrant=False).sum().backward()


@program
def checkpoint_with_reentry(net, x):
    x = x.clone().requires_grad_()
    checkpoint(net, x, use_reentrant=True).sum().backward()
    return x.grad


@program
def checkpoint_of_dropout(net, x):
    torch.manual_seed(x.shape[0])
    made = checkpoint(lambda v: F.dropout(net[0](v), 0.5), x, use_reentrant=False)
    net[3](made).sum().backward()
    return torch.rand(2)


@program
def checkpoint_of_dropout_with_reentry(net, x):
    torch.manual_seed(x.shape[0])
    x = x.clone().requires_grad_()
    made = checkpoint(lambda v: F.dropout(net[0](v), 0.5), x, use_reentrant=True)
    net[3](made).sum().backward()
    return torch.rand(2)


@program
def checkpoint_of_a_sequence(net, x):
    checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()


@program
def checkpoint_that_saves_products(net, x):
    def policy(ctx, operator, *args, **kwargs):
        saved = operator is torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    made = checkpoint(
        net,
        x,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )
    made.sum().backward()


# ---- parameters ----------------------------------------------------------------------------------
@program
def frozen_for_one_loss(net, x):
    net[0].weight.requires_grad_(False)
    net(x).sum().backward()
    net[0].weight.requires_grad_(True)
    net(x).sum().backward()


@program
def replaced(net, x):
    net[0].weight = nn.Parameter(net[0].weight.detach() * 2)
    net(x).sum().backward()
    return net[0].weight.grad


@program
def shared(net, x):
    F.linear(net[0](x), net[0].weight.t()).square().sum().backward()


@program
def copied(net, x):
    other = copy.deepcopy(net)
    other(x).sum().backward()
    return other[0].weight.grad, net[0].weight.grad


@program
def parametrized(net, x):
    if not hasattr(net, "extra"):
        torch.manual_seed(0)
        net.extra = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    net.extra(net[3](net[0](x))).sum().backward()


@program
def clipped_by_value(net, x):
    net(x).square().sum().backward()
    nn.utils.clip_grad_value_(net.parameters(), 0.01)


@program
def loss_that_is_no_number(net, x):
    (net(x) * float("nan")).sum().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5, error_if_nonfinite=True)


# ---- transforms ----------------------------------------------------------------------------------
@program
def gradients_of_each_sample(net, x):
    named = {name: p.detach() for name, p in net.named_parameters()}

    def loss(named, row):
        return torch.func.functional_call(net, named, (row[None],)).square().mean()

    given = torch.func.vmap(torch.func.grad(loss), (None, 0))(named, x)
    return [gradient.sum(0) for gradient in given.values()]


@program
def forward_gradients(net, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(net(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


@program
def tangents(net, x):
    return torch.func.jvp(net, (x,), (torch.ones_like(x),))[1]


# ---- batches -------------------------------------------------------------------------------------
@program
def small_batches(net, x):
    net.zero_grad()
    for part in x.split(2):
        (net(part).square().sum() / x.shape[0]).backward()
    descend(net)


@program
def nothing_at_all(net, x):
    net(x[:0]).sum().backward()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_done_around_gradients_is_eagers(name: str) -> None:
    def outcome(run: Program, net: nn.Sequential, x: Tensor) -> Any:
        try:
            return run(net, x)
        except RuntimeError as error:
            return str(error)[:60]

    ours, theirs = model(), model()
    fast = anyshape.compile(PROGRAMS[name])
    for seed, count in enumerate(SIZES):
        x, _ = batch(seed, count)
        found = outcome(fast, ours, x.clone())
        assert_same(found, outcome(PROGRAMS[name], theirs, x.clone()))
        assert_same_parameters(ours, theirs)
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("name", ["many_cotangents", "vectorized"])
def test_many_cotangents_of_a_compiled_model(name: str) -> None:
    def many_cotangents(run, net, x):
        made = run(x)
        rows = torch.eye(made.numel()).view(-1, *made.shape)
        return torch.autograd.grad(made, net[0].weight, rows, is_grads_batched=True)[0]

    def vectorized(run, net, x):
        return torch.autograd.functional.jacobian(run, x, vectorize=True)

    ask = {"many_cotangents": many_cotangents, "vectorized": vectorized}[name]
    net = model()
    fast = anyshape.compile(net)
    for seed, count in enumerate(SIZES):
        x, _ = batch(seed, count)
        assert_same(ask(fast, net, x), ask(net, net, x))
    assert fast.stats().gradients == 1


def test_the_closure_of_lbfgs_is_told_by_its_code() -> None:
    """Each call makes it anew, and torch decorates it: `functools.wraps` notes on that what it
    wraps, which made a specialization a call."""

    def made(net: nn.Module) -> Callable[..., Tensor]:
        optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=6)

        def step(x: Tensor, y: Tensor) -> Tensor:
            def closure() -> Tensor:
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure)

        return step

    torch.manual_seed(0)
    theirs = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))
    ours = copy.deepcopy(theirs)
    expected, fast = made(theirs), anyshape.compile(made(ours))
    for count in (30, 50, 10, 70):
        given = torch.randn(count, 8), torch.randint(0, 4, (count,))
        torch.testing.assert_close(fast(*given), expected(*given), rtol=1e-2, atol=1e-3)
    told = "\n".join(map(str, fast.recompiles()))
    assert not re.search(r"closure is .*closure; now", told), told
