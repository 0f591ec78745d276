"""What data decides is expected to be something rather than nothing, where both sides of a branch
cannot be one: a check, and where it fails the call runs natively.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import GraphBreakError

SOME, NONE = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([-1.0, -2.0])


def early(x: Tensor) -> Any:
    kept = x[x > 0]
    if kept.numel() == 0:
        return "nothing"
    return kept @ kept, kept.shape[0]


def test_an_early_return_for_nothing_is_no_break() -> None:
    fast = anyshape.compile(early)
    for x in (SOME, SOME[:1], SOME.repeat(3), NONE, SOME):
        found, expected = fast(x), early(x)
        assert found == expected if isinstance(expected, str) else found[1] == expected[1]
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.denied) == (1, 0, 1)
    assert "expected of data" in str(anyshape.explain(early)(SOME))


def test_where_the_first_call_denies_it_the_program_is_cut() -> None:
    fast = anyshape.compile(early)
    assert [fast(x) for x in (NONE, NONE)] == ["nothing"] * 2
    assert fast(SOME)[1] == 2
    assert fast.stats().denied == 1 and fast.stats().graph_breaks


def test_a_call_that_denies_it_writes_once() -> None:
    def f(x: Tensor, seen: Tensor, log: list[int]) -> Any:
        seen.add_(1)
        log.append(1)
        kept = x[x > 0]
        if len(kept) == 0:
            log.append(0)
            return None
        return kept @ kept

    fast, seen, log = anyshape.compile(f), torch.zeros(1), list[int]()
    for x in (SOME, SOME, SOME, NONE, SOME):
        fast(x, seen, log)
    assert seen.item() == 5 and log == [1, 1, 1, 1, 0, 1] and fast.stats().denied == 1


def test_a_loop_that_data_ends_is_not_expected_to_go_on() -> None:
    def f(x: Tensor) -> Any:
        turns = 0
        while x.numel() > 0:
            x, turns = x[x > 1] - 1, turns + 1
        return turns

    def halved(x: Tensor) -> int:
        if x.numel() == 0:
            return 0
        return 1 + halved(x[x > 1] - 1)

    for function in (f, halved):
        fast = anyshape.compile(function)
        assert [fast(torch.tensor(x)) for x in ([1.0, 2.0, 5.0], [3.0], [0.0])] == [5, 3, 1]
        assert not fast.stats().internal_errors


def test_under_fullgraph_nothing_is_expected() -> None:
    with pytest.raises(GraphBreakError):
        anyshape.compile(early, fullgraph=True)(SOME)


def test_positions_of_all_are_known_until_they_are_written() -> None:
    def f(flags: Tensor, table: list[Tensor], *, write: bool) -> Any:
        found, out = torch.stack([*flags]).nonzero(), torch.zeros(2)
        if write:
            found[0, 0] = 2
        total = 0.0
        for row in found:
            out += 1
            total = total + table[int(row)] * out
        return total

    flags, table = torch.tensor([True, True, True]), [torch.randn(2) for _ in range(3)]
    for write in (False, True):
        fast = anyshape.compile(f)
        for _ in range(2):
            torch.testing.assert_close(
                fast(flags, table, write=write), f(flags, table, write=write)
            )
        assert write or fast.stats().graph_breaks == 0


def test_a_row_of_positions_that_is_written_is_read_again() -> None:
    def f(flags: Tensor, table: list[Tensor]) -> Any:
        total = 0.0
        for row in torch.stack([*flags]).nonzero():
            row += 1
            total = total + table[int(row)]
        return total

    flags, table = torch.tensor([True, True]), [torch.randn(2) for _ in range(3)]
    fast = anyshape.compile(f)
    for _ in range(2):
        torch.testing.assert_close(fast(flags, table), f(flags, table))
