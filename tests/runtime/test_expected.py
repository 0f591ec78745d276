"""What a program says before a call of sizes that are new to it."""

from __future__ import annotations

import torch

from anyshape.ir.buffers import Buffer
from anyshape.ir.dtypes import float32
from anyshape.ir.graph import row_major
from anyshape.runtime.expected import entry_sizes, expecting
from anyshape.symbolic import Space

SPACE = Space()
A, B, C = (SPACE.symbol(name) for name in ("s0", "s1", "s2"))


def buffer(name, *shape):
    return Buffer(name, float32, "cuda:0", shape, row_major(shape), "input")


def test_sizes_are_handed_on_once_for_each_combination_and_before_the_call():
    buffers = {"x": buffer("x", A, 4), "y": buffer("y", A * B, B, C)}
    positions = entry_sizes(("x", "s2", "y"), buffers)
    log = []
    run = expecting(lambda *given: log.append("ran") or (), positions, log.append)
    for rows in (3, 5, 3):
        run(torch.ones(rows, 4), 7, torch.ones(rows * 2, 2, 7))
    sizes = [{A.symbol: n, B.symbol: 2, C.symbol: 7} for n in (3, 5)]
    assert log == [sizes[0], "ran", sizes[1], "ran", "ran"]
