"""What names in a graph mean in torch: dtypes, memory formats, dotted names of functions."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from anyshape.ir.dtypes import DType
from anyshape.quiet_functions import quiet

MEMORY_FORMATS = frozenset(
    {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}
)


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch constant of a dtype."""
    return getattr(torch, dtype.name)


@functools.cache
def resolve(dotted: str) -> Callable[..., Any]:
    """The callable that a dotted name means, such as ``torch.Tensor.T.__get__``. It says nothing in
    Python's warnings: of the program's call they were told already."""
    head, *rest = dotted.split(".")
    if head == "anyshape":
        head, rest = f"anyshape.{rest[0]}", rest[1:]
    found: Any = importlib.import_module(head)
    for name in rest:
        found = getattr(found, name)
    return quiet(found)
