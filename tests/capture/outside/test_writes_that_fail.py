"""Writes to containers from outside that C refuses, some of them when they are half done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import anyshape


class Holder:
    def __init__(self, more: bool) -> None:
        self.numbers = {1, 2, 6} if more else {1, 2}
        self.names: dict[Any, Any] = {1: 2}
        self.values = [3, 1, 2, "a"]


WRITES: tuple[Callable[[Holder], Any], ...] = (
    lambda h: h.numbers.update([5, 6], [7, []]),
    lambda h: h.numbers.discard([]),
    lambda h: h.numbers.add({}),
    lambda h: h.numbers.remove(77),
    lambda h: h.numbers.difference_update([1], 3),
    lambda h: h.numbers.symmetric_difference_update([9, []]),
    lambda h: h.names.update([(3, 4), 5]),
    lambda h: h.names.update([(7, 7), ([], 1)], last=1),
    lambda h: h.values.extend(3),
    lambda h: h.values.sort(),
)


def written(x: torch.Tensor, holder: Holder) -> Any:
    y = x + 1
    said = []
    for write in WRITES:
        try:
            write(holder)
        except Exception as error:
            said.append(repr(error))
    said += [sorted(holder.numbers), [*holder.names.items()], [*holder.values]]
    return y * 2, said


def test_what_was_written_before_the_error_is_written() -> None:
    fast = anyshape.compile(written, fullgraph=True)
    for more in (False, False, True):
        real, mine = Holder(more), Holder(more)
        expected, found = written(torch.ones(3), real), fast(torch.ones(3), mine)
        assert found[1] == expected[1]
        assert vars(mine) == vars(real)
        assert [*mine.names] == [*real.names]
        assert torch.equal(found[0], expected[0])
    assert fast.stats().specializations == 2
