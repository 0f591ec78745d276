"""The strides of a tensor that is viewed in another shape, and whether it can be.

In: a type and a shape. Out: strides, or None where the elements must be copied; what is not known
of sizes may be guarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anyshape.ir.graph import TensorType
from anyshape.nouns import replace
from anyshape.ops.context import TypeContext, Undecided
from anyshape.ops.layout import Shape, contiguous_strides, dense_order, is_contiguous
from anyshape.symbolic import Condition, Dim, Symbol, eq


def view_strides(
    cx: TypeContext, t: TensorType, shape: Shape, *, decide: bool = False, ones: bool = False
) -> Shape | None:
    """Strides of ``t`` viewed in another shape of as many elements, or None where it must be
    copied.

    Memory is walked from the back in chunks that are dense in themselves, as ATen's
    ``computeStride`` does; a chunk and the new sizes that fill it must have the same product. With
    ``decide``, whether one dimension of a tensor with holes follows another is guarded where the
    form of its strides does not tell, and that sizes are equal where the hints say so; but not
    what holds because a size is 1, unless ``ones`` says that it must be a view.
    """
    if t.shape == shape and (1 not in shape or 0 in shape):
        return t.strides
    if is_contiguous(cx, t):
        rows = contiguous_strides(cx, shape)
        plain = not t.shape or cx.same(t.strides[-1], 1) or any(cx.same(n, 0) for n in t.shape)
        return rows if plain else _of_last_ones(t, _ones_known(cx, shape), rows)
    t, shape = replace(t, shape=_ones_known(cx, t.shape)), _ones_known(cx, shape)
    if decide:  # nothing is guarded where it is a view, or a copy, whatever the answer
        without = _view_strides(cx, t, shape, False)
        if without is not None or _view_strides(_Hopeful(cx), t, shape, True, ones) is None:
            return without
    return _view_strides(cx, t, shape, decide, ones)


class _Decider(Protocol):
    """What deciding whether a reshape is a view asks of a context."""

    @property
    def hints(self) -> Mapping[Symbol, int]: ...
    @property
    def on_guard(self) -> object: ...
    def known(self, condition: Condition | bool, /) -> bool | None: ...
    def hint(self, condition: Condition | bool, /) -> bool | None: ...
    def decide(self, condition: Condition | bool, /) -> bool: ...


def _ones_known(cx: TypeContext, shape: Shape) -> Shape:
    """The shape with 1 for each size that the facts say is 1."""
    return tuple([1 if d.__class__ is not int and cx.known(eq(d, 1)) else d for d in shape])


class _Hopeful:
    """A context in which everything that is not known to be false holds, and nothing is guarded."""

    on_guard = True

    def __init__(self, cx: TypeContext) -> None:
        self.known = cx.known
        self.hint = cx.hint
        self.hints = cx.hints

    def decide(self, condition: Condition | bool) -> bool:
        return self.known(condition) is not False


def _view_strides(
    cx: _Decider, t: TensorType, shape: Shape, decide: bool, ones: bool = False
) -> Shape | None:
    left = [d for d in shape if d != 1]
    strides: list[Dim] = []
    with_holes = decide and dense_order(t.shape, t.strides) is None
    (_, step), *inner = _dense_chunks(cx, t, with_holes) or [(1, 1)]
    for size, inner_step in reversed(inner):
        filled: Dim = 1
        while filled != size and not _fills(cx, filled, size, decide, ones):
            if not left:
                return None
            strides.append(inner_step * filled)
            filled = filled * left.pop()
            if filled.__class__ is int and size.__class__ is int and filled > size:
                return None
    while left:  # as many elements as are left, whatever is known of these sizes
        strides.append(step)
        step = step * left.pop()
    return _with_ones(shape, strides, t.strides[-1] if t.strides else 1)


def _of_last_ones(t: TensorType, shape: Shape, strides: Shape) -> Shape:
    """The last dimensions, as far as they have one element, take the stride of the last one before,
    whatever it is."""
    many = next((d for d in reversed(range(len(shape))) if shape[d] != 1), -1)
    return (*strides[: many + 1], *(t.strides[-1] for _ in shape[many + 1 :]))


def _dense_chunks(cx: _Decider, t: TensorType, decide: bool) -> list[tuple[Dim, Dim]]:
    """(elements, stride) of each run of dimensions that one stride can walk."""
    chunks: list[tuple[Dim, Dim]] = []
    for size, stride in zip(t.shape, t.strides, strict=True):
        if size.__class__ is int and size == 1:
            continue
        if chunks and _follows(cx, chunks[-1][1], stride * size, decide):
            chunks[-1] = (chunks[-1][0] * size, stride)
        else:
            chunks.append((size, stride))
    return chunks


def _fills(cx: _Decider, filled: Dim, size: Dim, decide: bool, ones: bool) -> bool:
    """Are the sizes equal: by the facts, or by a guard where the hints say so?"""
    equal = eq(filled, size)
    if isinstance(equal, bool) or cx.known(equal) is not None:
        return bool(cx.known(equal))
    if not decide or cx.on_guard is None or cx.hint(equal) is not True:
        return False
    return (ones or all(cx.hints[s] > 1 for s in equal.symbols)) and cx.decide(equal)


def _follows(cx: _Decider, outer: Dim, inner: Dim, decide: bool) -> bool:
    if outer is inner or outer == inner:
        return True
    follows = eq(outer, inner)
    if isinstance(follows, bool) or not decide or outer == 0:
        return cx.known(follows) is True
    try:
        return cx.decide(follows)
    except Undecided:
        return False


def _with_ones(shape: Shape, strides: list[Dim], last: Dim) -> Shape:
    """Puts strides (innermost first, none for size 1) in place; size 1 gets the row-major one, and
    behind all others the ``last`` one of the tensor viewed."""
    result: list[Dim] = []
    step = last
    rest = iter(strides)
    for size in reversed(shape):
        if size != 1:
            step = next(rest)
            result.append(step)
            step = step * size
        else:
            result.append(step)
    return tuple(reversed(result))
