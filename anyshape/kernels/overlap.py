"""Launches that overlap (programmatic dependent launch).

A kernel that is launched with `overlap(x)` may get ready while the one before it in its stream is
still running. So it begins with `follow`, before anything is read or written. Only short kernels
do: where a kernel fills the GPU for long, programs of the next one that wait take room from it
(shuffling 8,192 tokens, top 8: 50 us instead of 40).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import capability

OVERLAPPING = MappingProxyType({"OVERLAP": True, "launch_pdl": True})
ALONE = MappingProxyType({"OVERLAP": False, "launch_pdl": False})


@triton.jit
def get_ready(OVERLAP: tl.constexpr):
    """Before `follow`: the next one may get ready while this one still waits. What it reads before
    its own `follow` must be older than the kernel before this one.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def follow(OVERLAP: tl.constexpr):
    """Waits for the kernel before this one; from here on the next one may get ready."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


def overlap(x: Tensor, wanted: bool = True) -> Mapping[str, bool]:
    """The launch arguments of a kernel that begins with `follow`: Hopper and later can overlap."""
    return OVERLAPPING if wanted and x.is_cuda and capability(x.device) >= 9 else ALONE
