"""Training steps of convolutions and norms over images: the numbers of eager, one kernel for the
gradients of each norm, nothing of an image's size that a library has not made or read.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same

SIZES = ((2, 5, 6), (1, 7, 4), (3, 12, 9))


def convolved(norm: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
    layers = [first, norm(16, affine=True), nn.ReLU(), second, norm(16, affine=True), nn.ReLU()]
    return nn.Sequential(*layers).double()


def gradients(model: nn.Module, run: nn.Module, images: Tensor) -> list[Tensor]:
    images = images.clone().requires_grad_()
    model.zero_grad()
    made = run(images)
    made.sin().sum().backward()
    return [made.detach(), *(t.grad for t in (images, *model.parameters())), *model.buffers()]


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_gradients_through_norms_are_eagers(norm: type[nn.Module]) -> None:
    plain, model = convolved(norm), convolved(norm)
    fast = anyshape.compile(model)
    for n, height, width in SIZES:
        images = torch.randn(n, 3, height, width).double()
        assert_same(gradients(model, fast, images), gradients(plain, plain, images))


def step_of(model: nn.Module) -> anyshape.CompiledFunction:
    def step(images: Tensor) -> None:
        model.zero_grad()
        model(images).square().mean().backward()

    fast = anyshape.compile(step)
    for n, height, width in ((2, 40, 40), (3, 30, 31)):
        fast(torch.randn(n, 3, height, width))
    return fast


def test_a_norm_takes_one_kernel_backward() -> None:
    """Its two sums are those of weight and bias; the slope of what was activated is in it, too. The
    last norm's is one with its forward kernel and the loss."""
    fast = step_of(convolved(nn.BatchNorm2d).float())
    kernels = [line for line in fast.kernels().splitlines() if "clone" not in line]
    large = [line for line in kernels if re.search(r"[1-9]\d*\*s\d", line)]
    assert len(large) == 3, large


def test_norms_keep_what_the_convolutions_gave() -> None:
    """Nothing that a norm makes on its way is stored: two images are read, and two written."""
    fast = step_of(convolved(nn.BatchNorm2d).float())
    forward = [line for line in fast.kernels().splitlines() if "moment" in line]
    moved = [int(re.search(r"(\d+)\*s\d+\*s\d+\*s\d+", line)[1]) for line in forward]
    assert min(moved) == 2 * 16 * 4, forward


def test_roots_of_columns_are_not_taken_in_each_cell() -> None:
    """The inner loops over 16 channels read what was computed once for each of them."""
    fast = step_of(convolved(nn.BatchNorm2d).float())
    for body in re.findall(r"for \(i64 r0 = r0b.*?\n    \}", fast.code(), re.DOTALL):
        assert "sqrt" not in body and " / " not in body
