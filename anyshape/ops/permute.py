"""Dimensions in another order: permute, and what expands to it (transpose, T, mT, movedim ...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import parts, write_back
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.rules import dim_of, tensor
from anyshape.ops.table import OneByOne, View, op
from anyshape.ops.view import Index, Normal, sequence, viewed


def _normal_permute(cx: TypeContext, x: Any, dims: Arg) -> Normal:
    rank = tensor(x).rank
    order = tuple(dim_of(d, rank) for d in sequence(dims))
    if sorted(order) != list(range(rank)):
        raise OpError(f"permute(sparse_coo): number of dimensions {rank} does not fit dims {dims}")
    return (x, order), {}


def _permute_type(cx: TypeContext, x: Any, dims: tuple[int, ...]) -> TensorType:
    t: TensorType = x.type
    shape, strides = t.shape, t.strides
    return viewed(t, tuple([shape[d] for d in dims]), tuple([strides[d] for d in dims]))


def _permute_index(cx: TypeContext, at: Index, t: TensorType, dims: tuple[int, ...]) -> Index:
    position = {d: i for i, d in enumerate(dims)}
    return tuple(at[position[d]] for d in range(t.rank))


op(
    "permute",
    "input, dims",
    torch="torch.permute",
    one_by_one=OneByOne(1, "method"),
    type=_permute_type,
    lower=View(_permute_index),
    normalize=_normal_permute,
    alias="view",
    write_back=write_back.permuted,
    part=parts.permuted,
)


def _swap(rank: int, a: Arg, b: Arg) -> tuple[int, ...]:
    i, j = dim_of(a, rank), dim_of(b, rank)
    order = list(range(rank))
    if rank:
        order[i], order[j] = j, i
    return tuple(order)


def _transpose_type(cx: TypeContext, x: Any, dim0: int, dim1: int) -> TensorType:
    return _permute_type(cx, x, _swap(tensor(x).rank, dim0, dim1))


op(
    "transpose",
    "input, dim0, dim1",
    torch="torch.transpose",
    type=_transpose_type,
    alias="view",
    write_back=write_back.transposed,
    part=parts.transposed,
    spellings=(
        "torch.Tensor.transpose",
        "torch.swapaxes",
        "torch.Tensor.swapaxes",
        "torch.swapdims",
        "torch.Tensor.swapdims",
    ),
    expand=lambda b, x, i, j: b.permute(x, _swap(len(x.shape), i, j)),
)


def _permuted(order: Callable[[int], tuple[int, ...]]) -> dict[str, Any]:
    """Type and expansion of a permutation that depends on the rank alone."""
    return {
        "type": lambda cx, x: _permute_type(cx, x, order(tensor(x).rank)),
        "expand": lambda b, x: b.permute(x, order(len(x.shape))),
        "alias": "view",
        "write_back": write_back.turned,
    }


def _reversed_two(rank: int) -> tuple[int, ...]:
    if rank > 2:
        raise OpError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return tuple(reversed(range(rank)))


def _swapped_last(rank: int) -> tuple[int, ...]:
    return _swap(rank, -1, -2)


def _all_reversed(rank: int) -> tuple[int, ...]:
    return tuple(reversed(range(rank)))


op(
    "t",
    "input",
    torch="torch.t",
    spellings=("torch.Tensor.t",),
    part=parts.reversed_dims,
    **_permuted(_reversed_two),
)
op(
    "mT",
    "input",
    torch="torch.Tensor.mT.__get__",
    spellings=("torch.adjoint", "torch.Tensor.adjoint"),
    **_permuted(_swapped_last),
)
op(
    "T",
    "input",
    torch="torch.Tensor.T.__get__",
    part=parts.reversed_dims,
    **_permuted(_all_reversed),
)


def _moved(rank: int, source: Arg, destination: Arg) -> tuple[int, ...]:
    sources = [dim_of(d, rank) for d in sequence(source)]
    targets = [dim_of(d, rank) for d in sequence(destination)]
    rest = iter(d for d in range(rank) if d not in sources)
    moved = dict(zip(targets, sources, strict=True))
    return tuple(moved[i] if i in moved else next(rest) for i in range(rank))


op(
    "movedim",
    "input, source, destination",
    torch="torch.movedim",
    alias="view",
    write_back=write_back.moved,
    spellings=("torch.Tensor.movedim", "torch.moveaxis", "torch.Tensor.moveaxis"),
    type=lambda cx, x, s, d: _permute_type(cx, x, _moved(tensor(x).rank, s, d)),
    expand=lambda b, x, s, d: b.permute(x, _moved(len(x.shape), s, d)),
)
