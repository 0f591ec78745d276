"""Rows of a known length: no text for cells that cannot be left, and results are eager's.

What is known of a count of cells is followed through the loops, for every count that it may be.
"""

from __future__ import annotations

import array
import itertools
import math
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ir.code import NativeFunction
from anyshape.options import Options
from anyshape.targets.cpu.build import Builder
from anyshape.targets.cpu.c_lanes import FEW, Count
from anyshape.targets.cpu.prelude import JOIN_LANES, JOINS, TRUTHS, VECTORS, texts

LOOPS = ((64, 128), (32, 64), (32, 32), (16, 16))
LENGTHS = (1, 2, 3, 4, 8, 15, 16, 20, 32, 40, 48, 63, 64, 67, 72, 96, 128, 130, 1024, 1040, 4160)
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "amax": lambda x: x.amax(-1),
    "norm": lambda x: (x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1),
    "any": lambda x: (x > 3).any(-1),
    "argmin": lambda x: x.argmin(-1),
    "padded": lambda x: torch.nn.functional.pad(x, (3, 5)).exp().sum(-1),
    "joined": lambda x: torch.cat([x, x.tanh() + 1], -1).sum(-1),
    "all in one": lambda x: x.sigmoid().sum(),
}


def counts(known: Count) -> list[int]:
    """All that it may be, up to a few hundred."""
    step = known.multiple or 1
    return list(range(0, min(known.most, 400) + 1, step))


@pytest.mark.parametrize("lanes, least", LOOPS)
def test_what_is_left_by_a_loop_is_among_what_is_known(lanes: int, least: int) -> None:
    known = [Count(n, n) for n in range(300)]
    known += [Count(n, math.gcd(n, 64)) for n in range(1, 300)]
    known += [Count(n, 1) for n in range(300)] + [Count()]
    for before in known:
        after, few = before.after(lanes, least), before.below(FEW, before.multiple)
        for n in counts(before):
            left = n % lanes if n >= least else n
            assert left in counts(after), (before, after, n)
            assert n >= FEW or n in counts(few), (before, few, n)
        assert before.below(1, before.multiple).most == 0


@pytest.mark.parametrize("name", PROGRAMS)
@torch.no_grad()
def test_rows_of_known_lengths_are_eagers(name: str) -> None:
    for length, dtype in itertools.product(LENGTHS, (torch.float32, torch.bfloat16, torch.int64)):
        program = PROGRAMS[name]

        def of_rows(x: Tensor, length: int = length) -> Tensor:
            return program(x.view(-1, length))

        if not dtype.is_floating_point and name in ("softmax", "norm"):
            continue
        if length == 1 and name == "norm":
            continue  # has no variance
        x = torch.randn(3 * length, generator=torch.Generator().manual_seed(length)) * 3
        x = x.to(dtype)
        near = 2e-2 if dtype is torch.bfloat16 else 1e-5
        found = anyshape.compile(of_rows, fullgraph=True)(x)
        torch.testing.assert_close(found, of_rows(x), rtol=near, atol=near, msg=f"{length} {dtype}")


@torch.no_grad()
def test_a_row_of_whole_vectors_has_no_text_for_what_is_left() -> None:
    def text(length: int) -> str:
        norm = torch.nn.RMSNorm(length)
        fast = anyshape.compile(norm, fullgraph=True)
        fast(torch.randn(2, length))
        return fast.code()

    assert "left" not in text(48)
    assert "r0++" not in text(48)
    assert "const int left = 7;" in text(55)
    assert "r0++" not in text(55)
    assert "left" not in text(6144), "its blocks are of whole vectors"


def test_accumulators_are_joined_without_a_loop_where_there_are_vectors() -> None:
    """GCC unrolls such a loop in every kernel that has one."""
    joins = [text for text in texts() if "as_join_" in text and text is not TRUTHS]
    assert len(joins) == len(JOINS) * sum(map(len, JOIN_LANES.values()))
    for text in joins:
        vectors, _, scalars = text.rpartition("#else")
        assert "for (" not in vectors and vectors.count("typedef") == 2 * len(VECTORS)
        assert "for (" in scalars


NOT_NUMBERS = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0)
LETTERS = {"f32": "f", "f64": "d", "i32": "i", "i64": "q"}


def both_ways(name: str, kind: str, lanes: int) -> NativeFunction:
    """Stores what vectors and scalars make of the accumulators behind them."""
    helper = next(text for text in texts() if f"as_join_{name}_{kind}_{lanes}(" in text)
    scalar = helper.replace("defined(__GNUC__)", "0").replace("as_join_", "scalar_join_")
    text = f"""{scalar}
void both_{name}_{kind}_{lanes}({kind} *x) {{
  {kind} y[{lanes}];
  for (int l = 0; l < {lanes}; l++) y[l] = x[l];
  x[{lanes}] = as_join_{name}_{kind}_{lanes}(x);
  x[{lanes + 1}] = scalar_join_{name}_{kind}_{lanes}(y);
}}
"""
    return NativeFunction(text, ("pointer",))


def test_vectors_join_accumulators_as_scalars_do() -> None:
    kinds = [(kind, lanes) for kind, some in JOIN_LANES.items() for lanes in some]
    cases = {f"both_{n}_{k}_{m}": (n, k, m) for n, (k, m) in itertools.product(JOINS, kinds)}
    builder = Builder.create(Options(cache=False), texts())
    made = builder.functions({name: both_ways(*case) for name, case in cases.items()})
    for name, (_, kind, lanes) in cases.items():
        for given in accumulators(kind, lanes):
            numbers = array.array(LETTERS[kind], [*given, 0, 0])
            made[name](numbers.buffer_info()[0])
            vectors, scalars = numbers[len(given) :]
            neither = vectors != vectors and scalars != scalars  # not a number
            assert neither or vectors == scalars, (name, given, vectors, scalars)


def accumulators(kind: str, lanes: int) -> Iterator[list[float]]:
    drawn = random.Random(kind)
    for _ in range(300):
        given: list[float] = [drawn.randint(-99, 99) for _ in range(lanes)]
        if kind[0] == "f":
            given = [n / 7 for n in given]
            for _ in range(drawn.randint(0, 3)):
                given[drawn.randrange(len(given))] = drawn.choice(NOT_NUMBERS)
        yield given
