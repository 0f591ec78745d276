"""Times of block sizes for attention, each beside the others: how launch_sizes.py was filled.

python -m benchmarks.attention_sweep [decode|prefill]
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch

from anyshape.attention import triton_attention
from anyshape.attention.launch_sizes import Blocks
from anyshape.attention.rules import Rules
from benchmarks.attention import HEADS, KEY_HEADS, SIZE, Paged, copies, paged
from benchmarks.moe_kernels import measure

RULES = Rules(SIZE**-0.5, True, 0, 0.0)
NOTHING = (None,) * 5


def split_call(batch: Paged, blocks: Blocks) -> Callable[[], object]:
    out = torch.empty_like(batch.q)
    start = batch.positional()
    return lambda: triton_attention.split(
        *start, out, RULES, 1, 0, False, True, *NOTHING, blocks=blocks
    )


def tiles_call(batch: Paged, blocks: Blocks) -> Callable[[], object]:
    out = torch.empty_like(batch.q)
    start = batch.positional()
    return lambda: triton_attention.tiles(
        *start, out, None, RULES, 0, True, False, *NOTHING, blocks=blocks
    )


def decode() -> None:
    variants = [
        Blocks(16, bn, warps, stages, programs, 2)
        for bn, warps, stages, programs in itertools.product(
            (64, 128), (4, 8), (2, 3, 4), (1, 2, 3)
        )
        if bn * stages * programs <= 128 * 3 * 1 + 64 and not (warps == 8 and bn == 64)
    ]
    for count, length, page, by_head in (
        (16, 8192, 64, True),
        (16, 8192, 64, False),
        (16, 8192, 16, True),
        (64, 512, 64, True),
        (256, 1024, 16, False),
    ):
        nbytes = 4.0 * count * length * KEY_HEADS * SIZE
        batches = [
            paged([1] * count, [length] * count, page, by_head=by_head)
            for _ in range(copies(nbytes))
        ]
        calls = {str(v): [split_call(batch, v) for batch in batches] for v in variants}
        times = measure(calls)
        print(f"decode {count} x {length} pages of {page}, by head {by_head}")
        for name, took in sorted(times.items(), key=lambda item: item[1])[:6]:
            print(f"   {took:8.1f} us {nbytes / took / 1e6:.2f} TB/s {name}", flush=True)


def prefill() -> None:
    variants = [
        Blocks(bm, bn, warps, stages, programs)
        for bm, bn, warps, stages, programs in (
            (128, 128, 8, 2, 1),
            (128, 64, 8, 2, 1),
            (128, 64, 8, 3, 1),
            (128, 64, 4, 2, 2),
            (64, 64, 4, 2, 2),
            (64, 64, 4, 3, 2),
            (128, 64, 4, 3, 1),
            (64, 128, 4, 2, 2),
            (128, 128, 8, 3, 1),
        )  # fmt: skip
    ]
    for count, length in ((8, 2048), (1, 32768)):
        batch = paged([length] * count, [length] * count)
        times = measure({str(v): [tiles_call(batch, v)] for v in variants}, iterations=3)
        operations = 2.0 * count * length**2 * HEADS * SIZE
        print(f"prefill {count} x {length}")
        for name, took in sorted(times.items(), key=lambda item: item[1])[:9]:
            print(f"   {took:8.1f} us {operations / took / 1e6:.0f} TFLOP/s {name}", flush=True)


if __name__ == "__main__":
    for which in sys.argv[1:] or ("decode", "prefill"):
        {"decode": decode, "prefill": prefill}[which]()
