"""Special functions: a few with a loop body, the others done by torch element by element. So is
the rounding to what a quantized tensor can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ops.gradients import elementwise
from anyshape.ops.rules import PointwiseRule, floated, like, promoted
from anyshape.ops.table import Extern, Pointwise, Vjp, op

Body = Callable[..., Any]


def _special(name: str, body: Body, *spellings: str, vjp: Vjp | None = None) -> None:
    op(
        name,
        "input",
        torch=f"torch.special.{name}",
        spellings=spellings,
        type=PointwiseRule(floated),
        lower=Pointwise(body),
        vjp=vjp,
    )


def _entr(b: Any, x: Any) -> Any:
    edge = b.where(b.eq(x, 0), b.const(0.0, x.dtype), float("-inf"))
    inside = b.where(b.gt(x, 0), b.neg(b.mul(x, b.log(x))), edge)
    return b.where(b.isnan(x), x, inside)


_special("entr", _entr, vjp=elementwise.ENTR)
_special(
    "ndtr",
    lambda b, x: b.mul(0.5, b.erfc(b.mul(x, -0.7071067811865476))),
    vjp=elementwise.NDTR,
)

for _name in (
    "i0e i1 i1e ndtri log_ndtr erfcx airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 "
    "modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
    "spherical_bessel_j0"
).split():
    op(
        _name,
        "input",
        torch=f"torch.special.{_name}",
        type=PointwiseRule(floated),
        lower=Extern(f"torch.special.{_name}"),
    )
op(
    "i0",
    "input",
    torch="torch.i0",
    spellings=("torch.Tensor.i0", "torch.special.i0"),
    type=PointwiseRule(floated),
    lower=Extern("torch.i0"),
)
for _name, _rule in (
    ("gcd", promoted),
    ("lcm", promoted),
    ("igamma", promoted),
    ("igammac", promoted),
):
    op(
        _name,
        "input, other",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        type=PointwiseRule(_rule, 2),
        lower=Extern(f"torch.{_name}"),
    )
op(
    "zeta",
    "input, other",
    torch="torch.special.zeta",
    type=PointwiseRule(floated, 2),
    lower=Extern("torch.special.zeta"),
)


op(
    "ldexp",
    "input, other",
    torch="torch.ldexp",
    spellings=("torch.Tensor.ldexp",),
    type=PointwiseRule(floated, 2),
    lower=Extern("torch.ldexp"),
    vjp=elementwise.LDEXP,
)

for _name, _signature in (
    ("fake_quantize_per_tensor_affine", "input, scale, zero_point, quant_min, quant_max"),
    ("fake_quantize_per_channel_affine", "input, scale, zero_point, axis, quant_min, quant_max"),
):
    op(
        _name,
        _signature,
        torch=f"torch.{_name}",
        type=like(0),
        lower=Extern(f"torch.{_name}"),
        raises=True,
    )
