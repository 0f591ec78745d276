"""Views and layouts of what no kernel can hold (complex numbers, eight-bit floats, wide unsigned
integers): eager torch makes the copies, inside the graph.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ir.dtypes import DTYPES
from anyshape.schedule.lower import KERNEL_DTYPES
from anyshape.tools.accuracy import strides_that_matter

WITHOUT_KERNELS = [name for name in DTYPES if name not in KERNEL_DTYPES]

COMMON = ("complex64", "float8_e4m3fn")
DTYPES_TESTED = [
    pytest.param(name, marks=() if name in COMMON else pytest.mark.slow) for name in WITHOUT_KERNELS
]

# fmt: off
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "mT": lambda x: x.mT,
    "permute": lambda x: x.permute(2, 0, 1),
    "expand": lambda x: x[:, :1].expand(-1, 3, -1),
    "slice": lambda x: x[:, ::2],
    "select": lambda x: x.select(0, -1).unsqueeze(1),
    "unfold": lambda x: x.unfold(2, 1, 2)[..., 0],
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2).unsqueeze(1),
    "unflatten": lambda x: x.unflatten(0, (-1, 1)).movedim(0, -1).flatten(1, 2),
    "flat": lambda x: x.transpose(0, 1).reshape(1, x.shape[1], -1),
    "joined": lambda x: torch.cat([x.mT, x.mT], 1),
}
# fmt: on


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES_TESTED)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_has_to_be_copied(name: str, dtype: str) -> None:
    held: torch.dtype = getattr(torch, dtype)

    def views(x: Tensor, given: Tensor) -> list[Tensor]:
        first = VIEWS[name](given if name in ("mT", "slice", "flat") else x.to(held))
        twice = [view(first) for view in VIEWS.values()]
        return [*twice, *(y.reshape(-1)[1:] for y in twice), *(y.contiguous() for y in twice)]

    fast = anyshape.compile(views, fullgraph=True)
    for shape in ((2, 6, 3), (3, 4, 5)):
        x = torch.randint(0, 100, shape).float()
        given = x.to(held)
        for got, expected in zip(fast(x, given), views(x, given), strict=True):
            assert got.dtype is held and got.tolist() == expected.tolist()
            assert strides_that_matter(got) == strides_that_matter(expected)


@torch.no_grad()
def test_what_is_copied_is_read_by_kernels_as_pairs() -> None:
    def parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = torch.complex(x, -x).mT.reshape(-1)
        return torch.view_as_real(flat) * 2, flat.real + flat.imag, flat.view(-1, 1).mT.imag * 3

    fast = anyshape.compile(parts, fullgraph=True)
    for shape in ((2, 6, 3), (1, 4, 2), (2, 0, 3), (3, 1, 1)):
        x = torch.randn(shape)
        for got, expected in zip(fast(x), parts(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
