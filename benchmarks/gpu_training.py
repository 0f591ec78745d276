"""Training steps on one GPU: eager, the model compiled, the whole step compiled, and torch.compile.

    python -m benchmarks.gpu_training FOLDER [--no-peers]

Milliseconds of a step that is waited for, the median; seconds of the first steps at all shapes;
gigabytes of the largest allocation. Rows go to FOLDER/training.json as they are made.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from anyshape.tools import models
from anyshape.tools.models import Recipe
from benchmarks.gpu import waited
from benchmarks.training import PEERS, candidates

SHAPES = ((4, 512), (2, 300), (8, 128), (1, 500))
CASES = (("llama", torch.float32), ("llama", torch.bfloat16), ("bert", torch.bfloat16))


def rows(name: str, dtype: torch.dtype, peers: list[str]) -> Iterator[dict[str, object]]:
    torch.compiler.reset()
    recipe = Recipe(dtype=dtype)
    given = {
        shape: {
            k: v.to("cuda") if isinstance(v, torch.Tensor) else v
            for k, v in models.inputs(name, *shape, "none", recipe).items()
        }
        for shape in SHAPES
    }
    with torch.device("cuda"):
        for who, step in candidates(name, recipe, peers).items():
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for arguments in given.values():
                step(arguments)
            torch.cuda.synchronize()
            first = time.perf_counter() - start
            for arguments in given.values():  # the second step is a specialization of its own
                step(arguments)
            times = {
                str(shape): waited(lambda step=step, arguments=arguments: step(arguments))  # type: ignore[misc]
                for shape, arguments in given.items()
            }
            peak = torch.cuda.max_memory_allocated() / 1e9
            yield {"model": name, "dtype": str(dtype), "who": who, "ms": times} | {
                "first steps, s": first,
                "peak GB": peak,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--no-peers", action="store_true")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    made: list[dict[str, object]] = []
    for name, dtype in CASES:
        for row in rows(name, dtype, [] if chosen.no_peers else [*PEERS]):
            print(json.dumps(row), flush=True)
            made.append(row)
            (chosen.folder / "training.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
