"""`torch.inference_mode()` and `with torch.device(...)` inside a compiled function: one graph where
all that is handed out was made in one mode, eager's tensors in any case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor], Any]


def inside(x: Tensor) -> Any:
    with torch.inference_mode():
        return x * 2


@torch.inference_mode()
def decorated(x: Tensor) -> Any:
    return x.sin() * 2, torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def no_inference(x: Tensor) -> Any:
    with torch.inference_mode(False):
        return x * 2


def nested(x: Tensor) -> Any:
    with torch.inference_mode():
        rows = (x * 2).shape[0]
        with torch.inference_mode(False):
            return torch.ones(2) * rows


def view_of_an_argument(x: Tensor) -> Any:
    with torch.inference_mode():
        return x.view(-1), x, x.sum()


def write(x: Tensor) -> Any:
    x = x.detach().clone()
    with torch.inference_mode():
        x.add_(1)
    return x * 2


def raised(x: Tensor) -> Any:
    try:
        with torch.inference_mode():
            raise ValueError
    except ValueError:
        return x + 1, torch.is_inference_mode_enabled()


def on_a_device(x: Tensor) -> Any:
    with torch.device("meta"):
        y, z = torch.ones(x.shape[0]), torch.zeros(2, device="cpu")
    return y.device.type, z.device.type, torch.ones(2).device.type, x * 2 + z.sum()


def devices_nested(x: Tensor) -> Any:
    with torch.device("meta"), torch.no_grad(), torch.device("cpu"):
        y = torch.ones(2)
    return y, torch.get_default_device(), x * 1


def gradients_by_a_size(x: Tensor) -> Any:
    with torch.set_grad_enabled(x.shape[0] > 2):
        return x * 2


def autocast_by_a_size(x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16, enabled=x.shape[0] > 2):
        return (x @ x.t()).dtype


def refused_by_c(x: Tensor) -> Any:
    try:
        with torch.set_grad_enabled(1):  # type: ignore[arg-type]
            return x * 2
    except TypeError as error:
        return x * 3, str(error), torch.is_grad_enabled()


ONE_GRAPH = (
    gradients_by_a_size,
    autocast_by_a_size,
    refused_by_c,
    inside,
    decorated,
    no_inference,
    nested,
    view_of_an_argument,
    write,
    raised,
    on_a_device,
    devices_nested,
)


def mixed(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y, x + 1


def kept_for_a_gradient(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y * x


def written_outside(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y.add_(1)


def broken(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        print("here")
        y = y + 1
    return y


def device_broken(x: Tensor) -> Any:
    with torch.device("meta"):
        y = torch.ones(x.shape[0])
        print("here")
        z = torch.ones(2)
    return y.device, z.device, x * 2


def described(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(described, value)]
    if not isinstance(value, Tensor):
        return value
    flags = value.is_inference(), value.requires_grad, value.is_leaf, value.stride()
    return *flags, value.tolist() if value.device.type == "cpu" else value.shape


def outcome(program: Program, x: Tensor) -> Any:
    try:
        return described(program(x)), x.tolist(), torch.is_inference_mode_enabled()
    except RuntimeError as error:
        return str(error)


def assert_eager_s(program: Program, fast: Program) -> None:
    for shape in ((3, 4), (1, 2), (0, 3), (5, 2)):
        for requires in (False, True):
            ours, theirs = (torch.ones(shape, requires_grad=requires) for _ in "ab")
            assert outcome(fast, ours) == outcome(program, theirs)


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda p: p.__name__)
def test_a_context_of_modes_is_part_of_the_graph(program: Program) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    assert_eager_s(program, fast)
    assert fast.stats().graph_breaks == 0


@pytest.mark.parametrize(
    "program",
    [mixed, kept_for_a_gradient, written_outside, broken, device_broken],
    ids=lambda p: p.__name__,
)
def test_a_context_whose_modes_would_be_seen_is_entered_natively(program: Program) -> None:
    fast = anyshape.compile(program)
    assert_eager_s(program, fast)
    assert fast.stats().internal_errors == 0
