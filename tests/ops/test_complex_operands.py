"""A Python complex number beside tensors of real ones, in each place of a row that takes a number:
eager computes with complex numbers, or refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

POINTWISE = """
add sub rsub mul div true_divide pow eq ne lt le gt ge fmod remainder floor_divide
copysign xlogy maximum minimum fmax fmin hypot atan2 nextafter float_power isclose
logical_and logical_or logical_xor bitwise_and bitwise_or heaviside ldexp clamp clamp_min clamp_max
""".split()
PROGRAMS: dict[str, Callable[[Tensor, Any], Any]] = {
    **{name: getattr(torch, name) for name in POINTWISE},
    **{f"{name} of the number": lambda x, c, name=name: getattr(torch, name)(c, x) for name in POINTWISE},
    **{f"{name}_": lambda x, c, name=name: getattr(x.clone(), f"{name}_")(c) for name in POINTWISE},
    "c - x": lambda x, c: c - x,
    "c / x": lambda x, c: c / x,
    "c ** x": lambda x, c: c**x,
    "c == x": lambda x, c: c == x,
    "c != x": lambda x, c: c != x,
    "c < x": lambda x, c: c < x,
    "x // c": lambda x, c: x // c,
    "c % x": lambda x, c: c % x,
    "c in x": lambda x, c: c in x,
    "full": lambda x, c: torch.full((3,), c) + x,
    "full of a dtype": lambda x, c: torch.full((3,), c, dtype=torch.complex128),
    "full of reals": lambda x, c: torch.full((3,), c, dtype=torch.float32),
    "full_like": lambda x, c: torch.full_like(x, c),
    "new_full": lambda x, c: x.new_full((2,), c),
    "tensor": lambda x, c: torch.tensor(c) * x,
    "tensor of several": lambda x, c: torch.tensor([c, 1.0]),
    "scalar_tensor": lambda x, c: torch.scalar_tensor(c),
    "as_tensor": lambda x, c: torch.as_tensor(c),
    "where": lambda x, c: torch.where(x > 1, c, x),
    "where of two numbers": lambda x, c: torch.where(x > 1, c, 0.0),
    "masked_fill": lambda x, c: x.masked_fill(x > 1, c),
    "fill_": lambda x, c: x.clone().fill_(c),
    "fill_diagonal_": lambda x, c: torch.zeros(3, 3).fill_diagonal_(c),
    "index_fill": lambda x, c: x.index_fill(0, torch.tensor([0]), c),
    "scatter": lambda x, c: x.scatter(0, torch.tensor([0]), c),
    "x[0] = c": lambda x, c: x.clone().__setitem__(0, c),
    "x[mask] = c": lambda x, c: x.clone().__setitem__(x > 1, c),
    "pad": lambda x, c: F.pad(x, (1, 1), value=c),
    "alpha": lambda x, c: torch.add(x, x, alpha=c),
    "value": lambda x, c: torch.addcmul(x, x, x, value=c),
    "addcdiv": lambda x, c: torch.addcdiv(x, x, x, value=c),
    "beta": lambda x, c: torch.addmm(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2), beta=c),
    "lerp": lambda x, c: torch.lerp(x, x, c),
    "linspace": lambda x, c: torch.linspace(0, c, 3),
    "arange": lambda x, c: torch.arange(c),
    "nan_to_num": lambda x, c: torch.nan_to_num(x, c),
    "threshold": lambda x, c: F.threshold(x, c, 0.0),
    "leaky_relu": lambda x, c: F.leaky_relu(x, c),
    "elu": lambda x, c: F.elu(x, c),
    "hardtanh": lambda x, c: F.hardtanh(x, c, 1.0),
    "softplus": lambda x, c: F.softplus(x, c),
    "norm": lambda x, c: torch.linalg.vector_norm(x, c),
    "normalize": lambda x, c: F.normalize(x, dim=0, eps=c),
    "layer_norm": lambda x, c: F.layer_norm(x, (3,), eps=c),
    "dropout": lambda x, c: F.dropout(x, c),
    "cumulated": lambda x, c: torch.cumsum(x * c, 0),
    "computed": lambda x, c: torch.real((x + c) * (x - c)) + abs(c),
    "its parts": lambda x, c: x * c.real + c.imag,
    "polar": lambda x, c: (x * c).abs() + (x * c).angle(),
}  # fmt: skip


def outcome(program: Callable[[Tensor, Any], Any], x: Tensor, c: complex) -> Any:
    try:
        return program(x, c)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("dtype", "number"),
    [(torch.float32, 1 + 2j), (torch.float32, 2 + 0j), (torch.int64, 1 + 2j), (torch.bool, 1j)],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_complex_number_is_one(name: str, dtype: torch.dtype, number: complex) -> None:
    program = PROGRAMS[name]
    x = torch.tensor([0.0, 1.0, 2.0]).to(dtype)
    handed_in = anyshape.compile(program)
    inside = anyshape.compile(lambda x: program(x, number))
    wanted = outcome(program, x, number)
    for found in (outcome(handed_in, x, number), outcome(lambda x, c: inside(x), x, number)):
        if not isinstance(wanted, Tensor):
            assert found == wanted
            continue
        assert isinstance(found, Tensor), found
        assert found.dtype is wanted.dtype
        torch.testing.assert_close(found, wanted, equal_nan=True)
    assert handed_in.stats().internal_errors == inside.stats().internal_errors == 0
