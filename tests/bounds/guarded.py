"""Tensors that end where their memory ends: the page behind is not to be touched, and a touch is a SIGSEGV.

Sanitizers look at loads of plain C, not at a vector's masked ones in code for this machine; this does.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import torch

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


def guarded_empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """As torch.empty_strided; of no elements it is torch's own, which has no memory."""
    if 0 in shape:
        return torch.empty_strided(shape, strides, dtype=dtype)
    count = 1 + sum((size - 1) * step for size, step in zip(shape, strides))
    size_bytes = count * dtype.itemsize
    room = -(-size_bytes // PAGE) * PAGE
    memory = mmap.mmap(-1, room + PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert LIBC.mprotect(ctypes.c_void_p(start + room), PAGE, 0) == 0
    whole = torch.frombuffer(memory, dtype=dtype, count=count, offset=room - size_bytes)
    return whole.as_strided(shape, strides)


def guarded(value: object) -> object:
    """A tensor of the same elements and strides; all else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return guarded_empty(value.shape, value.stride(), value.dtype).copy_(value)
