"""Flags of operators that follow from a size or from a number that changes from call to call."""

from __future__ import annotations

import torch
from torch import Tensor

import anyshape


def test_flags_that_follow_from_numbers_are_relied_on() -> None:
    def program(x: Tensor, step: int) -> tuple[Tensor, ...]:
        late = step > 2
        dropped = torch.nn.functional.dropout(x, 0.5, training=late)
        normed = torch.nn.functional.batch_norm(x, torch.zeros(3), torch.ones(3), training=late)
        return dropped, normed, x.sum(0, keepdim=len(x) > 2), torch.dropout(x, 0.5, len(x) > 2)

    fast = anyshape.compile(program, fullgraph=True)
    for size, step in ((4, 1), (3, 2), (5, 3), (7, 4), (2, 5)):
        x = torch.rand(size, 3)
        torch.manual_seed(step)
        wanted = program(x, step)
        torch.manual_seed(step)
        for a, b in zip(fast(x, step), wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_whether_an_activation_is_in_place_may_follow_from_a_number() -> None:
    def program(x: Tensor, step: int) -> Tensor:
        return torch.nn.functional.relu(x, inplace=step > 2) + 1

    fast = anyshape.compile(program, fullgraph=True)
    for step in (1, 2, 3, 5, 2):
        given = torch.randn(step, 2)
        own = given.clone()
        assert torch.equal(fast(given, step), program(own, step))
        assert torch.equal(given, own)


def test_whether_attention_is_causal_may_be_a_condition() -> None:
    def program(q: Tensor) -> Tensor:
        causal = q.shape[-2] > 2
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal)

    fast = anyshape.compile(program, fullgraph=True)
    for length in (4, 2, 1, 5):
        q = torch.rand(1, 1, length, 8)
        torch.testing.assert_close(fast(q), program(q))
    assert fast.stats().specializations <= 2
