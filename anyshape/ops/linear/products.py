"""Matrix products: mm, bmm, addmm, baddbmm, linear, grouped_mm, and what expands to them."""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import DType, bool_, float32
from anyshape.ir.graph import Arg, TensorType, Value
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.gradients import products
from anyshape.ops.layout import Shape, contiguous_strides, numel, view_strides
from anyshape.ops.rules import RowMajorRule, device_of, is_empty, new, require_sizes, tensor
from anyshape.ops.table import Extern, op
from anyshape.symbolic import Dim, eq, ne


def _match(cx: TypeContext, a: Dim, b: Dim, name: str) -> None:
    if a is not b and a != b:
        cx.require(eq(a, b), f"mat1 and mat2 shapes cannot be multiplied in {name} ({a} and {b})")


def _ranks(name: str, *wanted: tuple[TensorType, int]) -> None:
    for t, rank in wanted:
        if t.rank != rank:
            raise OpError(f"{name}: expected a tensor of {rank} dimensions, got {t.rank}")


def _same_dtype(name: str, *types: TensorType) -> None:
    if any(t.dtype is not types[0].dtype for t in types):
        found = " != ".join(str(t.dtype) for t in types)
        raise OpError(f"expected m1 and m2 to have the same dtype, but got: {found} in {name}")


def _mm_type(cx: TypeContext, a: Any, b: Any) -> TensorType:
    x, y = tensor(a), tensor(b)
    _ranks("mm", (x, 2), (y, 2))
    _same_dtype("mm", x, y)
    _match(cx, x.shape[1], y.shape[0], "mm")
    device_of((x, y))
    return new(cx, x, (x.shape[0], y.shape[1]))


op(
    "mm",
    "input, mat2",
    torch="torch.mm",
    vjp=products.MM,
    spellings=("torch.Tensor.mm",),
    type=_mm_type,
    lower=Extern("torch.mm", "whole"),
)


def _bmm_type(cx: TypeContext, a: Any, b: Any) -> TensorType:
    x, y = tensor(a), tensor(b)
    _ranks("bmm", (x, 3), (y, 3))
    _same_dtype("bmm", x, y)
    _match(cx, x.shape[0], y.shape[0], "bmm")
    _match(cx, x.shape[2], y.shape[1], "bmm")
    return new(cx, x, (x.shape[0], x.shape[1], y.shape[2]))


op(
    "bmm",
    "input, mat2",
    torch="torch.bmm",
    vjp=products.BMM,
    spellings=("torch.Tensor.bmm",),
    type=_bmm_type,
    lower=Extern("torch.bmm", "whole"),
)


def require_added(cx: TypeContext, addend: TensorType, shape: Shape) -> None:
    """What is added to a product is expanded to its shape, and never the product."""
    joined = cx.broadcast_shapes((shape, addend.shape))
    require_sizes(cx, joined, shape, "the expanded size must match the existing size")


def _addmm_type(
    cx: TypeContext, bias: Any, a: Any, b: Any, *, beta: Arg = 1, alpha: Arg = 1
) -> TensorType:
    result = _mm_type(cx, a, b)
    _same_dtype("addmm", tensor(bias), result)
    require_added(cx, tensor(bias), result.shape)
    return result


op(
    "addmm",
    "input, mat1, mat2, *, beta=1, alpha=1",
    torch="torch.addmm",
    vjp=products.ADDMM,
    spellings=("torch.Tensor.addmm",),
    type=_addmm_type,
    lower=Extern("torch.addmm", "whole"),
)


def _baddbmm_type(
    cx: TypeContext, bias: Any, a: Any, b: Any, *, beta: Arg = 1, alpha: Arg = 1
) -> TensorType:
    result = _bmm_type(cx, a, b)
    require_added(cx, tensor(bias), result.shape)
    return result


op(
    "baddbmm",
    "input, batch1, batch2, *, beta=1, alpha=1",
    torch="torch.baddbmm",
    vjp=products.BADDBMM,
    spellings=("torch.Tensor.baddbmm",),
    type=_baddbmm_type,
    lower=Extern("torch.baddbmm", "whole"),
)


