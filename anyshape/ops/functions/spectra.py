"""Signals from their spectra over short times: torch does it, the row says how long the signal is.

`torch.stft` needs no row, as torch's own meta kernel says its sizes; that of `torch.istft` reads
the window.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import REAL_OF_COMPLEX, result_type
from anyshape.ir.graph import TensorType
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.rules import new, size_of, tensor
from anyshape.ops.table import Extern, op
from anyshape.symbolic import Dim, eq, ge


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
