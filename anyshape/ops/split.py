"""Taking a tensor apart: split, chunk, tensor_split, unbind.

How many pieces there are must be decided: a size that is not known is guarded on the number of
pieces, not on its value.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import parts, write_back
from anyshape.ops.context import NoRow, OpError, TypeContext, Undecided
from anyshape.ops.rules import dim_of, is_tensor, size_of, sizes_of, tensor
from anyshape.ops.table import op
from anyshape.ops.view import Normal, viewed
from anyshape.symbolic import (
    Dim,
    all_of,
    any_of,
    ceildiv,
    eq,
    evaluate,
    floordiv,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mod,
    symbols_of,
    total,
)


def decided_count(cx: TypeContext, count: Dim) -> int:
    """The number of pieces: known, or guarded to be what the hints say."""
    if isinstance(count, int):
        return count
    low, high = cx.facts.bounds(count)
    if low is not None and low == high:
        return low
    if any(s not in cx.hints for s in count.symbols):
        raise Undecided(eq(count, 1))
    hint = int(evaluate(count, cx.hints))
    if not cx.decide(eq(count, hint)):
        raise Undecided(eq(count, hint))
    return hint


def _unpacked_count(cx: TypeContext, *sizes: Any) -> int | None:
    """How many pieces the program wants of sizes that nobody may guard on; Python raises where
    there are more or fewer."""
    guarded = all(s.policy == "backed" and s in cx.hints for n in sizes for s in symbols_of(n))
    return None if guarded else cx.wanted


_PIECES = "the number of pieces is not the number of values to unpack"


def _piece_count(cx: TypeContext, count: Dim) -> int:
    """``decided_count``, or as many as the program takes apart."""
    wanted = _unpacked_count(cx, count)
    if wanted is not None:
        cx.require(eq(count, wanted), _PIECES)
    return decided_count(cx, count) if wanted is None else wanted


def _split_lengths(cx: TypeContext, size: Dim, lengths: Arg) -> tuple[Dim, ...]:
    if isinstance(lengths, tuple):
        text = "split_with_sizes expects split_sizes to sum exactly to the size of the dimension"
        pieces = sizes_of(lengths)
        cx.require(eq(total(pieces), size), text)
        return pieces
    length = size_of(lengths)
    cx.require(ge(length, 0), "split expects split_size be non-negative")
    if size == length:
        return (size,)
    if length == 0:
        cx.require(eq(size, 0), "split_size can only be 0 if dimension size is 0")
        return (size,)
    count = _whole_pieces(cx, size, length) or _decided_pieces(cx, size, length)
    return (*(length,) * (count - 1), size - length * (count - 1))


def _decided_pieces(cx: TypeContext, size: Dim, each: Any) -> int:
    """How many pieces of length ``each`` there are, the last perhaps shorter; one of nothing.

    Guarded as products, which are defined for every size.
    """
    if isinstance(size, int) and isinstance(each, int):
        return max(-(-size // each), 1)
    if cx.known(le(size, each)):
        return 1
    wanted = _unpacked_count(cx, size, each)
    if wanted:
        some = wanted == 1 or lt(each * (wanted - 1), size)
        cx.require(all_of(le(size, each * wanted), some), _PIECES)
        return wanted
    symbols = symbols_of(size) | symbols_of(each)
    if any(s not in cx.hints for s in symbols):
        return max(decided_count(cx, ceildiv(size, each)), 1)
    have, piece = (int(evaluate(n, cx.hints)) for n in (size, each))
    count = max(-(-have // max(piece, 1)), 1)
    fits = le(size, each * count)
    exact = all_of(fits, lt(each * (count - 1), size)) if count > 1 else fits
    if not cx.decide(exact):
        raise Undecided(exact)
    return count


def _whole_pieces(cx: TypeContext, size: Dim, length: Dim) -> int | None:
    """The number of pieces where the size is a constant multiple of a symbolic length."""
    if isinstance(length, int) or isinstance(size, int):
        return None
    for count in range(1, 65):
        if length * count == size:
            return count
    return None


def split_pieces(cx: TypeContext, x: Any, lengths: Arg, dim: Arg) -> tuple[int, tuple[Dim, ...]]:
    """(dim, lengths) of ``torch.split``."""
    t = tensor(x)
    d = dim_of(dim, t.rank)
    return d, _split_lengths(cx, t.shape[d], lengths)


def _normal_split(cx: TypeContext, x: Any, lengths: Arg, dim: Arg = 0) -> Normal:
    d, pieces = split_pieces(cx, x, lengths, dim)
    return (x, pieces, d), {}


def _pieces_type(
    cx: TypeContext, x: Any, lengths: tuple[Dim, ...], dim: int
) -> tuple[TensorType, ...]:
    t = tensor(x)
    return tuple(viewed(t, (*t.shape[:dim], n, *t.shape[dim + 1 :]), t.strides) for n in lengths)


def _pieces_expand(b: Any, x: Any, lengths: tuple[Dim, ...], dim: int) -> tuple[Any, ...]:
    start: Dim = 0
    pieces = []
    for length in lengths:
        pieces.append(b.slice(x, dim, start, length, 1))
        start = start + length
    return tuple(pieces)


def _unsafe_pieces(b: Any, *args: Any) -> tuple[Any, ...]:
    """Autograd takes each of them for new memory, though they lie in the argument's."""
    return tuple(b.unsafe_alias(piece) for piece in _pieces_expand(b, *args))


