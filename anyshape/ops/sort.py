"""Order statistics and counting: externs with type rules."""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import bool_, int32, int64
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import ranges
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.gradients import reductions
from anyshape.ops.layout import preserved_strides
from anyshape.ops.reduce import reduced
from anyshape.ops.rules import dim_of, is_tensor, new, tensor
from anyshape.ops.table import Extern, op
from anyshape.ops.view import Normal
from anyshape.symbolic import Dim, ge, le, maximum


def _dim_at(position: int, default: int = -1) -> Any:
    """Counts the dimension argument at a position from 0."""

    def normalize(cx: TypeContext, *args: Any, **kwargs: Arg) -> Normal:
        rank = tensor(args[0]).rank
        return (*args[:position], dim_of(args[position], rank), *args[position + 1 :]), kwargs

    return normalize


def _sort_type(cx: TypeContext, x: Any, *rest: Arg, **kwargs: Arg) -> tuple[TensorType, TensorType]:
    t = tensor(x)
    strides = preserved_strides(cx, t)
    return (
        TensorType(t.dtype, t.device, t.shape, strides),
        TensorType(int64, t.device, t.shape, strides),
    )


op(
    "sort",
    "input, dim=-1, descending=False, *, stable=False",
    torch="anyshape.eager.sort",
    vjp=reductions.SORT,
    spellings=("torch.sort", "torch.Tensor.sort"),
    normalize=_dim_at(1),
    type=_sort_type,
    lower=Extern("anyshape.eager.sort"),
    range=ranges.of_order(1),
)
op(
    "argsort",
    "input, dim=-1, descending=False, *, stable=False",
    torch="anyshape.eager.argsort",
    spellings=("torch.argsort", "torch.Tensor.argsort"),
    normalize=_dim_at(1),
    type=lambda cx, x, *rest, **kw: _sort_type(cx, x)[1],
    lower=Extern("anyshape.eager.argsort"),
    range=ranges.of_order(1),
)
op(
    "msort",
    "input",
    torch="torch.msort",
    spellings=("torch.Tensor.msort",),
    expand=lambda b, x: b.sort(x, 0)[0],
    vjp="expansion",
)


def _topk_type(
    cx: TypeContext, x: Any, k: Any, dim: int, *rest: Arg
) -> tuple[TensorType, TensorType]:
    t = tensor(x)
    if t.shape:
        cx.require(ge(k, 0), "selected index k out of range")
        cx.require(le(k, t.shape[dim]), "selected index k out of range")
    shape = (*t.shape[:dim], k, *t.shape[dim + 1 :]) if t.shape else ()
    return new(cx, t, shape), new(cx, t, shape, int64)


op(
    "topk",
    "input, k, dim=-1, largest=True, sorted=True",
    torch="torch.topk",
    vjp=reductions.TOPK,
    spellings=("torch.Tensor.topk",),
    normalize=_dim_at(2),
    type=_topk_type,
    lower=Extern("torch.topk"),
    range=ranges.of_order(2),
)


def _pick_type(cx: TypeContext, x: Any, dim: int, keepdim: bool) -> tuple[TensorType, TensorType]:
    t = tensor(x)
    dims = (dim,) if t.shape else ()
    return reduced(cx, t, dims, keepdim, t.dtype), reduced(cx, t, dims, keepdim, int64)


def _kth_type(
    cx: TypeContext, x: Any, k: Any, dim: int, keepdim: Any
) -> tuple[TensorType, TensorType]:
    return _pick_type(cx, x, dim, bool(keepdim))


op(
    "kthvalue",
    "input, k, dim=-1, keepdim=False",
    torch="torch.kthvalue",
    spellings=("torch.Tensor.kthvalue",),
    normalize=_dim_at(2),
    type=_kth_type,
    lower=Extern("torch.kthvalue"),
)
op(
    "mode",
    "input, dim=-1, keepdim=False",
    torch="torch.mode",
    spellings=("torch.Tensor.mode",),
    normalize=_dim_at(1),
    type=lambda cx, x, dim, keepdim: _pick_type(cx, x, dim, bool(keepdim)),
    lower=Extern("torch.mode"),
)


def _median_type(cx: TypeContext, x: Any, dim: Any = None, keepdim: Any = False) -> Any:
    t = tensor(x)
    if dim is None:
        return new(cx, t, ())
    return _pick_type(cx, x, dim_of(dim, t.rank), bool(keepdim))


for _name in ("median", "nanmedian"):
    op(
        _name,
        "input, dim=None, keepdim=False",
        torch=f"anyshape.eager.{_name}_",
        spellings=(f"torch.{_name}", f"torch.Tensor.{_name}"),
        type=_median_type,
        lower=Extern(f"anyshape.eager.{_name}_"),
    )


