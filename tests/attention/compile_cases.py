"""Compiles the kernels on a machine without a GPU, launched as their own launchers launch them.

python compile_cases.py [80|90|100], run by `test_triton.py`. A driver that only names its target takes the place of CUDA's, and every launch becomes a
compilation. Fails if a kernel does not compile or wants more shared memory than there is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from anyshape.attention import gluon_attention, triton_attention, triton_backward, triton_write
from anyshape.kernels import overlap as overlapping
from anyshape.kernels.launches import Launches

ARCHITECTURE = int(sys.argv[1]) if sys.argv[1:] else 90
SHARED_BYTES = 232448 if ARCHITECTURE >= 90 else 166912
OVERLAP = overlapping.OVERLAPPING if ARCHITECTURE >= 90 else overlapping.ALONE
COMPILED: list[object] = []
HOPPER = ((128, 128, 16, False), (64, 128, 64, True), (256, 256, 256, False))


class NamedTarget:
    """As much of a driver as compiling takes."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", ARCHITECTURE, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def compile_instead(kernel: JITFunction, grid: Sequence[int]) -> Callable[..., object]:
    """What `kernel[grid]` is here: compiles for these arguments and remembers the result."""

    def compile_it(*arguments: object, **keywords: object) -> object:
        built = kernel.warmup(*arguments, grid=grid, **keywords)
        if built.metadata.shared > SHARED_BYTES:
            raise MemoryError(f"{built.metadata.name} wants {built.metadata.shared} bytes shared")
        COMPILED.append(built)
        return built

    return compile_it


def paged(size: int, value_size: int, page_size: int, pages: torch.dtype, *, options: bool) -> None:
    """One launch of each kernel for pages, with all options or none."""
    q = torch.zeros(32, 8, size, dtype=torch.bfloat16)
    k_pages = torch.zeros(9, 2, page_size, size).to(pages).transpose(1, 2)
    v_pages = torch.zeros(9, 2, page_size, value_size).to(pages).transpose(1, 2)
    numbers = torch.zeros(17, dtype=torch.int32)
    table = torch.zeros(16, 64, dtype=torch.int32)
    out = torch.zeros(32, 8, value_size, dtype=torch.bfloat16)
    scale = torch.ones(2) if options and not gluon_attention.on_hopper(q) else None
    faults = numbers[:1] if options else None
    side = (faults, numbers[:1], numbers[:8].float(), scale, scale) if options else (None,) * 5
    rule = (1.0, True, 100, 3.0) if options else (1.0, True, 0, 0.0)
    start = (q, k_pages, v_pages, table, numbers, numbers[:16])
    triton_attention.ragged_paged_attention(*start, out, *side, *rule, 0, options, options)
    triton_write.write_pages(q[:, :2], out[:, :2], *start[1:], side[0], side[1], scale, scale)


def packed(size: int, value_size: int, *, options: bool) -> None:
    """One launch of each kernel for packed sequences."""
    q, k, v, out = (
        torch.zeros(32, *shape, dtype=torch.bfloat16)
        for shape in ((8, size), (2, size), (2, value_size), (8, value_size))
    )
    numbers = torch.zeros(17, dtype=torch.int32)
    sinks = torch.zeros(8) if options else None
    rule = (1.0, options, 100, 3.0) if options else (1.0, True, 0, 0.0)
    sequences = numbers[:1] if options else None
    _, totals = triton_attention.ragged_attention(
        q, k, v, numbers, numbers, sequences, sinks, *rule, options
    )
    triton_backward.ragged_attention_backward(
        out, q, k, v, out, totals, numbers, numbers, sequences, sinks, *rule
    )


def main() -> None:
    triton.runtime.driver.set_active(NamedTarget())
    JITFunction.__getitem__ = compile_instead
    Launches.__getitem__ = lambda launches, grid: compile_instead(launches.kernel, grid)
    for module in (triton_attention, triton_write):
        module.overlap = lambda x, wanted=True: dict(OVERLAP)
    float8 = torch.float8_e4m3fn if ARCHITECTURE >= 90 else torch.bfloat16
    paged(128, 128, 64, float8, options=True)
    if ARCHITECTURE == 90:
        gluon_attention.on_hopper = lambda q: True
        for size, value_size, page_size, options in HOPPER:
            paged(size, value_size, page_size, torch.bfloat16, options=options)
    packed(128, 128, options=True)
    gluon_attention.on_hopper = lambda q: False
    packed(256, 256, options=False)
    print("compiled", len(COMPILED), "kernels")


if __name__ == "__main__":
    main()
