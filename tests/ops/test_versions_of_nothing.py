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


def test_what_writes_a_view_of_its_out_does_not_count() -> None:
    def program(x: Tensor, out: Tensor) -> Tensor:
        before = out * 2
        return torch.kron(x, x, out=out) + before

    fast = anyshape.compile(program, fullgraph=True)
    for size in (2, 3, 0):
        x, outs = torch.randn(size, 2), [torch.ones(size * size, 4) for _ in range(2)]
        made, wanted = (run(x, out) for run, out in zip((fast, program), outs, strict=True))
        torch.testing.assert_close(made, wanted)
        assert torch.equal(*outs)
        assert [out._version for out in outs] == [0, 0]
