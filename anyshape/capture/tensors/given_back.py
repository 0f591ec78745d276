"""Calls that may give back their argument itself: written (``inplace=True``), or as it is.

In: a row that has such a flag, or ``diff``, and its arguments. Out: the argument, written as often
as eager writes it, or a new tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyshape.capture.tensors.functional import times_written
from anyshape.capture.tensors.leaves import decided_flag
from anyshape.capture.tensors.tensor_ops import call_row
from anyshape.ops import OPS
from anyshape.ops.context import OpError
from anyshape.ops.nn import BATCHED
from anyshape.ops.rules import dim_of, is_any_zero

if TYPE_CHECKING:
    from anyshape.capture.recording.domain import RecordingDomain


def perhaps_in_place(
    domain: RecordingDomain, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`relu(x, inplace=True)` writes its result into `x`."""
    bound = OPS[name].signature.bind(args, kwargs)
    bound["inplace"] = decided_flag(domain, bound["inplace"])
    if bound["inplace"] is not True:
        return call_row(domain, name, **bound)
    if f"{name}_" in OPS:
        del bound["inplace"]
        return call_row(domain, f"{name}_", **bound)
    x: Any = bound["input"]
    if x.value.tensor.rank != BATCHED.get(name, x.value.tensor.rank):
        return NotImplemented  # Python's code gives it one more dimension, in place, or raises
    made = call_row(domain, name, **bound | {"inplace": False})
    if made is x:
        return x
    for _ in range(times_written(name, bound.get("p"))):
        call_row(domain, "copy_", x, made)
    return x


def diff(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.diff(x)` is `x` itself where there is nothing to subtract; `NotImplemented` where
    that is as its row says."""
    given = dict(zip(("input", "n", "dim", "prepend", "append"), args)) | kwargs
    x, n, dim = given["input"], given.get("n", 1), given.get("dim", -1)
    if type(n) is not int or type(dim) is not int or given.get("out") is not None:
        return NotImplemented
    kind = domain.argument(x).tensor
    if n == 0 and kind.rank:  # a new tensor, written once
        return call_row(domain, "copy_", call_row(domain, "zeros_like", x), x)
    parts = (given.get("prepend"), given.get("append"))
    if n < 0 or not kind.rank or any(part is not None for part in parts):
        return NotImplemented
    try:
        size = kind.shape[dim_of(dim, kind.rank)]
    except OpError:
        return NotImplemented
    return x if is_any_zero(domain.recorder.cx, (size,)) else NotImplemented