def _linear_type(cx: TypeContext, x: Any, weight: Any, bias: Any = None) -> TensorType:
    t, w = tensor(x), tensor(weight)
    _same_dtype("linear", t, w)
    _match(cx, t.shape[-1], w.shape[-1], "linear")
    if w.rank not in (1, 2):
        raise OpError("linear: weight must have one or two dimensions")
    result = new(cx, t, (*t.shape[:-1], *w.shape[:-1]))
    if bias is not None:
        cx.broadcast_shapes((result.shape, tensor(bias).shape))
    return result


op(
    "linear",
    "input, weight, bias=None",
    torch="torch.nn.functional.linear",
    vjp=products.LINEAR,
    type=RowMajorRule(_linear_type),
    lower=Extern("torch.nn.functional.linear", "whole"),
)

# --- matmul and its forms ---


def _matmul_type(cx: TypeContext, a: Any, b: Any) -> TensorType:
    x, y = tensor(a), tensor(b)
    if not x.shape or not y.shape:
        raise OpError("both arguments to matmul need to be at least 1D")
    _same_dtype("matmul", x, y)
    _match(cx, x.shape[-1], y.shape[-2] if y.rank > 1 else y.shape[0], "matmul")
    batch = cx.broadcast_shapes((x.shape[:-2], y.shape[:-2])) if max(x.rank, y.rank) > 2 else ()
    rows = x.shape[-2:-1] if x.rank > 1 else ()
    columns = y.shape[-1:] if y.rank > 1 else ()
    return new(cx, x, (*batch, *rows, *columns))


def _matmul_expand(b: Any, x: Value, y: Value) -> Any:
    if len(x.shape) == 1:
        made = _matmul_expand(b, b.unsqueeze(x, 0), y)
        return b.squeeze(made, -1 if len(y.shape) == 1 else -2)
    if len(y.shape) == 1:
        return b.squeeze(_matmul_expand(b, x, b.unsqueeze(y, 1)), -1)
    if len(x.shape) == 2 and len(y.shape) == 2:
        return b.mm(x, y)
    if len(y.shape) == 2:
        flat = (numel(x.shape[:-1]), x.shape[-1])
        if view_strides(b.cx, x.tensor, flat) is not None:
            return b.reshape(b.mm(b.reshape(x, flat), y), (*x.shape[:-1], y.shape[-1]))
    return _batched(b, x, y)


def _batched(b: Any, x: Value, y: Value) -> Any:
    batch = b.cx.broadcast_shapes((x.shape[:-2], y.shape[:-2]))
    count = numel(batch)
    flat = [b.reshape(b.expand(t, (*batch, *t.shape[-2:])), (count, *t.shape[-2:])) for t in (x, y)]
    return b.reshape(b.bmm(*flat), (*batch, x.shape[-2], y.shape[-1]))


op(
    "matmul",
    "input, other",
    torch="torch.matmul",
    vjp="expansion",
    type=RowMajorRule(_matmul_type),
    expand=_matmul_expand,
    spellings=(
        "torch.Tensor.matmul",
        "operator.matmul",
        "torch.Tensor.__matmul__",
        "torch.linalg.matmul",
    ),
)
op(
    "rmatmul",
    "input, other",
    torch="torch.Tensor.__rmatmul__",
    aten="matmul",
    vjp="expansion",
    type=lambda cx, x, y: _matmul_type(cx, y, x),
    expand=lambda b, x, y: b.matmul(y, x),
)


def _mv_type(cx: TypeContext, a: Any, b: Any) -> TensorType:
    _ranks("mv", (tensor(a), 2), (tensor(b), 1))
    return _matmul_type(cx, a, b)


