"""What the fuzzer found of strides and places in storages, shrunk: eager's now, at every size."""

from __future__ import annotations

import pytest

from tests.fuzz.oracle import wrong
from tests.fuzz.programs import Fuzzed, Input
from tests.fuzz.test_found import at, over

FOUND = {
    "a part of the channels of stepped filters of one pixel": at(
        over(
            "a 4 b c, 4 4 1 1",
            "torch.nn.functional.conv2d(x0, x1[:, :1], groups=4)",
            layouts="stepped",
        ),
        (2, 2, 2),
    ),
    "what follows a reshape is asked of eager, though a size is found to be 1 later": at(
        over(
            "a b 2",
            "t = x0.flatten(-2)",
            "u = x0.flip(-1)",
            "v = t.fmod(3)",
            "u.stride(-1)",
            "v",
            layouts="permuted",
        ),
        (4, 1, 2),
    ),
    "windows that overlap, at sizes below and above theirs": at(
        over("a b", "t = x0.unfold(-1, 3, 1)", "t * 2, t + t, t.permute(-1, 0, 1).exp()"),
        (4, 7, 1),
        (4, 4, 1),
        (5, 4, 1),
        (5, 3, 1),
        (3, 4, 1),
    ),
    "windows that overlap, handed in behind a break": at(
        over(
            "a 4",
            "t = x0.unfold(-1, 2, 1).permute(-1, 0, 1)",
            "torch.ops.aten.split(x0.squeeze(), 1)",
            "t > t",
        ),
        (3, 3, 1),
        (5, 1, 1),
    ),
    "a side of a branch knows of a size what is not so behind it": at(
        over(
            "a 4",
            "t = x0.unfold(-1, 2, 1)",
            "u = t.unflatten(-1, (-1, 1))",
            "t4 = u + 1 if u.shape[1] == 1 else u - 1",
            "t4",
        ),
        (1, 1, 1),
    ),
    "a product of a row and its column, of a size that is found to be 1": at(
        over("1 b", "t = torch.kron(x0, x0.T)", "t, t + 0", layouts="plain permuted transposed"),
        (1, 6, 1),
        (16, 4, 4),
        (1, 3, 1),
    ),
    "results in one memory that lie otherwise where a size is 1": at(
        over(
            "1 b",
            "t = torch.kron(x0, x0.T) + 0",
            "u = t[1::2]",
            "u += 3",
            "v = t[:1]",
            "u, t, v",
            layouts="plain permuted transposed",
        ),
        (1, 6, 1),
        (16, 4, 4),
        (1, 3, 1),
        (1, 5, 1),
    ),
    "one of them alone begins where eager's does": at(
        over(
            "1 b",
            "t = torch.kron(x0, x0.T) + 0",
            "u = t[1::2]",
            "u += 3",
            "u",
            layouts="plain permuted",
        ),
        (1, 6, 1),
        (16, 4, 4),
    ),
    "a size inside that is one where no argument's and no result's is": at(
        over(
            "a b c",
            "torch.einsum('abc,acd->abd', x0.split(2)[-1], x0)",
        ),
        (4, 4, 4),
        (3, 3, 3),
        (2, 2, 2),
        (5, 5, 5),
    ),
    "root mean squares of an image with its channels innermost": at(
        over(
            "a c b 2",
            "t = (x0 * 2).to(memory_format=torch.channels_last)",
            "torch.nn.functional.rms_norm(t, t.shape[-1:])",
        ),
        (4, 1, 2),
        (3, 5, 4),
        (1, 1, 1),
        (0, 3, 2),
    ),
}
FOUND["a gradient that is a cotangent, though another argument is written behind a break"] = at(
    Fuzzed(
        (
            Input("x0", ("a", "b", "2"), "float64", ("plain",), requires_grad=True),
            Input("x1", ("a", "b", "4"), "float32", ("plain",)),
        ),
        (
            "t = x0 - 3",
            'u = x1.clone()\nwhile u.abs().sum() > 4:\n    u = torch.div(u, 2, rounding_mode="trunc")',
            "torch.maximum(x1, u, out=x1)",
        ),
        "t,",
    ),
    (1, 4, 3),
    (3, 2, 1),
)
FOUND["the stride of a row that a number in a tensor picks"] = at(
    over(
        "a 1",
        "t = x0[x0.argmax()]",
        "t.stride(), x0[None][:, x0.argmax()].exp().stride(), t",
        layouts="stepped",
    ),
    (1, 6, 1),
    (3, 1, 1),
)
FOUND["a size that is the stride of a row that a number in a tensor picks"] = at(
    over(
        "a c",
        "t = x0[x0.argmax()]",
        "x0.new_zeros(t.stride()[-1]),",
        layouts="stepped",
    ),
    (6, 1, 1),
    (3, 1, 1),
    (1, 1, 1),
    (5, 1, 3),
)
FOUND["strides of where with a number, read"] = at(
    over("a b", "x0.where(x0 <= 100, 0).stride(), torch.where(x0 < 0, 1.0, x0).stride()"),
    (1, 6, 1),
    (0, 1, 1),
    (3, 2, 1),
)
FOUND["a part of a copied storage, as long as data says"] = at(
    over(
        "a 4",
        "t = x0.diagonal_scatter(x0.diagonal())",
        "t.flatten()[: int(t.abs().sum()) % 7], t.flatten()[1 : int(t.abs().sum()) + 2]",
        layouts="offset",
    ),
    (2, 2, 2),
    (0, 0, 0),
    (3, 2, 1),
)
FOUND["one column is written at another stride than it is read"] = at(
    over(
        "a a",
        "t = x0.to(bool)",
        "t.flatten()[t.sum(-1) > 4] = 1",
        "sum([part.sum() for part in t.unbind()], t.sum())",
        "u = t.as_strided(t.shape, t.stride())",
        "u[:, ::2] = u",
        "u",
    ),
    (1, 1, 1),
    (3, 1, 1),
)
FOUND[
    "numbers drawn into what a convolution makes of a pixel without a batch, in another order"
] = at(
    over(
        "4 4 1 1",
        "t = torch.nn.functional.conv2d(x0[0], x0, padding=1)",
        "u = t.clone().uniform_().mul_(4).floor_()",
        "u, t, t.stride()",
        layouts="transposed plain permuted",
    ),
    (5, 5, 5),
    (5, 7, 2),
    (1, 1, 1),
)
FOUND["a stride is read of what lies as an argument whose sizes of 1 have strides of their own"] = (
    at(
        over(
            "a 2 b 4",
            "x0.type(torch.int32).stride(), (x0 + 1).stride(), (x0 + x0).stride()",
            layouts="transposed permuted plain",
            dtypes="float64",
        ),
        (1, 1, 5),
        (3, 1, 2),
        (1, 2, 2),
    )
)
FOUND["a stride is read of what is made of one of two tensors, as data says"] = at(
    over(
        "a b",
        "t = x0 * 1",
        "if t.any(): t = t * 2",
        "u = x0",
        "if u.any(): u = u[..., :1]",
        "(t + 3).stride(), (u + 3).stride()",
    ),
    (0, 1, 4),
    (3, 1, 2),
    (1, 0, 2),
)
FOUND["gradients meet at an argument and at a view of it"] = at(
    over(
        "4 4",
        "t = torch.ops.aten.split_with_sizes(x0, [1, x0.shape[0] - 1])[0]",
        "u = torch.nn.functional.linear(t, x0).view(-1, 4)",
        "v = torch.nn.functional.linear(torch.nn.functional.gelu(u), x0)",
        "t.clone(), v",
        layouts="gaps plain",
        gradients=True,
    ),
    (0, 3, 2),
    (1, 4, 3),
)


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND.keys())
def test_found(program: Fuzzed) -> None:
    assert not wrong(program)
