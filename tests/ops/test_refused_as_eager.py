"""What eager refuses for its arguments alone is refused with eager's words, and by no mistake of
ours: under ``fullgraph`` that would be an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "a stride behind the last": lambda x: x.stride(2),
    "a size behind the last": lambda x: x.size(2),
    "a size before the first": lambda x: x.size(-3),
    "a size of a number": lambda x: x.sum().size(0),
    "a stride of a number, by name": lambda x: x.sum().stride(dim=-1),
    "a device that is none": lambda x: x.to("nope"),
    "a device by a cast": lambda x: x.float("nope"),
    "rows of unlike lengths": lambda x: torch.tensor([[1], [2, 3]]) + x,
    "no pieces": lambda x: x.tensor_split(0),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("error::anyshape.errors.AnyshapeWarning")
def test_it_is_refused_with_eagers_words(name: str) -> None:
    program = PROGRAMS[name]
    with pytest.raises(Exception) as theirs:
        program(torch.ones(2, 3))
    with pytest.raises(type(theirs.value)) as ours:
        anyshape.compile(program)(torch.ones(2, 3))
    assert str(ours.value) == str(theirs.value)
