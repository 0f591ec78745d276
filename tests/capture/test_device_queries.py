"""Questions about devices do not end a segment: what a process does not change is a constant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anyshape
from anyshape.capture.segments.callables import DEVICES


def _asked(fn: Callable[[], object]) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if fn() else x + 2

    return program


@pytest.mark.parametrize(
    "fn",
    [torch.cuda.is_available, torch.cuda.device_count, torch.cuda.get_arch_list],
    ids=lambda fn: fn.__name__,
)
def test_a_question_about_gpus_is_answered(fn: Callable[[], object]) -> None:
    assert fn in DEVICES
    program, x = _asked(fn), torch.ones(3)
    fast = anyshape.compile(program, fullgraph=True)
    torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().graph_breaks == 0
