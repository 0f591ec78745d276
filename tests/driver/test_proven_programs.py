"""In use, too, each new program is proven: one that writes over what is still needed does not run.

The mistake that is planted: an argument is written by the kernel that still reads it elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyshape
from anyshape.errors import AnyshapeError
from anyshape.schedule import updates


def less_its_mean(x: torch.Tensor) -> torch.Tensor:
    return x.sub_(x.mean(0))


@pytest.fixture
def in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", str(tmp_path))


@pytest.fixture
def planted(in_use: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "_lets", lambda *reader: True)


def argument() -> torch.Tensor:
    return torch.tensor([[1.0, -3, 4], [5, 6, -7], [8, 9, 1]])


@pytest.mark.usefixtures("planted")
def test_a_program_that_writes_over_what_is_needed_runs_eagerly_with_a_warning() -> None:
    fast = anyshape.compile(less_its_mean)
    with pytest.warns(UserWarning, match="(?s)mistake in anyshape itself, in verification.*writes"):
        made = fast(argument())
    assert torch.equal(made, less_its_mean(argument()))
    assert fast.stats().internal_errors == 1
    assert torch.equal(fast(argument()), made)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("given", ({"fullgraph": True}, {"options": {"fallback": "error"}}))
def test_it_raises_where_nothing_may_run_eagerly(given: dict[str, Any]) -> None:
    with pytest.raises(AnyshapeError, match="verification") as raised:
        anyshape.compile(less_its_mean, **given)(argument())
    assert raised.value.code == "E901"


@pytest.mark.usefixtures("in_use")
def test_of_a_right_program_nothing_is_said() -> None:
    fast = anyshape.compile(less_its_mean, fullgraph=True)
    assert torch.equal(fast(argument()), less_its_mean(argument()))
    assert not fast.stats().internal_errors
