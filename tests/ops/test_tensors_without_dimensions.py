"""A tensor without dimensions, as what is indexed, as the index or as the source, counts as eager counts it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.fuzz.oracle import call, differences

X = {
    "a matrix": torch.arange(12.0).reshape(3, 4),
    "a vector": torch.arange(3.0),
    "a number": torch.tensor(5.0),
}
POSITIONS = {"a position": torch.tensor(0), "positions": torch.tensor([0])}
SOURCES: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x * 2,
    "its first": lambda x: x[0] if x.dim() else x,
    "its first ones": lambda x: x[:1] if x.dim() else x[None],
}
READS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_select": lambda x, i: (x + 1).index_select(0, i) * 2,
    "index_select from the end": lambda x, i: (x + 1).index_select(-1, i),
    "gather": lambda x, i: x.gather(0, i),
    "take": lambda x, i: x.take(i),
    "index_fill": lambda x, i: x.index_fill(0, i, 7),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
}
WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_copy": lambda x, i, y: x.index_copy(0, i, y),
    "index_copy_": lambda x, i, y: x.index_copy_(0, i, y),
    "index_add": lambda x, i, y: x.index_add(0, i, y),
    "index_add_": lambda x, i, y: x.index_add_(0, i, y),
    "scatter": lambda x, i, y: x.scatter(0, i, y),
    "scatter_": lambda x, i, y: x.scatter_(0, i, y),
    "scatter_add": lambda x, i, y: x.scatter_add(0, i, y),
    "scatter_reduce": lambda x, i, y: x.scatter_reduce(0, i, y, "amax"),
    "scatter_reduce_": lambda x, i, y: x.scatter_reduce_(0, i, y, "sum"),
    "averages": lambda x, i, y: x.scatter_reduce(0, i, y, "mean", include_self=False),
    "index_reduce": lambda x, i, y: x.index_reduce(0, i, y, "amax"),
    "put": lambda x, i, y: x.put(i, y),
}


def as_eager(program: Callable[..., Any], *arguments: Tensor) -> None:
    found, wanted = (
        call(run, [a.clone() for a in arguments]) for run in (anyshape.compile(program), program)
    )
    assert list(differences(found, wanted, exact=False)) == []


@pytest.mark.parametrize(("x", "position", "name"), itertools.product(X, POSITIONS, READS))
def test_reads(x: str, position: str, name: str) -> None:
    as_eager(READS[name], X[x], POSITIONS[position])


@pytest.mark.parametrize(("x", "position", "name"), itertools.product(X, POSITIONS, WRITES))
def test_writes(x: str, position: str, name: str) -> None:
    for source in SOURCES.values():
        as_eager(WRITES[name], X[x], POSITIONS[position], source(X[x]))
