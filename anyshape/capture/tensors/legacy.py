"""`x.new(...)`: the one constructor that takes a size or the data, and tells them apart by class.

In: the arguments of a call. Out: a tensor of that size, or ``NotImplemented`` where they are data.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import PROXIES
from anyshape.capture.recording.domain import RecordingDomain
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
