"""A warning about the caller of a compiled function names the caller's line, as in eager torch: from
a segment, from between segments, and from torch's own functions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import PerformanceWarning


def of_the_caller(x: Tensor) -> Tensor:
    warnings.warn(f"of {x.dim()}", DeprecationWarning, stacklevel=2)
    return x + 1


def of_the_callers_caller(x: Tensor) -> Tensor:
    warnings.warn("further out", UserWarning, 3, None)
    warnings.warn("this very line", stacklevel=True)
    return x + 1


def of_a_function_inside(x: Tensor) -> Tensor:
    return of_the_callers_caller(x) * of_the_caller(x)


def between_segments(x: Tensor) -> Tensor:
    os.getpid()
    try:
        raise KeyError
    except KeyError:
        warnings.warn(UserWarning("late"), stacklevel=2)
    os.getpid()
    return x


def _heard(fn: Callable[..., Any], action: Any) -> list[tuple[str, int]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        warnings.simplefilter("ignore", PerformanceWarning)
        for size in (2, 1):
            fn(torch.ones(size))
            fn(torch.ones(size, size))
    return [(str(one.message), one.lineno) for one in found if one.filename == __file__]


# What breaks is run natively as a whole in the end, called by a line of ours: not by each filter.
ASKED = [
    *((fn, "always") for fn in (of_the_caller, of_a_function_inside, between_segments)),
    *((fn, "default") for fn in (of_the_callers_caller, of_a_function_inside)),
]


@pytest.mark.parametrize("fn, action", ASKED)
def test_a_warning_of_the_caller_names_its_line(fn: Callable[..., Any], action: Any) -> None:
    assert _heard(anyshape.compile(fn), action) == _heard(fn, action) != []
