"""What names in a graph mean in torch: dtypes, memory formats, dotted names of functions."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from anyshape.ir.dtypes import DType

MEMORY_FORMATS = frozenset(
    {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}
)


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch constant of a dtype."""
    return getattr(torch, dtype.name)


@functools.cache
def resolve(dotted: str) -> Callable[..., Any]:
    """The callable that a dotted name means, such as ``torch.Tensor.T.__get__``."""
    head, *rest = dotted.split(".")
    found: Any = importlib.import_module("anyshape.eager" if head == "anyshape" else head)
    for name in rest[1:] if head == "anyshape" else rest:
        found = getattr(found, name)
    return found