op(
    "mv",
    "input, vec",
    torch="torch.mv",
    vjp="expansion",
    spellings=("torch.Tensor.mv",),
    type=_mv_type,
    expand=_matmul_expand,
)
op(
    "dot",
    "input, tensor",
    torch="torch.dot",
    vjp="expansion",
    spellings=("torch.Tensor.dot",),
    type=RowMajorRule(_matmul_type),
    expand=_matmul_expand,
)
op(
    "outer",
    "input, vec2",
    torch="torch.outer",
    vjp="expansion",
    spellings=("torch.Tensor.outer", "torch.ger", "torch.Tensor.ger"),
    expand=lambda b, x, y: b.mul(b.unsqueeze(x, 1), y),
)
op(
    "inner",
    "input, other",
    torch="torch.inner",
    vjp="expansion",
    spellings=("torch.Tensor.inner",),
    expand=lambda b, x, y: (
        b.mul(x, y)
        if not (x.shape and y.shape)
        else b.tensordot(x, y, ((len(x.shape) - 1,), (len(y.shape) - 1,)))
    ),
)


def _addbmm_type(
    cx: TypeContext, x: Any, p: Any, q: Any, *, beta: Arg = 1, alpha: Arg = 1
) -> TensorType:
    product = _bmm_type(cx, p, q).shape[1:]
    if isinstance(beta, float) and beta != 1.0 and tensor(p).dtype.is_integral:
        for size in (tensor(p).shape[0], tensor(p).shape[2]):
            cx.require(ne(size, 0), "result type Float can't be cast to an integer")
    require_added(cx, tensor(x), product)
    return new(cx, tensor(p), product)


def _blend(b: Any, x: Any, made: Any, beta: Any, alpha: Any) -> Any:
    """``beta * x + alpha * made`` in the dtype of ``made``; with ``beta`` 0, ``x`` is not read."""
    dtype = made.dtype
    if dtype is bool_:
        scaled = made if alpha else b.logical_and(made, False)
        return b.logical_or(x, scaled) if beta else scaled
    if dtype.is_integral:
        beta, alpha = int(beta), int(alpha)
    scaled = made if alpha == 1 else b.mul(made, alpha)
    if isinstance(beta, (int, float)) and beta == 0:
        return scaled
    return b.add(x if beta == 1 else b.mul(x, beta), scaled)


