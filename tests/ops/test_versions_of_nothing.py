"""Version counters of results that eager makes in another way where there are no elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros that it has filled": lambda x: torch.trapezoid(x.mT, x.mT, dim=0),
    "memory that it has not": lambda x: torch.unique(x, dim=1),
    "nor this": lambda x: torch.unique_consecutive(x, dim=1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_of_nothing_counts_as_eagers(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for shape in ((3, 2), (3, 0)):
        made, wanted = fast(torch.ones(shape)), program(torch.ones(shape))
        assert made._version == wanted._version
        torch.testing.assert_close(made, wanted)
