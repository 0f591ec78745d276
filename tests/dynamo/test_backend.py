"""`torch.compile(backend="anyshape")` without `install()`: Dynamo's graphs, compiled here."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from anyshape.api import CompiledFunction
from anyshape.dynamo.backend import Backend, compile_fx

pytestmark = pytest.mark.filterwarnings("ignore:E108")


class Recording(Backend):
    """Keeps what was compiled of each graph."""

    def __init__(self) -> None:
        self.made: list[CompiledFunction] = []

    def __call__(self, *args: Any, **settings: Any) -> Any:
        self.made.append(super().__call__(*args, **settings))
        return self.made[-1]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((8,), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(self.norm(x))) * self.scale


def sizes_returned(x: Tensor, n: int) -> tuple[Tensor, int]:
    return x.reshape(-1, x.shape[0])[:, None] * n, x.shape[0] * 2 + n


def written_to(x: Tensor, n: int) -> Tensor:
    x[:1].mul_(n)
    return x.add_(1).sum(0)


def modes(x: Tensor, n: int) -> Tensor:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = x @ x.T
    return y.float() * n


def branches(x: Tensor, n: int) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def recomputed(x: Tensor, n: int) -> Tensor:
    return checkpoint(lambda y: (y * n).sin().exp(), x, use_reentrant=False)


PROGRAMS = [sizes_returned, written_to, modes, branches, recomputed]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_graph_of_dynamos_is_right_at_every_size(program: Callable[..., Any]) -> None:
    fast = torch.compile(program, backend=compile_fx)
    for rows, n in ((5, 2), (6, 3), (7, 3), (2, 5), (1, 2), (40, 3)):
        x = torch.randn(rows, 4)
        ours, theirs = x.clone(), x.clone()
        torch.testing.assert_close(fast(ours, n), program(theirs, n))
        torch.testing.assert_close(ours, theirs)


def test_one_graph_with_symbolic_sizes_serves_them_all() -> None:
    backend = Recording()
    fast, module = torch.compile(Block(), backend=backend, dynamic=True), Block()
    module.load_state_dict(fast._orig_mod.state_dict())
    with torch.no_grad():
        for rows in (5, 6, 40, 3):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), module(x))
    (made,) = backend.made
    stats = made.stats()
    assert (stats.specializations, stats.graph_breaks, stats.calls) == (1, 0, 4)
    assert stats.kernels and not stats.eager_ops


def test_blocks_of_one_class_share_one_graph() -> None:
    backend = Recording()
    blocks = nn.Sequential(*[Block() for _ in range(4)])
    plain = copy.deepcopy(blocks)
    for block in blocks:
        block.compile(backend=backend, fullgraph=True)
    with torch.no_grad():
        x = torch.randn(5, 8)
        torch.testing.assert_close(blocks(x), plain(x))
    assert [made.stats().specializations for made in backend.made] == [1]


def test_gradients_are_eagers() -> None:
    module = Block()
    plain = copy.deepcopy(module)
    fast = torch.compile(module, backend=compile_fx)
    for rows in (5, 6, 7):
        x = torch.randn(rows, 8)
        for each in (fast, plain):
            each.zero_grad()
            each(x).square().sum().backward()
        for ours, theirs in zip(module.parameters(), plain.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_module_compiled_in_place_keeps_its_state_and_is_copied() -> None:
    module = Block()
    names = list(module.state_dict())
    module.compile(backend=compile_fx)
    x = torch.randn(3, 8)
    expected = module(x)
    assert list(module.state_dict()) == names
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(twin(x), expected)


def test_options_and_modes_reach_the_compiler() -> None:
    fast = torch.compile(lambda x: x + 1, backend=compile_fx, options={"max-variants": 3})
    assert torch.equal(fast(torch.ones(3)), torch.full((3,), 2.0))
    fast = torch.compile(lambda x: x + 2, backend=compile_fx, mode="max-autotune")
    assert torch.equal(fast(torch.ones(3)), torch.full((3,), 3.0))


def test_reset_forgets() -> None:
    backend = Recording()
    fast = torch.compile(lambda x: x * 2, backend=backend)
    fast(torch.ones(3))
    torch.compiler.reset()
    assert backend.made[0].stats().specializations == 0
    assert torch.equal(fast(torch.ones(3)), torch.full((3,), 2.0))
