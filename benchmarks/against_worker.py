"""What `benchmarks.against` measures, in a process of one checkout: `against_worker.py NAME`.

Started by `benchmarks.against`, with the checkout in PYTHONPATH; uses nothing that only one of the
two checkouts may have. Figures are milliseconds of a processor, those of child processes included.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType, MappingProxyType
from typing import TextIO

import torch
from torch import Tensor, nn

BEFORE_IMPORT = time.process_time()

import anyshape  # noqa: E402 - what it costs to import is a figure
from anyshape.tools import models  # noqa: E402
from benchmarks import overhead, symbols  # noqa: E402
from benchmarks.programs import PROGRAMS, SIZES  # noqa: E402

IMPORTED = time.process_time() - BEFORE_IMPORT
LENGTHS = (7, 16, 33, 64, 100, 128, 1, 200)
COMPILED = (("llama", 4), ("llama", 32), ("qwen3-moe", 4), ("bert", 4))
SAMPLES = 7
SAMPLE_SECONDS = 2e-3
FUNCTIONS = "sin cos tanh exp sigmoid abs neg sqrt rsqrt log log1p expm1 erf atan sinh cosh asinh"

Figures = Mapping[str, float]


class Layers(nn.Module):
    """Two products with a norm and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.nn.functional.gelu(self.norm(self.first(x))))


class Decoder(nn.Module):
    """Attention and a gated product, some layers of them, with torch alone."""

    def __init__(self, layers: int, width: int = 64) -> None:
        super().__init__()
        self.layers = layers
        shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width)}
        for name, (inner, outer) in {**shapes, "down": (2 * width, width)}.items():
            made = (nn.Linear(inner, outer, bias=False) for _ in range(layers))
            self.add_module(name, nn.ModuleList(made))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.layers):
            parts = self.qkv[i](self.norms[2 * i](x)).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in parts)
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out[i](seen.transpose(1, 2).flatten(2))
            gate, up = self.up[i](self.norms[2 * i + 1](x)).chunk(2, -1)
            x = x + self.down[i](nn.functional.silu(gate) * up)
        return x


def add_one(x: Tensor) -> Tensor:
    return x + 1


