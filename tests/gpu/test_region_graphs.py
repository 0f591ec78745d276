"""Native regions as CUDA graphs: calls that are made again, whatever happens between them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.runtime import region_graphs
from anyshape.runtime.region_graphs import SIGHTS, Recorder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CALLS = 3 * SIGHTS


def chain(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(6):
        x = torch.tanh(x @ w)
    return x


def norms(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x = F.layer_norm(x, (x.shape[-1],)) + x.sum(0)
        x = torch.softmax(x, 0) * x.shape[0]
    return x


def biased(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4):
        x = F.gelu(F.linear(x, w, w[0])) + x
    return x


def attends(x: Tensor, w: Tensor) -> Tensor:
    q = (x @ w).view(1, x.shape[0], 2, x.shape[1] // 2).transpose(1, 2)
    k = torch.sigmoid(q)
    made = F.scaled_dot_product_attention(q, k, k * 2, is_causal=True)
    return made.transpose(1, 2).reshape(x.shape) @ w + 1


def picks(x: Tensor, w: Tensor) -> Tensor:
    scores = torch.softmax(torch.tanh(x @ w) @ w, -1)
    best, which = scores.topk(2, dim=-1)
    return torch.sigmoid(best @ w[:2]) + which.float().sum(-1, keepdim=True)


PROGRAMS = {f.__name__: f for f in (chain, norms, biased, attends, picks)}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The graphs that were launched."""
    found: list[int] = []
    launch = region_graphs.launch_graph

    def counted(graph: int, stream: int) -> int:
        found.append(graph)
        return launch(graph, stream)

    monkeypatch.setattr(region_graphs, "launch_graph", counted)
    yield found


def operands(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    w = torch.randn(columns, columns, device="cuda") / columns**0.5
    return torch.randn(rows, columns, device="cuda").to(dtype), w.to(dtype)


def same(found: Any, wanted: Any, loose: float = 2e-3) -> None:
    torch.testing.assert_close(found, wanted, rtol=loose, atol=loose)


def by_itself(call: Any, *given: Any) -> Any:
    """Of a program of which no region is recorded."""
    with mock.patch.object(Recorder, "has_room", lambda *given: False):
        return call(*given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_that_are_made_again_are_graphs_that_give_the_very_bits(
    name, dtype, launched
) -> None:
    """With other contents each time, results that are kept, and sizes in turn."""
    fast, plain = (anyshape.compile(PROGRAMS[name], fullgraph=True) for _ in range(2))
    given = [operands(rows, columns, dtype) for rows, columns in ((33, 64), (1, 64), (120, 256))]
    kept = []
    for keeps in (False, True):
        for x, w in given * CALLS:
            x.copy_(torch.randn_like(x))
            made, wanted = fast(x, w), by_itself(plain, x, w)
            assert torch.equal(made, wanted)
            if keeps:
                kept.append((made, wanted))
            del made, wanted
        assert launched
    assert all(torch.equal(made, wanted) for made, wanted in kept)  # they are the caller's


def test_other_addresses_are_right(launched) -> None:
    fast = anyshape.compile(chain)
    _, w = operands(5, 40)
    rows = torch.randn(5 * 40 + 3, device="cuda")
    for start in (0, 1, 3, 0, 1) * CALLS:
        x = rows[start : start + 200].view(5, 40)
        x.mul_(-1)
        same(fast(x, w), chain(x, w))
    assert len(set(launched)) >= 3


def test_numbers_that_change_are_read_at_each_call(launched) -> None:
    def program(x: Tensor, w: Tensor, scale: float) -> Tensor:
        for _ in range(5):
            x = torch.tanh(x @ w) * scale
        return x

    fast = anyshape.compile(program)
    x, w = operands(16, 64)
    for turn in range(4 * CALLS):
        scale = (0.5, 1.5, -0.25)[turn % 3]
        same(fast(x, w, scale), program(x, w, scale))


def test_memory_that_libraries_took_is_nobody_elses(launched) -> None:
    """Workspaces that are given up go back to the pool of the graphs, which nobody else is given."""
    fast = anyshape.compile(biased)
    x, w = operands(64, 512, torch.bfloat16)
    wanted = biased(x, w)
    for _ in range(CALLS):
        same(fast(x, w), wanted, 5e-2)
    before = len(launched)
    torch._C._cuda_clearCublasWorkspaces()
    gc.collect()
    others = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(40)]
    for _ in range(CALLS):
        same(fast(x, w), wanted, 5e-2)
    assert len(launched) > before
    assert all(bool(other.eq(7).all()) for other in others)


def test_inside_of_a_pool_of_the_programs_own(launched) -> None:
    """What libraries take while something is recorded is the graphs' and not that pool's, or nothing is recorded."""
    fast = anyshape.compile(chain)
    x, w = operands(33, 64)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        for _ in range(CALLS):
            made = fast(x, w)
            others = [torch.full((1 << 16,), 7.0, device="cuda") for _ in range(20)]
            same(made, chain(x, w))
            assert all(bool(other.eq(7).all()) for other in others)


def test_flags_of_libraries_are_read_at_each_call(launched) -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(4):
            x = (x @ w) * 1.5
        return x

    fast = anyshape.compile(program)
    x, w = operands(512, 2048)
    exact = program(x.double(), w.double())
    before = torch.backends.cuda.matmul.allow_tf32
    errors: dict[bool, float] = {}
    try:
        for turn in range(4 * SIGHTS):
            torch.backends.cuda.matmul.allow_tf32 = allowed = bool(turn // SIGHTS % 2)
            made = (fast(x, w) - exact).norm() / exact.norm()
            errors[allowed] = max(errors.get(allowed, 0.0), made.item())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert errors[False] < 1e-5 < errors[True]


def test_under_a_graph_of_the_users_own(launched) -> None:
    fast = anyshape.compile(chain)
    x, w = operands(33, 64)
    for _ in range(CALLS):
        fast(x, w)
    graph, before = torch.cuda.CUDAGraph(), len(launched)
    with torch.cuda.graph(graph):
        made = fast(x, w)
    assert len(launched) == before
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        same(made, chain(x, w))


def test_threads_on_streams_while_another_one_draws(launched) -> None:
    """Nothing but the thread that records is kept from anything meanwhile."""
    fast = anyshape.compile(biased)
    x, w = operands(16, 64)
    wanted = biased(x, w)
    failed: list[object] = []
    ended = threading.Event()

    def work() -> None:
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(10 * CALLS):
                    same(fast(x, w), wanted)
        except BaseException as error:
            failed.append(error)

    def draw() -> None:
        try:
            while not ended.is_set():
                torch.rand(100, device="cuda").cpu()
                torch.empty(1 << 22, device="cuda")
        except BaseException as error:
            failed.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(6)]
    other = threading.Thread(target=draw)
    other.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    other.join()
    assert not failed
    assert launched


def test_gradients(launched) -> None:
    fast = anyshape.compile(chain)
    x, w = (t.requires_grad_() for t in operands(64, 64))
    for _ in range(4 * CALLS):
        wanted = torch.autograd.grad(chain(x, w).sum(), (x, w))
        same(torch.autograd.grad(fast(x, w).sum(), (x, w)), wanted)
    assert launched
    assert 0 < fast.stats().graphs < fast.stats().replays == len(launched)


def test_graphs_go_with_their_program(launched) -> None:
    x, w = operands(33, 64)
    for _ in range(3):
        fast = anyshape.compile(lambda x, w: chain(x, w) + 1)
        for _ in range(CALLS):
            made = fast(x, w)
        del fast
        gc.collect()
        same(made, chain(x, w) + 1)
    assert launched
