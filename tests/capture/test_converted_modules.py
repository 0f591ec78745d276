"""`module.to(...)` and its like in a `forward`: nothing to do where nothing changes, else torch's
own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import anyshape


class Router(nn.Module):
    """Brings its classifier to a dtype in each call, as mixtures of experts do."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dtype = dtype
        self.classifier = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("positions", torch.arange(3))

    def forward(self, x: Tensor) -> Tensor:
        self.classifier = self.classifier.to(self.dtype)
        norm = self.norm.double() if self.dtype is torch.float64 else self.norm.float()
        x = self.classifier(x.to(self.dtype))
        return norm.to(x)(x) + self.positions


def test_a_module_that_is_there_already_is_no_break() -> None:
    router = Router(torch.float32).eval()
    fast = anyshape.compile(router, fullgraph=True)
    with torch.no_grad():
        for batch in (3, 2, 1, 0, 17):
            x = torch.randn(batch, 4)
            torch.testing.assert_close(fast(x), router(x))
    assert fast.stats().specializations == 1


def test_a_module_that_is_converted_is_converted_once() -> None:
    router, wanted = Router(torch.float64).eval(), Router(torch.float64).eval()
    fast = anyshape.compile(router)
    with torch.no_grad():
        for batch in (3, 2, 17):
            x = torch.randn(batch, 4)
            torch.testing.assert_close(fast(x), wanted(x))
    assert router.classifier.weight.dtype is router.norm.running_mean.dtype is torch.float64


@pytest.mark.parametrize("form", [torch.channels_last, None])
def test_a_memory_format_is_torch_s_own_business(form: torch.memory_format | None) -> None:
    convolution = nn.Conv2d(3, 4, 3)

    def program(x: Tensor) -> Tensor:
        named = {} if form is None else {"memory_format": form}
        return convolution.to(torch.float32, **named)(x)

    fast = anyshape.compile(program)
    with torch.no_grad():
        for size in (5, 8):
            x = torch.randn(2, 3, size, size)
            torch.testing.assert_close(fast(x), program(x))
