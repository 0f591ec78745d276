"""Where results begin in their storage: views of what the program made, and copies that are views
where sizes are 1."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

MADE = (
    "x * 2",
    "x.flip(1)",
    "x.rot90()",
    "x.roll(1, 0)",
    "x.repeat(2, 1)",
    "torch.cat([x, x])",
    "x.T.contiguous()",
    "x.T.reshape(x.shape)",
    "x.expand(2, *x.shape).reshape(-1, x.shape[1])",
    "x[[0, 0]]",
    "x @ x.T",
)
VIEWS = (
    "{}[-1]",
    "{}.diagonal(1)",
    "{}.diagonal(1).contiguous()",
    "{}.diagonal(1).reshape(-1, 1)",
    "{}[:, 1:].contiguous()",
    "{}[:, 1:].contiguous()[:, -1]",
    "{}[1:].T.contiguous()",
    "{}.T[1:].flatten()",
    "{}.chunk(2)[-1].mT.ravel()",
    "{}[1:, None].mT.contiguous()[..., 0]",
    "{}.unbind(1)[-1]",
)
SHAPES = (3, 4), (2, 2), (1, 3), (3, 1)


def lies(program: Any, x: Tensor) -> object:
    try:
        t = program(x)
    except IndexError:
        return IndexError
    begins = t.storage_offset() if t.numel() else 0
    return begins, t.shape, [s for s, n in zip(t.stride(), t.shape) if n > 1], t.tolist()


@pytest.mark.parametrize("made", MADE)
def test_results_begin_where_those_of_eager_do(made: str) -> None:
    for view in VIEWS:
        text = f"lambda x: {view.format(f'({made})')}"
        program = eval(text, {"torch": torch})
        fast = anyshape.compile(program)
        for shape in SHAPES:
            x = torch.arange(float(shape[0] * shape[1])).view(shape)
            assert lies(fast, x) == lies(program, x), (text, shape)


def test_a_size_that_data_decides_moves_no_result() -> None:
    def program(x: Tensor) -> Tensor:
        return (x[x > 0] * 2)[1:].T.contiguous()

    fast = anyshape.compile(program)
    for x in (torch.randn(9), torch.ones(2), torch.zeros(3)):
        assert torch.equal(fast(x), program(x))


def test_what_data_decides_gives_a_number_to_a_view() -> None:
    def program(x: Tensor) -> Tensor:
        return (x * 2)[:, int(x.count_nonzero()) % 2 :].contiguous()

    fast = anyshape.compile(program)
    for shape in ((3, 4), (1, 3), (2, 2)):
        x = torch.ones(shape)
        assert torch.equal(fast(x), program(x))


def test_offsets_are_those_of_the_call() -> None:
    def program(x: Tensor, n: int) -> Tensor:
        return (x * 2).diagonal(n).contiguous()

    fast = anyshape.compile(program)
    x = torch.randn(4, 4)
    for n, _ in itertools.product((3, 1, 3, 2, -3), range(2)):
        assert fast(x, n).storage_offset() == program(x, n).storage_offset()
