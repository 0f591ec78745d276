"""`x[...]` and `x[...] = v` taken apart into rows: slice, select, unsqueeze, index, copy_,
index_put_.

In: a value and a Python index of any kind, with sizes in it. Out: calls of the recorder. Slices
clamp with symbolic minimum and maximum, simplified by the facts, so that no slice is ever
guarded.
"""

from __future__ import annotations

import math
from types import EllipsisType
from typing import Any

import torch

from anyshape.capture.guards.overlaps import share_memory
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.dtypes import bool_, int64, uint8
from anyshape.ir.graph import Value
from anyshape.ops.context import OpError
from anyshape.ops.converted import HALVES, LARGEST, require_fitting
from anyshape.ops.layout import is_contiguous
from anyshape.symbolic import Dim, Expr, ceildiv, eq, ge, le, lt, maximum, minimum


def clamp(recorder: Recorder, low: Dim, value: Dim, high: Dim) -> Dim:
    """`min(max(value, low), high)`, without what the facts show to be idle."""
    cx = recorder.cx
    if not cx.known(ge(value, low)):
        value = low if cx.known(le(value, low)) else maximum(value, low)
    if cx.known(le(value, high)):
        return value
    return high if cx.known(ge(value, high)) else minimum(value, high)


def bound(recorder: Recorder, value: Dim | None, size: Dim, default: Dim) -> Dim:
    """One end of a slice, counted from 0 and clamped to the size."""
    if value is None:
        return default
    return clamp(recorder, 0, recorder.cx.from_zero(value, size), size)


def slice_of(recorder: Recorder, x: Value, dim: int, part: slice, row: str) -> Value:
    """`x[start:stop:step]` along one dimension; `x` itself where the slice is all of it. ``row``
    says what gradients pass where it is: `slice` writes them into zeros."""
    size = x.shape[dim]
    step = 1 if part.step is None else part.step
    if not isinstance(step, int):
        step = recorder.specialize(step, "the step of a slice")
    if step <= 0:
        raise ValueError("step must be greater than zero")
    start = bound(recorder, part.start, size, 0)
    stop = bound(recorder, part.stop, size, size)
    if x.tensor.requires_grad and not _counts_from_first(recorder, part.start):
        row = "slice"
    if (
        start == 0
        and stop == size
        and step == 1
        and not (row == "slice" and x.tensor.requires_grad)
    ):
        return x
    length = stop - start
    if not recorder.cx.known(ge(length, 0)):
        length = maximum(length, 0)
    if step != 1:
        length = ceildiv(length, step)
    row = row if x.tensor.requires_grad else "slice"
    made: Value = recorder.call(row, x, dim, start, recorder.cx.facts.simplify(length), step)
    return made


def _counts_from_first(recorder: Recorder, start: Dim | None) -> bool:
    """Is it written as 0, or left out? Only then does eager make no slice of what is everything:
    ``x[-3:]`` of three elements is one. What may be 0 or below is guarded."""
    if start is None or isinstance(start, int):
        return not start
    cx, zero = recorder.cx, eq(start, 0)
    known = cx.known(zero)
    if known is None and not cx.known(ge(start, 0)) and cx.hint(zero) is not None:
        return recorder.decide(zero)
    return known is not False


def getitem(recorder: Recorder, x: Value, key: Any) -> Value:
    """`x[key]`; every part of `key` is an int, Expr, slice, None, Ellipsis, bool, tensor value
    or nested tuple of numbers."""
    row = "slice" if isinstance(key, slice) else "slice_read"
    x, indices = _basic(recorder, x, key, row, views=True)
    if any(index is not None for index in indices):
        made: Value = recorder.call("index", x, tuple(indices))
        return made
    return x


