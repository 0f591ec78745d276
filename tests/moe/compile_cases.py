"""Compiles the kernels for sm_90 on a machine without a GPU, launched as their own launchers launch them.

Run by `test_kernels_triton.py`. A driver that only names its target takes the place of CUDA's, and every launch
becomes a compilation. Fails if a kernel does not compile or wants more shared memory than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from anyshape.kernels.launches import Launches
from anyshape.moe import (
    gluon_few,
    gluon_gemm,
    tma_gemm,
    triton_activation,
    triton_few,
    triton_gather,
    triton_gemm,
    triton_routing,
    triton_shuffling,
)
from anyshape.moe.gemm_tiles import (
    GATED_GATHER_TILES,
    GATED_TILES,
    SIMPLE_TILES,
    THREE_CONSUMERS,
    TILES,
    TWO_CONSUMERS,
    Tile,
)

SHARED_BYTES = 232448
COMPILED: list[object] = []


class NamedTarget:
    """As much of a driver as compiling takes."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def compile_instead(kernel: JITFunction, grid: Sequence[int]) -> Callable[..., object]:
    """What `kernel[grid]` is here: compiles for these arguments and remembers the result."""

    def compile_it(*arguments: object, **keywords: object) -> object:
        built = kernel.warmup(*arguments, grid=grid, **keywords)
        if built.metadata.shared > SHARED_BYTES:
            raise MemoryError(f"{built.metadata.name} wants {built.metadata.shared} bytes shared")
        COMPILED.append(built)
        return built

    return compile_it


