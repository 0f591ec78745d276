"""What the fuzzer found since the other two files were full, shrunk: eager's now, at every size."""

from __future__ import annotations

import pytest

from tests.fuzz.oracle import wrong
from tests.fuzz.programs import Fuzzed
from tests.fuzz.test_found import at, over

READ = "t = torch.full_like(x0, 2)", "t[: t.shape[0]].add_(1)"
FOUND = {
    "factors of kron that the program writes behind it: eager's formula reads what is there": at(
        over(
            "a 2 b 4, 4 4",
            "t = x0 + x0",
            "u = torch.kron(t, x1)",
            "t.mul_(2).clamp_(-8, 8)",
            "u,",
            layouts="reversed-rows plain gaps",
            dtypes="float64 float32",
            gradients=True,
        ),
        (3, 4, 5),
        (1, 6, 1),
        (0, 0, 0),
    ),
    "part of a factor of kron is written, and the rest is returned": at(
        over(
            "a b, b a",
            "t = x0 * 2",
            "u = torch.kron(x1, t[..., :1])",
            "t[:1] = 3",
            "u * u, t",
            dtypes="float64 float64",
            gradients=True,
        ),
        (3, 4, 5),
        (1, 6, 1),
        (4, 4, 4),
    ),
    "a stride is read of one complex number that lies as its argument, behind a break": at(
        over(
            "1",
            *READ,
            "t.new_zeros(t.stride()[-1]),",
            layouts="transposed stepped plain",
            dtypes="complex64",
        ),
        (2, 2, 2),
        (3, 2, 1),
    ),
    "the same of rows, and of what is known to be one number": at(
        over(
            "a b",
            *READ,
            "t.stride(), (t.stride() if len(t) == 1 else t * 2)",
            layouts="plain stepped gaps",
            dtypes="complex64",
        ),
        (1, 1, 2),
        (1, 1, 3),
        (1, 3, 1),
        (3, 2, 1),
    ),
    "a stride is read of a line that is turned around, of one element": at(
        over("a", "x0.flip(0).stride(), x0.roll(1).stride()", layouts="stepped plain"),
        (1, 2, 2),
        (1, 2, 2),
        (3, 2, 1),
        (0, 2, 1),
    ),
    "a grid, where the product of two sizes is known to be 1: nothing is expanded": at(
        over(
            "2 2, a b",
            't = torch.meshgrid(x0.flatten(), x1.flatten(), indexing="ij")[0]',
            "t.stride(), t.new_zeros(t.stride()[-1]),",
        ),
        (1, 1, 1),
        (4, 3, 2),
        (1, 3, 1),
        (0, 3, 1),
    ),
    "a row expanded to a size that is 1 as no more than that was read of it": at(
        over(
            "b",
            "t = x0 * 2\nfor k in x0[:3].tolist():\n    t = t + k",
            "t[:1].expand(t.shape).stride(),",
        ),
        (1, 1, 1),
        (1, 2, 1),
        (1, 5, 1),
    ),
    "a reshape of nothing to its own shape lies as it does, whatever dimensions have one element": at(
        over(
            "2 a b",
            "t = x0.movedim(-1, 0)",
            "t.reshape(t.shape).stride(), t.view(t.shape).stride(),",
        ),
        (1, 0, 3),
        (1, 0, 0),
        (0, 1, 0),
        (3, 4, 5),
        (1, 1, 0),
    ),
    "an infinite gradient of amax: what is not extreme has 0 times it": at(
        over("a 4", "x0.amin(0) / 0, x0.amax(-1) / 0", gradients=True), (3, 2, 2), (1, 1, 1)
    ),
    "an infinite gradient of max is nobody else's": at(
        over("a 4", "x0.max() / 0, x0.max(1)[0] / 0", gradients=True), (3, 2, 2), (1, 1, 1)
    ),
    "a row whose stride is its argument's own says how other dimensions lie": at(
        over(
            "a b",
            "t = torch.where(x0[:, None].expand(-1, x0.shape[1], -1) > 0, 2.0, 1.0).bool()",
            "t.is_contiguous(), t.flatten(1).fill_(False), t",
            layouts="transposed",
            dtypes="float16",
        ),
        (6, 2, 3),
        (1, 6, 1),
        (2, 33, 1),
        (0, 3, 2),
    ),
    "strides of what one truth selects, which is nothing": at(
        over("2 a b", "x0[x0.sum() > 1].stride(),", dtypes="int64"),
        (17, 9, 2),
        (1, 1, 1),
        (4, 4, 4),
        (2, 0, 1),
    ),
    "a gradient that repeats what a slice of everything has copied": at(
        over(
            "a b 4, 4 4",
            "t = x0.mT.sum(-2).reshape(-1)",
            "torch.cat([x1[-1], t[-t.shape[0] :]]),",
            gradients=True,
        ),
        (2, 2, 2),
        (8, 8, 3),
        (2, 3, 0),
        (1, 1, 1),
    ),
    "pieces of unsafe_split and unsafe_chunk have version counters of their own": at(
        over(
            "a b",
            "t, u = torch.unsafe_split(x0, x0.shape[0])[0], torch.unsafe_chunk(x0 * 2, 2, -1)[-1]",
            "t.add_(1)",
            "torch.neg(u, out=u)",
            "t, x0[:1], u",
            layouts="plain stepped gaps",
        ),
        (3, 4, 2),
        (4, 4, 2),
        (1, 3, 2),
    ),
    "autograd does not look through a view of the same dtype": at(
        over("a b", "(x0 * 2).view(x0.dtype),", dtypes="float64", gradients=True),
        (3, 4, 2),
        (1, 1, 2),
        (0, 3, 2),
    ),
    "to eager, ravel gives a view of a copy": at(
        over("a 4", "t = x0.ravel()", "t._is_view(), t[1:]._is_view()", layouts="stepped plain"),
        (3, 2, 1),
        (5, 2, 1),
        (0, 2, 1),
    ),
    "a reduction of one number in a graph that eager torch runs is no view": over(
        "", "x0.argmax(0, keepdim=True), x0.detach().prod(0, True), x0.reshape(-1)", gradients=True
    ),
    "a part of what is split is returned behind a break that has written it": at(
        over(
            "a b",
            "t = x0 + x0.shape[0]",
            "u = torch.ops.aten.chunk(t, 2)[0]",
            "t.unsqueeze_(0)",
            "u,",
            layouts="permuted",
            gradients=True,
        ),
        (16, 4, 4),
        (6, 3, 4),
    ),
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND.keys())
def test_found(program: Fuzzed) -> None:
    assert not wrong(program)
