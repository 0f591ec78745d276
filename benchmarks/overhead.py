"""What a call costs besides its kernels: `x + 1`, and a 32-layer Llama whose launches do nothing.

For the second, kernels and library calls are replaced when the program is linked: a library call
only allocates what it would return. Allocations, tensor handles and guards stay.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from unittest import mock

import torch

import anyshape
from anyshape.runtime import launch
from anyshape.targets.cpu import target as cpu
from anyshape.tools import models
from anyshape.tools.models import Recipe
from anyshape.tools.timing import interleaved
from benchmarks import report

ROUNDS = 31
VIEWS = frozenset({"as_strided", "view", "transpose", "expand", "permute", "empty_strided"})


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
    """A function that works once for each shape, and from then on only allocates what it gave."""
    kept: dict[tuple[object, ...], tuple[torch.Size, tuple[int, ...], torch.dtype]] = {}

    def call(*args: object, **kwargs: object) -> object:
        key = tuple(x.shape if isinstance(x, torch.Tensor) else None for x in args)
        if key in kept:
            shape, strides, dtype = kept[key]
            return torch.empty_strided(shape, strides, dtype=dtype)
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            kept[key] = (result.shape, result.stride(), result.dtype)
        return result

    return call


def does_nothing() -> int | None:
    """The address of a C function that may be called with anything: it reads one register."""
    return ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value


@contextmanager
def without_work() -> Iterator[None]:
    """What is linked inside has guards, allocations and host code, but launches that do nothing."""
    resolve, address = launch.Resolver.__call__, launch.Resolver.address

    def empty(self: launch.Resolver, kind: str, what: object) -> object:
        found = resolve(self, kind, what)
        if kind == "kernel" and not str(what).startswith(("region", "step")):
            return lambda *arguments: 0
        if what in ("anyshape.native_region_failed", "anyshape.check_false"):
            return lambda *arguments: None  # what is checked was computed by a kernel
        if kind == "function" and str(what).startswith("torch.") and not is_view(str(what)):
            return hollow(found)
        return found

    def nowhere(self: launch.Resolver, kind: str, what: object) -> int | None:
        is_kernel = kind == "kernel" and not str(what).startswith("step")
        works = is_kernel or (kind == "library" and is_product(str(what)))
        return does_nothing() if works else address(self, kind, what)

    with (
        mock.patch.object(launch.Resolver, "__call__", empty),
        mock.patch.object(launch.Resolver, "address", nowhere),
        mock.patch.object(cpu, "emit_native_region", partial(cpu.emit_native_region, hollow=True)),
    ):
        yield


def null_program(name: str = "llama", layers: int = 32) -> dict[str, object]:
    """Llama without its work: guards, allocations, and the host code between launches."""
    module = models.build(name, Recipe(layers=layers))
    arguments = models.inputs(name, 2, 16)
    with without_work():
        fast = anyshape.compile(module, fullgraph=True)
        fast(**arguments)
    timing = interleaved({"anyshape": lambda: fast(**arguments)}, ROUNDS)
    program = f"{name}, {layers} layers, launches do nothing"
    return {"program": program, "anyshape us": timing.median("anyshape") * 1e6}


def is_view(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in VIEWS


def is_product(symbol: str) -> bool:
    """Does this function of torch's library multiply, and not only allocate?"""
    return symbol.endswith(("gemm_", "mm_out"))


def main() -> None:
    with torch.no_grad():
        rows = [null_program(), small_program()]
    print(report.table(rows))
    report.save("overhead", rows)


if __name__ == "__main__":
    main()
