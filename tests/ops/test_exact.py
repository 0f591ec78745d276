"""What eager refuses is refused with its words, and what is rarely written means what it means there.

Each program is compiled once and called with each row of its arguments: results, strides, what is
written, who shares memory, and the type and the text of what is raised are eager's; nothing is
called a mistake.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from tests.fuzz.oracle import call, differences

Calls = Sequence[tuple[Any, ...]]

INTEGERS = [(torch.tensor([7, -7, 5]), torch.tensor(d)) for d in ([3, -2, 1], [2, 0, 1], [0, 0, 0])]
QUOTIENTS: dict[str, Callable[[Tensor, Any], Any]] = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "div by floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div by trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "//=": lambda x, y: x.floor_divide_(y),
    "reflected": lambda x, y: (7 // y, 7 % y),
}
COMPLEX = torch.complex(torch.arange(9.0), torch.arange(9.0).flip(0)).reshape(3, 3)
EDGES = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 4.0, 0.25]).repeat(4)


def _add_at(x: Tensor, key: Any) -> None:
    x[key] += 1


PROGRAMS: dict[str, tuple[Callable[..., Any], Calls]] = {
    **{f"{sign} by zeros": (quotient, INTEGERS) for sign, quotient in QUOTIENTS.items()},
    **{
        f"{sign} by the number 0": (
            lambda x, quotient=quotient: quotient(x, 0),
            [(torch.arange(n),) for n in (0, 1, 3)],
        )
        for sign, quotient in QUOTIENTS.items()
        if sign != "reflected"
    },
    "a size that may be 0 divides": (
        lambda x, y: x // y.shape[0] + x % y.shape[0],
        [(torch.arange(n), torch.ones(k)) for n, k in ((3, 2), (3, 0), (0, 0), (4, 1))],
    ),
    "integers to negative powers": (
        lambda x: x**-1,
        [(torch.arange(n),) for n in (3, 1, 0)],
    ),
    "bools are not divided": (
        lambda x, y: x // y,
        [(torch.tensor([True, False]), torch.tensor([True, True]))],
    ),
    "bools are not shifted": (
        lambda x, y: x << y,
        [(torch.tensor([True, False]), torch.tensor([True, True]))],
    ),
    "plus a bool": (lambda x: +(x > 0), [(torch.ones(3),)]),
    "integers are not written into bools": (
        lambda x, y: x.add_(y),
        [(torch.tensor([True, False]), torch.tensor([1, 2]))],
    ),
    "a power with a modulus": (lambda x: pow(x, 2, 3), [(torch.tensor(5),)]),
    "divmod": (lambda x: divmod(x, 2), [(torch.tensor(5),)]),
    "round": (lambda x: round(x * 2), [(torch.tensor(1.25),)]),
    "as often as a tensor says": (
        lambda x, n: ([0] * n, n * (1, 2), "ab" * n, b"a" * n, x * 2),
        [(torch.ones(2), torch.tensor(n)) for n in (2, 0, 1)],
    ),
    "as often as a float says": (lambda x: [0] * x, [(torch.tensor(2.0),)]),
    "text of a tensor": (lambda x: ("%d" % x, x + 1), [(torch.tensor(n),) for n in (2, 3)]),
    "softmax over a dimension that a tensor names": (
        lambda x, d: torch.softmax(x, d),
        [(torch.ones(n, 3), torch.tensor(d)) for n, d in ((3, 1), (4, 0), (0, -1))],
    ),
    "softmax over a dimension that differs": (
        lambda x, y: torch.log_softmax(x, len(y) - 1) + x.roll(1, len(y) - 1),
        [(torch.ones(n, 3), torch.ones(k)) for n, k in ((3, 2), (4, 1), (5, 0), (5, 7))],
    ),
    "slice_scatter": (
        lambda x, y: (x.slice_scatter(y), torch.slice_scatter(x, y, step=1), x.slice_scatter(y, 0)),
        [(torch.ones(n, 3), torch.zeros(n, 3)) for n in (3, 1, 0)],
    ),
    "select_scatter keeps holes": (
        lambda x, y: (torch.select_scatter(x[:, ::2], y, 0, 0), x.select_scatter(x[0], 0, -1)),
        [(torch.ones(n, 6), torch.zeros(3)) for n in (3, 1, 2)],
    ),
    "H of a number": (lambda x: x.H, [(torch.tensor(2.0),)]),
    "H of a vector": (lambda x: x.H, [(torch.ones(2),)]),
    "H of complex numbers": (lambda x: x.H, [(torch.randn(n, 2, dtype=torch.complex64),) for n in (3, 1)]),
    **{
        f"complex {name}": (program, [(COMPLEX[:n],) for n in (3, 1)])
        for name, program in {
            "flip": lambda x: x.flip(0) + x,
            "adjoint": lambda x: x.adjoint() * 1,
            "arccos_": lambda x: x.arccos_(),
            "abs_": lambda x: x.abs_(),
            "round": lambda x: x.round(),
            "write to a row": lambda x: (x.__setitem__(0, 1j), x * 1)[1],
            "write to a column": lambda x: (x[:, 0].add_(2), x * 1)[1],
        }.items()
    },
    **{
        f"{name} of {dtype}": (program, [(torch.arange(6).flip(0)[:n].to(dtype),) for n in (6, 1, 0)])
        for dtype in (torch.int64, torch.int8, torch.bool)
        for name, program in {
            "trapezoid": torch.trapezoid,
            "round": torch.round,
            "frac": torch.frac,
            "relu": lambda x: F.relu(x),
            "relu_": lambda x: x.relu_(),
            "hardswish": lambda x: F.hardswish(x),
            "lerp": lambda x: torch.lerp(x, x, 0.5),
        }.items()
    },
    "trapezoid that wraps": (
        lambda x: torch.trapezoid(x, dx=2), [(torch.full((n,), 100, dtype=torch.int8),) for n in (3, 1)],
    ),
    "roots of small floats": (
        lambda x: (x**0.5, x**-0.5, x.clone().pow_(0.5)),
        [(EDGES[:n].half(),) for n in (24, 3)],
    ),
    "numbers and places in tensors": (
        lambda x, i, j: (x[i, :, j], x[:, i, j], x[:, None, i, None, j], x[j, :, i]),
        [
            (torch.randn(n, n + 1, n), torch.tensor(i), torch.tensor([0, n - 1, 0]))
            for n, i in ((3, 1), (2, -1), (1, 0))
        ],
    ),
    "a sum into what a tensor picks": (
        lambda x, i: (x.__setitem__(i, x[i].add_(1)), (y := x * 2), _add_at(y, (None, i)), y)[3],
        [(torch.ones(n, 2), torch.tensor(n - 1)) for n in (3, 2)],
    ),
    "the strides of a part of what a tensor picks": (
        lambda x, i: (x[i, ::2].stride(), (v := x[i, ::2]).add_(1), v * 1, x * 1)[::3],
        [(torch.ones(n, 4), torch.tensor(n - 1)) for n in (3, 2)],
    ),
    "two ellipses": (lambda x: x[..., ...] * 2, [(torch.randn(2, 3),), (torch.randn(3, 1),)]),
    "a number in a tensor and True": (
        lambda x, i: (x[i, :-1, True], x[True, i], x[:, True, i], x[i, False]),
        [(torch.randn(n, n, 2), torch.tensor(n - 1)) for n in (3, 2)],
    ),
    "a write at one place and at a mask": (
        lambda x, i, mask, y: (x.__setitem__((i, mask), y), x * 1)[1],
        [
            (torch.zeros(2, len(m), 2), torch.tensor([1]), torch.tensor(m), torch.ones(1, 2))
            for m in ([True, False, True], [False, False], [True], [False], [True] * 9)
        ],
    ),
    "a write at numbers and places in tensors": (
        lambda x, i, j, y: (x.__setitem__((i, slice(None), j), y), x * 1)[1],
        [
            (torch.zeros(n, n, n), torch.tensor(n - 2), torch.tensor([0, n - 1]), torch.randn(n, 2))
            for n in (3, 2)
        ],
    ),
    "the strides of what a number in a tensor picks": (
        lambda x, i: (x[:, i].stride(), x[i].stride(), x[:, i].is_contiguous()),
        [(torch.ones(n, 2, 3), torch.tensor(n - 1)) for n in (2, 1)],
    ),
    "a sum in a small dtype": (
        lambda x: (x.sum(-1, dtype=torch.float16), x.double().sum(0, dtype=torch.bfloat16)),
        [(torch.tensor([[2049, 2**40], [5, -(2**40)], [1, 2]])[:n],) for n in (3, 1, 2)],
    ),
    "a logarithm of a number": (
        lambda x: (torch.xlogy(x, 2), torch.special.xlog1py(x, 1), torch.xlogy(2, x)),
        [(torch.arange(n, dtype=dtype),) for n, dtype in ((3, torch.float32), (2, torch.int8))],
    ),
    "a write to what a tensor picks": (
        lambda x, i: (x[i].add_(1), x * 1)[1],
        [(torch.ones(n, 2), torch.tensor(n - 1)) for n in (3, 2)],
    ),
    "a write to what a tensor has picked from": (
        lambda x, i: ((y := x[i]), x.add_(1), y * 1)[2],
        [(torch.ones(n, 2), torch.tensor(n - 1)) for n in (3, 2)],
    ),
    "floats are not written into out= of integers": (
        lambda x: torch.add(x, 1, out=torch.zeros(2, dtype=torch.int64)), [(torch.ones(2),)],
    ),
    "ldexp of small floats": (
        lambda x, y: torch.ldexp(x, y),
        [(torch.ones(n, dtype=torch.float16), torch.arange(n) * 9) for n in (3, 1, 0)],
    ),
    "tensordot of two dtypes": (
        lambda x, y: torch.tensordot(x, y, 1),
        [(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64))],
    ),
}  # fmt: skip

IMAGES: dict[str, Callable[[Tensor], Any]] = {
    "conv2d": lambda x: F.conv2d(x, torch.ones(3, 4, 3, 3)),
    "conv2d after relu": lambda x: F.conv2d(x.relu(), torch.ones(3, 4, 3, 3)),
    "conv2d after a sum with a number": lambda x: F.conv2d(x + 1, torch.ones(3, 4, 3, 3)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "cat": lambda x: torch.cat([x, x], 1),
    "pixel_unshuffle of a slice": lambda x: F.pixel_unshuffle(x[:, :, 1:5], 2),
    "conv2d, its image by name": lambda x: F.conv2d(weight=torch.ones(3, 4, 3, 3), input=x),
    "cat, its images by name": lambda x: torch.cat(dim=1, tensors=[x, x]),
    "constant_pad_nd": lambda x: torch.constant_pad_nd(x, (1, 1), 0.5),
    "conv2d of what is viewed twice": lambda x: F.conv2d(
        x.view(x.shape[0], 4, 30).view(x.shape[0], 4, 6, 5), torch.ones(3, 4, 3, 3)
    ),
    "strides that are read": lambda x: (lambda y: y + sum(y.stride()))(F.max_pool2d(x, 2)),
    "a reshape that is written": lambda x: (lambda y: (y.reshape(-1).add_(1), y)[1])(
        F.conv2d(x, torch.ones(3, 4, 3, 3))
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_the_order_of_images_is_eagers_where_the_batch_is_one(name: str) -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Any, ...]:
        view = x.transpose(1, 2).view(x.shape[0], 4, 5, 6)
        with_holes = y.permute(0, 3, 1, 2)[:, :, ::2]
        return IMAGES[name](view), IMAGES[name](y.permute(0, 3, 1, 2)), IMAGES[name](with_holes)

    fast = anyshape.compile(program)
    for n in (2, 1, 3):
        args = [torch.randint(-3, 4, shape).float() for shape in ((n, 30, 4), (n, 10, 6, 4))]
        assert list(differences(call(fast, args), call(program, args), exact=True)) == []


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_results_and_refusals_are_eagers_to_the_word(name: str) -> None:
    program, calls = PROGRAMS[name]
    fast = anyshape.compile(lambda *args: _results(program(*args)))
    for args in calls:
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        wanted = call(lambda *xs: _results(program(*xs)), list(theirs))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = call(fast, list(ours))
        assert list(differences(found, wanted, exact=True)) == []
        assert [str(w.message) for w in caught if "E901" in str(w.message)] == []


def _results(made: Any) -> tuple[Any, ...]:
    return made if type(made) is tuple else (made,)
