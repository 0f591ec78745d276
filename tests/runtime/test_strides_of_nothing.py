"""Results that are empty have eager's strides: `.stride()` may be read of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ir.buffers import Buffer
from anyshape.ir.dtypes import float32
from anyshape.ir.program import Program
from anyshape.runtime.host import emit_host
from anyshape.symbolic import Space

SHAPES = (3, 5, 2), (3, 0, 2), (0, 3, 2), (2, 3, 0)
LIBRARIES: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": lambda x: (x / 2).sort(1)[1],
    "a view of sort": lambda x: (x / 2).sort(1)[1].mT,
    "rand_like": lambda x: torch.rand_like(x / 2),
    "linear": lambda x: torch.nn.functional.linear(x / 2, torch.ones(4, x.shape[2])),
    "bmm": lambda x: (x / 2) @ (x.mT / 2),
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "mT": lambda x: x.mT,
    "diagonal": lambda x: x.diagonal(0, 0, 1),
    "steps": lambda x: x[:, ::2],
    "last": lambda x: x[..., -1:],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "unflatten": lambda x: x.unflatten(-1, (1, -1)),
    "movedim": lambda x: x.movedim(0, -1),
    "expand": lambda x: x[:1].expand(x.shape),
}


def _strides(results: Any) -> list[tuple[int, ...]]:
    return [t.stride() for t in results]


def _is_as_eager(function: Callable[[Tensor], Any], shapes: Any) -> None:
    compiled = anyshape.compile(function, options={"cache": False})
    for shape in shapes:
        x = torch.ones(shape)
        assert _strides(compiled(x)) == _strides(function(x)), shape


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_a_library_makes_of_nothing_has_eagers_strides(name: str) -> None:
    _is_as_eager(lambda x: [LIBRARIES[name](x)], SHAPES)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("made", [False, True])
def test_views_beside_kernels_have_eagers_strides(name: str, made: bool) -> None:
    def function(x: Tensor) -> list[Tensor]:
        view = VIEWS[name](x / 2 if made else x)
        return [view, view.sum(), torch.nonzero(view).sum(0)]

    _is_as_eager(function, SHAPES)


def test_strides_of_nothing_name_sizes_that_nothing_else_does() -> None:
    """Where the innermost size is 0, products for row-major strides do not say the others."""
    _is_as_eager(lambda x: [x.diff(), x.sort(1)[0]], [(2, 3, 4), (2, 3, 0), (2, 5, 1)])
    _is_as_eager(lambda x: [x.sort(-1)[0].diff()], [(2, 3, 4), (2, 3, 0), (0, 0, 0)])


@pytest.mark.filterwarnings("error:E901")
def test_nothing_may_be_all_that_there_is() -> None:
    """That a reshape is of no copy where the tensor is empty says of four sizes that one is 0: it
    is no mistake then that they are not all two at least, as is asked of what lies inside."""

    def function(x: Tensor) -> list[Tensor]:
        t = x + x[:, :1]
        lines = t.mT.reshape(-1)
        return [t.diagonal(), t.reshape(-1, 2).sum(0), lines, torch.nonzero(lines).sum(0)]

    _is_as_eager(function, [(0, 2, 3, 4), (4, 2, 3, 4), (0, 5, 2, 4), (2, 2, 1, 4)])


def test_host_code_names_no_size_that_the_program_does_not_say_it_needs() -> None:
    size = Space().symbol("s0")
    x = Buffer("x", float32, "cpu", (size,), (1,), "input")
    program = Program({"x": x}, ("x",), (), (size,), symbols=())
    with pytest.raises(ValueError, match="s0 has no value"):
        emit_host(program, {}, {})
