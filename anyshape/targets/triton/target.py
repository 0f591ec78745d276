"""NVIDIA GPUs: kernels in Triton, launched by the driver's own call."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from anyshape.ir.code import DeviceFunction, PrintedRegion
from anyshape.ir.loops import Kernel
from anyshape.ir.program import Launch, NativeRegion, Program
from anyshape.ir.variants import Variant, Variants
from anyshape.optional import available
from anyshape.options import Options
from anyshape.runtime.launch import Loaded, has_library, is_seen
from anyshape.symbolic import Facts
from anyshape.targets.cpu.target import builder_of
from anyshape.targets.target import Target
from anyshape.targets.triton.binaries import COMPILER
from anyshape.targets.triton.flags import with_flags
from anyshape.targets.triton.graphs import recorded, why_not_recorded
from anyshape.targets.triton.kernel import emit_triton
from anyshape.targets.triton.launch import TritonLoader
from anyshape.targets.triton.launch_lists import with_gpu_lists
from anyshape.targets.triton.products import with_products
from anyshape.targets.triton.regions import emit_gpu_region, form_gpu_regions
from anyshape.targets.triton.schedules import default_schedule

_LOADER = TritonLoader()
"""The kernels of this process."""


def _variants(kernel: Kernel) -> Variants:
    """One that is right for every size; which is best for a launch is found when it runs."""
    return (Variant(True, default_schedule(kernel)),)


def _print_kernel(launch: Launch, name: str, device: str) -> DeviceFunction:
    kernel = launch.kernel
    return DeviceFunction(name, emit_triton(kernel, name), kernel, torch.device(device).index or 0)


def _group(program: Program, facts: Facts) -> Program:
    return form_gpu_regions(program, facts) if has_library("cuda") else program


def _print_region(
    region: NativeRegion,
    program: Program,
    kernel_names: Mapping[Kernel, str],
    name: str,
    options: Options,
) -> PrintedRegion:
    return emit_gpu_region(region, program, kernel_names, name)


def _awaken(options: Options) -> None:
    """Where C is not on disk, of a graph's guards or of its regions, kernels are not either."""
    if builder_of(options).compiles:
        COMPILER.awaken()


def _start(wanted: Mapping[str, DeviceFunction], options: Options) -> None:
    _LOADER.start(wanted, builder_of(options), tune=options.tune)
    _awaken(options)


def _load(wanted: Mapping[str, DeviceFunction], options: Options) -> Mapping[str, Loaded]:
    """C hands arguments to the driver: the CPU's builder makes these functions."""
    return _LOADER.load(wanted, builder_of(options), tune=options.tune)


def _expect(function: DeviceFunction, arguments: tuple[Any, ...], options: Options) -> None:
    _LOADER.expect(function, arguments, tune=options.tune)


def _missing() -> str | None:
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


def _schedules(
    function: DeviceFunction, sizes: Mapping[str, int] | None, options: Options
) -> Iterable[str]:
    return _LOADER.schedules(function, sizes, tune=options.tune)


def _measured(function: DeviceFunction, options: Options) -> Iterable[str]:
    return _LOADER.measured(function, tune=options.tune)


def _listed(program: Program, options: Options) -> Program:
    measured = options.tune and options.cuda_graphs
    fused = with_products(program, _variants, measured=measured)
    return with_gpu_lists(with_flags(fused, _variants, is_seen), _variants)


TRITON = Target(
    "cuda",
    DeviceFunction,
    _print_kernel,
    _load,
    awaken=_awaken,
    start=_start,
    missing=_missing,
    variants=_variants,
    listed=_listed,
    group=_group,
    print_region=_print_region,
    allocator="anyshape.empty_cuda",
    recorded=recorded,
    why_not_recorded=why_not_recorded,
    expect=_expect,
    schedules=_schedules,
    measured=_measured,
)
