"""A good guest of CUDA: autocast, streams and events of the caller's, pinned copies, flags of precision, memory that runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable
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

CAST: dict[str, Callable[..., Any]] = {
    "linear": lambda x, h, w: F.linear(x, w),
    "linear and norm": lambda x, h, w: F.layer_norm(F.linear(x, w), (w.shape[0],)),
    "softmax of half": lambda x, h, w: torch.softmax(h, -1),
    "sum of half": lambda x, h, w: h.sum(-1),
    "exp, pow, log": lambda x, h, w: (h.exp(), h.pow(2), h.abs().log()),
    "sinh, cosh, logsumexp": lambda x, h, w: (h.sinh(), h.cosh(), h.logsumexp(-1)),
    "rms norm": lambda x, h, w: F.rms_norm(h, (h.shape[-1],)),
    "attention": lambda x, h, w: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "addmv": lambda x, h, w: torch.addmv(x[:, 0], x, x[0]),
    "dot of two dtypes": lambda x, h, w: torch.dot(x[0], h[0]),
    "atan2": lambda x, h, w: torch.atan2(h, x),
    "scatter_add": lambda x, h, w: h.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x),
    "index_put": lambda x, h, w: h.index_put((torch.tensor([0], device=x.device),), x[:1]),
    "cat of two dtypes": lambda x, h, w: torch.cat((x, h)),
    "add of two dtypes": lambda x, h, w: x + h,
    "prelu": lambda x, h, w: F.prelu(x, w[0, :1]),
    "cross entropy": lambda x, h, w: F.cross_entropy(h, h.argmax(-1)),
    "out=": lambda x, h, w: torch.mm(
        x, w.T, out=torch.empty(x.shape[0], w.shape[0], device=x.device)
    ),
    "in place": lambda x, h, w: x.clone().addmm_(x, w),
    "switched off inside": lambda x, h, w: off_inside(x, w),
}


def off_inside(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cuda", enabled=False):
        exact = F.linear(x, w)
    return exact, F.linear(x, w)


def flat(made: Any) -> tuple[Tensor, ...]:
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CAST)
def test_autocast_is_as_eager(name: str, dtype: torch.dtype) -> None:
    program, fast = CAST[name], anyshape.compile(CAST[name])
    for rows in (33, 64):
        x = torch.randn(rows, 64, device="cuda")
        w = torch.randn(64, 64, device="cuda")
        given = x, torch.randn_like(x).to(dtype), w
        with torch.no_grad(), torch.autocast("cuda", dtype=dtype):
            wanted, made = program(*given), fast(*given)
        for ours, eager in zip(flat(made), flat(wanted), strict=True):
            assert ours.dtype is eager.dtype
            torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)
    assert fast.stats().internal_errors == 0


def test_training_under_autocast_with_a_scaler() -> None:
    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
        ).cuda()
        run = anyshape.compile(model) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scaler, found = torch.amp.GradScaler("cuda"), []
        for rows in (16, 33, 16, 5):
            x = torch.linspace(-1, 1, rows * 32, device="cuda").view(rows, 32)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(run(x), torch.arange(rows, device="cuda") % 8)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    assert losses(True) == pytest.approx(losses(False), rel=2e-2)


def test_flags_of_precision_are_part_of_the_modes() -> None:
    fast = anyshape.compile(lambda x: x @ x)
    x = torch.randn(512, 512, device="cuda")
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            torch.testing.assert_close(fast(x), x @ x, rtol=0, atol=0)
    finally:
        torch.set_float32_matmul_precision(before)


def slow(x: Tensor) -> Tensor:
    """A product that keeps the device at work while the host goes on."""
    return x @ x @ x @ x


@torch.no_grad()
def test_a_side_stream_waits_for_the_events_that_the_caller_says() -> None:
    fast = anyshape.compile(lambda x: torch.softmax(x, -1) * 2)
    large = torch.randn(4096, 4096, device="cuda")
    fast(large)
    side, ready, done = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()
    for _ in range(5):
        x = slow(large) / 1e6
        ready.record()
        with torch.cuda.stream(side):
            side.wait_event(ready)
            made = fast(x)
            done.record(side)
        x.record_stream(side)
        torch.cuda.current_stream().wait_event(done)
        torch.testing.assert_close(made, torch.softmax(x, -1) * 2)


@torch.no_grad()
def test_memory_that_another_stream_reads_is_not_used_again_too_soon() -> None:
    fast = anyshape.compile(lambda x: (x + 1).softmax(-1).cumsum(-1))
    x = torch.randn(2048, 4096, device="cuda")
    wanted, side = fast(x), torch.cuda.Stream()
    for _ in range(20):
        made = fast(x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            slow(torch.randn(2048, 2048, device="cuda"))
            copy = made.clone()
        made.record_stream(side)
        del made
        fast(x * 0)  # would take the memory
        side.synchronize()
        torch.testing.assert_close(copy, wanted)


@torch.no_grad()
def test_pinned_and_unwaited_copies() -> None:
    def program(host: Tensor) -> Tensor:
        x = host.to("cuda", non_blocking=True)
        return (x * 2).to("cpu", non_blocking=False) + host

    fast = anyshape.compile(program)
    for size in (10, 1000, 1_000_000):
        host = torch.randn(size).pin_memory()
        torch.testing.assert_close(fast(host), host * 3)


@torch.no_grad()
def test_eight_threads_on_eight_streams() -> None:
    fast = anyshape.compile(lambda x, w: F.gelu(F.layer_norm(x @ w, (w.shape[1],))))
    w, failures = torch.randn(256, 256, device="cuda"), []
    torch.cuda.synchronize()

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for turn in range(10):
                x = torch.randn(number * 17 + turn + 1, 256, device="cuda")
                wanted = F.gelu(F.layer_norm(x @ w, (256,)))
                if not torch.allclose(fast(x, w), wanted, rtol=1e-4, atol=1e-4):
                    failures.append((number, turn))
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_extremes_in_memory_keep_nan() -> None:
    """Of both signs, in the values and in what is there already."""
    nan, program = float("nan"), lambda x, i, v, how: x.scatter_reduce(0, i, v, how)
    values = torch.tensor([1.0, -1.0, 0.0, nan, -nan], device="cuda")
    pairs = torch.cartesian_prod(values, values)
    i = torch.arange(len(pairs), device="cuda")
    for dtype in (torch.float32, torch.float64):
        for how in ("amax", "amin"):
            fast = anyshape.compile(program)
            given = pairs[:, 0].to(dtype), i, pairs[:, 1].to(dtype)
            torch.testing.assert_close(fast(*given, how), program(*given, how), equal_nan=True)


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.uint8, torch.float16, torch.bfloat16]
)
def test_what_no_atomic_operation_does_is_eagers(dtype: torch.dtype) -> None:
    programs = {
        "sum": lambda x, i, v: x.scatter_add(0, i, v),
        "extreme": lambda x, i, v: x.scatter_reduce(0, i, v, "amax"),
    }
    for program in programs.values():
        fast = anyshape.compile(program)
        x = torch.zeros(10, dtype=dtype, device="cuda")
        i, v = (
            torch.randint(0, 10, (100,), device="cuda"),
            torch.ones(100, dtype=dtype, device="cuda"),
        )
        torch.testing.assert_close(fast(x, i, v), program(x, i, v))


@torch.no_grad()
def test_parameters_that_are_replaced_are_seen() -> None:
    """So many that C compares them: other memory, another layout, another dtype, frozen."""
    with torch.device("cuda"):
        model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(8)))
    fast, x = anyshape.compile(model), torch.randn(5, 16, device="cuda")

    def same() -> None:
        torch.testing.assert_close(fast(x), model(x), rtol=1e-3, atol=1e-3)

    weight = model[3].weight
    for change in (
        lambda: None,
        lambda: weight.mul_(2),
        lambda: setattr(weight, "data", torch.randn(16, 16, device="cuda")),
        lambda: setattr(weight, "data", torch.randn(16, 16, device="cuda").T),
        lambda: weight.requires_grad_(False),
        lambda: model.load_state_dict(
            {k: v + 1 for k, v in model.state_dict().items()}, assign=True
        ),
        lambda: model.double() and setattr(model[0].weight, "data", model[0].weight * 2),
    ):
        change()
        x = x.to(model[0].weight.dtype)
        for _ in range(3):
            same()
