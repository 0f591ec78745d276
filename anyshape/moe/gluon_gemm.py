"""Launches of the grouped product for Hopper: what the copy engine needs to know, how many
registers each part of the kernel gets, and which operands it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from anyshape.kernels.launches import (
    REGISTERS,
    capability,
    ceil_div,
    factor_strides,
    given,
    power_of_two,
    processors,
)
from anyshape.moe.gemm_tiles import Tile
from anyshape.moe.gluon_kernel import Settings, grouped_gemm_kernel

GLUON_DTYPES = {
    torch.bfloat16: gl.bfloat16,
    torch.float16: gl.float16,
    torch.float32: gl.float32,
    torch.float8_e4m3fn: gl.float8e4nv,
}
INPUT_DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
# elements of a row that are copied by index at once, as many as a tile's `bk`
GATHER_BLOCK = 64


def aligned(matrix: Tensor) -> bool:
    """Whether the copy engine can read the rows of a matrix."""
    size = matrix.element_size()
    return (
        matrix.stride(-1) == 1
        and matrix.stride(-2) * size % 16 == 0
        and matrix.stride(-2) >= matrix.shape[-1]
        and matrix.data_ptr() % 16 == 0
    )


def fits(x: Tensor, w: Tensor) -> bool:
    """Whether this kernel can take these operands: a Hopper GPU, 8 or 16 bits, rows of weights
    side by side.
    """
    return (
        x.is_cuda
        and capability(x.device) == 9
        and x.dtype in INPUT_DTYPES
        and x.shape[1] > 0
        and aligned(x)
        and aligned(w)
        and w.stride(0) == w.shape[1] * w.stride(1)
    )


def can_gather(x: Tensor, interleaved: bool) -> bool:
    """Whether the rows of `x` can be copied by index, which takes whole blocks of them, and pays:
    with interleaved weights the kernel in Triton was 3 to 13 % faster.
    """
    return x.shape[1] % GATHER_BLOCK == 0 and not interleaved


def in_lines(out: Tensor) -> bool:
    """Whether results can be written or added 16 bytes at a time, by way of shared memory."""
    return out.element_size() == 2 and out.shape[1] % 8 == 0 and aligned(out)


def descriptor(matrix: Tensor, block: list[int]) -> TensorDescriptor:
    """What the copy engine needs to know of a matrix that is read or written in blocks of this
    shape.
    """
    layout = shared_layout(*block, matrix.dtype)
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), block, layout)


@cache
def shared_layout(rows: int, columns: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """How a block lies in shared memory; to work it out takes longer than a launch."""
    return gl.NVMMASharedLayout.get_default_for([rows, columns], GLUON_DTYPES[dtype])


def registers(tile: Tile, groups: int, gathers: bool) -> tuple[int, int, int]:
    """(limit a thread, of a second consumer, of the producer): whatever the loads need is taken
    from the products.
    """
    consumers = tile.pieces_m * tile.pieces_n
    threads = 32 * (tile.warps + 4 * (consumers - 1) + 4)
    limit = min(255, REGISTERS // (threads * tile.programs)) // 8 * 8
    producer = 88 if groups > 256 else 72 if gathers else 40
    consumer = ((consumers + 1) * limit - producer) // consumers
    return limit, min(consumer, 248) // 8 * 8, producer


@dataclass(frozen=True, slots=True)
class Gate:
    """act(gate) * up of a product whose columns are gates and ups; see `Activation`."""

    kind: str
    alpha: float
    limit: float
    interleaved: bool


def launch(
    tile: Tile,
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    out: Tensor,
    scatter_indices: Tensor | None,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    init_tail: bool,
    gate: Gate | None = None,
    gather_indices: Tensor | None = None,
) -> None:
    """Write (or add, with `scatter_indices`) the product of x [M, K] and w [G, N, K] to `out`, or
    what `gate` makes of it. With `gather_indices` [M] the rows are x[gather_indices].
    """
    rows, inner = out.shape[0] if scatter_indices is None else x.shape[0], x.shape[1]
    groups, w_rows, _ = w.shape
    columns = out.shape[1]
    out_n = tile.wn if gate is None else tile.wn // 2
    separate = gate is not None and not gate.interleaved
    factors = row_weights is not None and row_weights.dim() == 2
    staged = tile.staged and not tile.swap and in_lines(out)
    all_groups = groups + (init_tail and scatter_indices is None)
    limit, consumer, producer = registers(tile, groups, gather_indices is not None)
    tiles = (ceil_div(rows, tile.wm * tile.pieces_m) + all_groups) * ceil_div(
        columns, out_n * tile.pieces_n
    )
    x_desc = descriptor(x, [tile.wm, tile.bk])
    grouped_gemm_kernel[(min(tiles, processors(x.device) * tile.programs),)](
        x_desc,
        descriptor(
            w.as_strided((groups * w_rows, inner), (w.stride(1), 1)),
            [tile.wn // (1 + separate), tile.bk],
        ),
        descriptor(out, [tile.wm, min(out_n, tile.store_n)]) if staged else x_desc,
        m_sizes,
        torch.zeros(1, dtype=torch.int32, device=x.device),
        x,
        out,
        *given(m_sizes, gather_indices, scatter_indices, x_scales, w_scales, bias, row_weights),
        *(groups, rows, columns, inner, x.stride(0), out.stride(0)),
        *(0 if bias is None else bias.stride(0), *factor_strides(row_weights)),
        *((0.0, 0.0) if gate is None else (gate.alpha, gate.limit)),
        SET=Settings(
            tile=tile,
            block_g=power_of_two(groups),
            init_tail=init_tail and scatter_indices is None,
            scaled=x_scales is not None,
            biased=bias is not None,
            weighted=row_weights is not None,
            factors=factors,
            scatter=scatter_indices is not None,
            staged=staged,
            gated=gate is not None,
            separate=separate,
            kind="none" if gate is None else gate.kind,
            gather=gather_indices is not None,
            consumer_registers=consumer,
            producer_registers=producer,
        ),
        num_warps=tile.warps,
        maxnreg=limit,
    )
