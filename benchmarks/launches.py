"""What a call costs the host on a GPU, beside eager torch and torch.compile, in one process.

    python -m benchmarks.launches OUT_FOLDER [chain|models|first ...] [--no-peers]

`host` is the median time until a call returns, the device idle before it; `waited` the time until
the device is done, too; `device` the sum of its kernels under torch's profiler, which comes last:
every launch of a process takes longer once it was profiled. The chain is 64 products of 64 x 64,
each followed by a pointwise kernel. `first` times first calls in processes of their own, of which
the second finds the disk cache filled; ANYSHAPE's own import is part of them, and given apart.
Eager's process comes first: it has the libraries' files read from disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
import triton
from torch import Tensor

import anyshape
from benchmarks.gpu import waited
from benchmarks.gpu_models import MODELS, VOCABULARY
from benchmarks.moe_kernels import ceilings

STEPS, SIZE = 64, 64
FIRSTS = 3
"""Processes of each side whose first calls are timed."""
SHAPES = ((1, 1), (1, 512))


def chain(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(STEPS):
        x = torch.tanh(x @ w)
    return x


def kernels(x: Tensor, w: Tensor) -> Tensor:
    """Kernels that are not fused: each reads sums over what the one before made."""
    for _ in range(STEPS):
        x = x - x.mean(-1, keepdim=True)
        x = x + x.mean(0)
    return x


def products(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(STEPS):
        x = x @ w
    return x


PROGRAMS = {"chain": chain, "kernels": kernels, "products": products}


def host(call: Callable[[], object], calls: int = 50) -> float:
    """Microseconds until a call returns, the median."""
    for _ in range(5):
        call()
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return statistics.median(times) * 1e6


def device(call: Callable[[], object]) -> tuple[float, int]:
    """Microseconds of a call's kernels and copies, one after the other, and how many these are."""
    call()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    found = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sum(e.time_range.elapsed_us() for e in found), len(found)


Sides = dict[str, Callable[[], object]]
Found = Iterator[tuple[dict[str, Any], Sides]]


def chains(peers: bool) -> Found:
    x = torch.randn(SIZE, SIZE, device="cuda")
    w = torch.randn(SIZE, SIZE, device="cuda") / SIZE**0.5
    for name, program in PROGRAMS.items():
        ours = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
        torch.testing.assert_close(ours(x, w), program(x, w), rtol=1e-3, atol=1e-3)
        sides: Sides = {"ours": partial(ours, x, w), "eager": partial(program, x, w)}
        if peers:
            sides["torch.compile"] = partial(torch.compile(program), x, w)
        yield {"program": name}, sides


def models(peers: bool) -> Found:
    """The peer compiles for each shape."""
    made = {}
    for name, make in MODELS.items():
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = make().to(torch.bfloat16).eval()
        made[name] = model, anyshape.compile(model)
    for shape, (name, (model, ours)) in itertools.product(SHAPES, made.items()):
        ids = torch.randint(0, VOCABULARY, shape, device="cuda")
        calls = {"ours": ours, "eager": model}
        if peers:
            calls["torch.compile"] = torch.compile(model, dynamic=False)
        sides: Sides = {side: partial(call, ids, use_cache=False) for side, call in calls.items()}
        found, wanted = (
            calls[side](ids, use_cache=False).logits.float() for side in ("ours", "eager")
        )
        error = ((found - wanted).norm() / wanted.norm()).item()
        yield {"model": name, "shape": shape, "from eager": error}, sides


FIRST = """
import sys, time, torch
from benchmarks.gpu_models import MODELS, VOCABULARY
with torch.device("cuda"):
    model = MODELS[sys.argv[1]]().to(torch.bfloat16).eval()
    ids = torch.randint(0, VOCABULARY, (1, 512))
torch.cuda.synchronize()
before = {*sys.modules}  # transformers imports Triton itself
start = time.perf_counter()
call = model
if sys.argv[2] != "eager":
    import anyshape
    call = anyshape.compile(model)
compiled = time.perf_counter()
with torch.no_grad():
    call(ids, use_cache=False)
torch.cuda.synchronize()
done = time.perf_counter()
new = {*sys.modules} - before
print(done - start, done - compiled, "triton" in new or "triton.compiler" in new)
"""


def first(peers: bool) -> Found:
    """Eager and ours in turn, once the first process has filled the cache."""
    for name in MODELS:
        with tempfile.TemporaryDirectory() as cache:
            took: dict[str, list[float]] = {
                "eager, first process": [_first(name, "eager", cache)[0]]
            }
            took["ours, first process"] = [_first(name, "ours", cache)[0]]
            calls: dict[str, list[float]] = {}
            for side in ("eager", "ours") * FIRSTS:
                whole, call = _first(name, side, cache)
                took.setdefault(side, []).append(whole)
                calls.setdefault(side, []).append(call)
        eager = statistics.median(took["eager"])
        more = {
            "with the import": statistics.median(took["ours"]) - eager,
            "without": statistics.median(calls["ours"]) - eager,
        }
        yield {"model": name, "first call, s": took, "second process, more than eager": more}, {}


def _first(name: str, side: str, cache: str) -> tuple[float, float]:
    """Seconds of the first call in a process of its own, with the import and without."""
    environment = os.environ | {"ANYSHAPE_CACHE_DIR": cache}
    command = [sys.executable, "-c", FIRST, name, side]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    whole, call, triton_was_imported = done.stdout.split()
    if triton_was_imported == "True":
        print(f"{name}, {side}: Triton was imported", flush=True)
    return float(whole), float(call)


TABLES = {"chain": chains, "models": models, "first": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*", default=[*TABLES])
    parser.add_argument("--no-peers", action="store_true")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path = chosen.folder / "launches.json"
    content: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "triton": triton.__version__, "transformers": transformers.__version__,
        "python": platform.python_version(), "ceilings": ceilings(),
    }  # fmt: skip
    print(json.dumps(content), flush=True)
    rows: list[tuple[dict[str, Any], Sides]] = []
    with torch.no_grad():
        for table in chosen.tables:
            content[table] = []
            for row, sides in TABLES[table](not chosen.no_peers):
                row |= {
                    side: {"host us": host(call), "waited us": waited(call) * 1e3}
                    for side, call in sides.items()
                }
                print(json.dumps(row), flush=True)
                content[table].append(row)
                rows.append((row, sides))
                path.write_text(json.dumps(content, indent=1) + "\n")
        for row, sides in rows:
            for side, call in sides.items():
                took, count = device(call)
                row[side] |= {"device us": took, "kernels": count}
            path.write_text(json.dumps(content, indent=1) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
