"""Small linear algebra, statistics and assembly: rows that expand to products, sums and joins.

Factorisations are in `factorizations.py`; solvers have no row: torch's meta kernels type them.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import TensorType
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.layout import numel
from anyshape.ops.reduce import cast, count_of, norm_expand, wide
from anyshape.ops.rules import created, dim_of, dims_of, new, of_numbers, sizes_of, tensor
from anyshape.ops.table import OneByOne, op
from anyshape.ops.variance import degrees_of_freedom
from anyshape.symbolic import Dim, all_of, eq, mod, ne

# --- products and traces ---

op(
    "trace",
    "input",
    torch="torch.trace",
    spellings=("torch.Tensor.trace",),
    expand=lambda b, x: b.sum(b.diagonal(x)),
    vjp="expansion",
)


def _kron_expand(b: Any, x: Any, y: Any) -> Any:
    rank = max(len(x.shape), len(y.shape))
    p = (*(1,) * (rank - len(x.shape)), *x.shape)
    q = (*(1,) * (rank - len(y.shape)), *y.shape)
    left = b.reshape(x, tuple(n for size in p for n in (size, 1)))
    right = b.reshape(y, tuple(n for size in q for n in (1, size)))
    return b.view(b.mul(left, right), tuple(m * n for m, n in zip(p, q, strict=True)))


op(
    "kron",
    "input, other",
    torch="torch.kron",
    spellings=("torch.Tensor.kron",),
    expand=_kron_expand,
    vjp="expansion",
)


def _cross_expand(b: Any, x: Any, y: Any, *, dim: Any = -1) -> Any:
    if len(x.shape) != len(y.shape):
        raise OpError("linalg.cross: inputs must have the same number of dimensions")
    d = dim_of(dim, len(x.shape))
    for v in (x, y):
        b.cx.require(eq(v.shape[d], 3), "linalg.cross: inputs dimension must have length 3")
    shape = b.cx.broadcast_shapes((x.shape, y.shape))
    x, y = (v if v.shape == shape else b.expand(v, shape) for v in (x, y))
    ahead = [b.cat((b.slice(v, d, 1, 2), b.slice(v, d, 0, 1)), d) for v in (x, y)]
    behind = [b.cat((b.slice(v, d, 2, 1), b.slice(v, d, 0, 2)), d) for v in (x, y)]
    return b.sub(b.mul(ahead[0], behind[1]), b.mul(behind[0], ahead[1]))


op(
    "linalg_cross",
    "input, other, *, dim=-1",
    torch="torch.linalg.cross",
    expand=_cross_expand,
    vjp="expansion",
)
op(
    "vdot",
    "input, other",
    torch="torch.vdot",
    spellings=("torch.Tensor.vdot",),
    expand=lambda b, x, y: b.dot(x, y),
    vjp="expansion",
)


def _vecdot_expand(b: Any, x: Any, y: Any, *, dim: Any = -1) -> Any:
    if len(x.shape) == len(y.shape) == 1:
        b.cx.require(eq(x.shape[0], y.shape[0]), "inconsistent tensor size in dot")
    return b.sum(b.mul(x, y), dim)


op(
    "vecdot",
    "x, y, *, dim=-1",
    torch="torch.linalg.vecdot",
    expand=_vecdot_expand,
    aten="linalg_vecdot",
    vjp="expansion",
)


def _matrix_power_expand(b: Any, x: Any, n: int) -> Any:
    if not isinstance(n, int) or n < 1:
        return NotImplemented
    made = None
    while n:
        if n & 1:
            made = x if made is None else b.matmul(made, x)
        n >>= 1
        x = b.matmul(x, x) if n else x
    return b.clone(made)


def _matrix_power_type(cx: TypeContext, x: Any, n: Any) -> TensorType:
    t = tensor(x)
    if not isinstance(n, int) or n < 1:
        raise NoRow("matrix_power of an exponent below 1 has no row")
    cx.require(
        eq(t.shape[-1], t.shape[-2]), "linalg.matrix_power: A must be batches of square matrices"
    )
    return new(cx, t, t.shape)


op(
    "matrix_power",
    "input, n",
    torch="torch.linalg.matrix_power",
    spellings=("torch.matrix_power", "torch.Tensor.matrix_power"),
    type=_matrix_power_type,
    expand=_matrix_power_expand,
    by_value=("n",),
    vjp="expansion",
)

op(
    "linalg_diagonal",
    "A, *, offset=0, dim1=-2, dim2=-1",
    torch="torch.linalg.diagonal",
    alias="view",
    inline=True,
    expand=lambda b, x, *, offset=0, dim1=-2, dim2=-1: b.diagonal(x, offset, dim1, dim2),
    by_value=("offset",),
    vjp="expansion",
)

# --- distances and norms ---

op(
    "dist",
    "input, other, p=2",
    torch="torch.dist",
    spellings=("torch.Tensor.dist",),
    expand=lambda b, x, y, p=2: _dist_expand(b, b.sub(x, y), p),
    by_value=("p",),
    vjp="expansion",
)


def _dist_expand(b: Any, gap: Any, p: Any) -> Any:
    return norm_expand(b, gap, p, tuple(range(len(gap.shape))), False)


def _linalg_norm_expand(
    b: Any, x: Any, ord: Any = None, dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Any:
    dims = dims_of(dim, len(x.shape))
    if ord is None or (len(dims) == 1 and isinstance(ord, (int, float))):
        return b.vector_norm(x, 2 if ord is None else ord, dims, keepdim, dtype=dtype)
    if ord == "fro":
        return b.vector_norm(x, 2, dims, keepdim, dtype=dtype)
    raise NoRow(f"linalg.norm of order {ord!r} over {len(dims)} dimensions has no row")


op(
    "linalg_norm",
    "input, ord=None, dim=None, keepdim=False, *, dtype=None",
    torch="torch.linalg.norm",
    expand=_linalg_norm_expand,
    inline=True,
    vjp="expansion",
)


def _sum_to_size_expand(b: Any, x: Any, size: Any) -> Any:
    """The sum over what broadcasting the size to the shape of ``x`` repeats; ``x`` itself where
    that is nothing."""
    sizes = sizes_of(size)
    if not sizes:
        return b.sum(x)
    lead = len(x.shape) - len(sizes)
    if lead < 0:
        raise OpError(f"size {sizes} is not expandable to size {x.shape}")
    dims = list(range(lead))
    for d, wanted in enumerate(sizes, lead):
        if wanted == 1 and x.shape[d] != 1:
            if b.cx.known(ne(x.shape[d], 1)) is None and b.cx.hint(ne(x.shape[d], 1)) is None:
                raise NoRow("whether it is a view depends on a size")
            dims += [d] if b.cx.decide(ne(x.shape[d], 1)) else []
        else:
            b.cx.require(eq(x.shape[d], wanted), f"size {sizes} is not expandable to {x.shape}")
    made = b.sum(x, tuple(dims), True) if dims else x
    return b.reshape(made, made.shape[lead:]) if lead else made


op(
    "sum_to_size",
    "input, size",
    torch="torch.Tensor.sum_to_size",
    one_by_one=OneByOne(1, "method"),
    alias="maybe",
    inline=True,
    expand=_sum_to_size_expand,
    vjp="expansion",
)

# --- statistics ---


def _no_nan(b: Any, x: Any) -> Any:
    return b.where(b.isnan(x), b.full((), 0, x.dtype, x.type.device), x)


def _nansum_expand(
    b: Any, x: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Any:
    if dtype is not None and dtype.is_complex:
        raise NoRow("eager has no kernel for sums of complex numbers without NaN")
    clean = _no_nan(b, x) if x.dtype.is_floating else x
    return b.sum(clean, dim, keepdim, dtype=dtype)


def _nanmean_expand(
    b: Any, x: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Any:
    total = b.nansum(x, dim, keepdim, dtype=dtype)
    count = b.sum(b.logical_not(b.isnan(x)), dim, keepdim)
    return b.div(total, cast(b, count, total.dtype))


for _name, _expand in (("nansum", _nansum_expand), ("nanmean", _nanmean_expand)):
    op(
        _name,
        "input, dim=None, keepdim=False, *, dtype=None",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        expand=_expand,
        vjp="expansion",
    )


def _isclose_expand(
    b: Any, x: Any, y: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False
) -> Any:
    if x.dtype is not y.dtype:
        raise OpError(f"{x.dtype} did not match {y.dtype}")
    close = b.eq(x, y)
    if equal_nan and x.dtype.is_floating:
        close = b.logical_or(close, b.logical_and(b.isnan(x), b.isnan(y)))
    if rtol == 0 and atol == 0:
        return close
    p, q = (cast(b, v, v.dtype if v.dtype.is_floating else b.cx.default_dtype) for v in (x, y))
    gap = b.abs(b.sub(p, q))
    near = b.le(gap, b.add(b.abs(b.mul(q, rtol)), atol))
    return b.logical_or(close, b.logical_and(b.isfinite(gap), near))


op(
    "isclose",
    "input, other, rtol=1e-05, atol=1e-08, equal_nan=False",
    torch="torch.isclose",
    spellings=("torch.Tensor.isclose",),
    expand=_isclose_expand,
)
op(
    "allclose",
    "input, other, rtol=1e-05, atol=1e-08, equal_nan=False",
    torch="torch.allclose",
    spellings=("torch.Tensor.allclose",),
    inline=True,
    expand=lambda b, *args: b.item(b.all(b.isclose(*args))),
)


def _equal_expand(b: Any, x: Any, y: Any) -> Any:
    alike = len(x.shape) == len(y.shape) and all(map(b.cx.same, x.shape, y.shape))
    return b.item(b.all(b.eq(x, y)) if alike else b.same_elements(x, y))


op(
    "equal",
    "input, other",
    torch="torch.equal",
    spellings=("torch.Tensor.equal",),
    inline=True,
    expand=_equal_expand,
)
op(
    "same_elements",
    "input, other",
    torch="anyshape.eager.same_elements",
    type=lambda cx, x, y: created(cx, (), bool_, tensor(x).device),
)


def _cov_expand(
    b: Any, x: Any, *, correction: Any = 1, fweights: Any = None, aweights: Any = None
) -> Any:
    if fweights is not None or aweights is not None:
        raise NoRow("cov with weights has no row")
    x = x if x.dtype.is_floating else cast(b, x, b.cx.default_dtype)
    rows = x if len(x.shape) == 2 else b.reshape(x, (1, numel(x.shape)))
    gap = b.sub(rows, b.mean(rows, 1, True))
    made = b.div(b.mm(gap, b.t(gap)), degrees_of_freedom(rows.shape[1], correction))
    return b.reshape(made, ()) if b.cx.decide(eq(rows.shape[0], 1)) else made


op(
    "cov",
    "input, *, correction=1, fweights=None, aweights=None",
    torch="torch.cov",
    spellings=("torch.Tensor.cov",),
    expand=_cov_expand,
    inline=True,
    vjp="expansion",
)


def _corrcoef_expand(b: Any, x: Any) -> Any:
    made = b.cov(x)
    if not made.shape:
        return b.div(made, made)
    spread = b.sqrt(b.diagonal(made))
    made = b.div(b.div(made, b.unsqueeze(spread, 1)), b.unsqueeze(spread, 0))
    return b.clamp(made, -1, 1)


op(
    "corrcoef",
    "input",
    torch="torch.corrcoef",
    spellings=("torch.Tensor.corrcoef",),
    inline=True,
    expand=_corrcoef_expand,
    vjp="expansion",
)


def _trapezoid_expand(b: Any, y: Any, x: Any = None, *, dx: Any = None, dim: Any = -1) -> Any:
    """ATen's two forms; over nothing it is nothing, in the dtype of ``y``."""
    d = dim_of(dim, len(y.shape))
    size = y.shape[d]
    if y.dtype is bool_:
        raise OpError("trapezoid: received a bool input for `y`, but bool is not supported")
    if b.cx.decide(eq(size, 0)):
        room = b.full((*y.shape[:d], *y.shape[d + 1 :]), 0, y.dtype, y.type.device)
        return b.call("zero_", room)  # eager's zeros count as written
    if x is None:
        ends = b.add(b.select(y, d, 0), b.select(y, d, size - 1))
        step = 1.0 if dx is None else of_numbers("mul", dx, 1.0)
        return b.mul(b.sub(b.sum(y, d), b.mul(ends, 0.5)), step)
    later, earlier = b.slice(y, d, 1, size - 1), b.slice(y, d, 0, size - 1)
    steps = b.diff(x, 1, -1 if len(x.shape) == 1 else d)
    if len(x.shape) == 1:
        steps = b.reshape(steps, (size - 1, *(1,) * (len(y.shape) - d - 1)))
    return b.div(b.sum(b.mul(b.add(later, earlier), steps), d), 2.0)


