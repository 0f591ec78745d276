"""A small model, its batches, and a program run twice beside eager: what the tests of training share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

SIZES = (4, 1, 5)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def batch(seed: int, count: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=stream)
    return torch.randn(count, 16, generator=stream), labels


def descend(net: nn.Module) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad


def assert_same(found: Any, expected: Any, rtol: float = 1e-4) -> None:
    """The same values, and of tensors the same place in autograd's graph."""
    if isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected), (found, expected)
        for one, other in zip(found, expected):
            assert_same(one, other, rtol)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        assert_same([*found.values()], [*expected.values()], rtol)
    elif isinstance(expected, Tensor):
        assert (found.requires_grad, found.is_leaf) == (expected.requires_grad, expected.is_leaf)
        torch.testing.assert_close(
            found.detach(), expected.detach(), rtol=rtol, atol=rtol / 10, equal_nan=True
        )
    else:
        assert found == (pytest.approx(expected) if type(expected) is float else expected)


def assert_same_parameters(ours: nn.Module, theirs: nn.Module, rtol: float = 1e-4) -> None:
    """Values, versions, gradients and how those lie in memory."""
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters()):
        assert a._version == b._version, name
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is None or b.grad is None:
            continue
        assert a.grad.layout is b.grad.layout, name
        assert_same(a.grad.to_dense(), b.grad.to_dense(), rtol)
        assert a.grad.layout is torch.sparse_coo or a.grad.stride() == b.grad.stride(), name
    values = [[p.detach() for p in net.parameters()] for net in (ours, theirs)]
    assert_same(*values, rtol)
