"""Programs that a peer gets wrong, or cannot do, where sizes are not known. Here they are right.

Each was seen to fail in torch 2.13 (CPU, default settings): silently wrong results, internal
errors, and data-dependent errors with `mark_unbacked` under `fullgraph=True`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

FULL = {"fullgraph": True}


# --- silently wrong ---


@torch.no_grad()
def test_a_write_through_the_alias_that_dropout_returns_is_not_lost() -> None:
    def program(x: Tensor) -> Tensor:
        y = F.dropout(x, 0.5, training=False)
        y += y
        return y

    fast = anyshape.compile(program)
    for n in (3, 1, 7):
        ours, expected = torch.arange(n, dtype=torch.float32), torch.arange(n, dtype=torch.float32)
        torch.testing.assert_close(fast(ours), program(expected))
        torch.testing.assert_close(ours, expected)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("reduce", [torch.min, torch.max, torch.argmin, torch.argmax, torch.sum])
def test_reductions_of_small_integers_at_every_tail(
    dtype: torch.dtype, reduce: Callable[[Tensor], Tensor]
) -> None:
    fast = anyshape.compile(lambda x: reduce(x), **FULL)
    for n in (18, 1, 2, 15, 16, 17, 33, 63, 64, 65, 130):
        x = torch.arange(1, n + 1).flip(0).to(dtype)
        assert torch.equal(fast(x), reduce(x)), n


@torch.no_grad()
def test_the_tail_of_a_tiled_reduction_stays_within_bounds() -> None:
    fast = anyshape.compile(lambda x: (x * 2).sum(0), **FULL)
    for rows, columns in ((1, 1), (3, 5), (17, 19), (33, 31), (64, 65), (127, 129)):
        storage = torch.zeros(columns + 64)
        x = torch.randn(rows, columns)
        result = fast(x)
        storage[:columns] = result
        torch.testing.assert_close(storage[:columns], (x * 2).sum(0), rtol=1e-4, atol=1e-4)
        assert result.untyped_storage().nbytes() == columns * 4


@torch.no_grad()
def test_squeeze_of_an_unbacked_dimension_at_size_one_changes_the_rank() -> None:
    def program(x: Tensor) -> Tensor:
        return x.squeeze(0) * 2

    fast = anyshape.compile(program)
    for n in (5, 1, 3):
        x = torch.randn(n, 3)
        anyshape.mark_unbacked(x, 0)
        assert fast(x).shape == program(x).shape


# --- internal errors ---


@torch.no_grad()
def test_an_addition_seen_with_equal_sizes_broadcasts_later() -> None:
    fast = anyshape.compile(lambda x, y: x + y)
    for a, b in ((4, 4), (1, 7), (7, 1), (1, 1), (5, 5)):
        x, y = torch.randn(a), torch.randn(b)
        torch.testing.assert_close(fast(x, y), x + y)


# --- data-dependent errors with unbacked sizes ---

UNBACKED: dict[str, Callable[[Tensor], object]] = {
    "chunk": lambda x: torch.cat(x.chunk(2, dim=1), dim=0),
    "roll": lambda x: torch.roll(x, 1, 0),
    "logsumexp": lambda x: torch.logsumexp(x, 0),
    "mse_loss": lambda x: F.mse_loss(x, x * 2),
    "l1_loss": lambda x: F.l1_loss(x, x * 2),
    "batch_norm": lambda x: F.batch_norm(x, torch.ones(4), torch.full((4,), 2.0)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "sdpa": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
}


@torch.no_grad()
@pytest.mark.parametrize("name", UNBACKED)
def test_an_unbacked_size_needs_no_guard(name: str) -> None:
    program = UNBACKED[name]
    fast = anyshape.compile(program, **FULL)
    for n in (5, 2, 9, 1):
        x = torch.randn(n, 4)
        anyshape.mark_unbacked(x, 0)
        torch.testing.assert_close(fast(x), program(x), rtol=1e-4, atol=1e-5)
    assert fast.stats().specializations == 1


@torch.no_grad()
def test_a_branch_on_an_unbacked_size_runs_both_sides_where_they_meet() -> None:
    def program(x: Tensor) -> Tensor:
        scale = 2.0
        if x.shape[0] > 4:
            scale = 3.0
        return x * scale

    fast = anyshape.compile(program, **FULL)
    for n in (5, 2, 9, 1):
        x = torch.randn(n, 4)
        anyshape.mark_unbacked(x, 0)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1


# --- beside a peer in one process ---


@torch.no_grad()
def test_modules_that_a_call_makes_are_compiled_after_torch_compile_was_used_as_well() -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))  # patches nn.Module.__init__

    def program(x: Tensor) -> Tensor:
        for layer in layers[:2]:
            x = layer(x)
        return x

    fast = anyshape.compile(program, **FULL)
    for n in (5, 1):
        x = torch.randn(n, 4)
        torch.testing.assert_close(fast(x), program(x))
