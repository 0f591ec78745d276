"""A graph without kernels is a function of a line a node on eager torch, which gives what
the reference interpreter gives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.ir.parse import parse_graph
from anyshape.runtime.eager_function import eager_function


def sizes(x: Tensor) -> Any:
    rows, columns = x.shape
    torch._check(columns < 100)
    return (2 - x.reshape(columns, rows) * rows / 2).T, 2 ** (columns - 1) + x, rows


def several(x: Tensor) -> Any:
    top, positions = torch.topk(x, min(2, x.shape[1]), dim=1)
    first, *rest = torch.split(x, 1, dim=0) if x.shape[0] == 1 else (x, top)
    return first, rest, positions, x.max(0) if x.shape[0] else x


def written(x: Tensor) -> Any:
    y = x * 2
    y[:, 1:] += 1
    y.mul_(x)
    return y.exp()


def in_two_modes(x: Tensor) -> Any:
    with torch.no_grad():
        scale = x.abs().sum() + 1
    return x / scale


def of_data(x: Tensor) -> Any:
    kept = x[x > 0]
    return kept * 2, kept.shape[0], float(x.detach().sum()) * x


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "sizes": sizes,
    "several results": several,
    "written in place": written,
    "in two modes": in_two_modes,
    "of data": of_data,
    "dtypes": lambda x: F.softmax(x, -1, dtype=torch.float64).to(torch.float32).contiguous(),
    "made": lambda x: x + torch.arange(x.shape[1]) + torch.zeros(x.shape, dtype=torch.float64),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_second_run_gives_what_the_first_gives(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for rows, columns in ((2, 3), (2, 3), (2, 3), (1, 4), (3, 1), (1, 1), (0, 2), (5, 17), (2, 3)):
        found = []
        for run in (fast, program):
            torch.manual_seed(rows + columns)
            x = torch.randn(rows, columns, requires_grad=True)
            made = run(x)
            leaves = torch.utils._pytree.tree_leaves(made)
            total = sum(t.sum() for t in leaves if isinstance(t, Tensor) and t.requires_grad)
            total.backward()
            found.append((leaves, x.grad))
        torch.testing.assert_close(*found)


def test_a_check_that_fails_is_eager_s_own_error() -> None:
    fast = anyshape.compile(sizes)
    for _ in range(3):
        fast(torch.ones(2, 3, requires_grad=True))
    with pytest.raises(RuntimeError):
        fast(torch.ones(2, 200, requires_grad=True))


def test_what_is_read_no_more_is_let_go() -> None:
    alive: list[weakref.ref[Tensor]] = []

    @torch.library.custom_op("anyshape_straight::watch", mutates_args=())
    def watch(x: Tensor) -> Tensor:
        made = x + 1
        alive.append(weakref.ref(made))
        return made

    @torch.library.custom_op("anyshape_straight::count", mutates_args=())
    def count(x: Tensor) -> Tensor:
        return x + sum(ref() is not None for ref in alive)

    for operator in (watch, count):
        operator.register_fake(torch.empty_like)

    def program(x: Tensor, parameter: Tensor) -> Tensor:
        watched = torch.ops.anyshape_straight.watch(x)
        doubled = watched * 2
        return torch.ops.anyshape_straight.count(doubled) * parameter

    fast = anyshape.compile(program)
    parameter = torch.ones(3, requires_grad=True)
    for turn in range(3):
        alive.clear()
        made = fast(torch.zeros(3), parameter)
        assert made[0].item() == 2.0 or turn == 0


LAID_OUT_OTHERWISE = """
# symbol s0: backed entry = 3
# symbol s1: backed entry = 2

def graph(
    x_0,  # argument 'x' : float32[s1, s0]
):
    s0 = x_0.shape[1]
    s1 = x_0.shape[0]
    permute_0 = torch.permute(x_0, (1, 0))  # permute : float32[s0, s1]
    view_0 = torch.Tensor.view(permute_0, (s0*s1,))  # view : float32[s0*s1]
    return (view_0,)
"""


def test_what_a_library_lays_out_otherwise_than_its_type_says_is_viewed_by_a_copy() -> None:
    """Attention on a GPU may: what the program makes contiguous before it views it is contiguous by
    its type."""
    run, x = eager_function(parse_graph(LAID_OUT_OTHERWISE)), torch.randn(2, 3)
    assert torch.equal(run(x)[0], x.T.reshape(-1))
