"""`anyshape demo`: models with random weights, each compiled once and run at every length, beside
eager.

Comes in: names of models and the command's settings. Goes out: a table as it goes, one
`ModelResult` a model for --json, and whether all of it is right: each output within the bound of
accuracy.py, and one specialization a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, TextIO

import torch
from torch import nn

from anyshape import api
from anyshape.dispatch.stats import counted
from anyshape.nouns import frozen, mutable
from anyshape.runtime.progress import doing
from anyshape.tools import accuracy, models
from anyshape.tools.colour import painted
from anyshape.tools.models import Mask, Recipe
from anyshape.tools.timing import interleaved

PEER = "torch.compile"


@frozen
class Settings:
    """What the command line asks for."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...] = models.SHAPES
    recipe: Recipe = Recipe()
    mask: Mask = "none"
    against: bool = False
    rounds: int = 11
    device: torch.device = torch.device("cpu")


@frozen
class ShapeResult:
    """One shape of one model: seconds of the first call and of a later one, and the error."""

    batch: int
    length: int
    first_seconds: float
    seconds: float
    eager_seconds: float
    speedup: float
    error: float
    allowed_error: float
    fault: str
    right: bool
    peer_first_seconds: float | None = None
    peer_seconds: float | None = None
    speedup_over_peer: float | None = None


@mutable
class ModelResult:
    """One model: what compiling it made, and each shape."""

    name: str
    compile_seconds: float = 0.0
    specializations: int = 0
    graph_breaks: int = 0
    kernels: int = 0
    externs: int = 0
    eager_ops: int = 0
    joined: int = 0
    guarded: int = 0
    failure: str = ""
    shapes: list[ShapeResult] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """No failure, every output within its bound, one specialization, no graph break."""
        return (
            not self.failure
            and all(shape.right for shape in self.shapes)
            and self.specializations == 1
            and self.graph_breaks == 0
        )


def run(settings: Settings, out: TextIO) -> list[ModelResult]:
    """Run the demo, printing as it goes."""
    results = []
    heading(settings, out)
    for name in settings.names:
        result = ModelResult(name)
        try:
            run_model(result, settings, out)
        except Exception as error:
            result.failure = f"{type(error).__name__}: {error}"
        summary(result, out)
        results.append(result)
    closing(results, out)
    return results


def run_model(result: ModelResult, settings: Settings, out: TextIO) -> None:
    """Compile one model and fill in `result`, shape by shape."""
    name, recipe = result.name, settings.recipe
    with doing(f"{name}: building"):
        module = models.build(name, recipe).to(settings.device)
        reference = accuracy.reference_model(name, module, recipe).to(settings.device)
    fast: Any = api.compile(module, fullgraph=True, options={"fallback": "error"})
    peer = None
    if settings.against:
        torch.compiler.reset()
        peer = torch.compile(module)
    with torch.no_grad():
        for batch, length in settings.shapes:
            shape = run_shape(name, (module, fast, peer, reference), batch, length, settings)
            result.shapes.append(shape)
            row(name, shape, settings, out)
    stats = fast.stats()
    result.compile_seconds = stats.compile_seconds
    result.specializations = stats.specializations
    result.graph_breaks = stats.graph_breaks
    result.kernels, result.externs, result.eager_ops = stats.kernels, stats.externs, stats.eager_ops
    result.joined, result.guarded = stats.joined, stats.guarded
    if stats.specializations == 0:
        result.failure = "nothing was compiled: all of it ran eagerly"


def run_shape(
    name: str,
    candidates: tuple[nn.Module, Callable[..., object], Callable[..., object] | None, nn.Module],
    batch: int,
    length: int,
    settings: Settings,
) -> ShapeResult:
    """First calls, the verdict, and times of later calls, at one shape."""
    module, fast, peer, reference = candidates
    device = settings.device
    arguments = on_device(
        models.inputs(name, batch, length, settings.mask, settings.recipe), device
    )
    case = f"{name} at ({batch}, {length})"
    with doing(f"{case}: compiling"):
        first_seconds, output = timed(waited(lambda: fast(**arguments), device))
    with doing(f"{case}: checking"):
        truth = reference(**accuracy.in_float64(arguments))
        verdict = accuracy.judge(output, module(**arguments), truth)
    calls = {"eager": lambda: module(**arguments), "anyshape": lambda: fast(**arguments)}
    peer_first_seconds = None
    if peer is not None:
        with doing(f"{case}: torch.compile is compiling"):
            peer_first_seconds, _ = timed(waited(lambda: peer(**arguments), device))
        calls[PEER] = lambda: peer(**arguments)
    with doing(f"{case}: timing"):
        waiting = {who: waited(call, device) for who, call in calls.items()}
        timing = interleaved(waiting, settings.rounds)
    return ShapeResult(
        batch=batch,
        length=length,
        first_seconds=first_seconds,
        seconds=timing.median("anyshape"),
        eager_seconds=timing.median("eager"),
        speedup=timing.speedup("anyshape", over="eager"),
        error=verdict.error,
        allowed_error=verdict.allowed,
        fault=verdict.fault,
        right=verdict.right,
        peer_first_seconds=peer_first_seconds,
        peer_seconds=timing.median(PEER) if peer is not None else None,
        speedup_over_peer=timing.speedup("anyshape", over=PEER) if peer is not None else None,
    )


