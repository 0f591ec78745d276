"""``mode="reduce-overhead"``: programs replayed as CUDA graphs, one for each size, are as eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.errors import PerformanceWarning
from anyshape.moe.layer import MoE
from anyshape.moe.router import Routing
from anyshape.targets.triton import graphs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 64)
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)

    def forward(self, ids: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        x = self.table(ids)
        y = x + self.down(F.gelu(self.up(F.layer_norm(x, (64,))))) * scale
        return y, y.float().softmax(-1)


def net() -> Net:
    with torch.device("cuda"):
        return Net().eval()


def ids_of(*shape: int) -> Tensor:
    return torch.randint(0, 100, shape, device="cuda")


@torch.no_grad()
def test_every_size_is_right_each_time_and_results_are_the_callers() -> None:
    model = net()
    fast = anyshape.compile(model, mode="reduce-overhead", fullgraph=True)
    kept = []
    for turn in range(5):
        for shape in ((2, 7), (1, 1), (3, 50), (0, 4)):
            ids = ids_of(*shape)
            made = fast(ids)
            kept.append((made, model(ids)))
    for made, wanted in kept:
        torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-4)
    assert fast.stats().specializations <= 2


@torch.no_grad()
def test_numbers_and_strides_are_part_of_what_is_recorded() -> None:
    fast = anyshape.compile(lambda x, a: torch.softmax(x * a, -1), mode="reduce-overhead")
    for a in (1.5, 2.5, 1.5, 2.5, 1.5, -0.0, 0.0):
        for x in (torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda").T):
            torch.testing.assert_close(fast(x, a), torch.softmax(x * a, -1))


@torch.no_grad()
def test_arguments_whose_elements_share_memory() -> None:
    fast = anyshape.compile(lambda x: torch.softmax(x * 2, -1), mode="reduce-overhead")
    for _ in range(4):
        line = torch.randn(64, device="cuda")
        for x in (line.expand(9, 64), line.unfold(0, 16, 4), line[:1].expand(64)):
            torch.testing.assert_close(fast(x), torch.softmax(x * 2, -1))


@torch.no_grad()
def test_weights_that_are_written_are_read() -> None:
    model = net()
    fast, ids = anyshape.compile(model, mode="reduce-overhead"), ids_of(4, 5)
    for _ in range(4):
        torch.testing.assert_close(fast(ids), model(ids), rtol=1e-4, atol=1e-4)
        model.up.weight.mul_(1.5)


@torch.no_grad()
def test_other_streams() -> None:
    fast = anyshape.compile(lambda x: torch.softmax(x * 3, -1) + 1, mode="reduce-overhead")
    streams = [torch.cuda.Stream() for _ in range(3)]
    for turn in range(12):
        with torch.cuda.stream(streams[turn % 3]):
            x = torch.randn(300, 1000, device="cuda")
            torch.testing.assert_close(fast(x), torch.softmax(x * 3, -1) + 1)


@torch.no_grad()
def test_an_index_out_of_range_is_raised_by_a_later_call() -> None:
    table, good = torch.randn(10, 8, device="cuda"), torch.tensor([1, 9], device="cuda")
    fast = anyshape.compile(lambda w, i: F.embedding(i, w) * 2, mode="reduce-overhead")
    for _ in range(4):
        torch.testing.assert_close(fast(table, good), F.embedding(good, table) * 2)
    fast(table, torch.tensor([1, 50], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(IndexError):
        fast(table, good)
    torch.testing.assert_close(fast(table, good), F.embedding(good, table) * 2)


@torch.no_grad()
def test_random_numbers_are_eagers() -> None:
    program = lambda x: F.dropout(x, 0.5) + torch.rand_like(x)
    fast = anyshape.compile(program, mode="reduce-overhead")
    x = torch.randn(33, 100, device="cuda")
    torch.manual_seed(5)
    wanted = [program(x) for _ in range(5)]
    torch.manual_seed(5)
    for expected in wanted:
        torch.testing.assert_close(fast(x), expected)


@torch.no_grad()
def test_what_writes_an_argument_is_not_recorded() -> None:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    fast = anyshape.compile(program, mode="reduce-overhead")
    x = torch.zeros(10, device="cuda")
    for turn in range(1, 5):
        assert fast(x).eq(2 * turn).all() and x.eq(turn).all()
    assert "not replayed" in fast.kernels()


@torch.no_grad()
def test_layers_of_experts_are_replayed() -> None:
    """Of which eager torch runs one operator of ours."""
    torch.manual_seed(0)
    layer = MoE(64, 96, Routing(8, 2)).to("cuda", torch.bfloat16)
    fast = anyshape.compile(layer, mode="reduce-overhead", fullgraph=True)
    before = {*graphs.LIVE}
    for turn in range(4):
        for tokens in (7, 1, 300):
            x = torch.randn(tokens, 64, device="cuda", dtype=torch.bfloat16)
            torch.testing.assert_close(fast(x), layer(x), rtol=2e-2, atol=2e-2)
    assert "not replayed" not in fast.kernels()
    (made,) = {*graphs.LIVE} - before
    assert len(made.graphs) == 3


@torch.no_grad()
def test_an_operator_of_the_programs_own_is_said_to_keep_it_from_being_replayed() -> None:
    @torch.library.custom_op("anyshape_graphs::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    program = lambda x: twice(x).sin()
    fast = anyshape.compile(program, mode="reduce-overhead")
    x = torch.rand(10, device="cuda")
    with pytest.warns(PerformanceWarning, match="E234.*anyshape_graphs.twice"):
        torch.testing.assert_close(fast(x), program(x))
    assert "not replayed" in fast.kernels()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_a_training_step_is_replayed(optimizer: type, dtype: torch.dtype) -> None:
    def made() -> tuple[torch.nn.Module, Callable[[Tensor], Tensor]]:
        torch.manual_seed(0)
        model = net().to(dtype).train()
        update = optimizer(model.parameters(), lr=1e-2, fused=True)

        def step(ids: Tensor) -> Tensor:
            update.zero_grad()
            loss = model(ids)[1].square().sum() + model.up.weight.float().square().sum()
            loss.backward()
            update.step()
            return loss.detach()

        return model, step

    (ours, step), (theirs, eager) = made(), made()
    fast = anyshape.compile(step, mode="reduce-overhead", fullgraph=True)
    allowed = (
        {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    )
    for turn in range(5):
        for shape in ((2, 7), (3, 50)):
            ids = ids_of(*shape)
            torch.testing.assert_close(fast(ids), eager(ids), **allowed)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, **allowed)
        torch.testing.assert_close(p.grad, q.grad, **allowed)
        assert p._version == q._version
    assert "not replayed" not in fast.kernels()
    assert fast.stats().host_syncs == 0


def test_gradients_lie_where_the_graph_leaves_them_and_those_that_are_kept_stay() -> None:
    def made() -> tuple[torch.nn.Module, Callable[[Tensor], Tensor]]:
        torch.manual_seed(0)
        model = net().train()
        update = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)

        def step(ids: Tensor) -> Tensor:
            update.zero_grad()
            loss = model(ids)[1].square().sum()
            loss.backward()
            update.step()
            return loss.detach()

        return model, step

    (ours, step), (theirs, eager) = made(), made()
    fast = anyshape.compile(step, mode="reduce-overhead", fullgraph=True)
    ids, positions, kept = ids_of(3, 50), set(), []
    for turn in range(12):
        torch.testing.assert_close(fast(ids), eager(ids), rtol=1e-4, atol=1e-5)
        gradient = ours.up.weight.grad
        assert gradient is not None
        torch.testing.assert_close(gradient, theirs.up.weight.grad, rtol=1e-3, atol=1e-4)
        if 3 <= turn < 7:
            positions.add(gradient.data_ptr())
        if turn >= 7:
            kept.append((gradient, gradient.clone()))
        del gradient
    assert len(positions) == 1
    for gradient, copy in kept:
        torch.testing.assert_close(gradient, copy, rtol=0, atol=0)
    last = ours.up.weight.grad
    del fast, step
    torch.cuda.empty_cache()
    filled = torch.full((1 << 22,), float("nan"), device="cuda")
    torch.testing.assert_close(last, theirs.up.weight.grad, rtol=1e-3, atol=1e-4)
    del filled


@torch.no_grad()
def test_inside_a_graph_of_the_users_own() -> None:
    fast = anyshape.compile(lambda x: torch.softmax(x, -1) + 1, mode="reduce-overhead")
    x = torch.randn(64, 1000, device="cuda")
    for _ in range(3):
        fast(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = fast(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(made, torch.softmax(x, -1) + 1)
