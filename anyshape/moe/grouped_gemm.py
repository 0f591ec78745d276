"""One matrix product for each expert, in one launch: rows that lie group by group times the
weights of their group.

How many rows a group has is read on the device. Groups may be empty, and may sum to fewer rows
than there are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.kernels import checks, operators
from anyshape.moe import reference
from anyshape.moe.backends import KERNELS

MAX_GROUPS = 1024
HALF_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def _fake(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    gather_indices: Tensor | None,
    out_dtype: torch.dtype,
    init_tail: bool,
) -> Tensor:
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    return x.new_empty((rows, w.shape[1]), dtype=out_dtype)


def _fake_scatter(*_: object) -> None:
    return None


GROUPED_GEMM = operators.define(
    "grouped_gemm(Tensor x, Tensor w, Tensor m_sizes, Tensor? x_scales, Tensor? w_scales, "
    "Tensor? bias, "
    "Tensor? row_weights, Tensor? gather_indices, ScalarType out_dtype, bool init_tail) -> Tensor",
    reference=reference.grouped_gemm,
    fake=_fake,
    triton=KERNELS.get("grouped_gemm"),
)
GROUPED_GEMM_SCATTER = operators.define(
    "grouped_gemm_scatter(Tensor x, Tensor w, Tensor m_sizes, Tensor scatter_indices, "
    "Tensor(a!) scatter_out, Tensor? x_scales, Tensor? w_scales, Tensor? bias, "
    "Tensor? row_weights, "
    "Tensor? gather_indices) -> ()",
    reference=reference.grouped_gemm_scatter,
    fake=_fake_scatter,
    triton=KERNELS.get("grouped_gemm_scatter"),
)


def _fake_gated(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    bias: Tensor | None,
    gather_indices: Tensor | None,
    *_: object,
) -> Tensor:
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    return x.new_empty((rows, w.shape[1] // 2))


GROUPED_GEMM_GATED = operators.define(
    "grouped_gemm_gated(Tensor x, Tensor w, Tensor m_sizes, Tensor? bias, Tensor? gather_indices, "
    "Tensor? row_factors, str kind, float alpha, float limit, bool interleaved, bool init_tail) "
    "-> Tensor",
    reference=reference.grouped_gemm_gated,
    fake=_fake_gated,
    triton=KERNELS.get("grouped_gemm_gated"),
)


def _weights(x: Tensor, w: Tensor, m_sizes: Tensor) -> Tensor:
    """w as [G, N, K], once it fits x and m_sizes."""
    checks.check_tensor("m_sizes", m_sizes, 1, checks.INDEX_DTYPES)
    checks.check_device("m_sizes", m_sizes, x)
    groups = m_sizes.shape[0]
    checks.check_range("m_sizes.shape[0]", groups, 1, MAX_GROUPS, "the number of groups")
    if not isinstance(w, Tensor) or w.dim() not in (2, 3):
        shape = tuple(w.shape) if isinstance(w, Tensor) else type(w).__name__
        checks.fail("w", "a tensor [G*N, K] or [G, N, K]", shape)
    if w.dim() == 2:
        if w.shape[0] % groups:
            checks.fail("w", f"a multiple of {groups} (groups) rows", f"shape {tuple(w.shape)}")
        w = w.view(groups, w.shape[0] // groups, w.shape[1])
    checks.check_tensor("w", w, 3, (x.dtype,))
    checks.check_size("w", w, 0, groups, "groups")
    checks.check_size("w", w, 2, x.shape[1], "columns of x")
    checks.check_device("w", w, x)
    return w


def _check_epilogue(
    x: Tensor,
    w: Tensor,
    rows: int,
    bias: Tensor | None,
    row_weights: Tensor | None,
    scattered: bool,
) -> None:
    if bias is not None:
        checks.check_tensor("bias", bias, 2, checks.FLOAT_DTYPES)
        checks.check_size("bias", bias, 0, w.shape[0], "groups")
        checks.check_size("bias", bias, 1, w.shape[1], "rows of a group of w")
        checks.check_device("bias", bias, x)
    if row_weights is None:
        return
    checks.check_device("row_weights", row_weights, x)
    if row_weights.dim() != 2:
        checks.check_vector("row_weights", row_weights, rows, "rows", checks.FLOAT_DTYPES)
    elif not scattered:
        checks.fail("row_weights", "[M] without scatter_out", f"shape {tuple(row_weights.shape)}")
    else:
        checks.check_tensor("row_weights", row_weights, 2, checks.FLOAT_DTYPES)
        checks.check_size("row_weights", row_weights, 1, w.shape[0], "groups")


def _rows(x: Tensor, gather_indices: Tensor | None) -> int:
    if gather_indices is None:
        return x.shape[0]
    checks.check_tensor("gather_indices", gather_indices, 1, checks.INDEX_DTYPES)
    checks.check_device("gather_indices", gather_indices, x)
    return gather_indices.shape[0]


def _check_scatter(
    x: Tensor, rows: int, columns: int, scatter_indices: Tensor | None, scatter_out: Tensor
) -> Tensor:
    checks.check_tensor("scatter_out", scatter_out, 2, checks.FLOAT_DTYPES)
    checks.check_size("scatter_out", scatter_out, 1, columns, "rows of a group of w")
    checks.check_device("scatter_out", scatter_out, x)
    if scatter_indices is None:
        raise ValueError("scatter_indices must be given with scatter_out, got None")
    checks.check_vector("scatter_indices", scatter_indices, rows, "rows")
    checks.check_device("scatter_indices", scatter_indices, x)
    return scatter_indices


def _product(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    scatter_indices: Tensor | None,
    scatter_out: Tensor | None,
    gather_indices: Tensor | None,
    out_dtype: torch.dtype,
    init_tail: bool,
) -> Tensor:
    rows = _rows(x, gather_indices)
    _check_epilogue(x, w, rows, bias, row_weights, scatter_out is not None)
    if scatter_out is None:
        if scatter_indices is not None:
            checks.fail("scatter_out", "given with scatter_indices", None)
        return GROUPED_GEMM(
            x,
            w,
            m_sizes,
            x_scales,
            w_scales,
            bias,
            row_weights,
            gather_indices,
            out_dtype,
            init_tail,
        )
    indices = _check_scatter(x, rows, w.shape[1], scatter_indices, scatter_out)
    GROUPED_GEMM_SCATTER(
        x,
        w,
        m_sizes,
        indices,
        scatter_out,
        x_scales,
        w_scales,
        bias,
        row_weights,
        gather_indices,
    )
    return scatter_out


def grouped_gemm(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    *,
    bias: Tensor | None = None,
    row_weights: Tensor | None = None,
    scatter_indices: Tensor | None = None,
    scatter_out: Tensor | None = None,
    gather_indices: Tensor | None = None,
    init_tail: bool = True,
) -> Tensor:
    """(x_g @ w_g.T + bias_g) * row_weights for each group g, of shape [M, N] and x's dtype.

    x [M, K] holds the rows of group 0, then those of group 1, and so on; `m_sizes` [G] says how
    many each has, on the
    device. w is [G, N, K] (any strides) or [G*N, K]. bias [G, N] and row_weights [M] are optional.
    Sums are in float32.
    Rows past sum(m_sizes) are zero, or unspecified with init_tail=False. With `gather_indices` [M]
    the rows are
    x[gather_indices]. With `scatter_indices` [M] and `scatter_out` [T, N] the rows are added to
    scatter_out[scatter_indices] in its dtype instead, and scatter_out is returned; row_weights may
    then be [T, G], of
    which row i of group g takes row_weights[scatter_indices[i], g].
    """
    checks.check_tensor("x", x, 2, HALF_DTYPES)
    return _product(
        x,
        _weights(x, w, m_sizes),
        m_sizes,
        None,
        None,
        bias,
        row_weights,
        scatter_indices,
        scatter_out,
        gather_indices,
        x.dtype,
        init_tail,
    )


def grouped_gemm_fp8_rowwise(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    x_scales: Tensor,
    w_scales: Tensor,
    *,
    bias: Tensor | None = None,
    row_weights: Tensor | None = None,
    scatter_indices: Tensor | None = None,
    scatter_out: Tensor | None = None,
    gather_indices: Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    init_tail: bool = True,
) -> Tensor:
    """`grouped_gemm` of float8_e4m3fn x and w, each row of which has a float32 scale: x_scales
    [rows of x], w_scales [G*N] or [G, N].
    """
    checks.check_tensor("x", x, 2, (checks.FP8,))
    w = _weights(x, w, m_sizes)
    checks.check_vector("x_scales", x_scales, x.shape[0], "rows of x", (torch.float32,))
    checks.check_device("x_scales", x_scales, x)
    if w_scales.dtype != torch.float32 or w_scales.numel() != w.shape[0] * w.shape[1]:
        expected = f"float32 of {w.shape[0] * w.shape[1]} elements (one a row of w)"
        checks.fail("w_scales", expected, f"{w_scales.dtype} of shape {tuple(w_scales.shape)}")
    checks.check_device("w_scales", w_scales, x)
    if out_dtype not in checks.FLOAT_DTYPES:
        checks.fail("out_dtype", "float32, bfloat16 or float16", out_dtype)
    return _product(
        x,
        w,
        m_sizes,
        x_scales,
        w_scales.reshape(w.shape[0], w.shape[1]),
        bias,
        row_weights,
        scatter_indices,
        scatter_out,
        gather_indices,
        out_dtype,
        init_tail,
    )


def grouped_gemm_gated(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    *,
    bias: Tensor | None = None,
    gather_indices: Tensor | None = None,
    row_factors: Tensor | None = None,
    kind: str = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    init_tail: bool = True,
) -> Tensor:
    """`silu_mul(grouped_gemm(...))` in one launch: act(gate) * up [M, F], w being [G, 2*F, K] or
    [G*2*F, K].

    A group's first F rows of w are gates and the others ups, or they alternate if `interleaved`;
    bias is [G, 2*F].
    The activation is applied to the float32 sums, which are rounded once. `gather_indices` as in
    `grouped_gemm`. With `row_factors` [rows of x, G], row t of x counts as
    x[t] * row_factors[t, g] in group g, without rounding in between.
    """
    checks.check_tensor("x", x, 2, HALF_DTYPES)
    w = _weights(x, w, m_sizes)
    if row_factors is not None:
        checks.check_tensor("row_factors", row_factors, 2, checks.FLOAT_DTYPES)
        checks.check_size("row_factors", row_factors, 0, x.shape[0], "rows of x")
        checks.check_size("row_factors", row_factors, 1, w.shape[0], "groups")
        checks.check_device("row_factors", row_factors, x)
    if w.shape[1] % 2:
        checks.fail("w", "of an even number of rows a group", f"shape {tuple(w.shape)}")
    checks.check_choice("kind", kind, tuple(reference.ACTIVATIONS))
    rows = _rows(x, gather_indices)
    _check_epilogue(x, w, rows, bias, None, False)
    return GROUPED_GEMM_GATED(
        x,
        w,
        m_sizes,
        bias,
        gather_indices,
        row_factors,
        kind,
        float(alpha),
        float(limit),
        interleaved,
        init_tail,
    )
