"""Masks that hide later keys and nothing else are flags of attention, those that hide none are
nothing, and no mask is made."""

from __future__ import annotations

import operator
import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

LENGTHS = ((5, 5), (7, 3), (3, 7), (1, 1), (1, 6), (6, 1), (33, 33))


def positions(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Of queries, as a column, and of keys."""
    return torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])


def packed(start: Tensor) -> Tensor:
    """Which packed sequence each position is of, where positions that follow each other are of one."""
    ahead = torch.diff(start, prepend=start[..., :1] - 1, dim=-1)
    return (ahead != 1).cumsum(-1)


def of_packed(q: Tensor, k: Tensor) -> Tensor:
    at, keys = positions(q, k)
    of = packed(torch.arange(max(q.shape[-2], k.shape[-2])))
    return (keys <= at) & (of[keys] == of[at])


CAUSAL = {
    "keys are not behind": lambda q, k: (lambda i, j: j <= i)(*positions(q, k)),
    "turned round": lambda q, k: (lambda i, j: i >= j)(*positions(q, k)),
    "below the next": lambda q, k: (lambda i, j: j < i + 1)(*positions(q, k)),
    "not behind": lambda q, k: (lambda i, j: ~(j > i))(*positions(q, k)),
    "a triangle": lambda q, k: torch.ones(q.shape[-2], k.shape[-2]).bool().tril(),
    "no triangle": lambda q, k: ~torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1),
    "and all": lambda q, k: (lambda i, j: (j <= i) & (j >= 0) & True)(*positions(q, k)),
    "of each head": lambda q, k: (lambda i, j: j <= i)(*positions(q, k)).expand(
        *q.shape[:2], -1, -1
    ),
    "positions that were moved": lambda q, k: (lambda i, j: j + 3 <= i + 3)(*positions(q, k)),
    "packed, all one": of_packed,
}
OPEN = {
    "all ones": lambda q, k: torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool),
    "of each sequence": lambda q, k: (lambda i, j: j >= 0)(*positions(q, k)).expand(
        q.shape[0], 1, q.shape[-2], -1
    ),
    "of all queries": lambda q, k: torch.ones(1, k.shape[-2], dtype=torch.bool),
    "positions are not negative": lambda q, k: (lambda i, j: (i >= 0) & (j > -1))(*positions(q, k)),
    "this or that": lambda q, k: (lambda i, j: (j <= i) | (j > i))(*positions(q, k)),
}
OTHERS = {
    "the first query's": lambda q, k: (lambda i, j: j <= i[:1])(*positions(q, k)),
    "one of a position": lambda q, k: (lambda i, j: j <= i)(
        torch.arange(1)[:, None], positions(q, k)[1]
    ),
    "none": lambda q, k: torch.zeros(q.shape[-2], k.shape[-2], dtype=torch.bool),
    "all but the first": lambda q, k: (lambda i, j: (i >= 0) & (j > 0))(*positions(q, k)),
    "the next one too": lambda q, k: (lambda i, j: j <= i + 1)(*positions(q, k)),
    "a window": lambda q, k: (lambda i, j: (j <= i) & (j > i - 3))(*positions(q, k)),
    "ahead": lambda q, k: (lambda i, j: (j >= i) | (j == 0))(*positions(q, k)),
    "the last keys": lambda q, k: (lambda i, j: j <= i + max(k.shape[-2] - q.shape[-2], 0))(
        *positions(q, k)
    ),
    "of data": lambda q, k: (lambda i, j: (j <= i) & (k[0, 0, :, 0].isfinite()))(*positions(q, k)),
    "every second": lambda q, k: (lambda i, j: (j <= i) & ((i - j) * 3 < 9))(*positions(q, k)),
    "packed in twos": lambda q, k: (lambda i, j: (j <= i) & (i // 2 == j // 2))(*positions(q, k)),
    "a sum that grows": lambda q, k: (lambda i, j: (j <= i) & ((j >= 1).long().cumsum(0) < 3))(
        *positions(q, k)
    ),
}


def operands(n: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n * 100 + m)
    return tuple(torch.randn(2, 3, length, 8, generator=generator) for length in (n, m, m))


def flags(mask) -> set[tuple[bool, object]]:
    """(is there a mask, is it causal) of each attention, where the mask is right at all lengths."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q, k))

    fast = anyshape.compile(program, fullgraph=True)
    for n, m in LENGTHS:
        given = operands(n, m)
        torch.testing.assert_close(fast(*given), program(*given), equal_nan=True)
    found = set()
    for made in fast._lazy.machinery._specializations():
        for node in made.compiled.stages[-1][1].nodes:
            if node.op == "scaled_dot_product_attention":
                found.add((node.args[3] is not None, node.args[5]))
    return found


@pytest.mark.parametrize("name", CAUSAL)
def test_a_mask_that_hides_later_keys_is_a_flag(name):
    assert flags(CAUSAL[name]) == {(False, True)}


@pytest.mark.parametrize("name", OPEN)
def test_a_mask_that_hides_no_key_is_none(name):
    assert flags(OPEN[name]) == {(False, False)}


@pytest.mark.parametrize("open", [True, False])
def test_a_mask_with_more_rows_than_query_and_key_is_refused(open):
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at, keys = positions(q, k)
        mask = (keys >= 0 if open else keys <= at).expand(4, 3, q.shape[-2], -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    fast = anyshape.compile(program)
    for n, m in LENGTHS:
        for call in (program, fast):
            with pytest.raises(RuntimeError, match="match"):
                call(*operands(n, m))


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_mask_stays(name):
    assert flags(OTHERS[name]) == {(True, False)}


def test_no_mask_is_made_and_the_one_that_is_read_elsewhere_stays():
    def program(q: Tensor, k: Tensor, v: Tensor, both: bool) -> tuple[Tensor, ...]:
        at, keys = positions(q, k)
        mask = keys <= at
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return (y, mask) if both else (y,)

    q, k, v = operands(5, 5)
    alone, shared = anyshape.compile(program), anyshape.compile(program)
    torch.testing.assert_close(alone(q, k, v, False), program(q, k, v, False))
    torch.testing.assert_close(shared(q, k, v, True), program(q, k, v, True))
    assert (alone.stats().kernels, shared.stats().kernels) == (0, 1)


def test_a_window_that_no_length_reaches_hides_later_keys():
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.shape[-2] > 64:
            return q
        at, keys = positions(q, k)
        mask = (keys <= at) & (keys > at - 64)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    fast = anyshape.compile(program)
    for n in (7, 1, 64):
        given = operands(n, n)
        torch.testing.assert_close(fast(*given), program(*given))
    assert fast.stats().kernels == 0


def test_gradients_need_no_mask_either():
    def program(x: Tensor) -> Tensor:
        at, keys = positions(x, x)
        return F.scaled_dot_product_attention(x, x * 2, x + 1, attn_mask=keys <= at)

    fast = anyshape.compile(program, fullgraph=True)
    for n in (5, 1, 33):
        ours, theirs = (operands(n, n)[0].requires_grad_() for _ in range(2))
        fast(ours).square().sum().backward()
        program(theirs).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert joint_operators(fast).isdisjoint({"arange", "le"})


def test_gradients_need_no_mask_where_keys_have_a_length_of_their_own():
    """The gradient is handed to the operator in front of query and key."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at, keys = positions(q, k)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=keys <= at)

    fast = anyshape.compile(program, fullgraph=True)
    for n, m in LENGTHS:
        ours = [x.requires_grad_() for x in operands(n, m)]
        theirs = [x.detach().requires_grad_() for x in ours]
        fast(*ours).square().sum().backward()
        program(*theirs).square().sum().backward()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    assert joint_operators(fast).isdisjoint({"arange", "le"})


def joint_operators(fast) -> set[str]:
    """Of the one specialization, forward and backward."""
    (made,) = fast._lazy.machinery._specializations()
    return {node.op for node in dict(made.compiled.stages)["joint"].nodes}


@pytest.mark.parametrize("seed", range(60))
def test_random_masks_are_right_at_every_length(seed):
    """Masks of random comparisons of positions, of which some hide later keys and nothing else."""
    flags(random_mask(random.Random(seed)))


def random_mask(choose: random.Random):
    compare = [operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne]
    join = [operator.and_, operator.or_, lambda a, b: torch.where(a, b, ~b)]
    parts = [
        (choose.choice(compare), *(choose.randint(-2, 2) for _ in range(5)))
        for _ in range(choose.randint(1, 2))
    ]
    joins = [choose.choice(join) for _ in parts]

    def mask(q: Tensor, k: Tensor) -> Tensor:
        i, j = positions(q, k)
        made = j <= i
        for joined, (compared, a, b, c, d, e) in zip(joins, parts, strict=True):
            left = torch.where(j < a, j + b, j - c) if d else j + a
            made = joined(made, compared(left, i + d if e > 0 else d))
        return made

    return mask
