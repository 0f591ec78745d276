"""Whole layers under other orders of tiles, in turn in the same rounds: which band each class of
shapes should have (`anyshape/moe/gemm_tiles.py`).

    python -m benchmarks.moe_bands [--json FILE]

A band is so many tile rows of a group that are worked on together. Few share fewer readings of a
group's weights; with many, tiles of a few rows come between whole ones. Also without the longer
tiles, where the table has them.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from anyshape.moe import MoE, gemm_tiles, triton_gemm
from anyshape.moe.gemm_tiles import Tile
from benchmarks.moe import event_time, inputs, warm_up
from benchmarks.moe_models import DEEPSEEK, GPT_OSS, MIXTRAL, QWEN, Model, make_layer

LAYERS: tuple[tuple[Model, int], ...] = (
    *((model, 1024) for model in (MIXTRAL, DEEPSEEK, GPT_OSS, QWEN)),
    *((model, 4096) for model in (MIXTRAL, QWEN)),
)
VARIANTS: dict[str, Callable[[Tile], Tile]] = {
    "table": lambda tile: tile,
    **{f"band {band}": functools.partial(replace, band=band) for band in (1, 2, 3, 4, 8)},
    "not longer": lambda tile: replace(tile, extra=0, store_n=128),
}
ROUNDS = 9


@contextmanager
def other_tiles(change: Callable[[Tile], Tile]) -> Iterator[None]:
    """Launches of the Hopper kernel take the table's tile as `change` makes it."""

    def choose(*arguments: object, **keywords: object) -> Tile:
        tile = gemm_tiles.choose_tile(*arguments, **keywords)
        return change(tile) if tile.specialized else tile

    with mock.patch.object(triton_gemm, "choose_tile", choose):
        yield


def record(
    layer: MoE, xs: Sequence[Tensor], change: Callable[[Tile], Tile]
) -> torch.cuda.CUDAGraph:
    """One graph of a call for each input."""
    graph = torch.cuda.CUDAGraph()
    with other_tiles(change):
        layer(xs[0])
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for x in xs:
                layer(x)
    return graph


@torch.no_grad()
def measure(layer: MoE, count: int) -> dict[str, float]:
    """Microseconds a call of each variant, the median of rounds in which all take their turn."""
    xs = inputs(layer, count)
    graphs = {name: record(layer, xs, change) for name, change in VARIANTS.items()}
    for graph in graphs.values():
        warm_up(graph.replay)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            times[name].append(event_time(graph.replay) / len(xs))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where the results go")
    path = parser.parse_args().json
    found: dict[str, dict[str, float]] = {}
    for model, count in LAYERS:
        layer = make_layer(model)
        for dtype, kind in (("bf16", layer), ("fp8", layer.to_fp8())):
            name = f"{model.name}, {count} tokens, {dtype}"
            found[name] = measure(kind, count)
            row = "  ".join(f"{variant} {us:.1f}" for variant, us in found[name].items())
            print(f"{name}: {row}", flush=True)
            if path is not None:
                path.write_text(json.dumps(found, indent=1))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
