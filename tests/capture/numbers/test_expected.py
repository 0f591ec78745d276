"""What data decides is expected to be something rather than nothing, where both sides of a branch
cannot be one: a check, and where it fails the call runs natively.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


# ---- what numbers are found to be ----------------------------------------------------------------
W = torch.ones(3, requires_grad=True)


def masked(x: Tensor) -> Any:
    y = x[:3] * W[: len(x)]
    if (x > 0).any():
        return y[x[:3] > 0].square().mean()
    return y.sum()


def counted(x: Tensor) -> Any:
    y = x[:3] * W[: len(x)]
    return y.sum() if (x > 0).sum() == 0 else y[x[:3] > 0].square().mean()


def finite(x: Tensor) -> Any:
    loss = (x[:3] * W[: len(x)]).log().sum()
    if not torch.isfinite(loss) or torch.isinf(x).any():
        return loss.detach()
    return loss * 2


def finite_as_a_number(x: Tensor) -> Any:
    loss = (x[:3] * W[: len(x)]).log().sum()
    if math.isnan(loss.item()):
        return None
    return loss * 2


@pytest.mark.parametrize("program", [masked, counted, finite, finite_as_a_number])
def test_masks_are_true_somewhere_and_numbers_finite(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program)
    some = SOME if program in (masked, counted) else SOME.abs()
    for x in (some, some[:2], some.repeat(3), NONE, some):
        found, expected = fast(x), program(x)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found is None or found.requires_grad == expected.requires_grad
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.denied) == (1, 0, 1)


def test_a_check_of_each_layer_is_tried_to_be_joined_once() -> None:
    def f(x: Tensor) -> Tensor:
        for _ in range(5):
            x = x * W
            if torch.isinf(x).any():
                x = torch.clamp(x, -9.0, 9.0)
        return x

    report = anyshape.explain(f)(SOME)
    assert str(report).count("not joined") == 1 and "0 graph breaks" in str(report)


def test_a_loop_that_a_mask_ends_is_not_expected_to_go_on() -> None:
    def f(x: Tensor) -> Any:
        x = x * W
        while (x > 1).any():
            x = x / 2
        return x

    fast = anyshape.compile(f)
    for x in (SOME, -SOME, SOME * 9):
        torch.testing.assert_close(fast(x), f(x))
    assert fast.stats().denied == 0


def test_a_number_that_raises_if_it_is_not_0_is_a_check() -> None:
    def f(x: Tensor) -> Tensor:
        if x.amin().item():
            raise ValueError("not 0")
        return x * 2

    fast = anyshape.compile(f)
    assert fast(SOME.abs() - 1).tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="not 0"):
        fast(SOME)
    assert fast.stats().graph_breaks == 0


def test_what_was_written_over_is_not_what_is_expected() -> None:
    """The expectation is about what lies there now; a wrong one would deny each call."""

    def f(x: Tensor) -> Any:
        flag = torch.isnan(x).any()
        flag.copy_((x > 0).any())
        y = x * W[: len(x)]
        return y.sum() if flag else y * 2

    fast = anyshape.compile(f)
    for x in (SOME, SOME[:1], NONE[:1]):
        torch.testing.assert_close(fast(x), f(x))
    assert (fast.stats().graph_breaks, fast.stats().denied) == (0, 1)


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
