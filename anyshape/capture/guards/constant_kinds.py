"""Which objects are relied on by value, by identity, or by equality: tables of classes."""

from __future__ import annotations

import datetime
import enum
import functools
import operator
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
REMEMBERING = type(functools.lru_cache(lambda: None))
"""What functools.lru_cache makes: who has called it once gets what it gave then."""
MADE_BY_C = (
    *(operator.itemgetter, operator.attrgetter, operator.methodcaller),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
    *(type(list[int]), type(int | str)),
)
"""What C alone knows of what it does, when it is called or asked for an attribute: another one of
the same class does another thing."""
IDENTITY = (
    *MADE_BY_C,
    REMEMBERING,
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
