"""Rows of every odd length and of float16, bfloat16 and float32 are eager's, NaN and infinities among them: the
last vector of a row is masked, halves are converted sixteen at a time, and what lies beside a row stays.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LENGTHS = (1, 2, 3, 4, 7, 15, 16, 17, 31, 33, 63, 64, 100, 127, 129, 1025, 4099)
ROUNDINGS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp amax": lambda x: x.exp().amax(-1),
    "sigmoid sum": lambda x: x.sigmoid().sum(-1),
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "masked sum": lambda x: torch.where(x > 0, x, 0).sum(-1),
    "positive": lambda x: (x > 0).sum(-1),
    "argmin": lambda x: x.argmin(-1),
    "softmax of columns": lambda x: x.softmax(0),
    "argmax of columns": lambda x: x.argmax(0),
    "map": lambda x: x * x.sigmoid() + x[:, :1],
    "map across": lambda x: x.relu() + x.t().contiguous().t(),
}


def layouts(length: int, dtype: torch.dtype) -> list[Tensor]:
    """Dense rows, rows with others between, and stepped ones."""
    drawn = torch.randn(6, 2 * length + 1, generator=torch.Generator().manual_seed(length)).to(
        dtype
    )
    return [drawn[:, :length].contiguous(), drawn[:, 1 : length + 1], drawn[:, : 2 * length : 2]]


@pytest.mark.parametrize("name", PROGRAMS)
@torch.no_grad()
def test_rows_of_every_length_are_eagers(name: str) -> None:
    program = PROGRAMS[name]
    for dtype in DTYPES:
        fast = anyshape.compile(program, fullgraph=True)
        for length in LENGTHS:
            if name == "layer norm" and length == 1:
                continue  # the variance of one element is rounding alone
            for x in layouts(length, dtype):
                at = f"{dtype}, {length}, strides {x.stride()}"
                near = ROUNDINGS[dtype]
                torch.testing.assert_close(
                    fast(x),
                    program(x),
                    rtol=2 * near,
                    atol=near,
                    msg=lambda text, at=at: f"{at}: {text}",
                )


@pytest.mark.parametrize("name", ["exp amax", "softmax", "log softmax", "argmin", "positive"])
@torch.no_grad()
def test_what_is_not_finite_in_the_last_vector_of_a_row_is_eagers(name: str) -> None:
    program = PROGRAMS[name]
    for dtype in DTYPES:
        fast = anyshape.compile(program, fullgraph=True)
        for length in (3, 17, 100):
            x = torch.randn(5, length, generator=torch.Generator().manual_seed(1)).to(dtype)
            x[0, -1], x[1, -1], x[2, -1] = float("nan"), float("inf"), float("-inf")
            x[3], x[4, 0] = float("-inf"), float("nan")
            near = ROUNDINGS[dtype]
            torch.testing.assert_close(fast(x), program(x), rtol=near, atol=near, equal_nan=True)


@torch.no_grad()
def test_every_float16_is_loaded_as_it_is_and_every_tie_rounded_as_eager() -> None:
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)
    middles = (
        torch.nextafter(every, torch.tensor(torch.inf, dtype=every.dtype)).float() / 2
        + every.float() / 2
    )
    near = [torch.nextafter(middles, torch.tensor(end)) for end in (torch.inf, -torch.inf)]
    given = torch.cat(
        [every.float(), middles, *near, torch.tensor([65519.9, 65520.0, 1e38, 3e-8, 2.9e-8])]
    )

    def rounded(x: Tensor) -> Tensor:
        return x.half().neg().float()

    fast, widened = (
        anyshape.compile(rounded, fullgraph=True),
        anyshape.compile(Tensor.float, fullgraph=True),
    )
    for found, expected in ((fast(given), rounded(given)), (widened(every), every.float())):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        held = ~expected.isnan()
        assert torch.equal(found[held].signbit(), expected[held].signbit())


@torch.no_grad()
def test_what_lies_apart_is_loaded_by_sixteen() -> None:
    """GCC writes a load for each lane: more of them are no faster, and take long to compile."""
    x = torch.randn(5, 700, 3)
    programs: tuple[tuple[Callable[[Tensor], Tensor], bool], ...] = (
        (lambda x: x[:, :, 1].amax(-1), True),
        (lambda x: (x > 0)[:, :, 1].sum(-1), True),
        (lambda x: x.amax(-1), False),
    )
    for program, apart in programs:
        fast = anyshape.compile(program, fullgraph=True)
        torch.testing.assert_close(fast(x), program(x))
        assert ("l < 64" not in fast.code()) is apart
        assert "l < 16" in fast.code()


def test_without_masks_what_is_left_of_a_row_is_one_loop() -> None:
    fast = anyshape.compile(lambda x: x.softmax(-1), fullgraph=True)
    fast(torch.randn(3, 7))
    rests = [part.split("#endif")[0] for part in fast.code().split("#else")[1:]]
    assert rests and all(rest.count("for (int l = 0; l < left; l++)") == 1 for rest in rests)
    assert not any("l < left ?" in rest for rest in rests)
