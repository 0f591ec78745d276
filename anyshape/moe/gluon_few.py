"""The first product of a layer of a few tokens on Hopper, in Gluon, for long rows of weights.

As in `triton_few`, a program multiplies some rows of one expert with one token. Here it asks for
all of them at once (`cp.async` into shared memory), which takes no registers: as many loads are
under way as the memory can take, where those of the kernel in Triton come batch by batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from anyshape.kernels.launches import capability, given, quick
from anyshape.moe.gluon_epilogue import act

LANES = 32
COPY_BYTES = 16
# what a program asks for at most: three of them fit a multiprocessor
MOST_BYTES = 64 * 1024
# how many rows of gate and of up a program may have, one a warp
WARPS = (4, 2)
# elements a row; measured: shorter ones are read as fast by the kernel in Triton, or faster
LONG = 4096


@dataclass(frozen=True, slots=True)
class Slab:
    """What a program reads: `rows` rows of gate and of up, a row a warp, in `blocks` blocks."""

    rows: int
    block: int
    blocks: int


def slab(tokens: Tensor, gate_up: Tensor) -> Slab | None:
    """How weights [E, 2F, D] are read; None if their kernel is the one in Triton."""
    columns, inner = gate_up.shape[1] // 2, gate_up.shape[2]
    block = LANES * COPY_BYTES // 2
    halves = tokens.element_size() == gate_up.element_size() == 2
    if not on_hopper(gate_up) or not halves or inner < LONG or inner % block:
        return None
    if tokens.stride(1) != 1 or not in_lines(gate_up):
        return None
    for rows in WARPS:
        if 2 * rows * inner * 2 <= MOST_BYTES and columns % rows == 0:
            return Slab(rows, block, inner // block)
    return None


def on_hopper(weights: Tensor) -> bool:
    return weights.is_cuda and capability(weights.device) == 9


def in_lines(weights: Tensor) -> bool:
    """Whether every row begins at a multiple of 16 bytes, elements side by side."""
    steps = weights.stride(0) % 16 == 0 and weights.stride(1) % 16 == 0
    return weights.stride(2) == 1 and steps and weights.data_ptr() % COPY_BYTES == 0


@gluon.constexpr_function
def slab_layout(slab):
    """16 bytes a thread, a row a warp."""
    return gl.BlockedLayout([1, slab.block // 32], [1, 32], [slab.rows, 1], [1, 0])


@gluon.constexpr_function
def plain():
    """Shared memory in the order of the elements."""
    return gl.SwizzledSharedLayout(1, 1, 1, [1, 0])


@gluon.jit
def follow(OVERLAP: gl.constexpr):
    """As `triton_rows.follow`."""
    if OVERLAP:
        gl.inline_asm_elementwise(
            "griddepcontrol.wait; griddepcontrol.launch_dependents; // dummy $0",
            "=r",
            [],
            dtype=gl.int32,
            is_pure=False,
            pack=1,
        )


@gluon.jit
def starts(matrix, first_row, w_row, SLAB: gl.constexpr):
    """Pointers to the first block of SLAB.rows rows."""
    layout: gl.constexpr = slab_layout(SLAB)
    row = first_row + gl.arange(0, SLAB.rows, gl.SliceLayout(1, layout))
    k = gl.arange(0, SLAB.block, gl.SliceLayout(0, layout))
    return matrix + (row.to(gl.int64) * w_row)[:, None] + k[None, :]


@gluon.jit
def multiply_rows(xs, gates, ups, gate_bufs, up_bufs, SLAB: gl.constexpr):
    """(sums [rows] of gates, of ups) times a token, whose blocks are `xs`."""
    BLOCKS: gl.constexpr = SLAB.blocks
    ROWS: gl.constexpr = SLAB.rows
    BLOCK: gl.constexpr = SLAB.block
    layout: gl.constexpr = slab_layout(SLAB)
    for i in gl.static_range(BLOCKS):
        async_copy.async_copy_global_to_shared(gate_bufs.index(i), gates + i * BLOCK)
        async_copy.async_copy_global_to_shared(up_bufs.index(i), ups + i * BLOCK)
        async_copy.commit_group()
    gate = gl.zeros([ROWS, BLOCK], gl.float32, layout)
    up = gl.zeros([ROWS, BLOCK], gl.float32, layout)
    for i in gl.static_range(BLOCKS):
        async_copy.wait_group(BLOCKS - 1 - i)
        x = xs[i].to(gl.float32)[None, :]
        gate += gate_bufs.index(i).load(layout).to(gl.float32) * x
        up += up_bufs.index(i).load(layout).to(gl.float32) * x
    return gl.sum(gate, 1), gl.sum(up, 1)


@quick
@gluon.jit
def gate_long(
    tokens,
    experts,
    weights,
    gate_up,
    hidden,
    valid,
    count,
    columns,
    x_row,
    w_group,
    w_row,
    top_k,
    alpha,
    limit,
    ON_INPUT: gl.constexpr,
    KIND: gl.constexpr,
    COUNTED: gl.constexpr,
    SLAB: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Program (i, p): rows i * SLAB.rows and on of act(gate) * up of pair p = token * top_k + k,
    times the pair's weight. The tokens are older than the kernel before this one.
    """
    BLOCKS: gl.constexpr = SLAB.blocks
    ROWS: gl.constexpr = SLAB.rows
    BLOCK: gl.constexpr = SLAB.block
    layout: gl.constexpr = slab_layout(SLAB)
    shape: gl.constexpr = [BLOCKS, ROWS, BLOCK]
    gate_bufs = gl.allocate_shared_memory(gate_up.dtype.element_ty, shape, plain())
    up_bufs = gl.allocate_shared_memory(gate_up.dtype.element_ty, shape, plain())
    pair = gl.program_id(1)
    token = pair // top_k
    source = tokens + token.to(gl.int64) * x_row
    source += gl.arange(0, BLOCK, gl.SliceLayout(0, layout))
    xs = ()
    for i in gl.static_range(BLOCKS):
        xs = xs + (gl.load(source + i * BLOCK),)
    follow(OVERLAP)
    if COUNTED:
        count = gl.minimum(count, gl.load(valid).to(gl.int32))
    if token < count:
        matrix = gate_up + gl.load(experts + pair).to(gl.int64) * w_group
        weight = gl.load(weights + pair)
        first = gl.program_id(0) * ROWS
        gates = starts(matrix, first, w_row, SLAB)
        ups = starts(matrix, columns + first, w_row, SLAB)
        gate, up = multiply_rows(xs, gates, ups, gate_bufs, up_bufs, SLAB)
        if ON_INPUT:
            gate *= weight
            up *= weight
        value = act(gate, up, alpha, limit, KIND)
        if not ON_INPUT:
            value *= weight
        row = first + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        target = hidden + pair.to(gl.int64) * columns + row
        gl.store(target, value.to(hidden.dtype.element_ty))


def launch(
    slab: Slab,
    tokens: Tensor,
    experts: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    hidden: Tensor,
    valid: Tensor | None,
    top_k: int,
    on_input: bool,
    kind: str,
    alpha: float,
    limit: float,
    together: Mapping[str, bool],
) -> None:
    """Writes act(gate) * up * weight [T * top_k, F] to `hidden`; `together`: see `overlap`."""
    pairs, columns = hidden.shape
    gate_long[(columns // slab.rows, pairs)](
        *(tokens, experts, weights, gate_up, hidden, *given(experts, valid)),
        *(tokens.shape[0], columns, tokens.stride(0), *gate_up.stride()[:2]),
        *(top_k, alpha, limit),
        ON_INPUT=on_input,
        KIND=kind,
        COUNTED=valid is not None,
        SLAB=slab,
        num_warps=slab.rows,
        **together,
    )