for _name in ("trapezoid", "trapz"):
    op(
        _name, "y, x=None, *, dx=None, dim=-1", torch=f"torch.{_name}", expand=_trapezoid_expand,
        inline=True,
    )  # fmt: skip

# --- assembly ---


def _column_stack_expand(b: Any, tensors: Any) -> Any:
    columns = tuple(b.reshape(x, (numel(x.shape), 1)) if len(x.shape) <= 1 else x for x in tensors)
    return b.cat(columns, 1)


op(
    "column_stack",
    "tensors",
    torch="torch.column_stack",
    expand=_column_stack_expand,
    vjp="expansion",
)


def _even_split(b: Any, x: Any, positions: Any, dim: int) -> Any:
    """Pieces along ``dim``, or along the one dimension of a vector; a number of them divides it."""
    d = min(dim, len(x.shape) - 1) if dim == 1 else dim
    if d >= len(x.shape):
        raise OpError(f"expected a tensor of {d + 1} dimensions at least")
    if isinstance(positions, int):
        b.cx.require(ne(positions, 0), "number of sections must be larger than 0")
        b.cx.require(
            eq(mod(x.shape[d], positions), 0),
            f"attempted to split dimension {d} in {positions} pieces, "
            "but its size is not divisible",
        )
    return b.tensor_split(x, positions, d)


