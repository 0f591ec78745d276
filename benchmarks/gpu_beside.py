"""Models on one GPU beside torch.compile: first calls over all shapes, then each shape's call.

    python -m benchmarks.gpu_beside OUT_FOLDER [--only NAME ...] [--seconds 150] [--small]
        [--mode reduce-overhead]

A process a model. Ours and eager torch go through all shapes first, with empty caches; then one way
of torch.compile after the other does, as long as the model's ``--seconds`` last: what was not
measured by then is left empty. A call is waited for, the host included: the median, sides in turn.
Of mixtures of experts `experts` is ours behind `anyshape.moe.replace_experts`. ``--small`` is a dry
run of all of it, with models of a layer and two shapes, on the CPU without a GPU. ``--mode``
is of both compilers; with `reduce-overhead` torch.compile records graphs for each shape that it has
compiled for, so that only its static way is beside ours.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from torch import Tensor

import anyshape
import anyshape.moe
from benchmarks import gpu_models
from benchmarks.gpu_models import CASES, Case, Shape

ROUNDS = 15
OWN = ("ours", "experts")
"""Sides that must be as fast as torch.compile's."""
SMALL_CONFIG = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_local_experts": 4,
    "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "embedding_size": 16, "hidden_sizes": [16, 32, 32, 64],
    "depths": [1, 1, 1, 1],
}  # fmt: skip
SMALL_SHAPES: Mapping[str, tuple[Shape, ...]] = {"tokens": ((1, 8), (2, 5))}
SMALL_PICTURES: tuple[Shape, ...] = ((2, 32), (3, 48))
Call = Callable[..., Any]


@dataclass(slots=True)
class Measured:
    """Of one model: seconds of first calls by side, milliseconds by shape and side, and how far
    ours is from eager, relative to its norm."""

    model: str
    first: dict[str, float] = field(default_factory=dict)
    ms: dict[Shape, dict[str, float]] = field(default_factory=dict)
    far: dict[Shape, float] = field(default_factory=dict)
    specializations: int = 0
    breaks: int = 0

    def row(self) -> dict[str, object]:
        """As it is written to the file."""
        return {
            "model": self.model, "first calls, s": self.first, "from eager": _by_name(self.far),
            "ms": _by_name(self.ms), "specializations": self.specializations,
            "graph breaks": self.breaks,
        }  # fmt: skip


def lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Tables of a row: a line a shape, and one of first calls."""
    sides = [*row["first calls, s"]]
    about = f"{row['specializations']} specializations, {row['graph breaks']} graph breaks"
    yield f"{row['model']}: {about}"
    yield f"| shape | {' | '.join(sides)} | ours / best of torch.compile | from eager |"
    yield "|---" * (len(sides) + 3) + "|"
    for shape, took in row["ms"].items():
        peers = [ms for side, ms in took.items() if side not in (*OWN, "eager")]
        ratio = f"{took['ours'] / min(peers):.2f}" if peers else ""
        cells = " | ".join(f"{took[side]:.3f}" if side in took else "" for side in sides)
        yield f"| {shape} | {cells} | {ratio} | {row['from eager'][shape]:.4f} |"
    cells = " | ".join(f"{row['first calls, s'][side]:.1f} s" for side in sides)
    yield f"| first calls | {cells} | | |"


def _by_name(table: Mapping[Shape, Any]) -> dict[str, Any]:
    return {f"{rows} x {columns}": value for (rows, columns), value in table.items()}


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(call: Callable[[], object]) -> float:
    """Of a call that is waited for."""
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - start


def measure(
    name: str, case: Case, limit: float, cache: str, mode: str | None
) -> Iterator[Measured]:
    """After each step what is known so far."""
    end = time.monotonic() + limit
    torch.manual_seed(0)
    with torch.device(gpu_models.DEVICE):
        model = case.build()
    model = model.to(torch.bfloat16).eval()
    torch._dynamo.config.recompile_limit = 64
    given = {shape: case.inputs(shape) for shape in case.shapes}
    found, ours = Measured(name), compiled(model, cache, mode)
    sides: dict[str, Call] = {"ours": ours, "eager": model}
    if "MoE" in name:
        sides["experts"] = with_experts(model, cache, mode)
    for side, call in sides.items():
        found.first[side] = sum(seconds(partial(call, **g)) for g in given.values())
    stats = ours.stats()
    found.specializations, found.breaks = stats.specializations, stats.graph_breaks
    for shape, arguments in given.items():
        found.far[shape] = distance(ours(**arguments).logits, model(**arguments).logits)
        found.ms[shape] = in_turn(sides, arguments)
    yield found
    for side, dynamic in case.peers.items() if mode is None else ((mode, False),):
        torch.compiler.reset()
        peer = torch.compile(model, dynamic=dynamic, mode=mode)
        for shape, arguments in given.items():
            if time.monotonic() > end:
                return
            took = seconds(partial(peer, **arguments))
            found.first[side] = found.first.get(side, 0.0) + took
            beside = in_turn({"ours": ours, side: peer}, arguments)
            found.ms[shape] |= beside | {"ours": min(beside["ours"], found.ms[shape]["ours"])}
            yield found


def compiled(model: torch.nn.Module, cache: str, mode: str | None) -> Any:
    """Ours."""
    return anyshape.compile(model, mode=mode, options={"cache_dir": cache})


def with_experts(model: torch.nn.Module, cache: str, mode: str | None) -> Call:
    """Ours, of a copy whose experts are replaced by `anyshape.moe`'s."""
    changed = copy.deepcopy(model)
    print(anyshape.moe.replace_experts(changed), flush=True)
    made: Call = compiled(changed, cache, mode)
    return made


