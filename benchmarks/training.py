"""How fast training steps run: forward, backward and a fused AdamW, of eager, of torch.compile
dynamic and static (the model compiled), and of ours (the model, or the whole step, compiled),
taking turns in one process.

Figures are seconds of the clock, or of the processor (``--clock cpu``), which mean something on a
machine that is busy too. All are timed again whenever one more is ready, and printed at once, so
that a run which is stopped leaves rows. A run replaces the rows of what it measured; others stay.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

import anyshape
from anyshape.tools import models
from anyshape.tools.models import Recipe
from benchmarks import report

SHAPES = ((2, 16), (1, 33), (3, 64), (2, 100), (4, 200), (2, 7))
PEERS = {"dynamic": True, "static": False}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
KEYS = ("model", "dtype", "layers", "shape")
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


def candidates(name: str, recipe: Recipe, peers: list[str]) -> dict[str, Step]:
    """The same step, in each way; each has a module of its own."""

    def module() -> nn.Module:
        return models.build(name, recipe).train()

    plain, ours, whole = module(), module(), module()
    made: dict[str, Step] = {
        "eager": step_of(plain, plain),
        "model": step_of(ours, anyshape.compile(ours)),
        "step": anyshape.compile(step_of(whole, whole)),
    }
    for peer in peers:
        theirs = module()
        made[peer] = step_of(theirs, torch.compile(theirs, dynamic=PEERS[peer]))
    return made


def seconds(step: Step, arguments: Mapping[str, object], clock: Callable[[], float]) -> float:
    start = clock()
    step(arguments)
    return clock() - start


def first_steps(step: Step, given: Sequence[Mapping[str, object]]) -> float:
    """Wall seconds of the first step at each shape. Afterwards all that is compiled is there."""
    start = time.perf_counter()
    for arguments in given:
        step(arguments)
    taken = time.perf_counter() - start
    for arguments in (given[0], *given):  # the second step is a specialization of its own
        step(arguments)
    return taken


def benchmark(
    name: str, recipe: Recipe, peers: list[str], shapes: int, rounds: int, clock: str
) -> Iterator[list[dict[str, object]]]:
    """The rows of ours, then the rows with each peer."""
    torch.compiler.reset()
    torch._dynamo.config.recompile_limit = 64
    given = {shape: models.inputs(name, *shape, "none", recipe) for shape in SHAPES[:shapes]}
    steps: dict[str, Step] = {}
    first: dict[str, float] = {}
    for who, step in candidates(name, recipe, peers).items():
        first[who] = first_steps(step, [*given.values()])
        print(f"{name}: the first steps of {who} took {first[who]:.1f} s", file=sys.stderr)
        steps[who] = step
        if who != "eager" and who != "model":
            head = {"model": name, "layers": recipe.layers}
            head |= {"dtype": str(recipe.dtype).removeprefix("torch.")}
            measured = _rows(steps, given, rounds, CLOCKS[clock])
            yield [head | row | _first(first) for row in measured]


def _rows(
    steps: Mapping[str, Step],
    given: Mapping[tuple[int, int], Mapping[str, object]],
    rounds: int,
    clock: Callable[[], float],
) -> Iterator[dict[str, object]]:
    for shape, arguments in given.items():
        taken: dict[str, list[float]] = {who: [] for who in steps}
        for _ in range(rounds):
            for who, step in steps.items():
                taken[who].append(seconds(step, arguments, clock))
        medians = {who: statistics.median(values) for who, values in taken.items()}
        best = min(medians["model"], medians["step"])
        row: dict[str, object] = {"shape": str(shape)}
        row |= {f"{who} ms": value * 1e3 for who, value in medians.items()}
        row["over eager"] = medians["eager"] / best
        theirs = [medians[who] for who in PEERS if who in medians]
        yield row | ({"over peer": min(theirs) / best} if theirs else {})


def _first(seconds: Mapping[str, float]) -> dict[str, object]:
    return {f"{who} first s": value for who, value in seconds.items() if who != "eager"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*models.MODELS], choices=models.MODELS)
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=("float32", "bfloat16"))
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=PEERS)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="the first so many")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", default="wall", choices=CLOCKS)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for dtype in arguments.dtype:
        for name in arguments.models:
            recipe = Recipe(layers=arguments.layers, dtype=getattr(torch, dtype))
            given = arguments.peers, arguments.shapes, arguments.rounds, arguments.clock
            made: list[dict[str, object]] = []
            for made in benchmark(name, recipe, *given):
                print(report.table(made), flush=True)
                report.save("training", report.merged("training", [*rows, *made], KEYS))
            rows += made


if __name__ == "__main__":
    main()
