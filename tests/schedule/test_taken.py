"""What outlives a native region takes the memory of a library's result that dies in it, if nothing else
reads that result afterwards: values, strides and sharing are eager's all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

GENERATOR = torch.Generator().manual_seed(3)
SMALL, WIDE = (torch.randn(4, 4, k, k, generator=GENERATOR) / 4 for k in (1, 3))
BIAS = torch.randn(4, generator=GENERATOR)
SQUARE = torch.randn(4, 4, generator=GENERATOR)
Program = Callable[[Tensor], Any]


def norm(x: Tensor) -> Tensor:
    return F.relu(x * BIAS[:, None, None] + 1)


def wide(x: Tensor) -> Tensor:
    return F.conv2d(x, WIDE, None, 1, 1)


def dies(x: Tensor) -> Tensor:
    return wide(norm(wide(x)))


def is_read_later(x: Tensor) -> Tensor:
    first = wide(x)
    return wide(norm(first)) + first


def is_read_elsewhere(x: Tensor) -> Tensor:
    first = wide(x)
    return wide(norm(first) + first.flip(3))


def is_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    first = wide(x)
    return wide(norm(first)), first


def is_viewed(x: Tensor) -> tuple[Tensor, Tensor]:
    first = wide(x)
    part = first[:, 1:]
    return wide(norm(first)), part


def is_returned_as_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = wide(x).view(-1, 4)
    return rows, F.linear(F.gelu(F.linear(rows, SQUARE)), SQUARE)


def is_returned_as_a_view_of_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    first = wide(x)
    part = first.flatten(1)[1:].view(-1, 4)[2:]
    return F.linear(F.relu(F.linear(F.linear(part, SQUARE), SQUARE)), SQUARE), part


def is_handed_back(x: Tensor) -> tuple[Tensor, Tensor]:
    first = wide(x)
    return wide(norm(first)), first.detach().contiguous().view_as(first)


def is_laid_out_otherwise(x: Tensor) -> Tensor:
    return wide(norm(wide(x)).transpose(2, 3).contiguous())


def is_summed(x: Tensor) -> Tensor:
    first = wide(x)
    return wide(first - first.mean((2, 3), keepdim=True))


PROGRAMS = (
    dies, is_read_later, is_read_elsewhere, is_returned, is_viewed, is_returned_as_a_view,
    is_returned_as_a_view_of_a_view, is_handed_back, is_laid_out_otherwise, is_summed,
)  # fmt: skip


def check(fast: Program, program: Program, x: Tensor) -> None:
    given = x.clone(memory_format=torch.preserve_format)
    found, wanted = ([y] if isinstance(y, Tensor) else [*y] for y in (fast(x), program(x)))
    assert torch.equal(x, given)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        wide = [d for d, n in enumerate(b.shape) if n > 1]
        assert [a.stride(d) for d in wide] == [b.stride(d) for d in wide]
    assert sharing([*found, x]) == sharing([*wanted, x])


def sharing(tensors: list[Tensor]) -> list[list[bool]]:
    positions = [t.untyped_storage().data_ptr() for t in tensors]
    return [[a == b for b in positions] for a in positions]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_may_be_read_again_is_not_written_over(program: Program) -> None:
    with torch.no_grad():
        fast = anyshape.compile(program, fullgraph=True)
        for shape in ((2, 4, 5, 6), (1, 4, 3, 3), (3, 4, 9, 8), (2, 4, 6, 6)):
            check(fast, program, torch.randn(shape))


def test_a_result_that_dies_lends_all_its_memory() -> None:
    with torch.no_grad():
        for program, taken in ((dies, True), (is_returned, False), (is_read_later, False)):
            fast = anyshape.compile(program, fullgraph=True)
            fast(torch.randn(2, 4, 5, 6))
            assert ("relu_0 = conv2d_0" in str(fast.code())) is taken, program.__name__


STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: wide(a),
    lambda a, b: F.conv2d(a, SMALL, BIAS),
    lambda a, b: F.relu(a),
    lambda a, b: a + b,
    lambda a, b: a * BIAS[:, None, None],
    lambda a, b: F.max_pool2d(a, 3, 1, 1),
    lambda a, b: torch.cat([a[:, :2], b[:, 2:]], 1),
    lambda a, b: a - a.mean((2, 3), keepdim=True),
    lambda a, b: F.softmax(a, 1),
    lambda a, b: F.dropout(a, 0.5, False),
    lambda a, b: a.contiguous(),
    lambda a, b: F.linear(a.permute(0, 2, 3, 1), SMALL[:, :, 0, 0], BIAS).permute(0, 3, 1, 2),
)


@pytest.mark.parametrize("seed", range(16))
def test_random_networks_are_eagers(seed: int) -> None:
    chosen = random.Random(seed)
    plan = [
        (chosen.choice(STEPS), chosen.randrange(n), chosen.randrange(n))
        for n in range(1, chosen.randint(4, 12))
    ]
    outputs = sorted({len(plan), chosen.randrange(len(plan) + 1)})

    def network(x: Tensor) -> tuple[Tensor, ...]:
        made = [x]
        for step, a, b in plan:
            made.append(step(made[a], made[b]))
        return tuple(made[position] for position in outputs)

    with torch.no_grad():
        fast = anyshape.compile(network)
        for shape in ((2, 4, 5, 6), (3, 4, 9, 8), (2, 4, 5, 6)):
            check(fast, network, torch.randn(shape))
