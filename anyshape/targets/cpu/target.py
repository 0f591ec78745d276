"""The CPU: C kernels, torch's own libraries, runs of steps as one C function."""

from __future__ import annotations

import os
from collections.abc import Mapping

from anyshape.ir.code import NativeFunction, PrintedRegion
from anyshape.ir.loops import Kernel
from anyshape.ir.program import Launch, NativeRegion, Program
from anyshape.options import Options
from anyshape.runtime.launch import Loaded, has_blas, has_library, library_identity
from anyshape.symbolic import Facts
from anyshape.targets.cpu.build import Builder, cpu_identity
from anyshape.targets.cpu.c import argument_types, emit_c
from anyshape.targets.cpu.launch_lists import with_launch_lists
from anyshape.targets.cpu.library import IN_MEMORY
from anyshape.targets.cpu.native import emit_native_region
from anyshape.targets.cpu.native_prelude import NATIVE_PRELUDE
from anyshape.targets.cpu.native_regions import form_native_regions, on_cpu
from anyshape.targets.cpu.prelude import texts
from anyshape.targets.cpu.schedules import variants
from anyshape.targets.target import Target

_BUILDERS: dict[tuple[object, ...], Builder] = {}
"""The loaded kernels of this process, by compiler and cache directory; a process that was forked
from it has no threads that could end what was begun."""


def builder_of(options: Options) -> Builder:
    """The builder that these options share; each text is compiled once. Raises AnyshapeError E601
    where there is no C compiler."""
    key = (os.getpid(), options.cc, options.cache_dir, options.cache, options.sanitize)
    found = _BUILDERS.get(key)
    if found is None:  # of two threads that make one, the second takes the first's
        found = _BUILDERS.setdefault(key, Builder.create(options, texts(*NATIVE_PRELUDE)))
    return found


def _print_kernel(launch: Launch, name: str, device: str) -> NativeFunction:
    text = emit_c(launch.kernel, name, launch.variants)
    return NativeFunction(text, argument_types(launch.kernel))


def _group(program: Program, facts: Facts) -> Program:
    if not has_blas():
        return program
    return form_native_regions(program, facts, on_cpu(library=has_library()))


def _print_region(
    region: NativeRegion,
    program: Program,
    kernel_names: Mapping[Kernel, str],
    name: str,
    options: Options,
) -> PrintedRegion:
    return emit_native_region(region, program, kernel_names, name, separate=options.sanitize)


def _load(wanted: Mapping[str, NativeFunction], options: Options) -> Mapping[str, Loaded]:
    return builder_of(options).load(wanted)


def _start(wanted: Mapping[str, NativeFunction], options: Options) -> None:
    builder_of(options).start(wanted)


def _identity(options: Options) -> str:
    """Processor, C compiler, and the libraries whose functions native regions may call."""
    toolchain = builder_of(options).toolchain
    return "\n".join((toolchain.identity, *toolchain.flags, cpu_identity(), library_identity()))


def _listed(program: Program, options: Options) -> Program:
    return with_launch_lists(program)


CPU = Target(
    "cpu",
    NativeFunction,
    _print_kernel,
    _load,
    start=_start,
    prepare=builder_of,
    variants=variants,
    listed=_listed,
    group=_group,
    print_region=_print_region,
    allocator="anyshape.empty_cpu",
    sizes_in_memory=IN_MEMORY,
    identity=_identity,
)
