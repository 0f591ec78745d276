"""Launches of Triton kernels at a fraction of Triton's own cost on the host.

In: a kernel as `triton.jit` made it. Out: something that is launched the same way,
`kernel[grid](...)`. Triton spells out every option as text for each launch, to look the compiled
kernel up; here the specialization of the arguments is the key. The first launch of a kind, and all
launches while somebody listens to them, are Triton's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from anyshape.kernels.replays import current_recorder

REGISTERS = 65536  # of a multiprocessor


class Launches:
    """A kernel, and what it was compiled to for each kind of arguments."""

    def __init__(self, kernel: JITFunction) -> None:
        self.kernel = kernel
        self._compiled: dict[tuple[object, ...], Any] = {}  # Triton's own, without annotations

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: tuple[int, ...], *arguments: object, **keywords: object) -> None:
        device = driver.active.get_current_device()
        bind = self.kernel.device_caches[device][4]
        bound, specialization, options = bind(*arguments, **keywords)
        key = (device, *specialization, *options.items())
        compiled = self._compiled.get(key)
        if compiled is None or has_listeners():
            compiled = self._compiled[key] = self.kernel[grid](*arguments, **keywords)
        else:
            compiled.run(
                *(*grid, 1, 1)[:3],
                *(driver.active.get_current_stream(device), compiled.function),
                *(compiled.packed_metadata, None, None, None, *bound.values()),
            )
        if recorder := current_recorder():
            recorder.launched(compiled, grid, [*bound.values()])


def quick(kernel: JITFunction) -> JITFunction | Launches:
    """The kernel with cheap launches; in Triton's interpreter there is nothing to save."""
    return Launches(kernel) if isinstance(kernel, JITFunction) else kernel


def has_listeners() -> bool:
    """Whether somebody hears of Triton's launches."""
    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    return any(hook is not None and getattr(hook, "calls", True) for hook in hooks)


def given(like: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """The tensors; `like` stands in for pointers that are not there, which nobody reads."""
    return tuple(like if tensor is None else tensor for tensor in tensors)


def factor_strides(row_weights: Tensor | None) -> tuple[int, ...]:
    """The strides of factors, one for each row and column; zeros where there are none."""
    return row_weights.stride() if row_weights is not None and row_weights.dim() == 2 else (0, 0)


def ceil_div(number: int, by: int) -> int:
    """number / by, rounded up; `triton.cdiv` costs a microsecond of unwrapping more."""
    return -(-number // by)


def power_of_two(number: int) -> int:
    """The least power of two that is not less than `number`, which is at least 1."""
    return 1 << (number - 1).bit_length()


@cache
def processors(device: torch.device) -> int:
    """How many multiprocessors a device has; a few in the interpreter."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def capability(device: torch.device) -> int:
    """The major number of a GPU's compute capability."""
    return torch.cuda.get_device_capability(device)[0]
