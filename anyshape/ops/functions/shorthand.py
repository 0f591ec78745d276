"""Functions that are shorthands for a few others: shifts of spectra, cross products, areas. And the
signal of a spectrum over short times, which torch makes: its meta kernel would read the window.
"""

from __future__ import annotations

import math
from typing import Any

from anyshape.ir.dtypes import REAL_OF_COMPLEX, result_type
from anyshape.ir.graph import TensorType
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.gradients import elementwise
from anyshape.ops.reduce import cast, wide
from anyshape.ops.rules import dim_of, dims_of, floated, new, of_numbers, size_of, tensor
from anyshape.ops.table import Extern, op
from anyshape.symbolic import Dim, eq, floordiv, ge, maximum, ne


def _cross_expand(b: Any, x: Any, y: Any, dim: Any = None) -> Any:
    """Along the first dimension of size 3, where none is named."""
    if tensor(x).dtype is not tensor(y).dtype:
        raise OpError("expected both to have one dtype")
    if dim is None:
        dim = next((d for d, n in enumerate(x.shape) if b.cx.known(ne(n, 3)) is not True), None)
        if dim is None or b.cx.known(eq(x.shape[dim], 3)) is not True:
            raise NoRow("a size decides along which dimension")
    return b.linalg_cross(x, y, dim=dim)


op(
    "cross",
    "input, other, dim=None",
    torch="torch.cross",
    spellings=("torch.Tensor.cross",),
    inline=True,
    expand=_cross_expand,
    vjp="expansion",
)
op(
    "diagflat",
    "input, offset=0",
    torch="torch.diagflat",
    spellings=("torch.Tensor.diagflat",),
    inline=True,
    expand=lambda b, x, offset=0: b.diag_embed(b.reshape(x, (-1,)), offset),
    by_value=("offset",),
    vjp="expansion",
)


def _shifted(b: Any, x: Any, dim: Any, back: bool) -> Any:
    """Rolled by half of each size, so that the zero frequency is in the middle; ``back`` undoes
    it."""
    rank = len(x.shape)
    dims = tuple(range(rank)) if dim is None else dims_of(dim, rank)
    halves = tuple(floordiv(x.shape[d] + (1 if back else 0), 2) for d in dims)
    return b.roll(x, halves, dims) if dims else b.clone(x)


for _name, _back in (("fftshift", False), ("ifftshift", True)):
    op(
        _name,
        "input, dim=None",
        torch=f"torch.fft.{_name}",
        inline=True,
        expand=lambda b, x, dim=None, back=_back: _shifted(b, x, dim, back),
    )


def _less_one(b: Any, size: Dim) -> Dim:
    return size - 1 if b.cx.known(ge(size, 1)) else maximum(size - 1, 0)


def _cumulative_trapezoid(b: Any, y: Any, x: Any = None, *, dx: Any = None, dim: Any = -1) -> Any:
    d = dim_of(dim, len(y.shape))
    count = _less_one(b, y.shape[d])
    areas = b.add(b.slice(y, d, y.shape[d] - count, count), b.slice(y, d, 0, count))
    if x is None:
        return b.cumsum(b.mul(areas, of_numbers("truediv", 1 if dx is None else dx, 2.0)), d)
    steps = b.diff(x, 1, -1 if len(x.shape) == 1 else d)
    if len(x.shape) == 1:
        steps = b.reshape(steps, (count, *(1,) * (len(y.shape) - d - 1)))
    return b.div(b.cumsum(b.mul(areas, steps), d), 2.0)


op(
    "cumulative_trapezoid",
    "y, x=None, *, dx=None, dim=-1",
    torch="torch.cumulative_trapezoid",
    inline=True,
    expand=_cumulative_trapezoid,
    vjp="expansion",
)


def _angle_expand(b: Any, x: Any) -> Any:
    """The angle of a real number in the complex plane."""
    real = x if x.dtype.is_floating else b.to_dtype(x, b.cx.default_dtype)
    half_turn = b.full((), math.pi, real.dtype, real.type.device)
    none = b.full((), 0, real.dtype, real.type.device)
    return b.where(b.isnan(real), real, b.where(b.lt(real, 0), half_turn, none))


op(
    "angle",
    "input",
    torch="torch.angle",
    spellings=("torch.Tensor.angle",),
    expand=_angle_expand,
    vjp=elementwise.ANGLE,
)


def _mvlgamma_expand(b: Any, x: Any, p: Any) -> Any:
    """``sum(lgamma(x - i / 2) for i in range(p)) + p * (p - 1) / 4 * log(pi)``."""
    wider = cast(b, x, wide(x.dtype) if x.dtype.is_floating else b.cx.default_dtype)
    made = b.lgamma(wider)
    for i in range(1, p):
        made = b.add(made, b.lgamma(b.sub(wider, i / 2)))
    made = b.add(made, p * (p - 1) / 4 * math.log(math.pi)) if p > 1 else made
    return cast(b, made, x.dtype) if x.dtype.is_floating else made


op(
    "mvlgamma",
    "input, p",
    torch="torch.mvlgamma",
    type=lambda cx, x, p: new(cx, tensor(x), tensor(x).shape, floated(cx, (x,))),
    spellings=("torch.Tensor.mvlgamma", "torch.special.multigammaln"),
    by_value=("p",),
    expand=_mvlgamma_expand,
    vjp="expansion",
)


def _istft_type(
    cx: TypeContext,
    x: Any,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: Any = True,
    normalized: Any = False,
    onesided: Any = None,
    length: Any = None,
    return_complex: Any = False,
) -> TensorType:
    t = tensor(x)
    if not t.dtype.is_complex or t.rank not in (2, 3):
        raise OpError(
            "istft requires a complex-valued input tensor of frequencies and frames, or a batch"
        )
    frequencies, frames = t.shape[-2:]
    points: Dim = size_of(n_fft)
    hop: Dim = points // 4 if hop_length is None else size_of(hop_length)
    cx.require(ge(frames, 1), "istft: input tensor cannot be empty")
    one_sided = onesided
    if onesided is None:
        one_sided = not cx.decide(eq(frequencies, points))
    wanted = points // 2 + 1 if one_sided else points
    cx.require(eq(frequencies, wanted), "istft: expected the frequencies of n_fft")
    signal: Dim = points + hop * (frames - 1) - (2 * (points // 2) if center else 0)
    if length is not None:
        signal = size_of(length)
    cx.require(ge(signal, 1), "istft: the signal has no samples")
    dtype = t.dtype if return_complex else REAL_OF_COMPLEX[t.dtype]
    if window is not None:
        dtype = result_type([dtype, tensor(window).dtype], [], [], cx.default_dtype)
    return new(cx, t, (*t.shape[:-2], signal), dtype)


op(
    "istft",
    "input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, "
    "onesided=None, length=None, return_complex=False",
    torch="torch.istft",
    spellings=("torch.Tensor.istft",),
    type=_istft_type,
    lower=Extern("torch.istft"),
    raises=True,
)