def setitem(recorder: Recorder, x: Value, key: Any, new: Any) -> None:
    """`x[key] = new`."""
    if key is False:  # eager looks no further
        return
    key = None if key is True else key
    if not isinstance(new, Value):
        new = _assigned(x, new)
    itself = isinstance(new, Value) and share_memory(recorder.builder, x, new)  # `x[i] += 1`
    view, indices = _basic(recorder, x, key, "slice_set", views=itself)
    if any(index is not None for index in indices):
        value = (
            _without_leading_ones(recorder, new)
            if isinstance(new, Value)
            else full_like_scalar(recorder, view, new)
        )
        recorder.call("index_put_", view, tuple(indices), value)
    elif isinstance(new, Value):
        row = "fill_" if _gives_integers_gradients(view, new) else "copy_"
        recorder.call(row, view, _fitted(recorder, view, new))
    else:
        recorder.call("fill_", view, new)


def _gives_integers_gradients(view: Value, new: Value) -> bool:
    """Eager fills with what has no dimensions, and by that integers require gradients, as they do
    not where they are copied into; elsewhere the two are one."""
    kind = view.dtype
    whole = not (kind.is_floating or kind.is_complex)
    return whole and bool(view.shape) and not new.shape and new.tensor.requires_grad


def _assigned(x: Value, number: Any) -> Any:
    """The number, as eager makes a tensor of it first: half precision has infinities for what is
    too large, other dtypes refuse it, and so do integers past int64 what they are."""
    if type(number) not in (int, float):
        return number
    try:
        if type(number) is int:
            require_fitting(number, int64)
        if x.dtype not in HALVES:
            require_fitting(number, x.dtype)
    except OpError as error:
        raise broken("operator-raises", what="setitem", why=str(error)) from None
    too_large = x.dtype in HALVES and abs(number) > LARGEST[x.dtype]
    return math.copysign(math.inf, number) if too_large else number


def _fitted(recorder: Recorder, view: Value, new: Value) -> Value:
    """Leading ones that the index does not have are dropped, as eager does. It refuses others, also
    where there are no elements."""
    extra = len(new.shape) - len(view.shape)
    if extra <= 0:
        return new
    for size in new.shape[:extra]:
        why = f"a value of shape {list(new.shape)} has more dimensions than what it is written to"
        if not recorder.decide_or_check(eq(size, 1), why):
            raise broken("operator-raises", what="setitem", why=why)
    made: Value = recorder.call("reshape", new, new.shape[extra:])
    return made


def _without_leading_ones(recorder: Recorder, new: Value) -> Value:
    """As eager hands a value to `index_put_`."""
    shape = new.shape
    while shape and isinstance(shape[0], int) and shape[0] == 1:
        shape = shape[1:]
    if shape == new.shape:
        return new
    made: Value = recorder.call("reshape", new, shape)
    return made


def full_like_scalar(recorder: Recorder, x: Value, number: Any) -> Value:
    """A 0-dim tensor of `x`'s dtype and device that holds the number."""
    made: Value = recorder.call("full", (), number, dtype=x.dtype, device=x.tensor.device)
    return made


def _basic(
    recorder: Recorder, x: Value, key: Any, row: str, *, views: bool
) -> tuple[Value, list[Value | None]]:
    """The view that slices (by this ``row``), numbers and None make; for each of its dimensions
    the tensor that indexes it. What is written at numbers in tensors needs no view (``views``)."""
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [_tensor_part(recorder, x, part) for part in parts]
    taken = sum(_consumes(part) for part in parts)
    if taken > len(x.shape):
        raise IndexError(f"too many indices for tensor of dimension {len(x.shape)}")
    parts = _without_ellipsis(parts, len(x.shape) - taken)
    mixed = any(isinstance(part, (bool, Value)) and not is_number(part) for part in parts)
    indices: list[Value | None] = []
    dim = 0
    for index, part in enumerate(parts):
        if part is None or is_truth(part):
            x = recorder.call("unsqueeze", x, dim)
            indices.append(None if part is None else _first_if(recorder, part, x))
            dim += 1
        elif isinstance(part, slice):
            x = slice_of(recorder, x, dim, part, row)
            indices.append(None)
            dim += 1
        elif is_number(part) and (
            mixed or (views and not _is_gathered(recorder, x, indices, parts[index + 1 :]))
        ):
            x = recorder.call("select", x, dim, _from_zero(recorder, part, x.shape[dim]))
        elif isinstance(part, Value):
            indices.append(part)
            dim += len(part.shape) if part.dtype in (bool_, uint8) else 1
        else:
            x = recorder.call("select", x, dim, part)
    return x, indices


