"""What a device notes for later holds nothing up: a kernel that reads at indices of data makes them itself, where on the
host it waits until they were tested."""

from __future__ import annotations

import pytest

from anyshape.ir.dtypes import int64
from anyshape.ops.table import OPS
from anyshape.schedule.analysis import analyse
from tests.schedule.programs import Sketch


@pytest.mark.parametrize("row, waits", [("check_false", True), ("trap_if", False)])
def test_a_read_waits_for_a_test_on_the_host_alone(row, waits):
    sketch = Sketch()
    x, positions = sketch.input("a b"), sketch.input("a 1", int64)
    b = sketch.builder
    bad = b.lt(positions, 0)
    getattr(b, row)(b.any(bad, (0, 1), False))
    found = analyse(sketch.finish(b.gather(x, 1, b.where(bad, 0, positions))), OPS)
    (test,) = (n for n, node in enumerate(found.nodes) if node.op == row)
    (read,) = (n for n, node in enumerate(found.nodes) if node.op == "gather")
    assert (found.barriers[read] >= test) is waits
