"""einsum where sizes are 1: dtypes, values and strides are those of the work that ATen does then."""

from __future__ import annotations

import itertools

import pytest
import torch

import anyshape
from anyshape.tools.accuracy import strides_that_matter

EQUATIONS = ("abc,acd->abd", "ij,jk->ki", "ij,jk,kl->il", "bij,bjk->bk", "ij,jk->", "ii,ij->j")
DTYPES = (torch.int8, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_sizes_of_one_decide_dtypes_and_strides(equation: str, dtype: torch.dtype) -> None:
    """Of integers ATen adds up in int64, but only what has more elements than one."""
    terms = equation.partition("->")[0].split(",")
    letters = sorted(set("".join(terms)))
    program = lambda *xs: torch.einsum(equation, *xs)
    fast = anyshape.compile(program, options={"max_variants": 64})
    for ones in itertools.product((3, 1), repeat=len(letters)):
        sizes = dict(zip(letters, ones))
        for narrow in (None, *letters):  # of which the second operand has one element
            operands = [
                torch.ones([1 if n == 1 and c == narrow else sizes[c] for c in t], dtype=dtype)
                for n, t in enumerate(terms)
            ]
            try:
                eager = program(*operands)
            except RuntimeError:  # products of int64 with int8
                with pytest.raises(RuntimeError):
                    fast(*operands)
                continue
            ours = fast(*operands)
            assert ours.dtype is eager.dtype
            assert torch.equal(ours, eager)
            assert strides_that_matter(ours) == strides_that_matter(eager)
