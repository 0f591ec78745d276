"""What a reason calls a function whose class says nothing of it."""

from __future__ import annotations

import numpy
import pytest
import torch

import anyshape
from anyshape.capture.heap.descriptions import name_of
from anyshape.errors import AnyshapeError

NAMES = {
    "get_unwrapped": torch._C._functorch.get_unwrapped,  # of pybind11
    "default_rng": numpy.random.default_rng,  # of Cython
    "list.append": [].append,
    "str.join": str.join,
    "len": len,
    "object": object(),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_called_by_its_own_name(name: str) -> None:
    assert name_of(NAMES[name]) == name


def test_the_error_of_a_call_names_the_function() -> None:
    fast = anyshape.compile(lambda x: x + numpy.random.default_rng(0).random(), fullgraph=True)
    with pytest.raises(AnyshapeError, match="default_rng"):
        fast(torch.ones(2))
