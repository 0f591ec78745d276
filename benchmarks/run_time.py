"""How fast models run: eager, torch.compile static and dynamic, and ours, taking turns.

A run replaces the rows of what it measured; the others stay, so that a table can be made in parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product

import torch

import anyshape
from anyshape.tools import models
from anyshape.tools.models import Recipe
from anyshape.tools.timing import ROUNDS, interleaved
from benchmarks import report

PEERS = {"static": False, "dynamic": True}
KEYS = ("model", "attention", "dtype", "shape")  # what tells one row from another


def candidates(name: str, recipe: Recipe, peers: list[str]) -> dict[str, Callable[..., object]]:
    """The same module four times: eager, ours, and as each peer compiles it."""
    module = models.build(name, recipe)
    made: dict[str, Callable[..., object]] = {"eager": module}
    made["anyshape"] = anyshape.compile(module, fullgraph=True)
    for peer in peers:
        # A wrapper of its own: Dynamo keeps its graphs with the code object and the module.
        made[peer] = torch.compile(models.build(name, recipe), dynamic=PEERS[peer])
    return made


def benchmark(name: str, recipe: Recipe, peers: list[str], shapes: int) -> list[dict[str, object]]:
    torch.compiler.reset()
    torch._dynamo.config.recompile_limit = 64
    compiled = candidates(name, recipe, peers)
    rows = []
    for batch, length in models.SHAPES[:shapes]:
        arguments = models.inputs(name, batch, length, "none", recipe)
        calls = {who: partial(run, **arguments) for who, run in compiled.items()}
        timing = interleaved(calls, ROUNDS)
        row: dict[str, object] = {
            "model": name,
            "attention": recipe.attention,
            "dtype": str(recipe.dtype).removeprefix("torch."),
            "shape": f"({batch}, {length})",
            "eager ms": timing.median("eager") * 1e3,
            "anyshape ms": timing.median("anyshape") * 1e3,
        }
        row |= {f"{peer} ms": timing.median(peer) * 1e3 for peer in peers}
        row["over eager"] = timing.speedup("anyshape", over="eager")
        if peers:
            row["over peer"] = min(timing.speedup("anyshape", over=peer) for peer in peers)
        rows.append(row)
        print(report.table([row]).splitlines()[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*models.MODELS], choices=models.MODELS)
    parser.add_argument("--attention", nargs="+", default=["sdpa"], choices=("sdpa", "eager"))
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=("float32", "bfloat16"))
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=PEERS)
    parser.add_argument("--shapes", type=int, default=len(models.SHAPES), help="the first so many")
    arguments = parser.parse_args()
    rows = []
    with torch.no_grad():
        for dtype, attention, name in product(
            arguments.dtype, arguments.attention, arguments.models
        ):
            recipe = Recipe(dtype=getattr(torch, dtype), attention=attention)
            rows += benchmark(name, recipe, arguments.peers, arguments.shapes)
            report.save("run_time", report.merged("run_time", rows, KEYS))
    print(report.table(rows))


if __name__ == "__main__":
    main()
