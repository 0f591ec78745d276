"""Sizes that data decides stay in memory where nothing needs them on the host (``schedule/placement.py``): results
are eager's, whatever lies behind the last element, and each read by the host is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.driver import Driver
from anyshape.ir.program import CountedCall
from anyshape.options import Options
from anyshape.runtime import launch
from tests.schedule.programs import Sketch

IN_MEMORY = {"sizes": "device", "verify_programs": True}
WEIGHT = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def positive(x: Tensor) -> Tensor:
    return x[x[:, 0] > 0]


PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "mask": (lambda x: x[x > 0], 1),
    "indices": (lambda x: x.nonzero(), 1),
    "rows": (lambda x: positive(x) * 2, 1),
    "sum": (lambda x: x[x > 0].exp().sum(), 0),
    "mean": (lambda x: x[x > 0].sum() / (x > 0).sum(), 0),
    "columns": (lambda x: positive(x).sum(0), 0),
    "norm of rows": (lambda x: positive(x).square().sum(1).sqrt().sum(), 0),
    "softmax": (lambda x: torch.softmax(x[x > 0], 0), 1),
    "scan": (lambda x: x[x > 0].cumsum(0), 1),
    "joined": (lambda x: torch.cat([x[x > 0], x[x < 0]]), 2),
    "of both": (lambda x: x[x > 0].sum() + x[x < 0].sum(), 0),
    "product": (lambda x: torch.relu(positive(x) @ WEIGHT), 1),
    "reduced product": (lambda x: (positive(x) @ WEIGHT).sum(0), 0),
    "two products": (lambda x: torch.tanh(positive(x) @ WEIGHT) @ WEIGHT.T, 1),
    "scattered": (lambda x: torch.zeros_like(x).index_add(0, (x[:, 0] > 0).nonzero()[:, 0], positive(x)), 2),
    "filled": (lambda x: x.masked_fill(x > 0, 1.0)[x == 1].sum(), 0),
    "number": (lambda x: x * int((x > 0).sum()), 1),
    "handed out": (lambda x: (int((x > 0).sum()), x + 1), 1),
    "a new tensor": (lambda x: torch.arange(int((x > 0).sum())), 1),
    "twice": (lambda x: (lambda y: y[y < 1])(x[x > 0]), 2),
    "reshaped": (lambda x: positive(x).reshape(-1) + 1, 1),
    "transposed": (lambda x: positive(x).t() * 2, 1),
    "slice": (lambda x: x[: int((x[:, 0] > 0).sum())] + 1, 1),
    "sorted": (lambda x: x[x > 0].sort().values, 1),
    "unique": (lambda x: x.round().unique(), 1),
}  # fmt: skip


def arguments() -> Iterator[Tensor]:
    for rows in (5, 0, 1, 2, 64):
        yield torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows))
    yield -torch.ones(4, 3)
    yield torch.ones(4, 3)


@pytest.fixture(params=["as it comes", "full of NaN"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory holds what nothing may read."""
    if request.param == "full of NaN":
        empty = launch.RUNTIME_FUNCTIONS["anyshape.empty_cpu"]

        def spoiled(*given: Any) -> Tensor:
            made = empty(*given)
            torch.as_strided(
                made, (made.untyped_storage().nbytes() // made.itemsize,), (1,), 0
            ).view(torch.uint8).fill_(0xFF)
            return made

        monkeypatch.setitem(launch.RUNTIME_FUNCTIONS, "anyshape.empty_cpu", spoiled)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("memory")
@torch.no_grad()
def test_results_are_eagers_and_reads_are_counted(name: str) -> None:
    program, reads = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True, options=IN_MEMORY)
    for x in arguments():
        torch.testing.assert_close(fast(x), program(x), equal_nan=True)
    assert fast.stats().specializations == 1
    assert fast.stats().host_syncs == reads


def test_the_host_does_not_have_a_size_before_it_reads_it() -> None:
    fast = anyshape.compile(lambda x: x[x > 0] * 2, fullgraph=True, options=IN_MEMORY)
    fast(torch.randn(5))
    before, after = fast.code().split(".item()\n")
    assert before.count("u0") == 1 and before.endswith("u0 = nonzero_0_count")
    assert "(u0,)" in after


def test_a_size_says_where_it_is_and_why() -> None:
    sketch = Sketch()
    x = sketch.input("a")
    b = sketch.builder
    stays = b.nonzero(b.gt(x, 0.0))
    read = b.nonzero(b.lt(x, 0.0))
    graph = sketch.finish(b.sum(stays, (0, 1)), b.sort(b.select(read, 1, 0), 0, False)[0])
    options = Options(cache=False, sizes="device", verify_programs=True)
    program = Driver.create(options).compile_graph(graph, {}).program
    reasons = {placement.memory: placement.reason for placement in program.placements.values()}
    assert reasons[f"{stays.name}_count"] == ""
    assert "View" in reasons[None]
    assert sum(isinstance(step, CountedCall) for step in program.steps) == 1
