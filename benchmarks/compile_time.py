"""How long compiling takes: eight lengths of one model, ours and torch.compile's, empty caches.

Each side runs in a process of its own, one after the other, so that nothing is warm; a warm
start of ours is a second process with the same disk cache. A worker prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch._inductor.compile_fx  # imports are no part of the figure: the peer's come first, too
from torch._dynamo.utils import counters

import anyshape
from anyshape.tools import models
from benchmarks import report

LENGTHS = (7, 16, 33, 64, 100, 128, 1, 200)


def worker(side: str, model: str, layers: int) -> None:
    """First and second calls at each length; prints {"first": [...], "second": [...], ...}."""
    module = models.build(model, models.Recipe(layers=layers))
    if side == "torch.compile":
        fast = torch.compile(module)
    else:
        fast = anyshape.compile(module, fullgraph=True)
    first, second = [], []
    with torch.no_grad():
        module(**models.inputs(model, 2, 5))
        for length in LENGTHS:
            arguments = models.inputs(model, 2, length)
            for times in (first, second):
                start = time.perf_counter()
                fast(**arguments)
                times.append(time.perf_counter() - start)
    if side == "torch.compile":
        graphs, capture, kernels = counters["stats"]["unique_graphs"], None, None
    else:
        stats = fast.stats()
        graphs, kernels = stats.specializations, stats.kernels
        capture = getattr(stats, "capture_seconds", None)
    figures = {"first": first, "second": second, "graphs": graphs, "kernels": kernels}
    print(json.dumps({**figures, "capture": capture}))


def measure(side: str, model: str, layers: int, caches: Path) -> dict[str, object]:
    """Run a worker with its caches under `caches`."""
    environ = {
        **os.environ,
        "ANYSHAPE_CACHE_DIR": str(caches / "anyshape"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
    }
    command = [sys.executable, "-m", "benchmarks.compile_time", "--worker", side]
    command += ["--models", model, "--layers", str(layers)]
    done = subprocess.run(
        command, env=environ, cwd=report.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        return {}
    return json.loads(done.stdout.strip().splitlines()[-1])


def total(figures: dict[str, object]) -> float | None:
    """The sum of the first calls less the second ones."""
    return sum(figures["first"]) - sum(figures["second"]) if figures else None


def benchmark(model: str, layers: int, with_peer: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        ours = measure("anyshape", model, layers, Path(directory))
        warm = measure("anyshape", model, layers, Path(directory))
        peer = measure("torch.compile", model, layers, Path(directory)) if with_peer else {}
    seconds, peers = total(ours), total(peer)
    return {
        "model": model,
        "layers": layers,
        "anyshape s": seconds,
        "capture s": ours.get("capture"),
        "warm start s": total(warm),
        "specializations": ours.get("graphs"),
        "kernels": ours.get("kernels"),
        "torch.compile s": peers,
        "its graphs": peer.get("graphs"),
        "ratio": peers / seconds if seconds and peers else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", help="anyshape or torch.compile; used by the script itself")
    parser.add_argument("--models", nargs="+", default=["llama", "qwen3-moe", "bert"])
    parser.add_argument("--layers", nargs="+", type=int, default=[4, 32])
    parser.add_argument("--peer-layers", nargs="*", type=int, default=[4])
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.models[0], arguments.layers[0])
        return
    rows = []
    for model in arguments.models:
        for layers in arguments.layers if model == "llama" else arguments.layers[:1]:
            rows.append(benchmark(model, layers, layers in arguments.peer_layers))
            print(report.table(rows[-1:]), flush=True)
            report.save("compile_time", rows)
    print(report.table(rows))


if __name__ == "__main__":
    main()
