"""Values of float16 and bfloat16 are what eager would have stored, fused or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor], Tensor]

OBSERVED: dict[str, Program] = {
    "a conversion back": lambda x, y: (x + 1).float(),
    "a conversion there and back": lambda x, y: x.float().mul(0.7).to(x.dtype).float(),
    "equality": lambda x, y: x * y == x * 0.5,
    "equality with a number": lambda x, y: x == 0.1,
    "order of a chain": lambda x, y: x * 3 * y - 1 > 0.3,
    "where a chain is largest": lambda x, y: (x * y + 1).argmax(-1),
    "the largest of a row": lambda x, y: (x * y).amax(-1, keepdim=True) == x * y,
    "floor": lambda x, y: torch.floor(x * 100),
    "round of a chain": lambda x, y: torch.round(x * 100 * y),
    "remainder": lambda x, y: torch.remainder(x * 100, 0.1),
    "sign of what underflows": lambda x, y: torch.sign(x * 1e-7 * 1e-7),
    "any of what underflows": lambda x, y: (x * 1e-30 * 1e-30).any(-1),
    "overflow": lambda x, y: torch.nan_to_num(x * 60000 * y),
    "integers": lambda x, y: (x * 3 * y).int(),
    "threshold": lambda x, y: F.threshold(x * y, 0.1, 5.0),
    "clamped": lambda x, y: (x * y).clamp(0.1, 0.3) == 0.1,
    "next number": lambda x, y: torch.nextafter(x * 2, y),
    "running sum": lambda x, y: (x * y).cumsum(-1) > 1,
    "a mean": lambda x, y: (x + y).mean(-1) > 0.01,
    "softmax": lambda x, y: (x * y).softmax(-1) > 0.01,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OBSERVED)
def test_a_program_cannot_tell_that_values_were_not_stored(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 9, 133, generator=generator).to(dtype)
    x[:, :5] = 0.1
    program = OBSERVED[name]
    eager, ours = program(x, y), anyshape.compile(program, fullgraph=True)(x, y)
    assert ours.dtype is eager.dtype
    assert torch.equal(ours.nan_to_num(7.0), eager.nan_to_num(7.0))


def test_a_value_is_the_same_for_every_reader() -> None:
    """One reader in the same kernel, one behind a library call, and the value itself."""

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * 0.3 + 1.7
        return y, y.float(), (y @ w).float() * 0 + y.float()

    x, w = torch.randn(2, 16, 16).bfloat16()
    stored, near, far = anyshape.compile(program, fullgraph=True)(x, w)
    assert torch.equal(stored.float(), near) and torch.equal(near, far)
