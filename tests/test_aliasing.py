"""What is a view in eager is one here: a write through it reaches what it views, at every size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.tools.accuracy import strides_that_matter

SHAPES = ((3, 4), (1, 4), (4, 1), (5, 5), (1, 1))

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "to the same dtype": lambda x: x.to(torch.float32),
    "float": lambda x: x.float(),
    "type_as": lambda x: x.type_as(x),
    "cpu": lambda x: x.cpu(),
    "reshape to the same": lambda x: x.reshape(x.shape),
    "reshape": lambda x: x.reshape(-1),
    "reshape_as": lambda x: x.reshape_as(x),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "view_as": lambda x: x.view_as(x),
    "unflatten": lambda x: x.unflatten(0, (-1, 1)),
    "dropout in eval mode": lambda x: F.dropout(x, 0.5, False),
    "expand to the same": lambda x: x.expand(x.shape),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "movedim": lambda x: x.movedim(0, 1),
    "transpose": lambda x: x.transpose(0, 1),
    "T": lambda x: x.T,
    "detach": lambda x: x.detach(),
    "chunk": lambda x: x.chunk(2)[0],
    "narrow": lambda x: x.narrow(0, 0, 1),
    "select": lambda x: x[0],
    "slice": lambda x: x[:, ::2],
    "atleast_2d": lambda x: torch.atleast_2d(x),
    "a copy: clone": lambda x: x.clone(),
    "a copy: clamp": lambda x: x.clamp(0.5),
    "a copy: an index": lambda x: x[torch.tensor([0])],
    "transposed contiguous": lambda x: x.t().contiguous(),
    "transposed reshape": lambda x: x.t().reshape(-1),
}


@torch.no_grad()
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_reaches_what_eager_reaches(name: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = VIEWS[name](x)
        y += 1
        return y, x * 2

    fast = anyshape.compile(program)
    for shape in SHAPES:
        ours = torch.arange(float(shape[0] * shape[1])).reshape(shape)
        theirs = ours.clone()
        version = ours._version
        results, expected = fast(ours), program(theirs)
        assert torch.equal(results[0], expected[0]), shape
        assert torch.equal(results[1], expected[1]), shape
        assert torch.equal(ours, theirs), shape
        assert (results[0].data_ptr() == ours.data_ptr()) == (
            expected[0].data_ptr() == theirs.data_ptr()
        ), shape
        assert (ours._version > version) == (theirs._version > version), shape


@torch.no_grad()
@pytest.mark.parametrize("name", VIEWS)
def test_what_is_returned_aliases_what_eagers_does(name: str) -> None:
    program = VIEWS[name]
    fast = anyshape.compile(lambda x: (program(x), x * 2))
    for shape in SHAPES:
        x = torch.arange(float(shape[0] * shape[1])).reshape(shape)
        result, expected = fast(x)[0], program(x)
        assert torch.equal(result, expected), shape
        assert strides_that_matter(result) == strides_that_matter(expected), shape
        assert (result.data_ptr() == x.data_ptr()) == (expected.data_ptr() == x.data_ptr()), shape
