"""Programs around training: parameters iterated over, writes that gradients see, running statistics,
gradients of embeddings. Whole steps are in tests/autograd/test_whole_step.py.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from tests.autograd.beside_eager import batch, model

BATCHES = (8, 5, 1, 8, 3, 8, 9, 2)


def test_parameters_are_iterated_over_without_a_break() -> None:
    net = model()

    def decayed(rate: Tensor) -> int:
        for parameter in net.parameters():
            parameter.mul_(1 - rate)
        return len(dict(net.named_parameters())) + len(list(net.buffers()))

    fast = anyshape.compile(decayed, fullgraph=True)
    with torch.no_grad():
        expected = [p * 0.5 for p in net.parameters()]
        assert fast(torch.tensor(0.5)) == 6
    for found, wanted in zip(net.parameters(), expected):
        torch.testing.assert_close(found, wanted)


def test_shared_parameters_are_given_once() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight

    def names(x: Tensor) -> tuple[Tensor, list[str], list[str]]:
        every = [name for name, _ in net.named_parameters(remove_duplicate=False)]
        return x + 1, [name for name, _ in net.named_parameters(prefix="net")], every

    found, expected = anyshape.compile(names, fullgraph=True)(torch.ones(2)), names(torch.ones(2))
    assert found[1:] == expected[1:]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_network_serves_every_length(kind: str) -> None:
    torch.manual_seed(0)
    net = getattr(nn, kind)(8, 16, num_layers=2, batch_first=True)
    fast = anyshape.compile(net)
    with torch.no_grad():
        for batch_size, length in ((2, 7), (1, 1), (3, 33), (2, 16)):
            x = torch.randn(batch_size, length, 8)
            torch.testing.assert_close(fast(x), net(x))
    stats = fast.stats()
    assert (stats.specializations, stats.graph_breaks) == (1, 0)


def test_what_is_written_as_data_may_have_been_saved_for_gradients() -> None:
    found = []
    for wrap in (lambda fn: fn, anyshape.compile):
        weight = torch.linspace(1, 2, 3, requires_grad=True)

        def step(x: Tensor, weight: Tensor = weight) -> Tensor:
            loss = (x * weight).square().sum()
            weight.data.mul_(0.5)
            return loss

        run = wrap(step)
        for rows in (2, 3):
            run(torch.ones(rows, 3)).backward()
        found.append((weight.grad, weight.detach(), weight._version))
    assert found[0][2] == found[1][2] == 0
    torch.testing.assert_close(found[1][:2], found[0][:2])


DATA: dict[str, Callable[[Tensor], object]] = {
    "all of it": lambda x: x.data.add_(1),
    "a part of it": lambda x: x.data[1:].mul_(3),
    "of a part": lambda x: x[1:].data.mul_(3),
    "copied": lambda x: x.data.copy_(x * 2),
    "at places": lambda x: x.data.__setitem__(torch.tensor([0]), 5.0),
    "and without": lambda x: (x.data.add_(1), x.mul_(2)),
    "detached": lambda x: x.detach().mul_(2),
}


@torch.no_grad()
@pytest.mark.parametrize("name", DATA)
def test_a_write_to_data_moves_no_version(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        DATA[name](x)
        return x * 1

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 2):
        ours, theirs = torch.ones(rows, 2), torch.ones(rows, 2)
        assert torch.equal(fast(ours), program(theirs))
        assert torch.equal(ours, theirs)
        assert ours._version == theirs._version


IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        f"{name}(inplace=True)": partial(getattr(F, name), inplace=True)
        for name in (
            *("relu", "relu6", "silu", "mish", "hardswish", "hardsigmoid", "celu", "elu"),
            *("hardtanh", "leaky_relu", "rrelu", "selu"),
        )
    },
    **{
        f"{name}_": getattr(F, f"{name}_")
        for name in ("relu", "celu", "elu", "hardtanh", "leaky_relu", "selu")
    },
    "threshold": lambda x: F.threshold(x, 0.1, 20.0, True),
    "rrelu while training": lambda x: F.rrelu(x, training=True, inplace=True),
    "rrelu_": lambda x: F.rrelu_(x, training=True),
    "x.relu_": lambda x: x.relu_(),
    "scatter_": lambda x: x.scatter_(
        1, torch.zeros(x.shape[0], 1, dtype=torch.int64), torch.ones(x.shape)
    ),
    "index_put_": lambda x: x.index_put_((x > 0,), torch.ones(())),
}


def seeded(function: Callable[..., Any], *args: Tensor) -> Any:
    torch.manual_seed(0)
    return function(*args)


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_writes_in_place_has_eagers_gradients(name: str) -> None:
    def program(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        y = x * weight
        return IN_PLACE[name](y), y

    fast = anyshape.compile(program)
    for size in (3, 1, 0, 2, 17):
        x, weight = torch.randn(size, 4), torch.ones(4, requires_grad=True)
        ours, theirs = (seeded(f, x, weight) for f in (fast, program))
        gradients = [torch.autograd.grad(made[0].sum(), weight) for made in (ours, theirs)]
        torch.testing.assert_close((*ours, *gradients[0]), (*theirs, *gradients[1]))
    assert fast.stats().graph_breaks == 0


def test_gathering_at_an_index_of_another_rank_without_elements_needs_gradients() -> None:
    fast = anyshape.compile(lambda x, index: torch.gather(x, 0, index))
    x, index = torch.ones(3, requires_grad=True), torch.zeros(0, 2, dtype=torch.uint8)
    found = fast(x, index)
    assert found.shape == (0, 2)
    assert found.requires_grad
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert torch.equal(gradient, torch.zeros(3))


EMBEDDINGS: dict[str, dict[str, Any]] = {
    "padding": {"padding_idx": 2},
    "by frequency": {"scale_grad_by_freq": True},
    "sparse": {"sparse": True},
    "padding and sparse": {"sparse": True, "padding_idx": -1},
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_gradients_of_embeddings_are_eagers_in_kind_too(name: str) -> None:
    def table() -> nn.Embedding:
        torch.manual_seed(0)
        return nn.Embedding(5, 3, **EMBEDDINGS[name])

    plain, compiled = table(), table()
    fast = anyshape.compile(compiled)
    for rows, columns in ((2, 7), (1, 1), (0, 3), (17, 2)):
        ids = torch.arange(rows * columns).reshape(rows, columns) % 5
        for made in (plain(ids), fast(ids)):
            made.square().sum().backward()
        ours, theirs = compiled.weight.grad, plain.weight.grad
        assert ours.layout == theirs.layout
        assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert fast.stats().specializations == 1


def test_loops_over_parameters_after_backward_are_one_piece() -> None:
    def step_of(net: nn.Module) -> Callable[[Tensor], Tensor]:
        def step(x: Tensor) -> Tensor:
            net(x).sum().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
            for _, parameter in net.named_parameters():
                parameter.grad = torch.zeros_like(parameter)
            return torch.stack([parameter.sum() for parameter in net.parameters()])

        return step

    plain, compiled = model(), model()
    step, fast = step_of(plain), anyshape.compile(step_of(compiled))
    for seed, count in enumerate(BATCHES):
        x, _ = batch(seed, count)
        torch.testing.assert_close(fast(x), step(x))
    stats = fast.stats()
    assert (stats.graph_breaks, stats.specializations) == (0, 2)


def test_tensors_as_keys_are_told_apart_by_identity() -> None:
    def program(x: Tensor, factors: dict[Tensor, float]) -> Tensor:
        for tensor in factors:
            x = x + tensor * factors[tensor]
        return x

    fast = anyshape.compile(program)
    for size, value in ((2, 1.0), (2, 1.0), (1, 3.0), (1, 3.0), (1, 4.0)):
        factors = {torch.full((size,), value): 2.0}
        assert torch.equal(fast(torch.zeros(size), factors), torch.full((size,), 2 * value))


NORMS: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm1d(3),
    "batch, all averaged": lambda: nn.BatchNorm1d(3, momentum=None),
    "pictures": lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
}


@pytest.mark.filterwarnings("error::anyshape.errors.AnyshapeWarning")
@pytest.mark.parametrize("name", NORMS)
def test_running_statistics_move_as_eagers_do_where_gradients_are_recorded(name: str) -> None:
    plain, compiled = NORMS[name](), NORMS[name]()
    fast = anyshape.compile(compiled)
    for count, length in ((2, 4), (17, 3), (1, 2), (3, 5)):
        torch.manual_seed(count)
        x = torch.randn(count, 3, length)
        for net, run in ((plain, plain), (compiled, fast)):
            net.zero_grad()
            run(x).square().sum().backward()
        ours, theirs = ({**n.state_dict(), "g": n.weight.grad} for n in (compiled, plain))
        for key, value in theirs.items():
            torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), plain(x))
        compiled.load_state_dict(plain.state_dict())  # which kernels move by other roundings
    stats = fast.stats()
    assert (stats.graph_breaks, stats.specializations) == (0, 2)


def test_nothing_of_a_step_waits_for_the_garbage_collector() -> None:
    net = model()

    def step(x: Tensor) -> Tensor:
        hidden = net(x)
        hidden.square().mean().backward()
        return net[3](net[2](net[1](net[0](x)))).sum()

    fast = anyshape.compile(step)
    gc.collect()
    gc.disable()
    try:
        for seed, count in enumerate(BATCHES[:4]):
            x, _ = batch(seed, count)
            made = fast(x)
            kept = weakref.ref(x), weakref.ref(made)
            del x, made
            assert [ref() for ref in kept] == [None, None]
    finally:
        gc.enable()


def test_lazy_modules_find_their_sizes_in_the_first_call() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d(), nn.Linear(4, 2))
    fast = anyshape.compile(net)
    for rows in (3, 2, 17):
        fast(torch.randn(rows, 3)).sum().backward()
    assert net[0].weight.shape == (4, 3)
    assert net[0].weight.grad is not None
