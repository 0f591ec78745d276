"""What a row says of its result's memory is so: nothing that is no view shares memory with an
operand or with another result. The scheduler lends, takes and frees memory by it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from anyshape.ops import OPS
from anyshape.ops.table import Extern
from anyshape.torch_names import resolve
from tests.ops.test_op_db import CASES, IDS, row_of, samples

LIMIT = 40


def memories(value: Any) -> list[int]:
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
    return [t.untyped_storage()._cdata for t in tensors if t.layout is torch.strided and t.numel()]


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_a_row_that_is_no_view_makes_memory_of_its_own(entry: Any) -> None:
    name = row_of(entry.name)
    assert name is not None
    row = OPS[name]
    if row.alias != "none" or row.mutates or row.inline or row.overload is not None:
        return  # a view, a write, or what stands for other rows
    for dtype in entry.supported_dtypes("cpu") & {torch.float32, torch.int64}:
        for args, kwargs in samples(entry, dtype, LIMIT):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    made = memories(resolve(row.torch)(*args, **kwargs))
                except Exception:  # the row's function takes these otherwise, or refuses them
                    continue
            assert len({*made}) == len(made), "two results share memory"
            assert not {*made} & {*memories((args, kwargs))}, "a result lies in an operand's memory"


X, SQUARE = torch.randn(2, 4, 4), torch.randn(4, 4)
CALLS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "torch.mm": ((SQUARE, SQUARE), (SQUARE[:0], SQUARE), (SQUARE[:1], SQUARE)),
    "torch.addmm": ((SQUARE, SQUARE, SQUARE), (SQUARE[:0], SQUARE[:0], SQUARE), (SQUARE[0], SQUARE, SQUARE)),
    "torch.bmm": ((X, X), (X[:0], X[:0]), (X[:1], X[:1])),
    "torch.baddbmm": ((X, X, X), (X[:0], X[:0], X[:0]), (X[0], X, X), (X[:1], X[:1], X[:1])),
    "torch._grouped_mm": (),  # takes bfloat16 on some processors only
    "torch.nn.functional.linear": ((X, SQUARE), (X[:0], SQUARE), (X[0, 0], SQUARE), (X, SQUARE, SQUARE[0])),
    "torch.nn.functional.scaled_dot_product_attention": ((X, X, X), (X[:0], X[:0], X[:0]), (X[:, :1], X, X)),
    "torch.nn.functional.conv1d": ((X, torch.ones(4, 4, 1)), (X[:0], torch.ones(4, 1, 1), None, 1, 0, 1, 4)),
    "torch.nn.functional.conv2d": ((X, torch.ones(2, 2, 1, 1)), (X[None], torch.ones(2, 1, 1, 1), None, 1, 0, 1, 2)),
    "torch.nn.functional.conv3d": ((X[None], torch.ones(1, 1, 1, 1, 1)),),
}  # fmt: skip


def test_every_function_that_makes_new_memory_is_called() -> None:
    externs = (row.lower for row in OPS.values() if isinstance(row.lower, Extern))
    assert {*CALLS} == {extern.function for extern in externs if extern.memory is not None}


@pytest.mark.parametrize("name", CALLS)
def test_what_the_program_may_write_is_nobody_elses(name: str) -> None:
    function = resolve(name)
    for args in CALLS[name]:
        first, second = function(*args), function(*args)
        own = memories((first, second))
        assert len({*own}) == len(own) and not {*own} & {*memories(args)}
        assert first.storage_offset() == 0


def test_a_row_that_lied_would_be_seen() -> None:
    assert {*memories(F.dropout(X, 0.5, False))} <= {*memories(X)}
