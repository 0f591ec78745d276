"""What declaring batch and length costs at run time: declared and undeclared models take turns."""

from __future__ import annotations

import argparse
from functools import partial

import torch

import anyshape
from anyshape.tools import models
from anyshape.tools.models import Recipe
from anyshape.tools.timing import ROUNDS, interleaved
from benchmarks import report


def benchmark(name: str) -> list[dict[str, object]]:
    recipe = Recipe()
    module = models.build(name, recipe)
    compiled = {
        "undeclared": anyshape.compile(module, fullgraph=True),
        "declared": anyshape.compile(module, fullgraph=True, shapes=models.MODELS[name].shapes),
    }
    rows = []
    for batch, length in models.SHAPES:
        arguments = models.inputs(name, batch, length, "none", recipe)
        timing = interleaved(
            {who: partial(run, **arguments) for who, run in compiled.items()}, ROUNDS
        )
        row: dict[str, object] = {
            "model": name,
            "shape": f"({batch}, {length})",
            "undeclared ms": timing.median("undeclared") * 1e3,
            "declared ms": timing.median("declared") * 1e3,
            "declared is faster by": timing.speedup("declared", over="undeclared"),
        }
        rows.append(row)
        print(report.table([row]).splitlines()[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*models.MODELS], choices=models.MODELS)
    arguments = parser.parse_args()
    rows = []
    with torch.no_grad():
        for name in arguments.models:
            rows += benchmark(name)
            report.save("declared", rows)
    print(report.table(rows))


if __name__ == "__main__":
    main()