def on_device(arguments: Mapping[str, object], device: torch.device) -> dict[str, Any]:
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def waited(call: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """The call, which ends when the device has done its work."""
    if device.type == "cpu":
        return call

    def waiting() -> object:
        result = call()
        torch.accelerator.synchronize(device)
        return result

    return waiting


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    output = call()
    return time.perf_counter() - start, output


# --- what is printed ---


def machine(device: torch.device) -> str:
    """What the models run on."""
    if device.type == "cpu":
        return f"{torch.get_num_threads()} threads"
    return torch.cuda.get_device_name(device)


def heading(settings: Settings, out: TextIO) -> None:
    recipe = settings.recipe
    dtype = str(recipe.dtype).removeprefix("torch.")
    out.write(
        f"{counted(recipe.layers, 'layer')}, {dtype}, {recipe.attention} attention, "
        f"mask: {settings.mask}, {machine(settings.device)}, torch {torch.__version__}\n\n"
    )
    columns = (
        f"{'model':<10} {'shape':>9} {'first call':>11} {'eager':>9} {'anyshape':>9} {'speed':>7}"
    )
    if settings.against:
        columns += f" {PEER:>14} {'its first':>10} {'speed':>7}"
    out.write(painted(f"{columns} {'error':>9} {'allowed':>9}", "bold", out) + "\n")
    out.flush()


def row(name: str, shape: ShapeResult, settings: Settings, out: TextIO) -> None:
    cells = (
        f"{name:<10} {f'({shape.batch},{shape.length})':>9} {shape.first_seconds:>9.3f} s "
        f"{shape.eager_seconds * 1e3:>6.2f} ms {shape.seconds * 1e3:>6.2f} ms "
        f"{shape.speedup:>6.2f}x"
    )
    if shape.peer_seconds is not None:
        cells += (
            f" {shape.peer_seconds * 1e3:>11.2f} ms {shape.peer_first_seconds:>8.2f} s "
            f"{shape.speedup_over_peer:>6.2f}x"
        )
    verdict = "" if shape.right else painted(f"  WRONG {shape.fault}", "bold red", out)
    out.write(f"{cells} {shape.error:>9.1e} {shape.allowed_error:>9.1e}{verdict}\n")
    out.flush()


def summary(result: ModelResult, out: TextIO) -> None:
    if result.failure:
        failed = painted("FAILED", "bold red", out)
        out.write(f"{result.name:<10} {failed}\n{indent(result.failure)}\n\n")
        out.flush()
        return
    out.write(
        f"{'':<10} compiled in {result.compile_seconds:.2f} s: "
        f"{counted(result.specializations, 'specialization')}, "
        f"{counted(result.graph_breaks, 'graph break')}, {counted(result.kernels, 'kernel')}, "
        f"{counted(result.externs, 'extern')}, "
        f"{counted(result.eager_ops, 'operator')} run eagerly; "
        f"branches on sizes: {result.joined} joined, {result.guarded} guarded\n\n"
    )
    out.flush()


def closing(results: Sequence[ModelResult], out: TextIO) -> None:
    wrong = [result.name for result in results if not result.right]
    shapes = sum(len(result.shapes) for result in results)
    total = sum(result.compile_seconds for result in results)
    if wrong:
        out.write(painted(f"not right: {', '.join(wrong)}", "bold red", out) + "\n")
    else:
        line = (
            f"{counted(len(results), 'model')}, {counted(shapes, 'shape')}, "
            f"{total:.1f} s of compiling: every result right, one specialization each"
        )
        out.write(painted(line, "green", out) + "\n")


def indent(text: str) -> str:
    return "\n".join(f"           {line}" for line in text.splitlines())


def as_json(settings: Settings, results: Sequence[ModelResult]) -> dict[str, object]:
    """The same as the table, for machines."""
    return {
        "torch": torch.__version__,
        "device": str(settings.device),
        "threads": torch.get_num_threads(),
        "layers": settings.recipe.layers,
        "dtype": str(settings.recipe.dtype).removeprefix("torch."),
        "attention": settings.recipe.attention,
        "mask": settings.mask,
        "models": [{**asdict(result), "right": result.right} for result in results],
    }
