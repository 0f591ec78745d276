"""Native regions on a GPU: one call of C for kernels, products, attention and flags, right wherever programs run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
STRICT = {"fallback": "error"}
SIZES = [(1, 8), (3, 40), (0, 8), (33, 64), (700, 1000), (3, 40)]


def chain(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(6):
        x = torch.tanh(x @ w)
    return x


def norms(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x = F.layer_norm(x, (x.shape[-1],)) + x.sum(0)
        x = torch.softmax(x, 0) * x.shape[0]
    return x


def attends(x: Tensor, w: Tensor) -> Tensor:
    q = (x @ w).view(1, x.shape[0], 2, x.shape[1] // 2).transpose(1, 2)
    k = torch.sigmoid(q)
    made = F.scaled_dot_product_attention(q, k, k * 2, is_causal=True)
    return made.transpose(1, 2).reshape(x.shape) @ w + 1


def routed(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.softmax(x @ w, -1)
    best, which = scores.topk(2, dim=-1)
    positions, order = which.reshape(-1).sort()
    counts = torch.histc(positions.float(), bins=8, min=0, max=7)
    return best / best.sum(-1, keepdim=True), (counts.cumsum(0) * 2, order + 1)[0]


PROGRAMS = {"chain": chain, "norms": norms, "attends": attends, "routed": routed}


def operands(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    w = torch.randn(columns, columns, device="cuda") / columns**0.5
    return torch.randn(rows, columns, device="cuda").to(dtype), w.to(dtype)


def same(found: Any, wanted: Any, loose: float = 2e-3) -> None:
    torch.testing.assert_close(found, wanted, rtol=loose, atol=loose)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_native_regions_are_right_at_every_size(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True, options=STRICT)
    for rows, columns in SIZES:
        given = operands(rows, columns, dtype)
        if name == "routed":  # places of equal scores are eager's: the same values are sorted
            given = given[0].float(), given[1].float()
        same(fast(*given), program(*given), 5e-3 if given[0].dtype is torch.float32 else 5e-2)
    assert "region_" in str(fast.code())


def test_mixture_of_experts_is_one_region() -> None:
    def experts(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
        return torch.tanh(torch._grouped_mm(x * 2, weights, offs=ends)) + 1

    fast = anyshape.compile(experts, fullgraph=True, options=STRICT)
    for rows in (16, 48, 16):
        x = torch.randn(rows, 64, device="cuda").bfloat16()
        weights = torch.randn(4, 64, 32, device="cuda").bfloat16() / 8
        ends = torch.tensor([rows // 4, rows // 2, rows // 2, rows], device="cuda").int()
        same(fast(x, weights, ends), experts(x, weights, ends), 5e-2)
    assert "grouped_mm" not in str(fast.code()).split("def run")[1].split("\n\n")[0]


def test_arguments_at_odd_addresses() -> None:
    fast = anyshape.compile(chain)
    x, w = operands(5, 40)
    rows = torch.randn(5 * 40 + 3, device="cuda")
    for start in (0, 1, 3, 0):
        moved = rows[start : start + 200].view(5, 40)
        same(fast(moved, w), chain(moved, w))


def test_threads_on_streams_share_a_program() -> None:
    fast = anyshape.compile(chain)
    w = operands(1, 40)[1]
    fast(torch.randn(3, 40, device="cuda"), w)
    failed: list[object] = []

    def work(number: int) -> None:
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(60):
                    x = torch.randn(1 + (number * 31 + turn * 17) % 200, 40, device="cuda")
                    same(fast(x, w), chain(x, w))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_inside_the_users_own_graph_and_replayed() -> None:
    fast = anyshape.compile(attends)
    x, w = operands(33, 64)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fast(x, w)
        fast(x, w)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = fast(x, w)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        same(made, attends(x, w))
    replayed = anyshape.compile(attends, mode="reduce-overhead")
    for _ in range(4):
        x = torch.randn_like(x)
        same(replayed(x, w), attends(x, w))


def test_measured_schedules() -> None:
    fast = anyshape.compile(norms, mode="max-autotune-no-cudagraphs")
    for rows, columns in ((33, 64), (700, 1000), (33, 64)):
        given = operands(rows, columns)
        same(fast(*given), norms(*given), 5e-3)


def test_an_index_out_of_range_is_told_at_the_next_call() -> None:
    def program(table: Tensor, positions: Tensor, w: Tensor) -> Tensor:
        x = torch.tanh(F.embedding(positions, table) @ w)
        return torch.tanh((x * 2) @ w)

    fast = anyshape.compile(program, options=STRICT)
    table, w = operands(100, 32)
    right = torch.arange(10, device="cuda")
    for _ in range(2):
        same(fast(table, right, w), program(table, right, w))
    fast(table, right + 95, w)
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match="test_launches.py"):
        fast(table, right, w)
    same(fast(table, right, w), program(table, right, w))


def test_gradients_through_native_regions() -> None:
    fast = anyshape.compile(chain)
    for rows in (3, 70):
        x, w = (t.requires_grad_() for t in operands(rows, 40))
        wanted = torch.autograd.grad(chain(x, w).sum(), (x, w))
        same(torch.autograd.grad(fast(x, w).sum(), (x, w)), wanted)


def test_kernels_are_told_and_profiled() -> None:
    fast = anyshape.compile(chain)
    given = operands(64, 64)
    fast(*given)
    assert "tanh" in fast.kernels(*given)
    with torch.profiler.profile() as profile:
        fast(*given)
        torch.cuda.synchronize()
    assert any("tanh" in event.name for event in profile.events())


def test_memory_does_not_grow() -> None:
    fast = anyshape.compile(attends)
    given = operands(512, 512)
    for _ in range(10):  # libraries take memory where calls are recorded, once
        fast(*given)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        fast(*given)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
