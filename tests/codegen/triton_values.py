"""Numbers of kernels that few programs meet, run in a process of its own by test_triton.py:

python triton_values.py interpret|chosen-80-90 shifts|zeros|truths
"""

from __future__ import annotations

import functools
import re
import sys
import tempfile

import torch
from triton_programs import compile_for, interpret, modules_of, normal, scheduled

from anyshape import torch_names
from anyshape.ir import dtypes
from anyshape.targets.triton.schedules import Chooser


def interpreted(compiled, given):
    """What the program's kernels make of it, one launch each."""
    with tempfile.TemporaryDirectory() as directory:
        modules = {
            kernel: functools.partial(modules_of, kernel, directory, number, 0)
            for number, kernel in enumerate(compiled.program.kernels())
        }
        return interpret(compiled, given, modules)


def shifts(architectures):
    """A shift by less than no bits, or more than there are, is torch's."""
    for dtype in (dtypes.uint8, dtypes.int8, dtypes.int32):
        program = lambda b, x, y: (b.bitwise_left_shift(x, y), b.bitwise_right_shift(x, y))
        compiled = scheduled(program, normal([("a", dtype), ("a", dtype)]))
        ends = torch.iinfo(torch_names.torch_dtype(dtype))
        values = torch.tensor([ends.min, ends.max, 5], dtype=torch_names.torch_dtype(dtype))
        bits = torch.tensor([0, 7, 8, 31, 32, 100, max(ends.min, -1)], dtype=values.dtype)
        x, y = torch.cartesian_prod(values, bits).T.contiguous()
        found = interpreted(compiled, [x, y])
        assert torch.equal(found[0], x << y) and torch.equal(found[1], x >> y), (found, x, y)


def zeros(architectures):
    """Zeros have the signs of torch's: what divides by one, or asks for its sign, sees them."""
    names = ("neg", "round", "trunc", "floor", "ceil", "abs", "sign")
    compiled = scheduled(lambda b, x: tuple(getattr(b, name)(x) for name in names), normal(["a"]))
    x = torch.tensor([0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.5, -2.5, float("inf"), -7.0])
    found = interpreted(compiled, [x])
    for name, made in zip(names, found, strict=True):
        wanted = getattr(torch, name)(x)
        assert torch.equal(made.view(torch.int32), wanted.view(torch.int32)), (name, made, wanted)


def truths(architectures):
    """What is -1 where a comparison holds is that as a bfloat16 too: LLVM 22 makes 1 of it."""
    kind = dtypes.bfloat16
    never_converted(lambda b, x: b.sign(x), architectures)
    for whole in (dtypes.int64, dtypes.int32, dtypes.int16, dtypes.int8):
        for wide in (kind, dtypes.float32):
            program = lambda b, x, to=wide, of=whole: b.to(
                b.to(b.where(b.lt(x, 0), b.full((), -1, of), b.full((), 0, of)), to), kind
            )
            never_converted(program, architectures)


def never_converted(program, architectures):
    """No comparison of a bfloat16 is made a number of itself."""
    compiled = scheduled(program, normal([("a", dtypes.bfloat16)]))
    (kernel,) = compiled.program.kernels()
    schedule = Chooser.of(kernel).schedule([4096] * 3).schedule
    with tempfile.TemporaryDirectory() as directory:
        for architecture in architectures:
            made = compile_for(kernel, schedule, directory, architecture)
            assert not re.search(r"sitofp (<\d+ x )?i1", made.asm["llir"])


if __name__ == "__main__":
    _, *chosen = sys.argv[1].split("-")
    {"shifts": shifts, "zeros": zeros, "truths": truths}[sys.argv[2]]([*map(int, chosen)])
    print("ok", sys.argv[2])
