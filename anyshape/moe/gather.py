"""Rows of tokens to rows of experts (gather, with scaling and quantization) and back
(scatter-add).
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.kernels import checks, operators
from anyshape.moe import reference
from anyshape.moe.backends import KERNELS


def _fake_gather(x: Tensor, token_indices: Tensor, *_: object) -> Tensor:
    return x.new_empty((token_indices.shape[0], x.shape[1]))


def _fake_gather_quantize(x: Tensor, token_indices: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    rows = token_indices.shape[0]
    values = x.new_empty((rows, x.shape[1]), dtype=checks.FP8)
    return values, x.new_empty((rows,), dtype=torch.float32)


def _fake_scatter(*_: object) -> None:
    return None


GATHER_MUL = operators.define(
    "gather_mul(Tensor x, Tensor token_indices, Tensor? expert_indices, Tensor? scales, "
    "Tensor? valid, "
    "bool init_tail) -> Tensor",
    reference=reference.gather_mul,
    fake=_fake_gather,
    triton=KERNELS.get("gather_mul"),
)
GATHER_MUL_QUANTIZE = operators.define(
    "gather_mul_quantize(Tensor x, Tensor token_indices, Tensor? expert_indices, Tensor? scales, "
    "Tensor? valid, bool init_tail) -> (Tensor, Tensor)",
    reference=reference.gather_mul_quantize,
    fake=_fake_gather_quantize,
    triton=KERNELS.get("gather_mul_quantize"),
)
SCATTER_ADD = operators.define(
    "scatter_add(Tensor(a!) out, Tensor rows, Tensor token_indices, Tensor? valid, "
    "bool unique) -> ()",
    reference=reference.scatter_add,
    fake=_fake_scatter,
    triton=KERNELS.get("scatter_add"),
)
SCATTER_ADD_PADDED = operators.define(
    "scatter_add_padded(Tensor(a!) out, Tensor rows, Tensor token_counts, "
    "Tensor token_indices) -> ()",
    reference=reference.scatter_add_padded,
    fake=_fake_scatter,
    triton=KERNELS.get("scatter_add_padded"),
)


def _check_gather(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None,
    scales: Tensor | None,
    valid: Tensor | None,
) -> None:
    checks.check_tensor("x", x, 2, checks.FLOAT_DTYPES)
    checks.check_tensor("token_indices", token_indices, 1, checks.INDEX_DTYPES)
    checks.check_device("token_indices", token_indices, x)
    checks.check_valid("valid", valid, x)
    if scales is None:
        return
    checks.check_tensor("scales", scales, 2, checks.FLOAT_DTYPES)
    checks.check_size("scales", scales, 0, x.shape[0], "rows of x")
    checks.check_device("scales", scales, x)
    if expert_indices is None:
        checks.fail("expert_indices", "given with scales", None)
    else:
        checks.check_vector(
            "expert_indices", expert_indices, token_indices.shape[0], "rows of token_indices"
        )
        checks.check_device("expert_indices", expert_indices, x)


def gather_mul(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None = None,
    scales: Tensor | None = None,
    valid: Tensor | None = None,
    *,
    init_tail: bool = True,
) -> Tensor:
    """out[i] = x[token_indices[i]] * scales[token_indices[i], expert_indices[i]], of shape [M, D].

    The product is made in float32 and rounded once. Only the first `valid` rows (a count on the
    device,
    or several whose sum is the count) are made; the others are zero, or unspecified with
    init_tail=False.
    """
    _check_gather(x, token_indices, expert_indices, scales, valid)
    return GATHER_MUL(x, token_indices, expert_indices, scales, valid, init_tail)


def gather_mul_quantize(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None = None,
    scales: Tensor | None = None,
    valid: Tensor | None = None,
    *,
    init_tail: bool = True,
) -> tuple[Tensor, Tensor]:
    """`gather_mul`, quantized by row: float8_e4m3fn [M, D] and float32 scales [M], row = fp8 *
    scale.
    """
    _check_gather(x, token_indices, expert_indices, scales, valid)
    return GATHER_MUL_QUANTIZE(x, token_indices, expert_indices, scales, valid, init_tail)


def _check_out(out: Tensor, columns: int) -> None:
    checks.check_tensor("out", out, 2, checks.FLOAT_DTYPES)
    checks.check_size("out", out, 1, columns, "columns of rows")


def scatter_add(
    out: Tensor,
    rows: Tensor,
    token_indices: Tensor,
    valid: Tensor | None = None,
    *,
    unique: bool = False,
) -> Tensor:
    """out[token_indices[i]] += rows[i] for the first `valid` of the rows [M, D]; changes and
    returns out [T, D].

    Rows are rounded to out's dtype first; on the device several rows of one token are added in any
    order.
    `unique` promises that no token has two rows (top_k is 1): then nothing need be atomic, which
    is a fifth faster.
    """
    checks.check_tensor("rows", rows, 2, checks.FLOAT_DTYPES)
    _check_out(out, rows.shape[1])
    checks.check_device("rows", rows, out)
    checks.check_vector("token_indices", token_indices, rows.shape[0], "rows of rows")
    checks.check_device("token_indices", token_indices, out)
    checks.check_valid("valid", valid, out)
    SCATTER_ADD(out, rows, token_indices, valid, unique)
    return out


def scatter_add_padded(
    out: Tensor, rows: Tensor, token_counts: Tensor, token_indices: Tensor
) -> Tensor:
    """out[token_indices[i]] += rows[r, i], r being the rank that owns row i's expert; changes and
    returns out.

    `rows` [ranks, M, D] holds one padded copy from each rank, of which only the rows of its own
    experts count;
    rank r owns experts r*E//ranks up to (r+1)*E//ranks; `token_counts` [E] are the rows of each
    expert,
    which lie in order of the experts; rows past their sum are ignored.
    """
    checks.check_tensor("rows", rows, 3, checks.FLOAT_DTYPES)
    _check_out(out, rows.shape[2])
    checks.check_device("rows", rows, out)
    checks.check_vector("token_indices", token_indices, rows.shape[1], "columns of rows")
    checks.check_device("token_indices", token_indices, out)
    checks.check_tensor("token_counts", token_counts, 1, checks.INDEX_DTYPES)
    checks.check_device("token_counts", token_counts, out)
    if rows.shape[0] < 1 or token_counts.shape[0] % rows.shape[0]:
        checks.fail(
            "token_counts", f"a multiple of {rows.shape[0]} (ranks) long", token_counts.shape[0]
        )
    SCATTER_ADD_PADDED(out, rows, token_counts, token_indices)
    return out
