"""Programs of `random_writes.py`: what is written between a call and its gradients is refused where
eager torch refuses it, and no gradient is another one. What eager torch gives may be refused where
its formulas keep what they have made of an input that was written, and the gradient is to be
differentiated."""

from __future__ import annotations

import pytest

from tests.autograd.random_writes import check

SILENT_BEFORE = (331, 407)
"""Of two results in front of each other, and a copy that is a view where a size is 1."""
REFUSED_BEFORE = (13, 17, 21, 30, 39, 43, 44, 56)
"""Gradients that are differentiated, and made of nothing that was written."""


@pytest.mark.parametrize("seed", [*SILENT_BEFORE, *REFUSED_BEFORE, *range(2000, 2012)])
def test_no_gradient_is_given_that_eager_torch_refuses_or_that_is_another(seed: int) -> None:
    found = check(seed)
    assert found is None or found[0] == "refused", found


@pytest.mark.parametrize("seed", REFUSED_BEFORE)
def test_what_is_made_of_nothing_that_was_written_is_given(seed: int) -> None:
    assert check(seed) is None
