"""What a library, a kernel or eager torch makes, seen through a view, with more work after it: the
results, what they share memory with, and the argument are eager's, whatever is returned.

``make test`` runs each producer with each view, the other choices by turns; ``make test-all`` the
whole cross. The arenas, taken memory and in-place steps of each program are proven as well, by the
verifier that every test runs (``tests/conftest.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.tools.accuracy import strides_that_matter

GENERATOR = torch.Generator().manual_seed(5)
SQUARE = torch.randn(4, 4, generator=GENERATOR) / 2
NARROW = torch.randn(4, 4, 1, generator=GENERATOR)
SMALL = torch.randn(4, 1, 1, 1, generator=GENERATOR)
ALONE = torch.full((1, 1), 0.75)
SHAPES = ((2, 3), (3, 3), (4, 4), (1, 1), (5, 1), (1, 4), (0, 2), (2, 0))
"""Of an argument of (n, m, 4)."""

Step = Callable[[Tensor], Tensor]


def library(x: Tensor) -> Tensor:
    """A product that keeps the shape and the layout of a dense tensor."""
    return F.linear(x.unsqueeze(-1), ALONE).squeeze(-1)


def readers(x: Tensor) -> Tensor:
    """Products that are handed the tensor itself."""
    square = torch.full((x.shape[-1], x.shape[-1]), 0.5)
    return F.linear(F.gelu(F.linear(x, square)), square)


PRODUCERS: dict[str, Step] = {
    "conv1d": lambda x: F.conv1d(x.transpose(1, 2), NARROW),
    "conv2d": lambda x: F.conv2d(x.unsqueeze(1), SMALL),
    "linear": lambda x: F.linear(x, SQUARE),
    "linear with a bias": lambda x: F.linear(x, SQUARE, SQUARE[0]),
    "mm": lambda x: x.flatten(0, 1) @ SQUARE,
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "matmul": lambda x: torch.matmul(x, SQUARE),
    "sdpa": lambda x: F.scaled_dot_product_attention(x, x, x),
    "fused kernel": lambda x: F.silu(x * 2 + 1),
    "softmax": lambda x: F.softmax(x, -1),
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "sort": lambda x: torch.sort(x, -1).values,
    "eager": lambda x: torch.special.i1(x),
    "eager, a view of its result": lambda x: torch.fft.fft(x).real,
    "scatter": lambda x: torch.cat([x, x]).index_fill(0, torch.tensor([0]), 2.0),
    "dropout in eval mode": lambda x: F.dropout(x * 2, 0.5, False),
    "the argument": lambda x: x,
}

VIEWS: dict[str, Step] = {
    "itself": lambda h: h,
    "view": lambda h: h.view(-1),
    "view of rows": lambda h: h.view(-1, h.shape[-1]),
    "reshape": lambda h: h.reshape(-1, h.shape[-1]),
    "flatten": lambda h: h.flatten(1),
    "transpose": lambda h: h.transpose(0, 1),
    "permute": lambda h: h.movedim(-1, 0),
    "slice": lambda h: h[1:],
    "slice of columns": lambda h: h[..., ::2],
    "select": lambda h: h.select(-1, -1),
    "unbind": lambda h: h.unbind(-1)[0],
    "chunk": lambda h: h.chunk(2, -1)[0],
    "expand": lambda h: h.unsqueeze(0).expand(2, *h.shape),
    "diagonal": lambda h: h.diagonal(0, -2, -1),
    "a view of a view": lambda h: h.transpose(0, 1)[1:].unsqueeze(0),
    "a view of a copy": lambda h: h.transpose(0, 1).reshape(-1)[1:],
    "detach": lambda h: h.detach(),
    "alias": lambda h: h.view_as(h),
    "contiguous": lambda h: h.contiguous(),
}

NEXT: dict[str, Step] = {
    "pointwise": lambda v: F.relu(v * 2 + 1),
    "libraries": lambda v: library(F.gelu(library(v))),
    "libraries that read the view": readers,
    "reductions": lambda v: v - v.amax(-1, keepdim=True) if v.shape[-1] else v.sum(),
    "attention": lambda v: F.scaled_dot_product_attention(*[library(v.reshape(1, -1, 1))] * 3),
    "a write in place": lambda v: library(v).add_(1).mul(2),
}

RETURNED: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]] = {
    "the result": lambda x, h, v, r: (r,),
    "the view": lambda x, h, v, r: (v, r),
    "the base": lambda x, h, v, r: (h, r),
    "the view and the base": lambda x, h, v, r: (r, v, h),
    "the argument": lambda x, h, v, r: (x, v, r),
    "a view of the view": lambda x, h, v, r: (v[..., :1], r.detach()),
}


def built(
    producer: str, view: str, following: str, returned: str
) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        h = PRODUCERS[producer](x)
        v = VIEWS[view](h)
        r = NEXT[following](v)
        return RETURNED[returned](x, h, v, r)

    return program


def by_turns() -> Iterator[tuple[str, str, str, str]]:
    """Each producer with each view; and the returned view that a library reads, of two of them."""
    yield from itertools.product(
        ("conv2d", "linear"), VIEWS, ("libraries that read the view",), ("the view",)
    )
    for number, (producer, view) in enumerate(itertools.product(PRODUCERS, VIEWS)):
        # 19 views, 6 and 6 choices: each view meets each of both in a few producers.
        yield producer, view, [*NEXT][number % 6], [*RETURNED][(number // 6 + number) % 6]


def sharing(tensors: list[Tensor]) -> list[tuple[int, int] | None]:
    """Of each tensor with elements: the first one in its memory, and how far from it it begins."""
    first: dict[int, tuple[int, int]] = {}
    found: list[tuple[int, int] | None] = []
    for number, tensor in enumerate(tensors):
        begin = tensor.data_ptr()
        memory = tensor.untyped_storage().data_ptr()
        owner, start = first.setdefault(memory, (number, begin)) if tensor.numel() else (-1, 0)
        found.append((owner, begin - start) if tensor.numel() else None)
    return found


def check(names: tuple[str, str, str, str]) -> None:
    program = built(*names)
    fast = anyshape.compile(program)
    for shape in SHAPES:
        x = torch.randn(*shape, 4, generator=torch.Generator().manual_seed(sum(shape)))
        given = x.clone()
        try:
            wanted = [x, *program(x)]
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                fast(given)
            continue
        found = [given, *fast(given)]
        for position, (a, b) in enumerate(zip(found, wanted, strict=True)):
            torch.testing.assert_close(
                a, b, rtol=1e-4, atol=1e-4, msg=lambda m: f"{shape} {position}: {m}"
            )
            assert strides_that_matter(a) == strides_that_matter(b), (shape, position)
        assert sharing(found) == sharing(wanted), shape
        assert given._version == x._version, shape


@torch.no_grad()
@pytest.mark.parametrize("names", [*by_turns()], ids=", ".join)
def test_views_of_results_hold_what_eagers_do(names: tuple[str, str, str, str]) -> None:
    check(names)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("view", VIEWS)
def test_the_whole_cross(producer: str, view: str) -> None:
    for following, returned in itertools.product(NEXT, RETURNED):
        check((producer, view, following, returned))
