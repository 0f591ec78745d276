"""`max` and `min` of many sizes, however they are handed over: one expression, and no branch for
each of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape


def padded(x: Tensor, lengths: Tensor) -> Tensor:
    """A padded batch of packed sequences."""
    parts = x.split(lengths.tolist())
    longest = max(part.shape[0] for part in parts)
    return torch.stack([F.pad(part, (0, longest - part.shape[0])) for part in parts])


def questions(count: int) -> int:
    lengths = torch.arange(count) % 4 + 1
    x = torch.randn(int(lengths.sum()))
    fast = anyshape.compile(padded, fullgraph=True)
    torch.testing.assert_close(fast(x, lengths), padded(x, lengths))
    other = lengths.flip(0) + 1
    y = torch.randn(int(other.sum()))
    torch.testing.assert_close(fast(y, other), padded(y, other))
    assert fast.stats().specializations == 1
    return sum(stage.questions for stage in fast.stats().stages)


def test_questions_grow_as_the_sizes_do():
    assert questions(128) <= 1.25 * 2 * questions(64)


WAYS = {
    "generator": lambda xs: max(x.shape[0] for x in xs),
    "list": lambda xs: min([x.shape[0] for x in xs]),
    "tuple": lambda xs: max(tuple([x.shape[0] for x in xs])),
    "iterator": lambda xs: min(iter([x.shape[0] for x in xs])),
    "constants beside": lambda xs: max([4, *(x.shape[0] for x in xs), 5]),
    "a number behind": lambda xs: max([*(x.shape[0] for x in xs), 3.5]),
    "a number in front": lambda xs: min(x for x in [3.5, *(x.shape[0] for x in xs)]),
    "a number between": lambda xs: max(x for x in [2, xs[0].shape[0], 4.5, xs[1].shape[0], 6]),
    "truth": lambda xs: max(x for x in [xs[0].shape[0] > 3, xs[1].shape[0]]),
    "quotients": lambda xs: max(x.shape[0] / 2 for x in xs),
    "a list of quotients": lambda xs: min([x.shape[0] / 2 for x in xs]),
    "key": lambda xs: max((x.shape[0] for x in xs), key=lambda n: -n),
    "default": lambda xs: max((x.shape[0] for x in xs if x.dim() > 3), default=2),
    "one": lambda xs: max(x.shape[0] for x in xs[:1]),
    "a tensor beside": lambda xs: max([xs[0].shape[0], torch.tensor(4), xs[1].shape[0]]),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_extremes_are_those_of_eager(way):
    def program(*xs):
        return xs[0] * way(xs)

    fast = anyshape.compile(program)
    for sizes in ((3, 5, 7), (5, 3, 2), (4, 4, 4), (9, 1, 5), (2, 6, 3)):
        xs = [torch.randn(size) for size in sizes]
        made, wanted = fast(*xs), program(*xs)
        assert made.dtype is wanted.dtype
        torch.testing.assert_close(made, wanted)


def test_what_cannot_be_compared_raises_where_it_is_met():
    met = []

    def sizes(xs):
        for x in xs:
            met.append(x)
            yield x if isinstance(x, str) else x.shape[0]

    def program(*xs):
        try:
            return xs[0] * max(sizes([*xs, "text", xs[0]]))
        except TypeError as error:
            return xs[0] + len(str(error))

    x, y = torch.randn(3), torch.randn(5)
    wanted = program(x, y)
    count = len(met)
    fast = anyshape.compile(program)
    for each in (x, torch.randn(4)):
        met.clear()
        torch.testing.assert_close(fast(each, y), program(each, y))
        assert len(met) == 2 * count
    assert wanted.shape == x.shape
