"""Try many tiles for the grouped product on a GPU, and say which is fastest for each shape.

    python benchmarks/moe_sweep.py STATE.json [ROW ...]

Every result goes to STATE.json at once; a configuration that hangs is killed by a watchdog and
skipped when the
script is started again with the same file, so a shell loop gets through all of them.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from anyshape.moe import gluon_gemm
from anyshape.moe.gemm_tiles import Tile

HANG_SECONDS = 20
FP8 = torch.float8_e4m3fn


def graph_time(calls: list[Callable[[], object]], iterations: int = 20, repeats: int = 5) -> float:
    """Median microseconds of a call, over replays of a CUDA graph that takes the calls in turn."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(iterations):
            calls[i % len(calls)]()
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / iterations)
    return statistics.median(times)


def prefill_tiles(bits: int) -> list[Tile]:
    """For many rows a group: big tiles, two consumers side by side or on top of each other, or two
    programs.
    """
    k = 1024 // bits
    shapes = [
        Tile(1, 2, 128, 128, k, 4),
        Tile(1, 2, 128, 128, k, 4, band=16),
        Tile(1, 2, 128, 128, k, 3, staged=True),
        Tile(2, 1, 128, 128, k, 4),
        Tile(2, 1, 128, 128, k, 4, band=4),
        Tile(2, 1, 128, 128, k, 3, staged=True, band=4),
        Tile(2, 1, 64, 256, k, 4),
        Tile(2, 1, 64, 256, k, 3, staged=True),
        Tile(1, 1, 128, 256, k, 4, warps=8),
        Tile(1, 1, 128, 256, k, 3, warps=8, staged=True),
        Tile(1, 1, 256, 128, k, 4, warps=8),
        Tile(1, 1, 128, 128, k, 3, programs=2),
        Tile(1, 1, 128, 128, k, 2, programs=2, staged=True),
        Tile(1, 1, 128, 128, 2 * k, 3),
        Tile(1, 2, 128, 128, 2 * k, 2),
    ]
    return shapes


def decode_tiles(bits: int) -> list[Tile]:
    """For few rows a group: weights first, long rows of them, many bytes in flight."""
    k = 1024 // bits
    return [
        Tile(1, pieces, wm, wn, bk, stages, swap=True, programs=programs)
        for pieces, wm, wn, bk, stages, programs in (
            (1, 16, 128, 2 * k, 5, 1),
            (1, 16, 128, 4 * k, 2, 1),
            (1, 16, 64, 2 * k, 5, 2),
            (1, 16, 128, 2 * k, 2, 2),
            (2, 16, 64, 2 * k, 5, 1),
            (2, 16, 128, 2 * k, 2, 1),
            (1, 8, 128, 2 * k, 5, 1),
        )
    ]


# (bits, groups, rows a group, columns, inner)
SHAPES = [
    (bits, groups, rows, columns, inner)
    for bits in (16, 8)
    for groups, rows, columns, inner in (
        (16, 1024, 2048, 5120),
        (16, 1024, 5120, 1024),
        (128, 128, 2048, 5120),
        (128, 128, 5120, 1024),
        (16, 8, 2048, 5120),
        (16, 8, 5120, 1024),
        (128, 1, 2048, 5120),
        (128, 1, 5120, 1024),
    )
]


class Watchdog:
    """Ends the process when a configuration does not come back."""

    def __init__(self) -> None:
        self.deadline = float("inf")
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        while True:
            time.sleep(0.5)
            if time.monotonic() > self.deadline:
                print("HANG", flush=True)
                os._exit(3)


def operands(
    bits: int, groups: int, rows: int, columns: int, inner: int, copies: int
) -> list[tuple[Tensor, Tensor, Tensor | None, Tensor | None]]:
    """Random (x, w, x_scales, w_scales), several times."""
    made = []
    for _ in range(copies):
        x = torch.randn(groups * rows, inner, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(groups, columns, inner, device="cuda", dtype=torch.bfloat16)
        if bits == 16:
            made.append((x, w, None, None))
        else:
            scales = (
                torch.rand(groups * rows, device="cuda"),
                torch.rand(groups, columns, device="cuda"),
            )
            made.append((x.to(FP8), w.to(FP8), *scales))
    return made


def peer(operand: tuple[Tensor, Tensor, Tensor | None, Tensor | None], ends: Tensor) -> Tensor:
    """torch's own grouped product."""
    x, w, x_scales, w_scales = operand
    if x_scales is None:
        return torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
    return torch._scaled_grouped_mm(
        x,
        w.transpose(1, 2),
        x_scales,
        w_scales,
        offs=ends,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def sweep(row: int, state: dict[str, object], path: Path, dog: Watchdog) -> None:
    bits, groups, rows, columns, inner = SHAPES[row]
    tiles = prefill_tiles(bits) if rows >= 64 else decode_tiles(bits)
    sizes = torch.full((groups,), rows, device="cuda", dtype=torch.int32)
    ends = sizes.cumsum(0).int()
    made = operands(bits, groups, rows, columns, inner, 2)
    expected = peer(made[0], ends).float()
    key = f"{bits} {groups} {rows} {columns} {inner}"
    if f"{key} torch" not in state:
        state[f"{key} torch"] = graph_time([lambda m=m: peer(m, ends) for m in made])
        print(key, "torch", f"{state[f'{key} torch']:.1f}", flush=True)
    outs = [torch.empty(groups * rows, columns, device="cuda", dtype=torch.bfloat16) for _ in made]
    for tile in tiles:
        name = f"{key} {tile}"
        if name in state:
            continue
        state[name] = "hang"
        path.write_text(json.dumps(state))
        dog.deadline = time.monotonic() + HANG_SECONDS

        def call(i: int, tile: Tile = tile) -> None:
            x, w, x_scales, w_scales = made[i]
            gluon_gemm.launch(
                tile, x, w, sizes, outs[i], None, x_scales, w_scales, None, None, False
            )

        try:
            outs[0].fill_(float("nan"))
            call(0)
            error = ((outs[0].float() - expected).norm() / expected.norm()).item()
            took = graph_time([lambda: call(0), lambda: call(1)])
            state[name] = (took, error)
            print(key, f"{took:.1f} us error {error:.1e}", tile, flush=True)
        except Exception as problem:
            state[name] = repr(problem)[:200]
            print(key, tile, repr(problem)[:200], flush=True)
        dog.deadline = float("inf")
        path.write_text(json.dumps(state))


def main() -> None:
    path = Path(sys.argv[1])
    state = json.loads(path.read_text()) if path.exists() else {}
    dog = Watchdog()
    torch.manual_seed(0)
    for row in [int(arg) for arg in sys.argv[2:]] or range(len(SHAPES)):
        sweep(row, state, path, dog)
        torch.cuda.empty_cache()
    for bits, groups, rows, columns, inner in SHAPES:
        key = f"{bits} {groups} {rows} {columns} {inner}"
        timed = [
            (value[0], name[len(key) + 1 :])
            for name, value in state.items()
            if name.startswith(key + " T") and isinstance(value, (list, tuple)) and value[1] < 0.01
        ]
        if timed:
            print("BEST", key, f"torch {state[key + ' torch']:.1f}", *min(timed), flush=True)


if __name__ == "__main__":
    main()
