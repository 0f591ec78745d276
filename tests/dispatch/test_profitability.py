"""When a function whose segments do not pay is called natively, and when they are tried again."""

from __future__ import annotations

import torch

from anyshape.costs import COSTS
from anyshape.dispatch.profitability import CallRecord, Profitability, largest

POOR = CallRecord(segments=3, nodes=5, instructions=100, elements=10)
RICH = CallRecord(segments=3, nodes=500, instructions=100, elements=10)


def lost() -> Profitability:
    profitability = Profitability()
    for _ in range(COSTS.patience):
        assert not profitability.is_lost([])
        profitability.settle(POOR, 10)
    return profitability


def natively(profitability: Profitability) -> int:
    """How many calls run natively before segments are tried again."""
    calls = 0
    while profitability.is_lost([]):
        calls += 1
    return calls


def test_few_operators_do_not_pay_for_segments_and_large_tensors_do() -> None:
    assert POOR.is_loss() and not RICH.is_loss()
    assert not CallRecord(segments=3, nodes=5, instructions=100, elements=1 << 20).is_loss()


def test_segments_that_do_not_pay_are_tried_again_each_time_later() -> None:
    profitability = lost()
    found = []
    for _ in range(4):
        found.append(natively(profitability))
        profitability.settle(POOR, 10)
    assert found == [
        COSTS.retry_calls - 1,
        2 * COSTS.retry_calls - 1,
        4 * COSTS.retry_calls - 1,
        8 * COSTS.retry_calls - 1,
    ]


def test_one_call_that_pays_ends_it() -> None:
    profitability = lost()
    natively(profitability)
    profitability.settle(RICH, 10)
    assert not profitability.is_lost([])


def test_larger_arguments_than_were_judged_run_in_segments() -> None:
    profitability = lost()
    assert profitability.is_lost([torch.ones(10 * COSTS.retry_growth), "a text"])
    assert not profitability.is_lost([torch.ones(10 * COSTS.retry_growth + 1)])


def test_a_function_is_given_up_after_three_calls_that_lost_and_not_before() -> None:
    profitability = Profitability()
    for lost_calls, given_up in ((1, False), (2, False), (3, True)):
        profitability.settle(POOR, 10)
        assert profitability.lost == lost_calls and profitability.is_lost([]) is given_up


class Watched(torch.Tensor):
    """Its methods are the program's, and must be called by nothing else."""

    def numel(self) -> int:
        raise AssertionError("numel was called")


def test_methods_of_a_subclass_are_not_called() -> None:
    watched = torch.ones(7).as_subclass(Watched)
    assert largest([watched, torch.ones(3), torch.nn.UninitializedParameter(), 5]) == 3
    assert largest([watched]) == 0
