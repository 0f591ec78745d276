"""Which objects are relied on by value, by identity, or by equality: tables of classes."""

from __future__ import annotations

import datetime
import enum
import re
import types
import typing
from typing import Any

import torch

CONSTANTS = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type(...), range, torch.Size}
)
GENERICS = (
    *(type(typing.Optional), type(typing.Optional[int])),  # noqa: UP045
    *(type(typing.Generator), type(typing.Generator[int, None, None])),
)
"""What `typing` has in place of classes."""
PARAMETERS = tuple(
    getattr(typing, name)
    for name in ("TypeVar", "ParamSpec", "TypeVarTuple")
    if hasattr(typing, name)
)
LEFT_OUT = tuple(map(type, (re.sub.__kwdefaults__ or {}).values()))
"""What stands for an argument of `re.sub` that is not given; since 3.13 not an `int`."""
IDENTITY = (
    datetime.timezone,
    type,
    types.FunctionType,
    types.ModuleType,
    types.BuiltinFunctionType,
    torch.dtype,
    torch.layout,
    torch.memory_format,
    enum.Enum,
    re.Pattern,
    *LEFT_OUT,
    *GENERICS,
    *PARAMETERS,
)
EQUAL = (torch.device, slice)
OWNERS = (torch.nn.Module, torch.optim.Optimizer)
"""What holds tensors under names, or by which tensor it is: the object itself is relied on, so that
its tensors are the same ones in each call."""
CALLED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    types.ModuleType,
    staticmethod,
    classmethod,
    property,
)


def is_simple(value: Any) -> bool:
    """Whether a tuple holds plain constants only, so that equality is as good as identity."""
    return all(
        is_simple(item) if type(item) is tuple else type(item) in CONSTANTS for item in value
    )
