"""First calls of the models of docs/models.md that are one graph: `python -m benchmarks.first_calls
[--every N]`.

Each model is called at its first three shapes in a forked process of its own with an empty cache of
kernels, and again in one that has that cache. Seconds are of a processor, the C compiler's
included; eager's own later calls at these shapes are taken off. The row of the medians stands in
the table of growth; `--every` takes each N-th model, and keeps nothing.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import statistics
import tempfile
from multiprocessing.connection import Connection

import torch

import anyshape
from anyshape.optional import require
from benchmarks import report
from benchmarks.growth import SHAPES, cpu_seconds
from benchmarks.zoo.catalogue import ENTRIES
from benchmarks.zoo.entry import Entry

ROW = "one-graph models, median"
PATIENCE_SECONDS = 240


def first_calls(entry: Entry) -> tuple[float, bool]:
    """The seconds that compiling took, and whether it was one graph."""
    generator = torch.Generator().manual_seed(0)
    inputs = [entry.inputs(*shape, generator) for shape in entry.shapes[:SHAPES]]
    eager = entry.build()
    fast = anyshape.compile(eager)
    with torch.set_grad_enabled(entry.grad):
        for given in inputs:  # what torch does in its first calls
            eager(**given)
        marks = [cpu_seconds()]
        for run in (fast, eager):
            for given in inputs:
                run(**given)
            marks.append(cpu_seconds())
    stats = fast.stats()
    one_graph = stats.specializations == 1 and not stats.graph_breaks
    return marks[1] - marks[0] - (marks[2] - marks[1]), one_graph


def isolated(entry: Entry) -> tuple[float, bool] | None:
    """The same in a forked process; None where eager itself fails, or it takes too long."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=send, args=(entry, theirs))
    process.start()
    theirs.close()
    try:
        found: tuple[float, bool] | None = ours.recv() if ours.poll(PATIENCE_SECONDS) else None
    except EOFError:
        found = None
    process.kill()
    process.join()
    return found


def send(entry: Entry, pipe: Connection) -> None:
    torch.set_num_threads(1)
    try:
        found = first_calls(entry)
    except Exception:  # it does not run here, and is left out
        found = None
    pipe.send(found)
    pipe.close()


def row_of(every: int) -> dict[str, object]:
    """The medians, and of how many models."""
    cold, warm = [], []
    for entry in ENTRIES[::every]:
        with tempfile.TemporaryDirectory() as caches:
            os.environ["ANYSHAPE_CACHE_DIR"] = caches
            first = isolated(entry)
            if first is None or not first[1]:
                continue
            second = isolated(entry)
        cold.append(first[0])
        warm += [] if second is None else [second[0]]
        print(f"{entry.name} {cold[-1]:.2f} {warm[-1]:.2f}", flush=True)
    medians = {"s": statistics.median(cold), "s with a cache": statistics.median(warm)}
    return {"program": ROW, "n": SHAPES, "specializations": 1, "programs": len(cold), **medians}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="each so many-th model; nothing kept")
    arguments = parser.parse_args()
    require("transformers")
    anyshape.compile(lambda x: x + 1)(torch.ones(3))  # what is loaded once
    gc.freeze()
    row = row_of(arguments.every)
    print(report.table([row]))
    if arguments.every == 1:
        report.save("growth", report.merged("growth", [row], ("program", "n")))


if __name__ == "__main__":
    main()
