"""What a program asks of the collector of garbage, which capture turns off meanwhile."""

from __future__ import annotations

import gc

import torch
from torch import Tensor

import anyshape


def test_whether_garbage_is_collected_is_what_the_program_left() -> None:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        return x + 1, gc.isenabled()

    fast, x = anyshape.compile(program), torch.ones(2)
    assert gc.isenabled()
    assert fast(x)[1] is fast(x)[1] is True
    gc.disable()
    try:
        assert fast(x)[1] is False
    finally:
        gc.enable()
    assert fast(x)[1] is True
    assert not fast.stats().internal_errors
