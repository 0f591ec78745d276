"""No C compiler leaves out the calls of a kernel's own functions, though it may take them for ones
without effects, as gcc 12 does some that call `exp` in OpenMP's loops and walk backwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape


def beside_a_piece(x: Tensor) -> Any:
    v = x.exp()
    return v + v.flip(0), v.split([1, 3], 1)[1] * 2


def beside_one_column(x: Tensor) -> Any:
    v = x.exp()
    return v * v.flip(0), v.unbind(1)[1] * 2


def sum_of_a_piece(x: Tensor) -> Any:
    v = x.exp()
    return v + v.flip(0), v.split([2, 2], 1)[1].sum(1)


def of_columns(x: Tensor) -> Any:
    v = x.tanh()
    return v - v.flip(1), v.unbind(0)[0].cos()


def norm(x: Tensor) -> Any:
    return F.layer_norm(x, (4,)).exp() + x.flip(0).exp()


PROGRAMS = [beside_a_piece, beside_one_column, sum_of_a_piece, of_columns, norm]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_kernel_does_what_it_is_for(program: Callable[[Tensor], Any], dtype: torch.dtype) -> None:
    fast = anyshape.compile(program)
    for rows in (3, 1, 50):
        x = torch.randn(rows, 4, dtype=dtype)
        torch.testing.assert_close(fast(x), program(x))


@pytest.mark.parametrize("program", PROGRAMS)
def test_functions_in_a_file_are_open_to_no_analysis(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program)
    fast(torch.randn(3, 4))
    heads = re.findall(r"^static (?!inline)[^;{=]*\([^;{=]*\) *{", fast.code(), re.MULTILINE)
    assert heads and all("noipa" in head for head in heads), heads
