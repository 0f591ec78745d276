"""A view in the shape that its tensor has anyway: where a dimension has one element, eager works its
stride out anew, as it does for any other shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "a part of a row": lambda x: (x * 2)[..., : x.shape[-1] // 2],
    "a part of a row of the argument": lambda x: x[..., : x.shape[-1] // 2],
    "every second": lambda x: (x * 2)[:, ::2],
    "turned": lambda x: (x * 2).transpose(0, 1),
    "repeated": lambda x: (x * 2)[:, None].expand(-1, 3, -1, -1)[..., 0],
}
SEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda y: y.view(y.shape),
    "view of a rest": lambda y: y.view(-1, *y.shape[1:]),
    "view_as": lambda y: y.view_as(torch.empty(y.shape)),
    "view of a part": lambda y: y.view(y.shape)[:, 1:],
}
SHAPES = [(3, 4, 6), (1, 4, 6), (3, 1, 6), (1, 1, 6), (3, 4, 2), (1, 4, 2), (2, 5, 8)]


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("made", MADE)
def test_a_view_in_the_same_shape_has_eagers_strides(made: str, seen: str) -> None:
    program = lambda x: SEEN[seen](MADE[made](x))
    fast = anyshape.compile(program)
    for shape in SHAPES:
        x = torch.arange(float(torch.Size(shape).numel())).view(shape)
        ours, theirs = fast(x), program(x)
        assert ours.stride() == theirs.stride(), shape
        assert torch.equal(ours, theirs)
    assert fast.stats().specializations == 1


@pytest.mark.filterwarnings("ignore::anyshape.errors.PerformanceWarning")
def test_strides_of_the_positions_in_a_scalar_are_eagers() -> None:
    def program(x: Tensor) -> tuple[tuple[int, ...], int]:
        return torch.nonzero(x).stride(), torch.argwhere(x).stride(1)

    fast = anyshape.compile(program)
    for number in (1.0, 0.0, 2.0):
        assert fast(torch.tensor(number)) == program(torch.tensor(number))
