"""Rows of a known length: no text for cells that cannot be left, and results are eager's.

What is known of a count of cells is followed through the loops, for every count that it may be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.targets.cpu.c_lanes import FEW, Count

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
        norm = torch.nn.LayerNorm(length)
        fast = anyshape.compile(norm, fullgraph=True)
        fast(torch.randn(2, length))
        return fast.code()

    assert "left" not in text(48)
    assert "r0++" not in text(48)
    assert "const int left = 7;" in text(55)
    assert "r0++" not in text(55)
    assert "left" not in text(6144), "its blocks are of whole vectors"