for _name, _dim in (("hsplit", 1), ("vsplit", 0), ("dsplit", 2)):
    op(
        _name,
        "input, indices_or_sections",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        inline=True,
        expand=lambda b, x, positions, dim=_dim: _even_split(b, x, positions, dim),
    )


def _rot90_expand(b: Any, x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    first, second = (dim_of(d, len(x.shape)) for d in dims)
    match k % 4:
        case 0:
            return b.clone(x, memory_format="contiguous_format")
        case 1:
            return b.transpose(b.flip(x, (second,)), first, second)
        case 2:
            return b.flip(x, (first, second))
    return b.transpose(b.flip(x, (first,)), first, second)


op(
    "rot90",
    "input, k=1, dims=(0, 1)",
    torch="torch.rot90",
    spellings=("torch.Tensor.rot90",),
    expand=_rot90_expand,
    by_value=("k",),
    vjp="expansion",
)


def _block_diag_expand(b: Any, *blocks: Any) -> Any:
    blocks = tuple(b.reshape(x, (1, -1)) if len(x.shape) < 2 else x for x in blocks)
    width = [x.shape[1] for x in blocks]
    total: Dim = sum(width[1:], width[0])
    rows = []
    before: Dim = 0
    for x in blocks:
        rows.append(b.pad(x, ((0, 0), (before, total - before - x.shape[1])), 0))
        before = before + x.shape[1]
    return b.cat(tuple(rows), 0)


op(
    "block_diag",
    "tensors",
    torch="anyshape.eager.block_diag",
    one_by_one=OneByOne(0),
    spellings=("torch._C._VariableFunctions.block_diag",),
    expand=lambda b, xs: _block_diag_expand(b, *xs),
)


# --- bags of embeddings ---


def _bag_expand(
    b: Any,
    ids: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: Any = None,
    norm_type: Any = 2,
    scale_grad_by_freq: Any = False,
    mode: Any = "mean",
    sparse: Any = False,
    per_sample_weights: Any = None,
    include_last_offset: Any = False,
    padding_idx: Any = None,
) -> Any:
    """Each row of two-dimensional ids is one bag."""
    if len(ids.shape) != 2 or offsets is not None:
        raise NoRow("embedding_bag over offsets has no row")
    if max_norm is not None or padding_idx is not None:
        raise NoRow("embedding_bag with max_norm or padding_idx has no row")
    if scale_grad_by_freq:  # eager's bags count otherwise than its embeddings do
        raise NoRow("embedding_bag that scales gradients by frequency has no row")
    rows = b.embedding(ids, weight, None, None, 2.0, False, sparse)
    if per_sample_weights is not None:
        if per_sample_weights.dtype is not weight.dtype:
            raise OpError("weights of samples are of the table's type")
        rows = b.mul(rows, b.unsqueeze(per_sample_weights, -1))
    if mode == "max":
        return b.amax(rows, (1,))
    wider = cast(b, rows, wide(rows.dtype))
    total = b.sum(wider, (1,))
    if mode == "mean":
        total = b.div(total, count_of(rows.shape, (1,)))
    return cast(b, total, rows.dtype)


op(
    "embedding_bag",
    "input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, "
    "mode='mean', sparse=False, per_sample_weights=None, include_last_offset=False, "
    "padding_idx=None",
    torch="torch.nn.functional.embedding_bag",
    expand=_bag_expand,
    vjp="expansion",
)


def _recurrence_type(cx: TypeContext, factors: Any, terms: Any) -> TensorType:
    a, b = tensor(factors), tensor(terms)
    cx.require(all_of(*map(eq, a.shape, b.shape)), "linear_recurrence: shapes differ")
    return new(cx, b, b.shape)


op(
    "linear_recurrence",
    "factors, terms",
    torch="anyshape.eager.linear_recurrence",
    type=_recurrence_type,
)
