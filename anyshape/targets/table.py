"""The targets, and which of them serves a device.

``driver.py`` asks here and knows no device: how a kernel is printed, how runs of steps become
native regions, and what loads the functions that were printed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.ir.code import DeviceFunction, Function, NativeFunction
from anyshape.ir.loops import Kernel
from anyshape.optional import available
from anyshape.runtime.launch import TRAPS, Loaded
from anyshape.targets.cpu.build import Builder
from anyshape.targets.cpu.c import emit_c
from anyshape.targets.cpu.native import argument_types
from anyshape.targets.triton.kernel import emit_triton
from anyshape.targets.triton.launch import TritonLoader

Run = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of device. ``kind`` is torch's name of it; ``print_kernel(kernel, name, device)``
    raises NotImplementedError for a kernel that it has no text for; ``missing`` says why it cannot
    be used in this process, or is None."""

    kind: str
    print_kernel: Callable[[Kernel, str, str], Function]
    missing: Callable[[], str | None]


def _c_kernel(kernel: Kernel, name: str, device: str) -> Function:
    return NativeFunction(emit_c(kernel, name), argument_types(kernel))


def _triton_kernel(kernel: Kernel, name: str, device: str) -> Function:
    return DeviceFunction(name, emit_triton(kernel, name), kernel, torch.device(device).index or 0)


def _without_kernels() -> str | None:
    if torch.are_deterministic_algorithms_enabled():
        return "deterministic algorithms are asked for"
    return _without_triton()


@functools.cache
def _without_triton() -> str | None:
    if not available("triton"):
        return "Triton is not installed"
    if not torch.cuda.is_available():
        return "no GPU was found"
    return None


TARGETS: Mapping[str, Target] = {
    "cpu": Target("cpu", _c_kernel, lambda: None),
    "cuda": Target("cuda", _triton_kernel, _without_kernels),
}


def target_of(device: str) -> Target | None:
    """The target of a device as types name it (``cuda:1``); None where there is none."""
    return TARGETS.get(device.partition(":")[0])


def allocators(devices: frozenset[str]) -> dict[str, str]:
    """Short ways to new memory, by device: of one GPU at most, which is the current one then."""
    gpus = devices - {"cpu"}
    return {"cpu": "anyshape.empty_cpu"} | (
        dict.fromkeys(gpus, "anyshape.empty_cuda") if len(gpus) == 1 else {}
    )


def on_device(run: Run, devices: frozenset[str]) -> Run:
    """``run`` with the program's one GPU as the current device, and with what the device found
    since the last call raised first."""
    gpus = devices - {"cpu"}
    if not gpus:
        return run
    index = torch.device(min(gpus)).index or 0

    def running(*arguments: Any) -> tuple[Any, ...]:
        TRAPS.raise_traps()
        if len(gpus) > 1 or torch._C._cuda_getDevice() == index:
            return run(*arguments)
        with torch.cuda.device(index):
            return run(*arguments)

    return running


@dataclass(slots=True)
class Loaders:
    """Loads functions, each by its own target."""

    c: Builder
    triton: TritonLoader

    def load(self, wanted: Mapping[str, Function]) -> Mapping[str, Loaded]:
        """Every function by its name."""
        c = {name: f for name, f in wanted.items() if isinstance(f, NativeFunction)}
        triton = {name: f for name, f in wanted.items() if isinstance(f, DeviceFunction)}
        return {
            **(self.c.load(c) if c else {}),
            **(self.triton.load(triton, self.c) if triton else {}),
        }
