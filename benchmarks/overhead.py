"""What a call costs besides its kernels: `x + 1`, and a 32-layer Llama whose launches do nothing.

For the second, kernels and library calls are replaced when the program is linked: a library call
gives an uninitialised tensor like the one it gave the first time. Allocations and guards stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from unittest import mock

import torch

import anyshape
from anyshape.runtime import launch
from anyshape.tools import models
from anyshape.tools.models import Recipe
from anyshape.tools.timing import interleaved
from benchmarks import report

ROUNDS = 31


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def small_program() -> dict[str, object]:
    """`x + 1` on eight elements."""
    x = torch.randn(8)
    candidates: Mapping[str, Callable[..., object]] = {
        "eager": add_one,
        "anyshape": anyshape.compile(add_one, fullgraph=True),
        "torch.compile": torch.compile(add_one),
    }
    timing = interleaved({name: partial(run, x) for name, run in candidates.items()}, ROUNDS)
    return {"program": "x + 1"} | {f"{name} us": timing.median(name) * 1e6 for name in candidates}


def hollow(function: Callable[..., object]) -> Callable[..., object]:
    """A function that runs once, and from then on only allocates what it gave then."""
    kept: list[tuple[torch.Size, tuple[int, ...], torch.dtype]] = []

    def call(*args: object, **kwargs: object) -> object:
        if kept:
            return torch.empty_strided(*kept[0][:2], dtype=kept[0][2])
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            kept.append((result.shape, result.stride(), result.dtype))
        return result

    return call


def null_program(layers: int = 32) -> dict[str, object]:
    """Llama without its work: guards, allocations, and the host code between launches."""
    resolve = launch._Resolver.__call__  # noqa: SLF001

    def without_work(resolver: object, kind: str, what: object) -> object:
        found = resolve(resolver, kind, what)
        if kind == "kernel":
            return lambda *arguments: None
        if kind == "function" and str(what).startswith("torch.") and not is_view(str(what)):
            return hollow(found)
        return found

    module = models.build("llama", Recipe(layers=layers))
    arguments = models.inputs("llama", 2, 16)
    with mock.patch.object(launch._Resolver, "__call__", without_work):  # noqa: SLF001
        fast = anyshape.compile(module, fullgraph=True)
        fast(**arguments)
    timing = interleaved({"anyshape": lambda: fast(**arguments)}, ROUNDS)
    program = f"llama, {layers} layers, launches do nothing"
    return {"program": program, "anyshape us": timing.median("anyshape") * 1e6}


def is_view(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in {
        "as_strided",
        "view",
        "transpose",
        "expand",
        "slice",
        "permute",
    }


def main() -> None:
    with torch.no_grad():
        rows = [small_program(), null_program()]
    print(report.table(rows))
    report.save("overhead", rows)


if __name__ == "__main__":
    main()
