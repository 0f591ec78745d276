"""Zeros have eager's sign: `tanh(-0.0)` is -0.0 with and without a library of vectors, and what was a
whole number on the way has no -0.0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape
from tests import unoptimized

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "int32": lambda x: x.int().float(),
    "int64": lambda x: x.long().double(),
    "int64 of a product": lambda x: x.long() * 1.0,
}


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_zeros_have_the_sign_that_eager_torch_gives_them(
    name: str, optimized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not optimized:
        unoptimized.choose(monkeypatch)
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for value in (-0.0, -0.4, 0.0, 0.4, -3.5, 1e10):
            for count in (1, 3, 17, 64):
                x = torch.full((count,), value, dtype=dtype)
                ours, theirs = fast(x), program(x)
                torch.testing.assert_close(ours, theirs)
                assert torch.equal(ours.signbit(), theirs.signbit()), (value, count)
