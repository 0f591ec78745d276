"""`x.new(...)`, `torch.Tensor(...)`, `torch.LongTensor(...)`: constructors that take a size or the
data, and tell them apart by class.

In: the arguments of a call. Out: a tensor of that size, or what makes one of that data;
``NotImplemented`` where they are something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import TORCH_OF_DTYPE
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import PROXIES, SYMBOLIC_NUMBERS, Call, SizeValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors import torchmap
from anyshape.capture.tensors.tensor_ops import SizeTuple, call_row


def new(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A `torch.Size` or numbers one by one are a size; any other sequence is data."""
    x, *given = args
    options = {key: value for key, value in kwargs.items() if key != "size"}
    if set(options) - {"device"}:
        return NotImplemented
    size = kwargs.get("size", tuple(given or (0,)))
    if len(given) == 1 and type(given[0]) in (SizeTuple, torch.Size):
        size = tuple(given[0])
    if all(type(part) is int or type(part) in PROXIES for part in size):
        return call_row(domain, "new_empty", x, size, **options)
    if len(given) == 1 and type(given[0]) in (list, tuple):
        return NotImplemented
    why = "it is called with neither a size nor data"
    raise broken("operator-unknown", what="Tensor.new", why=why)


def of_a_class(cls: Any) -> Callable[..., Any]:
    """A call of `torch.Tensor`, or of a class of one dtype. No mode and no default device changes
    where it lies."""
    made = torchmap.LEGACY_CLASSES.get(cls)

    def handler(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or (made is None and torch._C._get_default_device() != "cpu"):
            return NotImplemented
        default = TORCH_OF_DTYPE[domain.recorder.node_modes().default_dtype]
        options = {"dtype": default if made is None else made.dtype, "device": "cpu"}
        given = args[0] if len(args) == 1 else None
        size: Any = given if type(given) in (SizeTuple, torch.Size) else args or (0,)
        if all(type(part) is int or type(part) is SizeValue for part in size):
            return Call(torch.empty, (tuple(size),), options)
        if type(given) in (list, tuple) and _holds_numbers(given):
            return Call(torch.tensor, (given,), options)
        return NotImplemented

    return handler


def _holds_numbers(data: Any) -> bool:
    if type(data) in (list, tuple):
        return all(map(_holds_numbers, data))
    return type(data) in (int, float, bool) or type(data) in SYMBOLIC_NUMBERS


CLASSES = (torch.Tensor, *(c for c, made in torchmap.LEGACY_CLASSES.items() if made.is_on("cpu")))
HANDLERS: dict[Any, Callable[..., Any]] = {cls: of_a_class(cls) for cls in CLASSES}