op(
    "split",
    "input, split_size_or_sections, dim=0",
    torch="torch.split",
    normalize=_normal_split,
    spellings=(
        "torch.Tensor.split",
        "torch.functional.split",
        "torch.split_with_sizes",
        "torch.Tensor.split_with_sizes",
    ),
    type=_pieces_type,
    expand=_pieces_expand,
    alias="view",
    write_back=write_back.split,
    part=parts.split,
    counted=True,
)
op(
    "unsafe_split",
    "input, split_size_or_sections, dim=0",
    torch="torch.unsafe_split",
    normalize=_normal_split,
    spellings=(
        "torch.Tensor.unsafe_split",
        "torch.unsafe_split_with_sizes",
        "torch.Tensor.unsafe_split_with_sizes",
    ),
    expand=_unsafe_pieces,
    alias="view",
    inline=True,
    counted=True,
)


def _normal_chunk(cx: TypeContext, x: Any, chunks: Any, dim: Arg = 0) -> Normal:
    t = tensor(x)
    d = dim_of(dim, t.rank)
    size = t.shape[d]
    cx.require(ge(chunks, 1), "chunk expects `chunks` to be greater than 0")
    if isinstance(size, int):
        each = -(-size // chunks)
        return (x, _nothing(cx, chunks) if size == 0 else _split_lengths(cx, size, each), d), {}
    if isinstance(chunks, int) and cx.known(eq(mod(size, chunks), 0)):
        return (x, (cx.facts.simplify(floordiv(size, chunks)),) * chunks, d), {}
    each = ceildiv(size, chunks)
    if _unpacked_count(cx, size) == chunks:
        cx.require(any_of(eq(size, 0), gt(size, each * (chunks - 1))), _PIECES)
        return (x, (*(each,) * (chunks - 1), size - each * (chunks - 1)), d), {}
    if cx.decide(eq(size, 0)):
        return (x, _nothing(cx, chunks), d), {}
    count = _decided_pieces(cx, size, each)
    return (x, (*(each,) * (count - 1), size - each * (count - 1)), d), {}


def _nothing(cx: TypeContext, chunks: Any) -> tuple[int, ...]:
    """Of no elements, there are as many pieces as asked for."""
    return (0,) * decided_count(cx, chunks)


for _name, _pieces in (
    ("chunk", lambda b, *args: b.split(*args)),
    ("unsafe_chunk", _unsafe_pieces),
):
    op(
        _name,
        "input, chunks, dim=0",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        normalize=lambda cx, *args: _normal_chunk(cx, *args),
        type=_pieces_type,
        expand=_pieces,
        alias="view",
        write_back=write_back.split,
        inline=True,
        counted=True,
    )


def _tensor_split_expand(b: Any, x: Any, positions: Any, dim: Arg = 0) -> tuple[Any, ...]:
    cx, d = b.cx, dim_of(dim, tensor(x).rank)
    size = x.shape[d]
    if is_tensor(positions) and len(positions.shape) == 1:
        count = _piece_count(cx, positions.shape[0] + 1) - 1
        positions = tuple(b.item(b.select(positions, 0, i)).type.expr for i in range(count))
    if isinstance(positions, tuple):
        ends = [*(_clamped(cx, p, size) for p in positions), size]
        starts = [0, *ends[:-1]]
        return tuple(b.slice(x, d, s, _beyond(cx, s, e), 1) for s, e in zip(starts, ends))
    if not isinstance(positions, int):
        raise NoRow("data decides the number of pieces")
    if positions <= 0:
        raise OpError(f"number of sections must be larger than 0, got {positions}")
    lengths = tuple(floordiv(size + positions - 1 - i, positions) for i in range(positions))
    return _pieces_expand(b, x, lengths, d)


def _clamped(cx: TypeContext, position: Any, size: Dim) -> Dim:
    """An end of a slice, counted from 0, within the size."""
    position = cx.from_zero(position, size)
    low = position if cx.known(ge(position, 0)) else maximum(position, 0)
    return low if cx.known(le(low, size)) else minimum(low, size)


def _beyond(cx: TypeContext, start: Dim, end: Dim) -> Dim:
    """The length of ``start:end``: nothing where the end comes first."""
    length = cx.facts.simplify(end - start)
    return length if cx.known(ge(length, 0)) else maximum(length, 0)


op(
    "tensor_split",
    "input, indices_or_sections, dim=0",
    torch="torch.tensor_split",
    spellings=("torch.Tensor.tensor_split",),
    expand=_tensor_split_expand,
    alias="view",
    inline=True,
    counted=True,
    vjp="expansion",
)


def _unbind_type(cx: TypeContext, x: Any, dim: int) -> tuple[TensorType, ...]:
    t = tensor(x)
    shape = (*t.shape[:dim], *t.shape[dim + 1 :])
    strides = (*t.strides[:dim], *t.strides[dim + 1 :])
    return (viewed(t, shape, strides),) * _piece_count(cx, t.shape[dim])


op(
    "unbind",
    "input, dim=0",
    torch="torch.unbind",
    spellings=("torch.Tensor.unbind",),
    alias="view",
    write_back=write_back.unbound,
    part=parts.unbound,
    normalize=lambda cx, x, dim=0: ((x, dim_of(dim, tensor(x).rank)), {}),
    type=_unbind_type,
    expand=lambda b, x, dim: tuple(
        b.select(x, dim, i) for i in range(decided_count(b.cx, x.shape[dim]))
    ),
    counted=True,
)