def _addmv_expand(b: Any, x: Any, m: Any, v: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Of an empty matrix, eager's result has the shape of ``x`` as it is."""
    own = len(x.shape) == 1 and b.cx.same(x.shape[0], m.shape[0])
    if not own and is_empty(b.cx, tensor(m)):
        raise NoRow("addmv of an empty matrix with an addend of another shape")
    made = b.mv(m, v)
    require_added(b.cx, tensor(x), made.shape)
    return _blend(b, x, made, beta, alpha)


def _addr_expand(b: Any, x: Any, u: Any, v: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    made = b.outer(u, v)
    require_added(b.cx, tensor(x), made.shape)
    return _blend(b, x, made, beta, alpha)


op(
    "addmv",
    "input, mat, vec, *, beta=1, alpha=1",
    torch="torch.addmv",
    vjp=products.ADDMV,
    spellings=("torch.Tensor.addmv",),
    by_value=("beta",),
    expand=_addmv_expand,
)
op(
    "addr",
    "input, vec1, vec2, *, beta=1, alpha=1",
    torch="torch.addr",
    vjp=products.ADDR,
    spellings=("torch.Tensor.addr",),
    by_value=("beta",),
    expand=_addr_expand,
)
op(
    "addbmm",
    "input, batch1, batch2, *, beta=1, alpha=1",
    torch="torch.addbmm",
    vjp=products.ADDBMM,
    spellings=("torch.Tensor.addbmm",),
    by_value=("beta",),
    type=_addbmm_type,
    expand=lambda b, x, p, q, *, beta=1, alpha=1: _blend(
        b, x, b.sum(b.bmm(p, q), (0,), dtype=p.dtype), beta, alpha
    ),
)


def _chain_matmul(b: Any, *matrices: Any) -> Any:
    made = matrices[0]
    for matrix in matrices[1:]:
        made = b.mm(made, matrix)
    return made


op(
    "multi_dot",
    "tensors",
    torch="torch.linalg.multi_dot",
    vjp="expansion",
    expand=lambda b, xs: _chain_matmul(b, *xs),
)


def _tensordot_expand(b: Any, x: Any, y: Any, dims: Any = 2) -> Any:
    _same_dtype("tensordot", tensor(x), tensor(y))
    if isinstance(dims, int):
        if not 0 <= dims <= min(len(x.shape), len(y.shape)):
            raise OpError(f"tensordot expects dims of both operands, got dims={dims}")
        left = tuple(range(len(x.shape) - dims, len(x.shape)))
        right = tuple(range(dims))
    else:
        if not all(
            isinstance(part, tuple) and all(isinstance(d, int) for d in part) for part in dims
        ):
            raise OpError("tensordot expects a list of dims of each operand")
        left = tuple(d % len(x.shape) for d in dims[0])
        right = tuple(d % len(y.shape) for d in dims[1])
    for d, e in zip(left, right):  # a size of 1 goes with any other: the other is summed
        if x.shape[d] == 1 and y.shape[e] != 1:
            y = b.sum(y, (e,), True)
        elif y.shape[e] == 1 and x.shape[d] != 1:
            x = b.sum(x, (d,), True)
        same = eq(x.shape[d], y.shape[e])  # products of sizes tell nothing of each
        b.cx.require(same, "tensordot: contracted dimensions need to match")
    free_left = [d for d in range(len(x.shape)) if d not in left]
    free_right = [d for d in range(len(y.shape)) if d not in right]
    shape = (*(x.shape[d] for d in free_left), *(y.shape[d] for d in free_right))
    inner = numel([x.shape[d] for d in left])
    rows = numel([x.shape[d] for d in free_left])
    columns = numel([y.shape[d] for d in free_right])
    p = b.reshape(b.permute(x, (*free_left, *left)), (rows, inner))
    q = b.reshape(b.permute(y, (*right, *free_right)), (inner, columns))
    if b.prepare is not None and x.dtype.is_floating and b.cx.decide(eq(numel(shape), 1)):
        return b.reshape(_uncast_dot(b, p, q), shape)
    return b.reshape(b.mm(p, q), shape)


def _uncast_dot(b: Any, x: Any, y: Any) -> Any:
    """The sum of the products. ATen takes ``dot`` for it, which autocast does not cast."""
    if x.dtype.size_bytes < 4:
        wide = (b.to_dtype(v, float32) for v in (x, y))
        return b.to_dtype(_uncast_dot(b, *wide), x.dtype)
    return b.sum(b.mul(b.reshape(x, (-1,)), b.reshape(y, (-1,))))


op(
    "tensordot",
    "input, other, dims=2",
    torch="anyshape.eager.tensordot",
    vjp="expansion",
    expand=_tensordot_expand,
    spellings=("torch.tensordot", "torch.functional.tensordot"),
)


def _grouped_mm_type(
    cx: TypeContext,
    a: Any,
    b: Any,
    *,
    offs: Any = None,
    bias: Any = None,
    out_dtype: DType | None = None,
) -> TensorType:
    """Rows of ``a`` up to ``offs[g]`` times ``b[g]``; the last stride is padded to 16 bytes."""
    x, y = tensor(a), tensor(b)
    _match(cx, x.shape[-1], y.shape[-2], "grouped_mm")
    match x.rank, y.rank:
        case 2, 3:
            shape: tuple[Dim, ...] = (x.shape[0], y.shape[2])
        case 3, 2:
            shape = (x.shape[1], y.shape[1])
        case 2, 2:
            shape = (tensor(offs).shape[0], x.shape[0], y.shape[1])
        case _:
            shape = (x.shape[0], x.shape[1], y.shape[2])
    dtype = out_dtype or x.dtype
    strides = contiguous_strides(cx, shape)
    last = shape[-1]
    unit = 16 // dtype.size_bytes
    if isinstance(last, int) and last % unit:
        strides = contiguous_strides(cx, (*shape[:-1], -(-last // unit) * unit))
    return TensorType(dtype, x.device, shape, strides)


op(
    "grouped_mm",
    "input, mat2, *, offs=None, bias=None, out_dtype=None",
    torch="torch._grouped_mm",
    spellings=("torch.nn.functional.grouped_mm",),
    type=_grouped_mm_type,
    lower=Extern("torch._grouped_mm", "new"),
    vjp=products.GROUPED_MM,
)
