"""When a function whose segments do not pay is called natively, and when they are tried again."""

from __future__ import annotations

import torch

from anyshape.dispatch.profitability import AGAIN, LOST_CALLS, ROOM, Costs, Ledger

POOR = Costs(segments=3, nodes=5, instructions=100, elements=10)
RICH = Costs(segments=3, nodes=500, instructions=100, elements=10)


def lost() -> Ledger:
    ledger = Ledger()
    for _ in range(LOST_CALLS):
        assert not ledger.is_lost([])
        ledger.settle(POOR, 10)
    return ledger


def natively(ledger: Ledger) -> int:
    """How many calls run natively before segments are tried again."""
    calls = 0
    while ledger.is_lost([]):
        calls += 1
    return calls


def test_few_operators_do_not_pay_for_segments_and_large_tensors_do() -> None:
    assert POOR.is_loss() and not RICH.is_loss()
    assert not Costs(segments=3, nodes=5, instructions=100, elements=1 << 20).is_loss()


def test_segments_that_do_not_pay_are_tried_again_each_time_later() -> None:
    ledger = lost()
    found = []
    for _ in range(4):
        found.append(natively(ledger))
        ledger.settle(POOR, 10)
    assert found == [AGAIN - 1, 2 * AGAIN - 1, 4 * AGAIN - 1, 8 * AGAIN - 1]


def test_one_call_that_pays_opens_the_books_again() -> None:
    ledger = lost()
    natively(ledger)
    ledger.settle(RICH, 10)
    assert not ledger.is_lost([])


def test_larger_arguments_than_were_judged_run_in_segments() -> None:
    ledger = lost()
    assert ledger.is_lost([torch.ones(10 * ROOM), "a text"])
    assert not ledger.is_lost([torch.ones(10 * ROOM + 1)])