def operands(bits: int, groups: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x [64, 256], w [groups, 512, 256], sizes and a bf16 output [64, 512]."""
    dtype = torch.bfloat16 if bits == 16 else torch.float8_e4m3fn
    x, w = torch.zeros(64, 256).to(dtype), torch.zeros(groups, 512, 256).to(dtype)
    return x, w, torch.zeros(groups, dtype=torch.int32), torch.zeros(64, 512, dtype=torch.bfloat16)


def compile_product(tile: Tile, bits: int, *, extras: bool) -> None:
    x, w, sizes, out = operands(bits)
    scales = (torch.zeros(64), torch.zeros(4, 512)) if bits == 8 else (None, None)
    bias, weights = (torch.zeros(4, 512), torch.zeros(64)) if extras else (None, None)
    arguments = (tile, x, w, sizes, out, None, *scales, bias, weights)
    if tile.specialized:
        gluon_gemm.launch(*arguments, extras)
    else:
        tma_gemm.launch(*arguments, torch.zeros(64, dtype=torch.int32) if extras else None, extras)


def compile_products() -> None:
    for shapes in {shapes.tile: shapes for shapes in TILES}.values():
        compile_product(shapes.tile, shapes.bits, extras=True)
    index = torch.zeros(64, dtype=torch.int32)
    for shapes in SIMPLE_TILES:
        x, w, sizes, out = operands(shapes.bits)
        scales = (torch.zeros(64), torch.zeros(4, 512)) if shapes.bits == 8 else (None, None)
        total = torch.zeros(9, 512)
        factors = torch.zeros(9, 4)
        arguments = (shapes.tile, x, w, sizes, total, index, *scales, None, factors)
        if shapes.tile.specialized:
            gluon_gemm.launch(*arguments, False)
            gluon_gemm.launch(*arguments[:4], total.bfloat16(), *arguments[5:], False)
        else:
            tma_gemm.launch(*arguments, None, False)
    for gather, table in ((None, GATED_TILES), (index, GATED_GATHER_TILES)):
        for shapes in table:
            if shapes.tile.specialized:
                continue
            x, w, sizes, out = operands(16)
            ending = ("silu", 1.0, 1.0, gather is None, False)
            tma_gemm.launch_gated(
                *(shapes.tile, x, w, sizes, out[:, :256].contiguous(), None, gather),
                *(None if gather is None else torch.zeros(64, 4), *ending),
            )
    for interleaved in (False, True):
        x, w, sizes, out = operands(16)
        out, gate = out[:, :256].contiguous(), gluon_gemm.Gate("silu", 1.0, 1.0, interleaved)
        bias = torch.zeros(4, 512) if interleaved else None
        nothing = (None, None, None, bias, None, interleaved, gate)
        for tile in (TWO_CONSUMERS, THREE_CONSUMERS):
            gluon_gemm.launch(tile, x, w, sizes, out, *nothing)
            gluon_gemm.launch(tile, x, w, sizes, out, *nothing, index)
    x, w, sizes, out = operands(16)
    ending = (None, None, None, None, None, None, True)
    triton_gemm._launch(x, w.mT.contiguous().mT, sizes, out, *ending)


def compile_few() -> None:
    """A token of a layer of 16 experts, one in float8, and one of odd sizes with biases."""
    for hidden, expert, bits, biased in (
        (512, 256, 16, False),
        (2880, 100, 16, True),
        (512, 768, 8, False),
    ):
        x, router = torch.zeros(1, hidden).bfloat16(), torch.zeros(16, hidden).bfloat16()
        dtype = torch.bfloat16 if bits == 16 else torch.float8_e4m3fn
        gate_up, down = (
            torch.zeros(16, *shape).to(dtype) for shape in ((2 * expert, hidden), (hidden, expert))
        )
        biases = (router[:, 0], router[:, 0]) if biased else (None, None)
        scales = (
            (None, None) if bits == 16 else (torch.zeros(32 * expert), torch.zeros(16 * hidden))
        )
        shared = (router.t().t()[:, :1].expand(16, 2 * expert), None) if biased else (None, None)
        choice = (x, router.t(), *biases, "softmax", 4, True, 4, 2, 2, 1.0)
        activation = (biased, "silu", 1.0, 1.0, biased)
        made = triton_few.gate_few(*choice, gate_up, scales[0], *shared, *activation)
        base = (router, x) if biased else (None, None)
        triton_few.down_few(*made, down, scales[1], *base, None, biased, 4)
        if not biased:
            choice = (*choice[:7], 1, 1, 1, 1.0)
            triton_few.gate_few(*choice, gate_up, scales[0], *shared, *activation)


def compile_choices() -> None:
    """The keys that experts are ranked by are worked out once, however many layouts need them."""
    x, gate_up = torch.zeros(1, 512).bfloat16(), torch.zeros(1).bfloat16()
    before = len(COMPILED)
    for experts, groups, best in ((2, 1, 1), (16, 2, 1), (60, 2, 1), (60, 4, 2), (128, 1, 1)):
        router, weights = torch.zeros(experts, 512).bfloat16(), gate_up.expand(experts, 32, 512)
        limits = (groups, max(1, groups // 2), best, 1.0)
        choice = (x, router.t(), None, None, "softmax", 1, True, *limits, weights, None, None, None)
        triton_few.gate_few(*choice, False, "silu", 1.0, 1.0, False)
    chosen = [built for built in COMPILED[before:] if built.metadata.name == "_choose_few"]
    assert [built.asm["ttgir"].count("math.exp") for built in chosen] == [1] * 5


def compile_long() -> None:
    """Two tokens of a layer whose rows of weights are long, as a Hopper GPU runs it."""
    gluon_few.on_hopper = lambda weights: True
    x, router = torch.zeros(2, 4096).bfloat16(), torch.zeros(4, 4096).bfloat16()
    gate_up = torch.zeros(4, 8, 4096).bfloat16()
    for kind, on_input, valid in (("silu", False, None), ("gpt_oss", True, torch.ones(1))):
        choice = (x, router.t(), None, None, "sigmoid", 1, True, 1, 1, 1, 1.0, gate_up, None, None)
        triton_few.gate_few(*choice, valid, on_input, kind, 1.0, 1.0, False)


def compile_rows() -> None:
    x, index = torch.zeros(2000, 5120, dtype=torch.bfloat16), torch.zeros(2000, dtype=torch.int32)
    scores = torch.zeros(2000, 128)
    gather = (x, index, index, scores, index[:8], True)
    triton_gather.gather_mul(*gather)
    triton_gather.gather_mul_quantize(*gather)
    for unique in (False, True):
        triton_gather.scatter_add(x, x, index, None, unique)
    triton_gather.scatter_add_padded(x, x[None], index[:8], index)
    compile_few()
    compile_choices()
    compile_long()
    for tokens, experts, top_k in ((16, 128, 8), (2000, 128, 2), (9000, 64, 8)):
        valid = torch.zeros(1, dtype=torch.int32)
        made = torch.zeros(tokens, experts)
        triton_shuffling.index_shuffling(made, top_k, (0, experts), valid, True)
    for combine in (False, True):
        triton_shuffling._moved(
            x, torch.zeros(4, 16, dtype=torch.int32), 0, 16, False, True, combine
        )
    for kind in ("silu", "gelu", "gelu_tanh", "gpt_oss"):
        halves = (x[:, ::2], x[:, 1::2], None, kind, 1.0, 1.0, True)
        triton_activation.silu_mul(*halves)
        triton_activation.silu_mul_quantize(*halves)
    for groups, top in ((1, 1), (8, 4)):
        choice = ("sigmoid", 4, True, groups, top, 2, 1.0)
        biased = triton_routing.Choice(scores[0], scores[0], *choice)
        triton_routing.scores_of_logits(scores[None], biased)
    half = torch.zeros(20, 256, dtype=torch.bfloat16)
    triton_routing.partial_logits(half, half.t())


def main() -> None:
    triton.runtime.driver.set_active(NamedTarget())
    JITFunction.__getitem__ = compile_instead
    Launches.__getitem__ = lambda launches, grid: compile_instead(launches.kernel, grid)
    for module in (tma_gemm, triton_few, triton_gather, triton_routing, triton_shuffling):
        module.overlap = lambda x, wanted=True: {"OVERLAP": wanted, "launch_pdl": wanted}
    compile_products()
    compile_rows()
    print("compiled", len(COMPILED), "kernels")


if __name__ == "__main__":
    main()
