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


PAIRS = {
    "products of sizes that are equal": ((5, 2, 3), (3, 2, 4)),
    "no columns": ((5, 2, 3), (2, 2, 0)),
    "nothing, and something": ((5, 2, 0), (2, 2, 0)),
    "nothing on both sides": ((5, 0, 3), (3, 0, 4)),
}
DIMS: tuple[Any, ...] = (2, ([1, 2], [0, 1]))


@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
@pytest.mark.filterwarnings("ignore")
def test_each_pair_of_contracted_sizes_has_to_match(name: str, dims: Any, first: bool) -> None:
    fast = anyshape.compile(lambda x, y: torch.tensordot(x, y, dims=dims))
    if not first:
        x, y = torch.randn(5, 2, 3), torch.randn(2, 3, 4)
        assert torch.allclose(fast(x, y), torch.tensordot(x, y, dims=dims), atol=1e-5)
    x, y = map(torch.randn, PAIRS[name])
    with pytest.raises(RuntimeError, match="contracted dimensions need to match"):
        torch.tensordot(x, y, dims=dims)
    with pytest.raises(RuntimeError, match="contracted dimensions need to match"):
        fast(x, y)
