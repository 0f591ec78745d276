"""Small launches of one kernel that may be done at once are one launch.

    launch k(%p, %q); launch k(%r, %s)   ->   launch 2 of k(%p, %q, %r, %s)

A launch costs the device two microseconds, however little it does: the counts of an optimizer's
steps, a number for each parameter, and its updates of biases and norms. A program of the grid
belongs to one of them, and takes its pointers from the arguments (``Kernel.parts``).

In: the steps of a program, before native regions are formed. Out: the same, fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from math import prod
from typing import Any

from anyshape.ir.buffers import SizeInMemory
from anyshape.ir.loops import Kernel, Param, PointerParam
from anyshape.ir.program import Launch, Program, Step
from anyshape.ir.variants import Variants
from anyshape.nouns import mutable, replace
from anyshape.targets.cpu.launch_lists import Form, Lists, with_lists

MOST_CELLS = 8192
"""Of a launch that is worth sharing one."""
MOST_POINTERS, MOST_PARTS = 448, 128
"""Of one launch: arguments have 4 KB in all drivers, and each program goes through them."""


def with_gpu_lists(program: Program, variants: Callable[[Kernel], Variants]) -> Program:
    """See the module. ``variants`` says how a kernel is walked."""
    return with_lists(program, "cuda", lambda: GridLists(variants=variants))


@mutable(eq=False)
class GridLists(Lists):
    """Lists whose launches share a grid."""

    variants: Callable[[Kernel], Variants] = field(kw_only=True)

    def form(self, step: Launch) -> Form | None:
        kernel = step.kernel
        if kernel.reduction_axes or kernel.ordered or any(s.mode != "set" for s in kernel.stores):
            return None
        if any(isinstance(arg, SizeInMemory) for arg in step.args):
            return None
        extents = [axis.extent for axis in kernel.axes]
        if not all(isinstance(n, int) for n in extents) or prod(extents) > MOST_CELLS:
            return None
        return kernel, tuple(arg for _, arg in _numbers(step))

    def done(self, launches: Sequence[Launch]) -> Sequence[Step]:
        pointers = len(launches[0].kernel.pointers)
        most = max(1, min(MOST_PARTS, MOST_POINTERS // max(pointers, 1)))
        starts = range(0, len(launches), most)
        return tuple(self._one(launches[start : start + most]) for start in starts)

    def _one(self, launches: Sequence[Launch]) -> Launch:
        first = launches[0]
        if len(launches) == 1:
            return first
        kernel = parted(first.kernel, len(launches))
        buffers = (arg for one in launches for arg in _buffers(one))
        args = (*buffers, *(arg for _, arg in _numbers(first)))
        return replace(first, kernel=kernel, args=args, variants=self.variants(kernel))


def _numbers(launch: Launch) -> Iterator[tuple[Param, Any]]:
    pairs = zip(launch.kernel.params, launch.args, strict=True)
    return ((param, arg) for param, arg in pairs if not isinstance(param, PointerParam))


def _buffers(launch: Launch) -> Iterator[Any]:
    pairs = zip(launch.kernel.params, launch.args, strict=True)
    return (arg for param, arg in pairs if isinstance(param, PointerParam))


def parted(kernel: Kernel, parts: int) -> Kernel:
    """So many of the kernel: its pointers come so many times, before its numbers."""
    own = kernel.pointers
    others = [param for param in kernel.params if not isinstance(param, PointerParam)]
    further = (replace(p, name=f"{p.name}_{n}") for n in range(1, parts) for p in own)
    return Kernel(
        (*own, *further, *others),
        kernel.axes,
        (),
        kernel.elements,
        kernel.stores,
        parts=parts,
    )
