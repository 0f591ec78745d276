"""Strides that a program reads of what it made, at sizes of 0 and 1 too, of arguments that lie in
any way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "rand_like": torch.rand_like,
    "randint_like": lambda x: torch.randint_like(x, 3),
    "a comparison of what was drawn": lambda x: torch.rand_like(x) > 0.5,
    "bernoulli": torch.bernoulli,
    "dropout": F.dropout,
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "zeros_like": torch.zeros_like,
    "clone": torch.clone,
    "a sum": lambda x: x + x,
    "a product": lambda x: x * 2.5,
    "a conversion": lambda x: x.to(torch.float64),
    "where": lambda x: torch.where(x > 0, x, x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1),
    "sort": lambda x: x.sort(0)[0],
    "cumsum": lambda x: x.cumsum(0),
    "tril": torch.tril,
    "softmax": lambda x: x.softmax(0),
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "pad": lambda x: F.pad(x, (1, 1)),
    "sum": lambda x: x.sum(0, keepdim=True),
    "topk": lambda x: x.topk(min(x.shape[0], 1), 0)[0],
    "cummax": lambda x: x.cummax(0)[0],
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "multiplied": lambda x: x @ x.mT,
    "renorm": lambda x: x.renorm(2, 0, 1),
    "index_select": lambda x: x.index_select(0, torch.arange(x.shape[0])),
    "index_add": lambda x: x.index_add(0, torch.arange(x.shape[0]), x),
    "scatter": lambda x: x.scatter(0, torch.zeros_like(x, dtype=torch.int64), 1.0),
    "complex": lambda x: torch.complex(x, x),
    "polar": lambda x: torch.polar(x, x),
    "frexp": lambda x: torch.frexp(x)[0],
}
LAYOUTS: dict[str, Callable[[int, int], Tensor]] = {
    "transposed": lambda n, m: torch.rand(m, n).mT,
    "gaps": lambda n, m: torch.rand(2 * n + 1, 2 * m + 1)[: 2 * n : 2, : 2 * m : 2],
    "transposed, with gaps": lambda n, m: torch.rand(2 * m + 1, 2 * n + 1)[: 2 * m : 2, : 2 * n : 2].mT,
    "stepped": lambda n, m: torch.rand(n, 2 * m)[:, ::2],
    "expanded": lambda n, m: torch.rand(1, m).expand(n, m),
    "expanded and transposed": lambda n, m: torch.rand(1, n).expand(m, n).mT,
    "offset": lambda n, m: torch.rand(n + 1, m)[1:],
}  # fmt: skip
SIZES = (3, 4), (0, 0), (0, 3), (3, 0), (1, 3), (3, 1), (1, 1), (3, 3)


def read(program: Any, x: Tensor) -> object:
    try:
        strides, sized = program(x)
    except (IndexError, RuntimeError) as error:
        return type(error)
    return strides, sized.shape


@pytest.mark.parametrize("name", MADE)
def test_strides_read_are_those_of_eager(name: str) -> None:
    make = MADE[name]

    def program(x: Tensor) -> tuple[tuple[int, ...], Tensor]:
        made = make(x)
        return made.stride(), x.new_zeros(made.stride()[-1])

    for layout in LAYOUTS.values():
        fast = anyshape.compile(program)
        for sizes in SIZES:
            x = layout(*sizes)
            assert read(fast, x) == read(program, x), (sizes, x.stride())


@pytest.mark.parametrize("turned", [False, True])
def test_strides_of_attention_are_those_of_eager(turned: bool) -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> tuple[tuple[int, ...], Tensor]:
        made = F.scaled_dot_product_attention(q, k, v)
        return made.stride(), made

    def argument(b: int, n: int, heads: int) -> Tensor:
        made = torch.rand(b, n, heads, 8).transpose(1, 2)
        return made if turned else made.contiguous()

    fast = anyshape.compile(program)
    for sizes in itertools.product((2, 1), (5, 1), (4, 1)):
        given = [argument(*sizes) for _ in range(3)]
        (read, made), (wanted, eagers) = fast(*given), program(*given)
        assert (read, made.stride()) == (wanted, eagers.stride()), sizes


@pytest.mark.parametrize("name", ["huber_loss", "soft_margin_loss"])
def test_a_loss_lies_as_what_eager_fills(name: str) -> None:
    """Read and handed out; of arguments that lie alike, and not."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        made = getattr(F, name)(x, y, reduction="none")
        return made, made.stride()

    fast = anyshape.compile(program, fullgraph=True)
    for n, m in ((3, 4), (1, 4), (4, 0)):
        for y in (torch.rand(n, m).mT, torch.rand(m, n)):
            x = torch.rand(n, m).mT
            (made, read), (wanted, _) = fast(x, y), program(x, y)
            assert (made.stride(), read) == (wanted.stride(), wanted.stride())
            torch.testing.assert_close(made, wanted)
