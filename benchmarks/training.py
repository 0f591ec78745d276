"""How fast training steps run: forward, backward and a fused AdamW, of eager, of torch.compile
dynamic and static (the model compiled), and of ours (the model, or the whole step, compiled).

    python -m benchmarks.training --out FOLDER --minutes 7.5 --dtype float32 bfloat16

Each model, type and way of torch.compile is a process of its own, with empty caches and two cores,
in which eager, ours and that way take turns; as many run at once as there are pairs of cores. Rows
are written as they come, so that a run which is stopped leaves those that it has: ``rows.json``,
``table.txt`` and ``log.txt`` in FOLDER, or else the file of figures that docs/benchmarks.md shows.

Figures are seconds of the clock, or of the processor (``--clock cpu``), which mean something on a
machine that is busy too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import anyshape
from anyshape.tools import models
from anyshape.tools.models import Recipe
from benchmarks import pinned, report

SHAPES = ((2, 16), (1, 33), (3, 64), (2, 100), (4, 200), (2, 7))
PEERS = {"dynamic": True, "static": False}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
KEYS = ("model", "dtype", "layers", "peer", "shape")
# Those whose first calls take torch.compile longest are begun first.
MODELS = ("resnet", "qwen3-moe", "vit", "jepa", "bert", "llama", "gpt2", "two-tower")
Step = Callable[[Mapping[str, object]], object]


def loss_of(made: object) -> Tensor:
    """A number of the first floating tensor that a model gives."""
    if isinstance(made, Tensor) and made.dtype.is_floating_point:
        return made.float().square().mean()
    values = made.values() if isinstance(made, Mapping) else made
    assert isinstance(values, (tuple, list)) or hasattr(values, "__iter__")
    return next(loss_of(value) for value in values if isinstance(value, Tensor))


def step_of(module: nn.Module, run: Callable[..., object]) -> Step:
    """A training step of ``module``, which is called as ``run``."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def step(arguments: Mapping[str, object]) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(run(**arguments))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def ours(name: str, recipe: Recipe, cache: Path) -> dict[str, Step]:
    """Eager and our two ways, each with a module of its own, and with an empty cache."""
    plain, model, whole = (models.build(name, recipe).train() for _ in range(3))
    compiled = anyshape.compile(model, options={"cache_dir": str(cache / "model")})
    step = step_of(whole, whole)
    return {
        "eager": step_of(plain, plain),
        "model": step_of(model, compiled),
        "step": anyshape.compile(step, options={"cache_dir": str(cache / "step")}),
    }


def seconds(step: Step, arguments: Mapping[str, object], clock: Callable[[], float]) -> float:
    start = clock()
    step(arguments)
    return clock() - start


def first_steps(step: Step, given: Sequence[Mapping[str, object]]) -> float:
    """Wall seconds of the first step at each shape. Afterwards all that is compiled is there."""
    taken = sum(seconds(step, arguments, time.perf_counter) for arguments in given)
    for arguments in (given[0], *given):  # the second step is a specialization of its own
        step(arguments)
    return taken


def benchmark(
    name: str, recipe: Recipe, peer: str, shapes: int, rounds: int, clock: str
) -> Iterator[dict[str, object]]:
    """A row a shape, as soon as the peer has compiled for it."""
    torch._dynamo.config.recompile_limit = 64
    given = {shape: models.inputs(name, *shape, "none", recipe) for shape in SHAPES[:shapes]}
    row: dict[str, object] = {"model": name, "layers": recipe.layers}
    row |= {"dtype": str(recipe.dtype).removeprefix("torch."), "peer": peer}
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        steps = ours(name, recipe, Path(cache))
        for who, step in steps.items():
            first[who] = first_steps(step, [*given.values()])
        if peer in PEERS:
            theirs = models.build(name, recipe).train()
            compiled = torch.compile(theirs, dynamic=PEERS[peer])
            steps["peer"] = step_of(theirs, compiled)
        for shape, arguments in given.items():
            if peer in PEERS:
                taken = seconds(steps["peer"], arguments, time.perf_counter)
                first["peer"] = first.get("peer", 0.0) + taken
                steps["peer"](arguments)
            measured = _measured(steps, arguments, rounds, CLOCKS[clock])
            begun = {f"{who} first s": value for who, value in first.items() if who != "eager"}
            yield row | {"shape": str(shape)} | measured | begun


def _measured(
    steps: Mapping[str, Step],
    arguments: Mapping[str, object],
    rounds: int,
    clock: Callable[[], float],
) -> dict[str, object]:
    taken: dict[str, list[float]] = {who: [] for who in steps}
    for _ in range(rounds):
        for who, step in steps.items():
            taken[who].append(seconds(step, arguments, clock))
    medians = {who: statistics.median(values) for who, values in taken.items()}
    best = min(medians["model"], medians["step"])
    row: dict[str, object] = {f"{who} ms": value * 1e3 for who, value in medians.items()}
    row["over eager"] = medians["eager"] / best
    return row | ({"over peer": medians["peer"] / best} if "peer" in medians else {})


