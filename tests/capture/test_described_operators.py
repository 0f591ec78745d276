"""Operators of the program's own whose description (`torch.library.register_fake`) says that data
decides a size: they end no segment, and one specialization serves every size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._library.simple_registry import SimpleLibraryRegistry

import anyshape


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[Any]:
    made = torch.library.Library("anyshape_described", "DEF")
    made.define("above(Tensor x, float limit, *, bool twice=False) -> (Tensor, Tensor)")
    made.define("few(Tensor x, int most=3) -> Tensor")

    def above(x, limit, *, twice=False):
        index = (x[:, 0] > limit).nonzero()[:, 0]
        rows = x[index]
        return index, torch.cat([rows, rows]) if twice else rows

    def few(x, most=3):
        return x[: min(most, int((x > 0).sum()))].clone()

    made.impl("above", above, "CPU")
    made.impl("few", few, "CPU")

    @torch.library.register_fake("anyshape_described::above", lib=made)
    def _(x, limit, *, twice=False):
        torch._check(x.dim() == 2)
        count = torch.library.get_ctx().new_dynamic_size()
        rows = x.new_empty(2 * count if twice else count, x.shape[1])
        return x.new_empty(count, dtype=torch.int64), rows

    @torch.library.register_fake("anyshape_described::few", lib=made)
    def _(x, most=3):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(min=0, max=most))

    yield made
    made._destroy()


def ops() -> Any:
    return torch.ops.anyshape_described


def rows_and_index(x: torch.Tensor) -> Any:
    index, rows = ops().above(x, 0.0)
    return index + 1, rows.sum(0), rows.relu() * 2


def by_keywords(x: torch.Tensor) -> Any:
    index, rows = ops().above(x, limit=0.5, twice=True)
    return x[index], rows - 1


def bounded(x: torch.Tensor) -> Any:
    y = ops().few(x[:, 0])
    return y * 2, y.shape[0], ops().few.default(x[:, 1], 2) + 1


@pytest.mark.parametrize("program", [rows_and_index, by_keywords, bounded])
def test_sizes_that_data_decides(program: Any) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for n in (5, 0, 1, 17, 3, 4):
        x = torch.randn(n, 4)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1
    assert "u0" in str(fast.graphs())  # a size of its own, not a number that was guessed


def test_a_refusal_is_eagers() -> None:
    @anyshape.compile
    def fast(x: torch.Tensor) -> Any:
        return ops().above(x, 0.0)

    with pytest.raises(IndexError):
        fast(torch.randn(3))


def test_the_registry_of_descriptions_is_asked_as_every_supported_torch_has_it(monkeypatch):
    monkeypatch.delattr(SimpleLibraryRegistry, "get", raising=False)  # torch 2.11 has none
    fast = anyshape.compile(lambda x: ops().few(x + 1.0, 2) * 2.0, fullgraph=True)
    x = torch.randn(5)
    torch.testing.assert_close(fast(x), ops().few(x + 1.0, 2) * 2.0)
