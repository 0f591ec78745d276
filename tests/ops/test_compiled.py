"""One compile of each small program, then every size: 0, 1, 2, odd, large; row-major and
transposed.

Values, dtypes and strides are eager's. What the program's meaning does not hang on makes no second
specialization.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import anyshape
from tests.ops import harness

SHAPES = [(3, 7), (2, 5), (0, 3), (3, 0), (1, 1), (1, 5), (6, 1), (33, 65), (64, 130)]


def written(x):
    y = x.clone()
    y[:, 1:] = 0
    y[0:1] = 5
    y[1::2] += 1
    return y


def column(x):
    y = torch.zeros(x.shape[0], 4)
    y[:, 2] = x.sum(1)
    return y


def zeros_of(x):
    return torch.zeros_like(x, dtype=torch.long)


PROGRAMS = {
    "gelu": F.gelu,
    "silu": F.silu,
    "softmax over rows": lambda x: F.softmax(x, -1),
    "softmax over columns": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(0),
    "sum of rows, kept": lambda x: x.sum(1, keepdim=True),
    "mean": lambda x: x.mean(1),
    "var": lambda x: x.var(1),
    "std of all": lambda x: x.std(),
    "prod": lambda x: x.prod(1),
    "any": lambda x: (x > 1).any(1),
    "cumsum": lambda x: x.cumsum(0),
    "transposed": lambda x: x.t() + 1,
    "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll(1, 1),
    "triu": lambda x: x.triu(1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    "cat": lambda x: torch.cat([x, x * 2, x], 1),
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms norm": lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
    "reshape": lambda x: x.reshape(-1) * 2,
    "reshape of a transposed": lambda x: x.t().reshape(-1) * 2,
    "pairs": lambda x: x[:, None, :] + x[None, :, :],
    "outer": lambda x: x[:, :, None] * x[:, None, :],
    "slice": lambda x: x[:, 1:] * 2,
    "steps": lambda x: x[::2] + 1,
    "all but the last": lambda x: x[:, :-1] - 1,
    "where": lambda x: torch.where(x > 0, x, -x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "repeat": lambda x: x.repeat(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "sort": lambda x: x.sort(1).values,
    "matmul": lambda x: x @ x.t(),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cosine similarity": lambda x: F.cosine_similarity(x, x + 1, dim=1),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "masked sum": lambda x: torch.masked_select(x, x > 0).sum(),
    "arange": lambda x: x + torch.arange(x.shape[1]),
    "item": lambda x: x * x.sum().item(),
    "eye": lambda x: torch.eye(x.shape[0]) + x.sum(),
    "bfloat16": lambda x: x.bfloat16() * 1.1,
    "integers": lambda x: (x * 10).to(torch.int32) // 3,
    "sum of bools": lambda x: (x > 0).sum(1),
    "mse": lambda x: F.mse_loss(x, x * 2),
    "in place": lambda x: x.clone().add_(1).mul_(2),
    "slices written": written,
    "a column written": column,
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, zeros_of(x), x),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0])),
    "histc": lambda x: x.histc(5, -2, 2),
    "linspace": lambda x: torch.linspace(0, 1, 5) + x.sum(),
    "one_hot": lambda x: F.one_hot((x > 0).long(), 3),
    "trace": lambda x: (x @ x.t()).trace(),
}

LAYOUTS = {
    "row-major": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compile_serves_every_size(name, layout) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for shape in SHAPES:
        torch.manual_seed(0)
        x = LAYOUTS[layout](torch.randn(shape))
        with torch.no_grad():
            ours, eager = fast(x), program(x)
        assert harness.same(ours, eager) is None, (shape, harness.same(ours, eager))
        if eager.numel():
            pairs = zip(eager.shape, ours.stride(), eager.stride(), strict=True)
            assert all(a == b for n, a, b in pairs if n > 1), (shape, ours.stride(), eager.stride())
    stats = fast.stats()
    assert stats.graph_breaks == 0
    # A transposed tensor that is row-major as well (one row, one column, nothing) may be another
    # layout.
    assert stats.specializations <= (1 if layout == "row-major" else 2), fast.recompiles()