def summary(rows: Sequence[Mapping[str, object]]) -> str:
    """A line for each model and type: what is asked, over all shapes and both ways.

    ``first``: torch.compile's first steps over ours, at the shapes that both have gone through.
    """
    lines: list[dict[str, object]] = []

    def of(row: Mapping[str, object]) -> tuple[str, str]:
        return str(row["model"]), str(row["dtype"])

    for (model, dtype), group in itertools.groupby(sorted(rows, key=of), of):
        mine = [*group]
        line: dict[str, object] = {"model": model, "dtype": dtype}
        line["over eager, least"] = min(_number(row, "over eager") for row in mine)
        for peer in PEERS:
            theirs = [row for row in mine if row["peer"] == peer and "over peer" in row]
            if not theirs:
                continue
            line[f"{peer}: shapes"] = len(theirs)
            line["least"] = min(_number(row, "over peer") for row in theirs)
            last = max(theirs, key=lambda row: _number(row, "peer first s"))
            for who in ("model", "step"):
                ratio = _number(last, "peer first s") / _number(last, f"{who} first s")
                line[f"{peer} first / {who}"] = ratio
            line[f"{peer}, least"] = line.pop("least")
        lines.append(line)
    return report.table(lines)


def _number(row: Mapping[str, object], column: str) -> float:
    value = row[column]
    assert isinstance(value, float)
    return value


def jobs(arguments: argparse.Namespace, folder: Path) -> Iterator[pinned.Job]:
    """A process for each type, model and way of torch.compile, in the order of what matters: one
    type after the other, and first what takes longest (static ways compile at each shape)."""
    given = {"layers": arguments.layers, "shapes": arguments.shapes, "rounds": arguments.rounds}
    passed = [f"--{key}={value}" for key, value in {**given, "clock": arguments.clock}.items()]
    threads = str(arguments.threads)
    order = sorted(arguments.models, key=lambda name: [*MODELS, name].index(name))
    peers = sorted(arguments.peers, reverse=True) or ["none"]
    for dtype in arguments.dtype:
        for name, peer in itertools.product(order, peers):
            own = folder / f"{name}-{dtype}-{peer}"
            own.mkdir()
            yield pinned.Job(
                f"{name} {dtype} {peer}",
                ["-m", "benchmarks.training", "--worker", name, dtype, peer, *passed],
                arguments.seconds,
                {"TORCHINDUCTOR_CACHE_DIR": str(own), "OMP_NUM_THREADS": threads},
            )


def worker(arguments: argparse.Namespace) -> None:
    name, dtype, peer = arguments.worker
    recipe = Recipe(layers=arguments.layers, dtype=getattr(torch, dtype))
    given = arguments.shapes, arguments.rounds, arguments.clock
    for row in benchmark(name, recipe, peer, *given):
        print(json.dumps(row), flush=True)


def spread(arguments: argparse.Namespace) -> None:
    """All jobs, and what they print as rows of one table."""
    start = time.monotonic()
    rows: list[dict[str, object]] = []
    out = arguments.out
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)

    def keep(name: str, text: str) -> None:
        if out is not None:
            (out / name).write_text(text + "\n", encoding="utf-8")

    def on_line(job: pinned.Job, line: str) -> None:
        if not line.startswith("{"):
            print(f"{job.name}: {line}", end="", file=sys.stderr)
            return
        rows.append(json.loads(line))
        print(f"{time.monotonic() - start:.0f} s\n{report.table(rows[-1:])}", flush=True)
        keep("rows.json", json.dumps({"machine": report.machine(), "rows": rows}, indent=1))

    with tempfile.TemporaryDirectory() as folder:
        waiting = [*jobs(arguments, Path(folder))]
        until = start + arguments.minutes * 60
        ended = pinned.run(waiting, arguments.threads, until, on_line)
    rows.sort(key=lambda row: [str(row[key]) for key in KEYS[:-1]])
    tables = "\n\n".join([report.table(rows), summary(rows) if rows else "", "\n".join(ended)])
    print(tables)
    keep("table.txt", tables)
    if out is None:
        report.save("training", report.merged("training", rows, KEYS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=models.MODELS)
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=("float32", "bfloat16"))
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=PEERS)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="the first so many")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", default="wall", choices=CLOCKS)
    parser.add_argument("--threads", type=int, default=2, help="cores and threads of each process")
    parser.add_argument("--seconds", type=float, default=3600, help="that one process may take")
    parser.add_argument("--minutes", type=float, default=600, help="that all may take")
    parser.add_argument("--out", type=Path, help="a folder for the rows, instead of the page")
    parser.add_argument("--worker", nargs=3, metavar=("MODEL", "DTYPE", "PEER"))
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments)
    else:
        spread(arguments)


if __name__ == "__main__":
    main()
