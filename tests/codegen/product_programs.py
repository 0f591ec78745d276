"""Products and what follows them as one kernel: in Triton's interpreter, or compiled for GPUs that are not here.

python product_programs.py interpret
python product_programs.py every-80-90-100
"""

from __future__ import annotations

import functools
import itertools
import sys
import tempfile
from dataclasses import replace
from types import SimpleNamespace

import torch
from triton_programs import (
    NOT_BUILT,
    OPTIONS,
    compile_for,
    compile_sketch,
    interpret,
    load,
    normal,
    tensors,
)

from anyshape import reference
from anyshape.driver import Driver
from anyshape.ir import dtypes
from anyshape.ir.program import ExternCall, Launch
from anyshape.targets.table import Targets
from anyshape.targets.target import as_it_is, one_by_one
from anyshape.targets.triton.products import tiled_product, with_products
from anyshape.targets.triton.schedules import PRODUCT_TILES, Chooser, KernelSchedule
from anyshape.targets.triton.target import TRITON

FLAT = replace(NOT_BUILT, group=as_it_is, listed=one_by_one)
PROGRAMS = {
    "linear gelu": (lambda b, x, w, c: b.gelu(b.linear(x, w, c)), ["a 40", "24 40", "24"]),
    "linear without bias": (lambda b, x, w: b.silu(b.linear(x, w, None)), ["a 33", "7 33"]),
    "of three dimensions": (
        lambda b, x, w, c: b.relu(b.linear(x, w, c)),
        ["a b 40", "24 40", "24"],
    ),
    "residual, scale and cast": (
        lambda b, x, w, y: b.to_dtype(b.mul(b.add(b.mm(x, w), y), 0.5), dtypes.float32),
        ["a 17", "17 50", "a 50"],
    ),
    "rows of another tensor": (lambda b, x, w, y: b.mul(b.mm(x, w), y), ["a 20", "20 33", "33"]),
    "turned operands": (
        lambda b, x, w: b.tanh(b.mm(x, w)),
        [("a 20", dtypes.float32, (1, 0)), ("20 33", dtypes.float32, (1, 0))],
    ),
    "addmm": (lambda b, c, x, w: b.sigmoid(b.addmm(c, x, w)), ["33", "a 20", "20 33"]),
    "one column": (lambda b, x, w, c: b.exp(b.linear(x, w, c)), ["a 40", "1 40", "1"]),
}
TILES = (KernelSchedule(16, 16, columns=32, wide=False), KernelSchedule(32, 64, columns=16))


def programs(dtype):
    for name, (make, inputs) in PROGRAMS.items():
        case = [(s, dtype, o) for s, _, o in normal(inputs)]
        compiled = compile_sketch(
            make, *case, driver=Driver(OPTIONS, targets=Targets({"cpu": FLAT}))
        )
        fused = with_products(compiled.program, TRITON.variants, "cpu")
        yield name, case, SimpleNamespace(graph=compiled.graph, program=fused)


def run_interpreted():
    """In float16: the interpreter's products know no bfloat16."""
    for name, case, compiled in programs(dtypes.float16):
        steps = [*compiled.program.flat_steps()]
        assert not any(isinstance(step, ExternCall) for step in steps), name
        (kernel,) = (step.kernel for step in steps if isinstance(step, Launch))
        assert tiled_product(kernel), name
        for tile, rows in itertools.product(TILES, (0, 1, 37)):
            with tempfile.TemporaryDirectory() as directory:
                module = functools.partial(made, kernel, directory, tile)
                args = [t / 4 for t in tensors(case, rows, 3)]
                wanted = reference.run(compiled.graph, [t.clone() for t in args])
                found = interpret(compiled, args, {kernel: module})
            for x, y in zip(wanted, found, strict=True):
                torch.testing.assert_close(y, x, rtol=5e-3, atol=5e-3)
        print("ok", name, flush=True)


def made(kernel, directory, tile, row):
    return load(kernel, directory, 0, tile)


def run_compiled(architectures):
    for name, _, compiled in programs(dtypes.bfloat16):
        (kernel,) = compiled.program.kernels()
        assert tiled_product(kernel), name
        tiles = {Chooser.of(kernel).schedule([4096] * len(kernel.params)).schedule}
        with tempfile.TemporaryDirectory() as directory:
            for tile in tiles | ({*PRODUCT_TILES} if name == "linear gelu" else set()):
                for architecture in architectures:
                    compile_for(kernel, tile, directory, architecture)
        print("ok", name, flush=True)


if __name__ == "__main__":
    mode, *rest = sys.argv[1].split("-")
    run_interpreted() if mode == "interpret" else run_compiled([*map(int, rest)])
