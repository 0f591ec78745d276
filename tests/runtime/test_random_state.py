"""Generators are put back where the numbers are drawn again: those of every device of the graph, for
operators that draw and for those of which nobody knows.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ir.dtypes import float32
from anyshape.ir.graph import Graph, TensorType
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.runtime.random_state import RandomState, devices_drawn_on
from anyshape.symbolic import Facts, Space


@torch.library.custom_op("anyshape_random_state::noisy", mutates_args=())
def noisy(x: Tensor) -> Tensor:
    return x + torch.rand(x.shape)


@noisy.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


noisy.register_autograd(lambda ctx, g: g)


def picked_of_rand(x: Tensor, i: Tensor) -> Tensor:
    return (x + torch.rand(x.shape))[i] * 2


def picked_of_custom(x: Tensor, i: Tensor) -> Tensor:
    return noisy(x)[i] * 2


def counted(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    return noisy(x), torch.bincount(i, minlength=4) * torch.rand(1)


@pytest.mark.parametrize("program", [picked_of_rand, picked_of_custom, counted])
@pytest.mark.parametrize("recorded", [False, True], ids=["", "gradients are recorded"])
def test_a_segment_that_has_not_happened_has_drawn_nothing(program, recorded) -> None:
    fast = anyshape.compile(program)
    for indices in ([1, 2, 0], [9], [1, 3], [-9], [2]):
        found = []
        for run in (program, fast):
            torch.manual_seed(3)
            x = torch.ones(5, requires_grad=recorded)
            try:
                result = run(x, torch.tensor(indices))
            except (IndexError, RuntimeError) as error:
                result = type(error)
            found.append((result, torch.get_rng_state()))
        (wanted, state), (ours, state_of_ours) = found
        assert torch.equal(state, state_of_ours), indices
        if isinstance(wanted, type):
            assert ours is wanted
        else:
            torch.testing.assert_close(ours, wanted)


def graph_on(device: str) -> Graph:
    builder = Builder(TypeContext(Space(), Facts(Space())), OPS)
    x = builder.input(TensorType(float32, device, (3,), (1,)), "argument", "x")
    return builder.finish((builder.dropout(x, 0.5, True),))


def test_generators_are_those_of_the_devices_of_what_is_drawn(monkeypatch) -> None:
    states = {"cuda:1": torch.tensor([7])}
    recording: list[str] = []
    module = SimpleNamespace(
        is_current_stream_capturing=lambda: bool(recording),
        get_rng_state=states.__getitem__,
        set_rng_state=lambda state, device: states.__setitem__(device, state),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: {"cuda:1": module}[device])
    devices = devices_drawn_on(graph_on("cuda:1"))
    assert devices == ("cpu", "cuda:1")
    before, host = RandomState.of(devices), torch.get_rng_state()
    states["cuda:1"] = torch.tensor([9])
    torch.rand(1)
    after = torch.get_rng_state()
    with before.drawn_again():
        assert states["cuda:1"] == 7 and torch.equal(torch.get_rng_state(), host)
        states["cuda:1"] = torch.tensor([8])
    assert states["cuda:1"] == 9 and torch.equal(torch.get_rng_state(), after)
    before.put_back()
    assert states["cuda:1"] == 7 and torch.equal(torch.get_rng_state(), host)
    recording.append("a CUDA graph")
    assert [device for device, _ in RandomState.of(devices).states] == ["cpu"]


def test_a_device_without_a_generator_is_left_out() -> None:
    assert devices_drawn_on(graph_on("meta")) == ("cpu",)


def test_what_draws_nothing_asks_no_generator() -> None:
    builder = Builder(TypeContext(Space(), Facts(Space())), OPS)
    x = builder.input(TensorType(float32, "cpu", (3,), (1,)), "argument", "x")
    assert devices_drawn_on(builder.finish((builder.relu(x),))) == ()
