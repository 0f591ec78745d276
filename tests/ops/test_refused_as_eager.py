"""What eager refuses for its arguments alone is refused with eager's words, and by no mistake of
ours: under ``fullgraph`` that would be an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

ZERO = torch.zeros(1, dtype=torch.int64)
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
    "pieces of less than nothing": lambda x: x[:0].split(-1),
    "a factor of 0": lambda x: F.celu(x, 0.0),
    "a window's stride of 0": lambda x: F.max_pool1d(x, 2, 0),
    "a window of nothing": lambda x: F.max_pool2d(x[None], 0),
    "patches whose stride is 0": lambda x: F.unfold(x[None, None], 2, stride=0),
    "folds of nothing": lambda x: F.fold(x, 2, 0),
    "no number for windows": lambda x: F.adaptive_max_pool2d(x[None], ()),
    "an index of floats": lambda x: x[x],
    "one float as an index": lambda x: x[:, x[0, 0]],
    "an index of floats, written at": lambda x: x.clone().index_put_((x,), x[0, 0]),
    "an index of short integers": lambda x: x[x.to(torch.int16)],
    "copied at integers that are not long": lambda x: x.index_copy(0, ZERO.int(), x[:1]),
    "filled at integers that are not long": lambda x: x.index_fill(0, ZERO.int(), 1),
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


def test_a_truth_is_an_end_of_a_slice() -> None:
    fast = anyshape.compile(lambda x, end: x[:end])
    for rows, truth in ((3, True), (2, False), (0, True)):
        assert fast(torch.ones(rows, 2), torch.tensor(truth)).shape == (min(rows, truth), 2)
    assert fast.stats().internal_errors == 0


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