def is_number(part: Any) -> bool:
    """An integer in a tensor, by which eager selects as by any other: it makes a view."""
    return isinstance(part, Value) and not part.shape and part.dtype not in (bool_, uint8)


def is_truth(part: Any) -> bool:
    """One truth, by which eager indexes a new dimension of one element."""
    return isinstance(part, bool) or (
        isinstance(part, Value) and not part.shape and part.dtype in (bool_, uint8)
    )


def _first_if(recorder: Recorder, part: Value | bool, x: Value) -> Value:
    """The index 0 where the truth is one, else no index."""
    made: Value
    content = None if isinstance(part, bool) else recorder.contents.content(part)
    part = content if isinstance(content, bool) else part
    if isinstance(part, bool):
        made = recorder.call("full", (int(part),), 0, dtype=int64, device=x.tensor.device)
    else:
        positions = recorder.call("nonzero", recorder.call("reshape", part, (1,)))
        made = recorder.call("select", positions, 1, 0)
    return made


def _is_gathered(
    recorder: Recorder, x: Value, before: list[Value | None], after: list[Any]
) -> bool:
    """May a copy of the elements stand for the view? It is laid out as the view, and nobody tells
    them apart (`aliases.py`)."""
    rest = (part for part in after if not (isinstance(part, slice) and part == slice(None)))
    if recorder.picks_are_views or not all(map(is_number, (*before, *rest))):
        return False
    return is_contiguous(recorder.cx, x.tensor)


def _from_zero(recorder: Recorder, index: Value, size: Dim) -> Any:
    """An index that a tensor holds, counted from 0: one symbol, of which little is to be proved."""
    known = recorder.contents.content(index)
    if known is not None:
        return known
    before, again = recorder.call("lt", index, 0), recorder.call("add", index, size)
    found = recorder.call("item", recorder.call("where", before, again, index)).type.expr
    text = f"index is out of bounds for dimension with size {size}"
    for inside in (ge(found, 0), lt(found, size)):
        if not recorder.decide_or_check(inside, text):
            raise broken("operator-raises", what="indexing", why=text)
    return found


def _tensor_part(recorder: Recorder, x: Value, part: Any) -> Any:
    if isinstance(part, Value) and (part.dtype.is_floating or part.dtype.is_complex):
        why = f"a tensor of {part.dtype} is no index"
        raise broken("operator-raises", what="indexing", why=why)
    if isinstance(part, (slice, Value, Expr, bool, int, EllipsisType)) or part is None:
        return part
    if isinstance(part, (list, tuple)):
        return _constant(recorder, part, x.tensor.device)
    raise broken("unknown-call", f"indexing a tensor with a {bare_name(type(part))}")


def _constant(recorder: Recorder, numbers: Any, device: str) -> Value:
    """A list of numbers as an index: a constant tensor of bools, bytes or integers."""
    made = torch.tensor(numbers, device=device)
    made = made if made.dtype in (torch.bool, torch.uint8) else made.to(torch.int64)
    return recorder.constant(made, f"tensor({numbers})")


def _consumes(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, Value) and part.dtype in (bool_, uint8):
        return len(part.shape)
    return 1


def _without_ellipsis(parts: list[Any], missing: int) -> list[Any]:
    positions = [i for i, part in enumerate(parts) if part is Ellipsis]
    if not positions:
        return parts
    if len(positions) > 1:
        raise broken("unknown-call", "an index with two ellipses")
    at = positions[0]
    return parts[:at] + [slice(None)] * missing + parts[at + 1 :]
