"""Which images eager takes for channels-last, by every stride that they have.

In: the type of an image (N, C, *spatial). Out: whether its channels are innermost; which sizes of 1
make it so is guarded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from anyshape.ir.graph import TensorType
from anyshape.ops.context import TypeContext, Undecided
from anyshape.ops.layout import at_sizes, channels_last_strides, contiguous_strides, sizes_of
from anyshape.symbolic import Dim, all_of, eq, evaluate, le, symbols_of


def suggests_channels_last(cx: TypeContext, t: TensorType) -> bool:
    """Does eager take the (N, C, *spatial) tensor for channels-last, though it may have holes?

    As ``c10::is_channels_last_strides_2d``: strides of dimensions of one element count. They tell
    pictures of one channel apart, and of single pixels those that are row-major, where the step of
    the batch is that of the channels. What is row-major in each stride is not channels-last.
    """
    if t.rank not in (4, 5) or t.strides == contiguous_strides(cx, t.shape):
        return False
    if t.strides[1] == 0 or any(cx.same(size, 0) for size in t.shape):
        return False
    return _lies_channels_last(_with_ones_settled(cx, t), lambda *ends: reaches(cx, *ends))


def _lies_channels_last(t: TensorType, reaches: Callable[[Dim, Dim], bool]) -> bool:
    inside: Dim = 0
    for d in (1, *range(t.rank - 1, 1, -1), 0):
        if d == 0 and reaches(inside, t.strides[1]):
            return False
        if not reaches(inside, t.strides[d]):
            return False
        inside = t.strides[d] * t.shape[d]
    return True


def _with_ones_settled(cx: TypeContext, t: TensorType) -> TensorType:
    """The image with 1 for sizes that are 1, where they decide whether it is channels-last: of one
    whose dimensions lie in another order, which is guarded. What is channels-last by its form is so
    where sizes are 1."""
    if t.strides == channels_last_strides(t.shape):
        return t
    sizes = sizes_of(t.shape, ())
    known = {symbol: 1 for symbol in sizes if cx.known(eq(symbol.expr, 1))}
    t = at_sizes(t, known) if known else t
    if cx.on_guard is None:  # what capture has guarded is known by now
        return t
    usual = _says_channels_last(cx, t)
    left = [symbol for symbol in sizes if symbol not in known]
    for count in range(1, len(left) + 1 if usual is not None else 0):
        for symbols in itertools.combinations(left, count):
            at_one = at_sizes(t, dict.fromkeys(symbols, 1))
            if _says_channels_last(cx, at_one) in (usual, None):
                continue
            one = all_of(*(eq(symbol.expr, 1) for symbol in symbols))
            if isinstance(one, bool):
                continue
            if cx.hint(one) is None:
                cx.require(~one, "an image lies otherwise where this size is 1")
            elif cx.known(one) is not False and cx.decide(one):
                return _with_ones_settled(cx, at_one)
    return t


def _says_channels_last(cx: TypeContext, t: TensorType) -> bool | None:
    """What the form says, of sizes above 1; None where that would be guarded."""

    def by_form(inside: Dim, stride: Dim) -> bool:
        found = _reaches_by_form(cx, inside, stride)
        if found is None:
            raise Undecided(le(inside, stride))
        return found

    try:
        return _lies_channels_last(t, by_form)
    except Undecided:
        return None


def reaches(cx: TypeContext, inside: Dim, stride: Dim) -> bool:
    """Is ``inside <= stride``, as the form tells; every other row of an odd number of rows reaches
    further than all of them, so that is guarded, and what a stride decides that nothing ties to the
    sizes of its argument.
    """
    found = _reaches_by_form(cx, inside, stride)
    if found is not None:
        return found
    try:
        return cx.decide(le(inside, stride))
    except Undecided:
        return False


def _reaches_by_form(cx: TypeContext, inside: Dim, stride: Dim) -> bool | None:
    """The same where nothing is guarded for it."""
    reaches = le(inside, stride)
    known = cx.known(reaches)
    if known is not None:
        return known
    if cx.on_guard is not None and cx.hint(reaches) is not None:
        if symbols_of(stride).isdisjoint(symbols_of(inside)):
            return None
    symbols = symbols_of(stride - inside)
    try:
        found = {bool(evaluate(reaches, dict.fromkeys(symbols, size))) for size in (1009, 1010)}
        return found.pop() if len(found) == 1 else None
    except (Undecided, ValueError, ZeroDivisionError):  # it has no value at some of them
        return False
