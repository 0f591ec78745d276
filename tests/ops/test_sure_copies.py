"""A reshape that surely copies, unless it is empty, is known to when it is compiled: later calls ask
nothing of eager torch, and what is returned lies, begins and shares memory as eager's does."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ops import OPS
from anyshape.passes.sure_copies import sure_copies
from anyshape.runtime.result_layouts import EagerLayouts, EagerOffsets

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "flatten of a slice": lambda x: x.unsqueeze(0).transpose(1, 2)[:, 1:].flatten(1),
    "flatten": lambda x: x.t().flatten(),
    "reshape": lambda x: x.t().reshape(-1),
    "reshape to as many dimensions": lambda x: x.t().reshape(x.shape),
    "ravel": lambda x: x.t()[1:].ravel(),
    "contiguous": lambda x: x.t().contiguous(),
    "contiguous, then a view": lambda x: x.t().contiguous()[1:],
    "flatten, then a view": lambda x: x[:, 1:].t().flatten()[2:],
    "a copy of a copy": lambda x: x.t().reshape(-1).reshape(x.shape).t().flatten(),
    "every other column": lambda x: x[:, ::2].reshape(-1),
    "repeated": lambda x: x.unsqueeze(1).expand(-1, 2, -1).flatten(),
}
SIZES = tuple(itertools.product(range(4), repeat=2))


def arguments(n: int, m: int) -> dict[str, Tensor]:
    whole = torch.arange(4.0 * (n + 1) * (m + 1)).view(2 * (n + 1), 2 * (m + 1))
    odd = torch.arange(float(n * m)).as_strided(
        (n, m), (max(m, 1) if n > 1 else 7, 1 if m > 1 else 5)
    )
    return {"rows": whole[:n, :m].contiguous(), "a part": whole[1 : n + 1, 1 : m + 1], "odd": odd}


def lies(x: Tensor, made: Tensor) -> tuple[object, ...]:
    """Where a result lies; strides as they are, whatever its sizes."""
    shared = made.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    own = made.shape, made.stride(), made.storage_offset(), made._is_view()
    return (*own, shared) if made.numel() else own


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["rows", "a part", "odd"])
def test_results_lie_as_eagers_at_every_size(name: str, kind: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for n, m in ((3, 4), *SIZES):
        x = arguments(n, m)[kind]
        expected, made = program(x), fast(x)
        assert torch.equal(made, expected)
        assert lies(x, made) == lies(x, expected), (n, m, x.stride())


def test_nothing_is_asked_of_eager_where_a_reshape_surely_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    for kind in (EagerLayouts, EagerOffsets):
        monkeypatch.setattr(kind, "_eagerly", lambda self, *given: asked.append(given))
    fast = anyshape.compile(PROGRAMS["flatten of a slice"], fullgraph=True)
    for n, m in ((4, 7), (5, 7), (3, 4)):
        fast(torch.ones(n, m))
    assert not asked


def test_what_operators_make_is_not_said_to_be_copied() -> None:
    """Where sizes are 1 it may lie otherwise than its type says."""

    def of_a_sum(x: Tensor) -> Tensor:
        return (x.t() + x.t()).flatten() if x.shape[0] > 1 and x.shape[1] > 1 else x

    programs = (PROGRAMS["flatten"], 1), (of_a_sum, 0)
    for program, copied in programs:
        fast = anyshape.compile(program, fullgraph=True)
        fast(torch.ones(3, 4))
        (made,) = fast._lazy.machinery._specializations()
        assert len(sure_copies(made.graph, OPS)) == copied
