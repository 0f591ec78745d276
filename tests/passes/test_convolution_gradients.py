"""One call of the library gives both gradients of a convolution, and nothing is made for the call that gives one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import anyshape

Step = Callable[[Tensor], tuple[Tensor | None, ...]]


class Calls(TorchDispatchMode):
    """Which gradients each call of the library is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[tuple[bool, bool]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution_backward.default:
            self.wanted.append(tuple(args[-1][:2]))
        return func(*args, **(kwargs or {}))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(8, 4, 1, 2)),
    )


def training_step(model: nn.Module) -> Step:
    def step(x: Tensor) -> tuple[Tensor | None, ...]:
        model.zero_grad()
        model(x).square().mean().backward()
        return tuple(p.grad for p in model.parameters())

    return step


def asked(step: Step, x: Tensor) -> list[tuple[bool, bool]]:
    with Calls() as calls:
        step(x)
    return calls.wanted


def beside(fast: Step, plain: Step, shapes: tuple[tuple[int, ...], ...]) -> None:
    for shape in shapes:
        x = torch.randn(shape)
        for ours, theirs in zip(fast(x), plain(x), strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
                assert ours.stride() == theirs.stride()


SHAPES = ((2, 3, 9, 8), (2, 3, 9, 8), (1, 3, 33, 20), (5, 3, 12, 12), (1, 3, 1, 2))


def test_both_gradients_are_one_call() -> None:
    fast = anyshape.compile(training_step(net()))
    beside(fast, training_step(net()), SHAPES)
    assert asked(fast, torch.randn(SHAPES[2])) == [(True, True), (True, True), (False, True)]


def test_a_frozen_weight_leaves_the_one_of_the_image() -> None:
    def frozen() -> nn.Module:
        model = net()
        model[3].weight.requires_grad_(False)
        return model

    fast = anyshape.compile(training_step(frozen()))
    beside(fast, training_step(frozen()), SHAPES)
    assert asked(fast, torch.randn(SHAPES[2])) == [(True, True), (True, False), (False, True)]


def test_a_model_alone_asks_once_as_well() -> None:
    model = net()
    fast = anyshape.compile(model)
    for shape in SHAPES:
        x = torch.randn(shape)
        model.zero_grad()
        with Calls() as calls:
            fast(x).square().mean().backward()
    assert calls.wanted == [(True, True), (True, True), (False, True)]


@pytest.mark.parametrize("dims", [1, 3])
def test_of_other_dimensions(dims: int) -> None:
    def conv(x: Tensor, *weights: Tensor) -> Tensor:
        apply = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
        for weight in weights:
            x = apply(x, weight, None, 1, 1).relu()
        return x

    def make() -> Step:
        torch.manual_seed(1)
        first, second = (nn.Parameter(torch.randn(4, c, *[3] * dims) / 4) for c in (2, 4))

        def step(x: Tensor) -> tuple[Tensor | None, ...]:
            first.grad = second.grad = None
            conv(x, first, second).square().sum().backward()
            return first.grad, second.grad

        return step

    fast, shapes = anyshape.compile(make()), ((2, 2, *[5] * dims), (1, 2, *[7] * dims))
    beside(fast, make(), (*shapes, *shapes))
    assert asked(fast, torch.randn(shapes[0])) == [(True, True), (False, True)]


def test_a_cotangent_of_two_convolutions_and_one_that_is_read_before() -> None:
    """Images and weights of equal shapes fit each other; a gradient of second order reads the first."""

    def make() -> Step:
        torch.manual_seed(2)
        weights = [nn.Parameter(torch.randn(4, 4, 3, 3) / 4) for _ in range(3)]

        def step(x: Tensor) -> tuple[Tensor | None, ...]:
            for weight in weights:
                weight.grad = None
            a = F.conv2d(x, weights[0], None, 1, 1)
            y = F.conv2d(a.sin(), weights[1], None, 1, 1) + F.conv2d(
                a.cos(), weights[2], None, 1, 1
            )
            y.square().sum().backward()
            return tuple(weight.grad for weight in weights)

        return step

    fast, shapes = anyshape.compile(make()), ((2, 4, 5, 6), (2, 4, 5, 6), (1, 4, 8, 3))
    beside(fast, make(), shapes)
    assert len(asked(fast, torch.randn(shapes[0]))) == 3


def test_an_image_that_nobody_reads_is_not_filled() -> None:
    """The library copies what does not lie as it wants: an operand of which only the shape is told must."""
    weight = torch.randn(8, 8, 3, 3).contiguous(memory_format=torch.channels_last)
    g = torch.randn(4, 8, 40, 40).contiguous(memory_format=torch.channels_last)
    gradient = anyshape.eager_convolutions.conv2d_input_gradient
    with torch.profiler.profile(record_shapes=True) as profile:
        made = gradient(g, weight, (4, 8, 40, 40), 1, 1, 1, 1)
    assert made.is_contiguous(memory_format=torch.channels_last)
    copied = [event.input_shapes[0] for event in profile.events() if event.name == "aten::copy_"]
    assert [4, 8, 40, 40] not in copied