def positive_sum(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def views(x: Tensor) -> Tensor:
    return x.unsqueeze(0).transpose(1, 2)[:, 1:].flatten(1)


def parts(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.cat([part.flip(0) for part in x.split(lengths.tolist())]) * 2


def forty(x: Tensor, w: Tensor) -> Tensor:
    for name in (*FUNCTIONS.split(), "floor", "relu", "sign"):
        function = getattr(torch, name)
        x = function(x) @ w
        x = (function(x) - x) @ w
    return x


Program = tuple[Callable[..., Tensor], tuple[Tensor, ...]]


def programs() -> dict[str, Program]:
    """Short programs and what they are called with."""
    kernels = {
        name: (program.run, program.inputs(*SIZES[0], torch.float32))
        for name, program in PROGRAMS.items()
    }
    return {
        "x + 1": (add_one, (torch.ones(8),)),
        "x[x > 0].sum()": (positive_sum, (torch.linspace(-1, 1, 9),)),
        "softmax": (softmax, (torch.rand(4, 7),)),
        "views": (views, (torch.rand(4, 7),)),
        "split and cat": (parts, (torch.rand(9), torch.tensor([4, 0, 5]))),
        "MLP": (Layers(), (torch.rand(3, 16),)),
        "forty kernels": (forty, (torch.rand(6, 7), torch.rand(7, 7))),
    } | {f"kernel {name}": kernel for name, kernel in kernels.items() if name != "softmax"}


def milliseconds() -> float:
    """Of a processor, for this process and those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (time.process_time() + children.ru_utime + children.ru_stime)


def taken(call: Callable[[], object]) -> float:
    start = milliseconds()
    call()
    return milliseconds() - start


NUMBERS = itertools.count()


def another(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same program, with code that nobody has met."""
    if not isinstance(function, FunctionType):
        return Layers()
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(NUMBERS)}")
    return FunctionType(code, function.__globals__, code.co_name)


def first_call(function: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> float:
    """Of the program as new, from ``anyshape.compile`` to the result: what is done before the call,
    and what in it, may differ. Its kernels may be in the cache."""
    new = another(function)
    gc.collect()
    return taken(lambda: anyshape.compile(new)(*arguments))


def later_call(call: Callable[[], object]) -> Callable[[], float]:
    """One of a program that has been compiled."""
    call()
    start = time.perf_counter()
    call()
    repeats = max(1, round(SAMPLE_SECONDS / max(time.perf_counter() - start, 1e-7)))

    def sample() -> float:
        start = time.process_time()
        for _ in range(repeats):
            call()
        return 1e3 * (time.process_time() - start) / repeats

    return lambda: statistics.median(sample() for _ in range(SAMPLES))


def first_calls(module: nn.Module, inputs: list[Mapping[str, object]]) -> float:
    """The first calls of a model at some lengths, less the second ones."""
    gc.collect()
    start = milliseconds()
    fast = anyshape.compile(module, fullgraph=True)
    whole = milliseconds() - start
    for given in inputs:
        first = taken(lambda given=given: fast(**given))
        whole += first - taken(lambda given=given: fast(**given))
    return whole


def present() -> Iterator[str]:
    """The models whose libraries are there."""
    for name in models.MODELS:
        try:
            models.build(name, models.Recipe(layers=1))
        except Exception as error:
            print(f"{name} is left out: {type(error).__name__}", file=sys.stderr)
        else:
            yield name


Measure = Callable[[], float]


def warm_rows() -> dict[str, Callable[[], Measure]]:
    """What is measured again and again in one process; each is made when it is first asked for."""
    rows: dict[str, Callable[[], Measure]] = {}
    for name, (function, arguments) in programs().items():
        rows[f"first call, {name}"] = lambda f=function, a=arguments: partial(first_call, f, a)
        rows[f"later call, {name}"] = lambda f=function, a=arguments: later_call(
            partial(anyshape.compile(f, fullgraph=True), *a)
        )
    for name, program in PROGRAMS.items():
        for size in SIZES[1:]:
            rows[f"later call, kernel {name}, {size[0]} x {size[1]}"] = lambda p=program, s=size: (
                later_call(partial(anyshape.compile(p.run), *p.inputs(*s, torch.float32)))
            )
    for layers in (4, 32):
        inputs = [{"x": torch.rand(2, length, 64)} for length in LENGTHS]
        rows[f"first calls, plain decoder of {layers} layers"] = lambda n=layers, i=inputs: partial(
            first_calls, Decoder(n).eval(), i
        )
        rows[f"later call, plain decoder of {layers} layers"] = lambda n=layers, i=inputs: (
            later_call(partial(anyshape.compile(Decoder(n).eval()), **i[1]))
        )
    return rows


def model_rows() -> dict[str, Callable[[], Measure]]:
    """The same, of models."""
    rows: dict[str, Callable[[], Measure]] = {}
    there = [*present()]
    for name, layers in COMPILED:
        if name in there:
            rows[f"first calls, {name} of {layers} layers"] = lambda name=name, n=layers: partial(
                first_calls,
                models.build(name, models.Recipe(layers=n)),
                [models.inputs(name, 2, length) for length in LENGTHS],
            )
    for name in there:
        module = models.build(name, models.Recipe())
        ways = {
            "": anyshape.compile(module, fullgraph=True),
            "declared ": anyshape.compile(
                module, fullgraph=True, shapes=models.MODELS[name].shapes
            ),
        }
        for (way, fast), shape in itertools.product(ways.items(), models.SHAPES):
            rows[f"later call, {way}{name} {shape}"] = lambda f=fast, n=name, s=shape: later_call(
                partial(f, **models.inputs(n, *s))
            )
    return rows


def serve(rows: Mapping[str, Callable[[], Measure]], replies: TextIO) -> None:
    """Reads names of rows, a line each, and answers each with its figure."""
    made: dict[str, Measure] = {}
    replies.write(json.dumps([*rows]) + "\n")
    replies.flush()
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            made[name] = rows[name]()
        replies.write(json.dumps(made[name]()) + "\n")
        replies.flush()


def in_a_new_process() -> Figures:
    """The import, the first call of all, and the first calls behind it."""
    found = {
        "import anyshape and what these benchmarks use": 1e3 * IMPORTED,
        "the first call of a process": first_call(lambda x: x * 3, (torch.ones(4),)),
    }
    for name, (function, arguments) in programs().items():
        found[f"first call in a new process, {name}"] = first_call(function, arguments)
    return found


def of_models() -> Figures:
    """First calls at eight lengths, the disk cache being as it is."""
    there = [*present()]
    first_call(add_one, (torch.ones(8),))
    found = {}
    for name, layers in COMPILED:
        if name in there:
            module = models.build(name, models.Recipe(layers=layers))
            inputs = [models.inputs(name, 2, length) for length in LENGTHS]
            with torch.no_grad():
                module(**inputs[0])
            found[f"{name} of {layers} layers"] = first_calls(module, inputs)
    found["plain decoder of 32 layers"] = first_calls(
        Decoder(32).eval(), [{"x": torch.rand(2, length, 64)} for length in LENGTHS]
    )
    return found


def of_symbols() -> Figures:
    """Thousands of sizes that data decides."""
    return {
        f"sizes that data decides, {case.program}": 1e3
        * float(str(symbols.ours(case)["of a processor s"]))
        for case in symbols.CASES[:2]
    }


def of_calls() -> Figures:
    """A later call of a program of many launches that do nothing."""
    row = overhead.null_program()
    return {"later call, launches that do nothing": float(str(row["anyshape us"])) / 1e3}


JOBS: Mapping[str, Callable[[], Figures]] = MappingProxyType(
    {
        "process": in_a_new_process,
        "models": of_models,
        "symbols": of_symbols,
        "overhead": of_calls,
    }
)
SERVED = MappingProxyType({"warm": warm_rows, "warm models": model_rows})


def main() -> None:
    # What a library prints is no reply.
    replies, sys.stdout = sys.stdout, sys.stderr
    here = os.path.realpath(os.environ["PYTHONPATH"])
    assert os.path.realpath(anyshape.__file__).startswith(here + os.sep), anyshape.__file__
    torch.set_num_threads(1)
    with torch.no_grad():
        if sys.argv[1] in SERVED:
            serve(SERVED[sys.argv[1]](), replies)
        else:
            replies.write(json.dumps(JOBS[sys.argv[1]]()) + "\n")


if __name__ == "__main__":
    main()
