"""`out=` of another dtype than the result: eager casts what some operators make, computes others in
the dtype of `out`, and refuses the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

Program = Callable[[Tensor], Any]


def of_row(function: Callable[..., Any], **options: Any) -> Program:
    return lambda x: function(x, 0, out=torch.zeros(x.shape[1]), **options)


def of_all(function: Callable[..., Any], *more: Any) -> Program:
    return lambda x: function(x, *more, out=torch.zeros(x.shape))


def with_positions(function: Callable[..., Any]) -> Program:
    def program(x: Tensor) -> Any:
        shape = x.shape if function is torch.sort else x.shape[1:]
        return function(x, 0, out=(torch.zeros(shape), torch.zeros(shape, dtype=torch.int64)))

    return program


PROGRAMS: dict[str, Program] = {
    **{f.__name__: of_row(f) for f in (torch.sum, torch.mean, torch.prod, torch.nansum)},
    **{f.__name__: of_row(f) for f in (torch.logsumexp, torch.var, torch.std)},
    **{f.__name__: of_row(f) for f in (torch.amax, torch.argmax, torch.all)},
    "vector_norm": lambda x: torch.linalg.vector_norm(x, 2, 0, out=torch.zeros(x.shape[1])),
    **{f.__name__: of_all(f, 0) for f in (torch.cumsum, torch.cumprod, torch.softmax)},
    **{f.__name__: of_all(f) for f in (torch.exp, torch.tril, torch.abs, torch.neg, torch.sgn)},
    **{f.__name__: of_all(f) for f in (torch.round, torch.frac, torch.signbit, torch.isposinf)},
    "lerp": lambda x: torch.lerp(x, x, 0.5, out=torch.zeros(x.shape)),
    "clamp": of_all(torch.clamp, 0, 1),
    "clamp by tensors": lambda x: torch.clamp(x, x, x, out=torch.zeros(x.shape)),
    "clamp_min": of_all(torch.clamp_min, 0),
    "where": lambda x: torch.where(x > 0, x, -x, out=torch.zeros(x.shape)),
    "heaviside": lambda x: torch.heaviside(x, x, out=torch.zeros(x.shape)),
    **{f.__name__: of_all(f) for f in (F.gelu, F.logsigmoid, F.hardshrink)},
    **{f.__name__: with_positions(f) for f in (torch.sort, torch.max)},
    "add": lambda x: torch.add(x, x, out=torch.zeros(x.shape)),
    "matmul": lambda x: torch.matmul(x.t(), x, out=torch.zeros(x.shape[1], x.shape[1])),
    "gather": lambda x: torch.gather(x, 0, x[:1].long() * 0, out=torch.zeros(1, x.shape[1])),
    "cat": lambda x: torch.cat([x, x], out=torch.zeros(2 * x.shape[0], x.shape[1])),
}


def outcome(program: Program, x: Tensor) -> Any:
    try:
        return program(x)
    except RuntimeError as error:
        return str(error)[:40]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_numbers_and_refusals_are_eagers(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for shape in ((40, 6), (7, 3), (1, 1)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).half()
        found, expected = outcome(fast, x), outcome(program, x)
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)
    assert fast.stats().internal_errors == 0


def test_results_given_as_out_have_eagers_names() -> None:
    def program(x: Tensor) -> Any:
        pairs = [(torch.empty(x.shape), torch.empty(x.shape, dtype=torch.int64)) for _ in range(2)]
        ordered = torch.sort(x, 0, out=pairs[0])
        greatest = torch.cummax(x, 0, out=pairs[1])
        parts = torch.unbind_copy(x, 1, out=[torch.empty(x.shape[0]) for _ in range(2)])
        very = ordered.values is pairs[0][0], greatest.indices is pairs[1][1]
        return ordered.indices + greatest.indices, very, type(ordered), type(greatest), parts

    fast = anyshape.compile(program)
    for rows in (3, 1, 0, 2):
        x = torch.randn(rows, 2)
        found, wanted = fast(x), program(x)
        assert torch.equal(found[0], wanted[0])
        assert found[1:] == wanted[1:]
