"""The gradients of convolutions, by the library: both in one call, or one alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _conv_gradients(dims: int, wanted: tuple[bool, bool] = (True, True)) -> Callable[..., Any]:
    """The gradients of a convolution over ``dims`` dimensions, of image and weight, or the one that
    is ``wanted``: of the other operand only its shape is given."""

    def both(
        g: Tensor, x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> tuple[Tensor, Tensor]:
        options = [[n] * dims if isinstance(n, int) else n for n in (stride, padding, dilation)]
        found: Any = torch.ops.aten.convolution_backward(
            g, x, weight, None, *options, False, [0] * dims, groups, [*wanted, False]
        )
        return found[0], found[1]

    def of_input(g: Tensor, weight: Tensor, shape: Any, *options: Any) -> Tensor:
        return both(g, _absent(g, shape), weight, *options)[0]

    def of_weight(g: Tensor, x: Tensor, shape: Any, *options: Any) -> Tensor:
        return both(g, x, _absent(g, shape), *options)[1]

    return both if all(wanted) else of_input if wanted[0] else of_weight


def _absent(g: Tensor, shape: Any) -> Tensor:
    """An operand that nobody reads. It lies as the cotangent does, or the library copies it."""
    format = _CHANNELS_LAST.get(g.dim())
    if format is None or g.is_contiguous() or not g.is_contiguous(memory_format=format):
        return g.new_empty(shape)
    return torch.empty(shape, dtype=g.dtype, device=g.device, memory_format=format)


conv1d_gradients, conv2d_gradients, conv3d_gradients = (_conv_gradients(n) for n in (1, 2, 3))
conv1d_input_gradient, conv2d_input_gradient, conv3d_input_gradient = (
    _conv_gradients(n, (True, False)) for n in (1, 2, 3)
)
conv1d_weight_gradient, conv2d_weight_gradient, conv3d_weight_gradient = (
    _conv_gradients(n, (False, True)) for n in (1, 2, 3)
)