def in_turn(sides: Mapping[str, Call], arguments: Mapping[str, object]) -> dict[str, float]:
    """The median milliseconds of each side's calls, one call of each after the other."""
    took: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(ROUNDS + 3):
        for side, call in sides.items():
            each = seconds(partial(call, **arguments))
            took[side] += [each] if turn >= 3 else []
    return {side: statistics.median(each) * 1e3 for side, each in took.items()}


def distance(made: Tensor, wanted: Tensor) -> float:
    """Relative to the norm of what is wanted."""
    return ((made.float() - wanted.float()).norm() / wanted.float().norm()).item()


def small(case: Case) -> Case:
    """The same with a model of a layer, at two shapes."""

    def build() -> torch.nn.Module:
        with contextlib.ExitStack() as patched:
            for kind in ("LlamaConfig", "Qwen3MoeConfig", "ViTConfig", "ResNetConfig"):
                made = shrunk(getattr(transformers, kind))
                patched.enter_context(mock.patch.object(transformers, kind, made))
            return case.build()

    text = case.inputs is gpu_models.tokens
    return replace(case, build=build, shapes=SMALL_SHAPES["tokens"] if text else SMALL_PICTURES)


def shrunk(config: Callable[..., Any]) -> Callable[..., Any]:
    """A config with small sizes in place of what it has of these."""

    def made(**settings: object) -> Any:
        known = config().to_dict()
        return config(**settings | {k: v for k, v in SMALL_CONFIG.items() if k in known})

    return made


def worker(name: str, chosen: argparse.Namespace) -> None:
    """Prints what is known of the model as it is found, a line of JSON each time."""
    case = small(CASES[name]) if chosen.small else CASES[name]
    with tempfile.TemporaryDirectory() as cache, torch.no_grad():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{cache}/inductor"
        os.environ["TRITON_CACHE_DIR"] = f"{cache}/triton"  # ours and the peer's compile by it
        for found in measure(name, case, chosen.seconds, f"{cache}/ours", chosen.mode):
            print(json.dumps(found.row()), flush=True)


def run(name: str, chosen: argparse.Namespace) -> tuple[dict[str, object], str]:
    """The last row of the model's process, and all else that it printed."""
    command = [sys.executable, "-m", "benchmarks.gpu_beside", str(chosen.folder), "--worker", name]
    command += ["--seconds", str(chosen.seconds), *(["--small"] if chosen.small else [])]
    command += ["--mode", chosen.mode] if chosen.mode else []
    patience = chosen.seconds + 60
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=patience
        )
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as stopped:
        text, code = (stopped.stdout or b"").decode(), 0
    rows = [line for line in text.splitlines() if line.startswith('{"model"')]
    rest = "\n".join(line for line in text.splitlines() if not line.startswith('{"model"'))
    if code or not rows:
        rest += f"\nFAIL {name}"
    if not rows:
        return {"model": name, "failed": code}, rest
    row = json.loads(rows[-1])
    return row, "\n".join((rest, *lines(row)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[*CASES], choices=[*CASES])
    parser.add_argument("--seconds", type=float, default=150.0, help="that a model may take")
    parser.add_argument("--small", action="store_true", help="a dry run")
    parser.add_argument("--mode", choices=["reduce-overhead", "max-autotune"], help="of both")
    parser.add_argument("--worker", choices=[*CASES])
    chosen = parser.parse_args()
    if chosen.worker:
        worker(chosen.worker, chosen)
        return
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path = chosen.folder / (f"beside-{chosen.mode}.json" if chosen.mode else "beside.json")
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    rows = {row["model"]: row for row in kept.get("models", ())}
    about = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__, "transformers": transformers.__version__,
        "python": platform.python_version(),
    }  # fmt: skip
    for name in chosen.only:
        rows[name], text = run(name, chosen)
        print(text, flush=True)
        path.write_text(json.dumps(about | {"models": [*rows.values()]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
