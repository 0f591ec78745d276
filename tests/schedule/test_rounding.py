"""Values of float16 and bfloat16 are what eager would have stored, fused or not."""

from __future__ import annotations

import math
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


# On every value of the dtype at once: ATen rounds a number to it, or takes it as it is, by operator.
OF_A_NUMBER: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x + 0.3,
    "difference": lambda x: 0.3 - x,
    "product": lambda x: x * 0.3,
    "quotient": lambda x: x / 0.3,
    "quotient of a number": lambda x: 0.3 / x,
    "scaled sum": lambda x: torch.add(x, x, alpha=0.3),
    "order": lambda x: x > 0.3,
    "an integer that the dtype rounds": lambda x: x + 2049,
    "a tensor of another dtype": lambda x: x + torch.tensor(0.3),
    "order by a tensor of another dtype": lambda x: x > torch.tensor(0.3),
    "a factor in a tensor": lambda x: x * torch.tensor(0.3),
    "a tensor's product": lambda x: torch.tensor(0.3) * x,
    "integers in a tensor": lambda x: x + torch.arange(x.shape[0]),
    "a size": lambda x: x + x.shape[0] / 7,
    "a factor of sizes": lambda x: x * (x.shape[0] / 7),
    "threshold": lambda x: F.threshold(x, 0.3, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 0.3),
    "softsign": lambda x: F.softsign(x),
    "tanhshrink": lambda x: F.tanhshrink(x * 4).trunc(),
    "lerp": lambda x: x.lerp(-x, 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x, value=0.3),
    "clamp": lambda x: x.clamp(-0.7, 0.3),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_a_number_is_rounded_where_eager_rounds_it(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    x = x[x.isfinite() & (x.abs() < 1e4) & (x.abs() > 1e-4)]
    x = x[: x.shape[0] // 64 * 64]  # ATen computes what is left of vectors in another way
    program = OF_A_NUMBER[name]
    ours, eager = anyshape.compile(program, fullgraph=True)(x), program(x)
    assert ours.dtype is eager.dtype
    assert torch.equal(ours, eager)


NUMBERS = (
    *(math.nan, math.inf, -math.inf, 1e30, -1e30, 3e9, -3e9, 2.0**63, 2.0**32 + 5, 2.0**24 + 1),
    *(-(2.0**31), -(2.0**31) - 0.5, 300.0, -300.0, 0.7, -0.7),
)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def test_constants_are_converted_to_integers_as_elements_are() -> None:
    def converted(n: int) -> list[torch.Tensor]:
        doubles = [torch.full((n,), x, dtype=torch.float64) for x in NUMBERS]
        return [x.to(wide).to(whole) for x in doubles for wide in FLOATS for whole in WHOLE]

    fast = anyshape.compile(converted)
    for ours, eager in zip(fast(3), converted(3), strict=True):
        assert torch.equal(ours, eager)
