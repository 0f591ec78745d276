"""Random programs have eager's gradients, in float64, at every size, differentiated from outside and
by a `backward()` inside."""

from __future__ import annotations

import pytest

from tests import unoptimized
from tests.autograd.random_programs import check

OPTIMIZED = 3
"""One program of so many runs as code that gcc optimizes, as it is shipped."""


@pytest.fixture(autouse=True)
def _most_unoptimized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.callspec.params["seed"] // 3 % OPTIMIZED:  # each third is checkpointed
        unoptimized.choose(monkeypatch)


@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_has_eagers_gradients(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(100, 112))
def test_a_random_program_with_functions_of_its_own_has_eagers_gradients(seed: int) -> None:
    check(seed, functions=True)
