"""Programs with tensors on two GPUs, and on the second one, are as eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.device_count() < 2,
        reason="needs two NVIDIA GPUs",
    ),
]


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@torch.no_grad()
def test_one_program_runs_on_either_device_whichever_is_current(mode: str | None) -> None:
    fast = anyshape.compile(softmax, mode=mode)
    for turn in range(4):
        for current in (0, 1):
            with torch.cuda.device(current):
                for device in ("cuda:0", "cuda:1"):
                    x = torch.randn(33, 100 + turn, device=device)
                    made = fast(x)
                    assert made.device == x.device
                    torch.testing.assert_close(made, softmax(x))
                assert torch.cuda.current_device() == current


def across(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Kernels on both, and a copy between them."""
    left = x.exp().sum(-1)
    right = F.gelu(y) + 1
    return left + right.to(x.device).sum(-1), right * 2


@torch.no_grad()
def test_kernels_on_two_devices_in_one_program() -> None:
    fast = anyshape.compile(across)
    for rows in (7, 1000, 7):
        x, y = (torch.randn(rows, 300, device=device) for device in ("cuda:0", "cuda:1"))
        for ours, eager in zip(fast(x, y), across(x, y), strict=True):
            assert ours.device == eager.device
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_streams_of_the_second_device() -> None:
    fast, x = anyshape.compile(softmax), torch.randn(2000, 3000, device="cuda:1")
    with torch.cuda.device(1):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            made = fast(x)
        side.synchronize()
    torch.testing.assert_close(made, softmax(x))


def test_a_model_cut_in_two_trains() -> None:
    class Cut(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(16, 32, device="cuda:0")
            self.second = torch.nn.Linear(32, 4, device="cuda:1")

        def forward(self, x: Tensor) -> Tensor:
            return self.second(F.gelu(self.first(x)).to("cuda:1"))

    torch.manual_seed(0)
    model = Cut()
    fast = anyshape.compile(model)
    for rows in (8, 5):
        x = torch.randn(rows, 16, device="cuda:0")
        grads = []
        for run in (model, fast):
            model.zero_grad()
            run(x).square().sum().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for ours, eager in zip(*grads, strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
