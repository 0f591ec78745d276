"""What calls of random sizes reserve on a GPU, beside eager torch and torch.compile.

    python -m benchmarks.gpu_memory OUT_FOLDER [--sides ours eager ...] [--kept] [--growing]

400 calls of an encoder of four layers, of 1 to 64 rows of 1 to 512 tokens each; `--kept`: each
result lives until the next is there; `--growing`: each call has more tokens than the one before.
Each side has a process of its own. `emptied` is how often `torch.cuda.empty_cache` was called, in
all and in the second half of the calls.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import anyshape

HIDDEN, HEADS, LAYERS, CALLS = 1024, 16, 4, 400
SIDES = ("ours", "ours, graphs", "eager", "torch.compile")


class Layer(nn.Module):
    """Attention and a feed-forward block, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        split = self.qkv(self.before(x)).view(rows, length, 3, HEADS, HIDDEN // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, HIDDEN))
        made: Tensor = x + self.down(F.gelu(self.up(self.between(x))))
        return made


def shapes(growing: bool) -> list[tuple[int, int]]:
    if growing:
        return [(16, 4 * (n + 1)) for n in range(CALLS)]
    choose = random.Random(0)
    return [(choose.randint(1, 64), choose.randint(1, 512)) for _ in range(CALLS)]


def compiled(side: str, model: nn.Module) -> Callable[[Tensor], Tensor]:
    match side:
        case "ours":
            return anyshape.compile(model, fullgraph=True, options={"fallback": "error"})
        case "ours, graphs":
            return anyshape.compile(model, fullgraph=True, mode="reduce-overhead")
        case "torch.compile":
            return torch.compile(model, dynamic=True)
    return model


def measured(side: str, kept: bool, growing: bool) -> dict[str, Any]:
    """One side in this process. What was used before the calls, the weights, counts."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = nn.Sequential(*(Layer() for _ in range(LAYERS))).to(torch.bfloat16).eval()
    call = compiled(side, model)
    emptied, empty = [], torch.cuda.empty_cache
    torch.cuda.empty_cache = lambda: (emptied.append(number), empty())[1]
    torch.cuda.reset_peak_memory_stats()
    start, result = time.perf_counter(), None
    for number, shape in enumerate(shapes(growing)):
        made = call(torch.randn(*shape, HIDDEN, device="cuda", dtype=torch.bfloat16))
        if number == CALLS // 2:
            torch.cuda.synchronize()
            half = time.perf_counter()
        if kept:
            result = made
        del made
    torch.cuda.synchronize()
    del result
    stats = torch.cuda.memory_stats()
    reserved, allocated = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    return {
        "side": side, "kept": kept, "growing": growing, "reserved GB": reserved / 1e9,
        "allocated GB": allocated / 1e9, "reserved / allocated": reserved / allocated,
        "reserved at the end, GB": torch.cuda.memory_reserved() / 1e9,
        "emptied": [len(emptied), sum(n >= CALLS // 2 for n in emptied)],
        "allocations of the driver": stats["num_device_alloc"],
        "seconds": [half - start, time.perf_counter() - half],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sides", nargs="+", default=[*SIDES], choices=SIDES)
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--growing", action="store_true")
    parser.add_argument("--here", action="store_true", help="one side, in this process")
    chosen = parser.parse_args()
    if chosen.here:
        with torch.no_grad():
            print(json.dumps(measured(chosen.sides[0], chosen.kept, chosen.growing)))
        return
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path = chosen.folder / "memory.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    for side in chosen.sides:
        rows.append(
            in_a_process(side, [*["--kept"] * chosen.kept, *["--growing"] * chosen.growing])
        )
        print(json.dumps(rows[-1]), flush=True)
        path.write_text(json.dumps(rows, indent=1) + "\n")


def in_a_process(side: str, options: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu_memory", ".", "--here", *options]
    finished = subprocess.run([*command, "--sides", side], capture_output=True, text=True)
    if finished.returncode:
        return {"side": side, "failed": finished.stderr[-500:]}
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
