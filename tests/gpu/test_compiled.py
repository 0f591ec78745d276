"""Programs compiled on a GPU beside eager torch: one compile for sizes 0, 1, odd and large."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan

import anyshape
from anyshape.runtime.random_state import RandomState
from benchmarks.gpu import PRODUCTS, PROGRAMS, exactly, is_right

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

SIZES = [(1, 2), (3, 1000), (0, 8), (70, 2), (33, 16384), (5, 40000), (2048, 64), (1, 300000)]


def operands(rows: int, columns: int, dtype: torch.dtype) -> dict[str, Tensor]:
    x = torch.randn(rows, columns, device="cuda").to(dtype)
    w = torch.randn(columns, device="cuda").to(dtype)
    target = torch.randint(0, columns, (rows,), device="cuda")
    return {"x": x, "y": torch.randn_like(x), "w": w, "b": torch.randn_like(w), "t": target}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compile_is_right_at_every_size(name: str, dtype: torch.dtype) -> None:
    program, letters = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
    for rows, columns in SIZES:
        values = operands(rows, columns, dtype)
        given = [values[letter] for letter in letters]
        try:
            wanted = program(*given)
        except Exception as error:
            with pytest.raises(type(error)):
                fast(*given)
            continue
        assert is_right(fast(*given), wanted, exactly(program, given)), (rows, columns)
    assert fast.stats().specializations <= 2  # sizes of 0 and 1 may have one of their own


@pytest.mark.parametrize("name", ["softmax", "SwiGLU", "sum over rows", "cross entropy"])
def test_measured_schedules_are_right(name: str) -> None:
    program, letters = PROGRAMS[name]
    fast = anyshape.compile(program, mode="max-autotune", options={"fallback": "error"})
    for rows, columns in ((3, 1000), (300, 5120), (1, 300000), (3, 1000)):
        values = operands(rows, columns, torch.bfloat16)
        given = [values[letter] for letter in letters]
        assert is_right(fast(*given), program(*given), exactly(program, given)), (rows, columns)


@pytest.mark.parametrize("mode", ["default", "max-autotune"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_what_follows_them_are_right(
    name: str, dtype: torch.dtype, mode: str
) -> None:
    for summed, columns in ((64, 256), (50, 77), (256, 16), (1000, 33)):
        layer = nn.Linear(summed, columns, device="cuda", dtype=dtype)
        program, exact = (PRODUCTS[name](each) for each in (layer, copy.deepcopy(layer).double()))
        fast = anyshape.compile(program, fullgraph=True, mode=mode)
        with torch.no_grad():
            for rows in (5, 1, 0, 300, 4097, 5):
                x, y = (torch.randn(rows, n, device="cuda").to(dtype) for n in (summed, columns))
                wanted = program(x, y), exact(x.double(), y.double())
                assert is_right(fast(x, y), *wanted), (rows, columns, summed)


def written_in_place(x: Tensor) -> Tensor:
    x.mul_(2)
    return x


def test_what_a_kernel_writes_in_place_is_written_once_where_schedules_are_measured() -> None:
    fast = anyshape.compile(written_in_place, mode="max-autotune")
    x = torch.ones(5000, device="cuda")
    for turn in range(1, 4):
        assert fast(x).eq(2**turn).all()


def mixed(x: Tensor) -> Tensor:
    return x.to("cpu") * 2 + torch.ones(3).sum()


def written(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


CASES: dict[str, Callable[..., Any]] = {
    "data decides a size": lambda x, i: x[x > 0].sum(),
    "index_add": lambda x, i: torch.zeros(10, device=x.device).index_add(0, i, x[:, 0]),
    "cumsum": lambda x, i: x.cumsum(-1),
    "sort": lambda x, i: x.sort(-1)[0],
    "running extremes": lambda x, i: (x.cummax(-1)[0], x.cummin(0)[0]),
    "digamma": lambda x, i: torch.digamma(x.abs() + 0.5),
    "floats divided": lambda x, i: (x // 0.3, x % 0.7, torch.fmod(x, 0.7), x / 3),
    "integers divided": lambda x, i: (i // 3, i % 3, (i - 5) // 3, (i - 5) % 3),
    "written": lambda x, i: written(x),
    "dropout": lambda x, i: F.dropout(x, 0.5),
    "variances": lambda x, i: (x.var(-1), x.std(0), x.mean()),
    "joined": lambda x, i: (torch.cat([x, x * 2]), torch.stack([x, x])),
    "convolution": lambda x, i: torch.relu(F.conv2d(x[None, None], x[None, None, :3, :3])),
    "float64": lambda x, i: torch.tanh(x.double()) * torch.erf(x.double()),
    "conditions": lambda x, i: ((x > 0) & (x < 1)).any(-1),
    "products of rows": lambda x, i: x[:, :5].prod(-1),
    "extremes": lambda x, i: (x.amax(0), x.argmin(1)),
    "permuted": lambda x, i: x.permute(1, 0).contiguous() + 1,
    "small integers": lambda x, i: (x * 10).to(torch.int8).sum(-1),
    "embedding": lambda x, i: F.embedding(i, x),
    "two devices": lambda x, i: mixed(x),
    "a number of the host": lambda x, i: x / torch.tensor(3.0).sqrt() + torch.tensor(2),
    "positions of the host": lambda x, i: x[torch.arange(5)] + x[i.cpu()][:5],
    "matmul": lambda x, i: F.gelu(x @ x.mT) + 1,
    "signs of halves": lambda x, i: (torch.sign(x.bfloat16()), torch.sign(x.half())),
    "truths less than none": lambda x, i: torch.where(x.bfloat16() < 0, -1, 0).bfloat16(),
    "zeros have signs": lambda x, i: (1 / -(x - x), 1 / torch.round(x * 0.1), 1 / torch.trunc(x)),
    "digamma of zeros": lambda x, i: (torch.digamma(x - x), torch.digamma(x > 9)),
    "indices that are wrapped around": lambda x, i: torch.take_along_dim(x, x.argsort(-1), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str) -> None:
    program, fast = CASES[name], anyshape.compile(CASES[name])
    for rows, columns in ((33, 100), (17, 64)):
        x = torch.randn(rows, columns, device="cuda")
        i = torch.randint(0, 10, (rows,), device="cuda")
        torch.manual_seed(1)
        wanted = program(x.clone(), i)
        torch.manual_seed(1)
        made = fast(x.clone(), i)
        torch.testing.assert_close(made, wanted, rtol=3e-5, atol=3e-5)
        for ours, eager in zip(*((t if isinstance(t, tuple) else (t,)) for t in (made, wanted))):
            assert ours.stride() == eager.stride()
    assert fast.stats().internal_errors == 0


def test_an_index_out_of_range_is_raised_at_the_next_call() -> None:
    fast = anyshape.compile(lambda w, i: F.embedding(i, w) * 2, fullgraph=True)
    weight, good = torch.randn(10, 8, device="cuda"), torch.tensor([1, 9], device="cuda")
    fast(weight, torch.tensor([1, 50], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match=r"test_compiled\.py"):
        fast(weight, good)
    torch.testing.assert_close(fast(weight, good), F.embedding(good, weight) * 2)


def test_other_threads_and_streams() -> None:
    fast = anyshape.compile(lambda x: torch.softmax(x, -1) + 1)
    x, made = torch.randn(64, 1000, device="cuda"), []

    def work() -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            made.append(fast(x))
        stream.synchronize()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    for result in made:
        torch.testing.assert_close(result, torch.softmax(x, -1) + 1)


def test_inside_a_graph_of_the_users_own() -> None:
    fast = anyshape.compile(lambda x: torch.softmax(x, -1) + 1)
    x = torch.randn(64, 1000, device="cuda")
    fast(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = fast(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(made, torch.softmax(x, -1) + 1)


def picked(x: Tensor, i: Tensor) -> Tensor:
    return (x + torch.rand_like(x))[i] * 2 * torch.rand(())


def test_a_segment_that_has_not_happened_has_drawn_nothing() -> None:
    """On the device and on the host: negative positions are eager's too."""
    fast = anyshape.compile(picked)
    for indices in ([1, 2, 0], [-1, 3], [4]):
        found = []
        for run in (picked, fast):
            torch.manual_seed(3)
            x, i = torch.ones(5, device="cuda", requires_grad=True), torch.tensor(indices).cuda()
            found.append((run(x, i), torch.cuda.get_rng_state(), torch.get_rng_state()))
        for wanted, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize("recorded", [False, True], ids=["", "under a capture"])
