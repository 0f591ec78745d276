"""The gated activations between an expert's two products: act(gate) * up, plain or quantized to
fp8 by row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.kernels import checks, operators
from anyshape.moe import reference
from anyshape.moe.backends import KERNELS

KINDS = tuple(reference.ACTIVATIONS)


def _fake(gate: Tensor, *_: object) -> Tensor:
    return gate.new_empty(gate.shape)


def _fake_quantize(gate: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    values = gate.new_empty(gate.shape, dtype=checks.FP8)
    return values, gate.new_empty((gate.shape[0],), dtype=torch.float32)


SILU_MUL = operators.define(
    "silu_mul(Tensor gate, Tensor up, Tensor? valid, str kind, float alpha, float limit, "
    "bool init_tail) "
    "-> Tensor",
    reference=reference.silu_mul,
    fake=_fake,
    triton=KERNELS.get("silu_mul"),
)
SILU_MUL_QUANTIZE = operators.define(
    "silu_mul_quantize(Tensor gate, Tensor up, Tensor? valid, str kind, float alpha, float limit, "
    "bool init_tail) -> (Tensor, Tensor)",
    reference=reference.silu_mul_quantize,
    fake=_fake_quantize,
    triton=KERNELS.get("silu_mul_quantize"),
)


def _halves(
    gate_up: Tensor | tuple[Tensor, Tensor], valid: Tensor | None, kind: str, interleaved: bool
) -> tuple[Tensor, Tensor]:
    """Gate and up [M, F], as views, once the arguments are checked."""
    if isinstance(gate_up, tuple):
        gate, up = gate_up
        checks.check_tensor("gate", gate, 2, checks.FLOAT_DTYPES)
        checks.check_tensor("up", up, 2, (gate.dtype,))
        checks.check_size("up", up, 0, gate.shape[0], "rows of gate")
        checks.check_size("up", up, 1, gate.shape[1], "columns of gate")
        checks.check_device("up", up, gate)
    else:
        checks.check_tensor("gate_up", gate_up, 2, checks.FLOAT_DTYPES)
        if gate_up.shape[1] % 2:
            checks.fail("gate_up", "of an even number of columns", f"shape {tuple(gate_up.shape)}")
        middle = gate_up.shape[1] // 2
        gate = gate_up[:, ::2] if interleaved else gate_up[:, :middle]
        up = gate_up[:, 1::2] if interleaved else gate_up[:, middle:]
    checks.check_choice("kind", kind, KINDS)
    checks.check_valid("valid", valid, gate)
    return gate, up


def silu_mul(
    gate_up: Tensor | tuple[Tensor, Tensor],
    *,
    valid: Tensor | None = None,
    kind: str = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    init_tail: bool = True,
) -> Tensor:
    """act(gate) * up [M, F], from [M, 2*F] (gate first, or alternating if `interleaved`) or a pair.

    `kind`: "silu", "gelu", "gelu_tanh", or "gpt_oss", which is min(gate, limit) * sigmoid(alpha *
    gate) *
    (clamp(up, -limit, limit) + 1). Computed in float32. Rows from `valid` on (a count on the
    device, or several
    whose sum is the count) are zero, or unspecified with init_tail=False.
    """
    gate, up = _halves(gate_up, valid, kind, interleaved)
    return SILU_MUL(gate, up, valid, kind, float(alpha), float(limit), init_tail)


def silu_mul_quantize(
    gate_up: Tensor | tuple[Tensor, Tensor],
    *,
    valid: Tensor | None = None,
    kind: str = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    init_tail: bool = True,
) -> tuple[Tensor, Tensor]:
    """`silu_mul`, quantized by row: float8_e4m3fn [M, F] and float32 scales [M], row = fp8 *
    scale.
    """
    gate, up = _halves(gate_up, valid, kind, interleaved)
    return SILU_MUL_QUANTIZE(gate, up, valid, kind, float(alpha), float(limit), init_tail)
