"""How much memory a training step takes beyond what is there before it: eager, torch.compile, ours
(the model, or the whole step, compiled), with and without checkpointed layers.

    python -m benchmarks.training_memory --models llama --shape 4 512 --checkpoint

Each is measured in a process of its own: the most memory that the process has held during a step
(the kernel's ``VmHWM``) less what it held before (``VmRSS``), both in MiB, after three steps of
that shape. glibc gives freed memory back at once. Gradients, which a step makes anew, are included.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

import anyshape
from anyshape.tools import models
from anyshape.tools.models import Recipe
from benchmarks import report
from benchmarks.training import step_of

WAYS = ("eager", "model", "step", "torch.compile")
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
Step = Callable[[Mapping[str, object]], object]


def memory_mib(field: str) -> float:
    """MiB: ``VmRSS`` or ``VmHWM`` of this process."""
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1]) / 1024


def taken(step: Step, arguments: Mapping[str, object]) -> float:
    """MiB that a step needs beyond what is held before it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")
    before = memory_mib("VmRSS")
    step(arguments)
    return memory_mib("VmHWM") - before


def made(way: str, module: nn.Module) -> Step:
    match way:
        case "eager":
            return step_of(module, module)
        case "model":
            return step_of(module, anyshape.compile(module))
        case "step":
            return anyshape.compile(step_of(module, module))
        case _:
            return step_of(module, torch.compile(module, dynamic=True))


def measure(name: str, way: str, shape: tuple[int, int], layers: int, *, again: bool) -> float:
    """In this process."""
    recipe = Recipe(layers=layers)
    module = models.build(name, recipe).train()
    if again:
        module.gradient_checkpointing_enable({"use_reentrant": False})
    arguments = models.inputs(name, *shape, "none", recipe)
    step = made(way, module)
    for _ in range(3):
        step(arguments)
    return min(taken(step, arguments) for _ in range(3))


def in_a_process(name: str, way: str, options: list[str]) -> float:
    command = [sys.executable, "-m", "benchmarks.training_memory", "--one", way, "--models", name]
    done = subprocess.run(
        [*command, *options],
        env=os.environ | AT_ONCE,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*models.MODELS], choices=models.MODELS)
    parser.add_argument("--shape", nargs=2, type=int, default=(4, 512))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--checkpoint", action="store_true", help="checkpoint each layer")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    shape = (given.shape[0], given.shape[1])
    if given.one:
        (name,) = given.models
        print(measure(name, given.one, shape, given.layers, again=given.checkpoint))
        return
    options = ["--shape", *map(str, shape), "--layers", str(given.layers)]
    options += ["--checkpoint"] * given.checkpoint
    for name in given.models:
        row = {"model": name, "shape": str(shape), "checkpoint": given.checkpoint}
        row |= {f"{way} MiB": in_a_process(name, way, options) for way in given.ways}
        print(report.table([row]), flush=True)


if __name__ == "__main__":
    main()