def test_the_state_of_the_device_is_put_back(recorded: bool) -> None:
    """While work is being recorded the device's generator has no state, and none is read."""
    torch.manual_seed(3)
    torch.rand(5, device="cuda")
    if recorded:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            found = RandomState.of(("cpu", "cuda:0"))
        assert [device for device, _ in found.states] == ["cpu"]
        return
    before = RandomState.of(("cpu", "cuda:0"))
    wanted, then = torch.rand(5, device="cuda"), torch.cuda.get_rng_state()
    with before.drawn_again():
        assert torch.equal(torch.rand(5, device="cuda"), wanted)
    assert torch.equal(torch.cuda.get_rng_state(), then)
    before.put_back()
    assert torch.equal(torch.rand(5, device="cuda"), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_norm_is_right(dtype: torch.dtype) -> None:
    """Beside float64; rows whose squares overflow beside eager, which has infinities there."""
    fast = anyshape.compile(F.group_norm, fullgraph=True, options={"fallback": "error"})
    for shape, groups in (((2, 32, 7, 9), 8), ((1, 6, 3), 3), ((3, 64, 40, 40), 32), ((5, 4), 2)):
        x = torch.randn(*shape, device="cuda").to(dtype)
        w, b = torch.randn(2, shape[1], device="cuda").to(dtype)
        loose = 2e-5 if dtype is torch.float32 else 3e-2
        wanted = F.group_norm(x.double(), groups, w.double(), b.double()).to(dtype)
        torch.testing.assert_close(fast(x, groups, w, b), wanted, rtol=loose, atol=loose)
        huge = (x * 1e25, groups, w, b)
        torch.testing.assert_close(
            fast(*huge), F.group_norm(*huge), rtol=loose, atol=loose, equal_nan=True
        )


def test_gradients_of_a_linear_scan_that_is_said_to_be_pointwise() -> None:
    """As state space models of transformers call it; torch's own gradients of it are not right."""

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    def scanned(a: Tensor, b: Tensor) -> Tensor:
        return associative_scan(combine, (a, b), dim=1)[1].sin().sum()

    def stepwise(a: Tensor, b: Tensor) -> Tensor:
        state, states = torch.zeros_like(b[:, 0]), []
        for n in range(b.shape[1]):
            state = a[:, n] * state + b[:, n]
            states.append(state)
        return torch.stack(states, 1).sin().sum()

    fast = anyshape.compile(scanned, fullgraph=True, options={"fallback": "error"})
    for length in (1, 7, 40, 300):
        a, b = (torch.rand(3, length, 5, device="cuda").requires_grad_() for _ in range(2))
        found = torch.autograd.grad(fast(a, b), (a, b))
        wanted = torch.autograd.grad(stepwise(a.double(), b.double()), (a, b))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert fast.stats().specializations == 1