def _search_type(
    cx: TypeContext,
    bounds: Any,
    x: Any,
    *,
    out_int32: Any = False,
    right: Any = False,
    side: Any = None,
    sorter: Any = None,
) -> TensorType:
    dtype = int32 if out_int32 else int64
    if not is_tensor(x):
        return new(cx, tensor(bounds), (), dtype)
    return new(cx, tensor(x), tensor(x).shape, dtype)


op(
    "searchsorted",
    "sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None",
    torch="torch.searchsorted",
    type=_search_type,
    lower=Extern("torch.searchsorted"),
    raises=True,
)
op(
    "bucketize",
    "input, boundaries, *, out_int32=False, right=False",
    torch="torch.bucketize",
    type=lambda cx, x, bounds, **kw: _search_type(cx, bounds, x, **kw),
    lower=Extern("torch.bucketize"),
)


def _histc_type(
    cx: TypeContext, x: Any, bins: Any = 100, *limits: Arg, **kwargs: Arg
) -> TensorType:
    return new(cx, tensor(x), (bins,))


op(
    "histc",
    "input, bins=100, min=0, max=0",
    torch="torch.histc",
    spellings=("torch.Tensor.histc",),
    type=_histc_type,
    lower=Extern("torch.histc"),
    raises=True,
    differentiable=False,
)


def _isin_type(cx: TypeContext, x: Any, tests: Any, **kwargs: Arg) -> TensorType:
    t = tensor(x) if is_tensor(x) else tensor(tests)
    shape = t.shape if is_tensor(x) else ()
    return new(cx, t, shape, bool_)


op(
    "isin",
    "elements, test_elements, *, assume_unique=False, invert=False",
    torch="torch.isin",
    type=_isin_type,
    lower=Extern("torch.isin"),
)


def _quantile_type(
    cx: TypeContext,
    x: Any,
    q: Any,
    dim: Any = None,
    keepdim: Any = False,
    *,
    interpolation: Arg = "linear",
) -> TensorType:
    t = tensor(x)
    dims = tuple(range(t.rank)) if dim is None else (dim_of(dim, t.rank),)
    shape = reduced(cx, t, dims, bool(keepdim), t.dtype).shape
    lead: tuple[Dim, ...] = tensor(q).shape if is_tensor(q) else ()
    if not lead:
        return new(cx, t, shape)
    made = new(
        cx, t, (*shape, *lead)
    )  # ATen computes the quantiles last and moves them to the front
    return TensorType(t.dtype, t.device, (*lead, *shape), (made.strides[-1], *made.strides[:-1]))


for _name in ("quantile", "nanquantile"):
    op(
        _name,
        "input, q, dim=None, keepdim=False, *, interpolation='linear'",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        type=_quantile_type,
        lower=Extern(f"torch.{_name}"),
        raises=True,
    )


def _cdist_type(cx: TypeContext, x: Any, y: Any, *rest: Arg) -> TensorType:
    p, q = tensor(x), tensor(y)
    if p.rank < 2 or q.rank < 2:
        raise OpError("cdist only supports at least 2D tensors")
    batch = cx.broadcast_shapes((p.shape[:-2], q.shape[:-2])) if max(p.rank, q.rank) > 2 else ()
    return new(cx, p, (*batch, p.shape[-2], q.shape[-2]))


op(
    "cdist",
    "x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary'",
    torch="torch.cdist",
    spellings=("torch.functional.cdist",),
    type=_cdist_type,
    lower=Extern("torch.cdist"),
    by_value=("p",),
)


def _diff_expand(
    b: Any, x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    d = dim_of(dim, len(x.shape))
    if n == 0:
        return b.clone(x)
    parts = tuple(v for v in (prepend, x, append) if v is not None)
    made = b.cat(parts, d) if len(parts) > 1 else x
    for _ in range(n):
        less = (
            maximum(made.shape[d] - 1, 0)
            if not isinstance(made.shape[d], int)
            else max(made.shape[d] - 1, 0)
        )
        start = 1 if not isinstance(less, int) or less else 0
        later, earlier = b.slice(made, d, start, less, 1), b.slice(made, d, 0, less, 1)
        made = b.bitwise_xor(later, earlier) if x.dtype is bool_ else b.sub(later, earlier)
    return made


op(
    "diff",
    "input, n=1, dim=-1, prepend=None, append=None",
    torch="torch.diff",
    spellings=("torch.Tensor.diff",),
    expand=_diff_expand,
    by_value=("n",),
    vjp="expansion",
)
