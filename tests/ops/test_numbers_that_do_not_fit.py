"""Numbers that a dtype cannot hold: converted with a check, or wrapped, each as eager does.

Every parameter that takes a number, of each operator of torch's database that has a row, is given
numbers that do not fit; where eager refuses one, so must the compiled program. And programs with a
number in each kind of position are given constants, sizes and numbers from data.
"""

from __future__ import annotations

import math
import resource
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

import anyshape
from anyshape.ops import OPS
from anyshape.ops.converted import CONVERTED
from tests.ops.database import samples_of
from tests.ops.test_op_db import row_of

GIBIBYTE = 2**30


@pytest.fixture(autouse=True)
def memory_that_is_bounded() -> Iterator[None]:
    """A number of 2**40 may be a size. A host that grants terabytes, as one that overcommits does,
    ends the process when eager writes them; past this bound of 8 GiB torch raises everywhere."""
    with open("/proc/self/statm") as sizes:
        mapped = int(sizes.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 8 * GIBIBYTE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_eager_is_refused_what_would_end_the_process() -> None:
    """Nothing is written to what is asked for."""
    with pytest.raises(RuntimeError, match="alloc"):
        torch.empty(10 * GIBIBYTE, dtype=torch.int8)


CASES = {e.formatted_name: e for e in op_db if row_of(e.name)}
DTYPES = (torch.int8, torch.float16)
NUMBERS = (2**40, 1e300)  # past float16, and past what kernels compute it in
OVERFLOW = "without overflow"


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return type(error), str(error)


def refused(made: Any) -> bool:
    return isinstance(made, tuple) and bool(made) and isinstance(made[0], type)


def clones(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return type(value)(map(clones, value)) if type(value) in (list, tuple) else value


def positions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[int | str]:
    """Where a sample has numbers."""
    for position, value in (*enumerate(args), *kwargs.items()):
        if type(value) in (int, float):
            yield position


def changed(
    args: tuple[Any, ...], kwargs: dict[str, Any], position: int | str, number: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(position, str):
        return args, {**kwargs, position: number}
    return (*args[:position], number, *args[position + 1 :]), kwargs


def overflowing(entry: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], str]]:
    """Arguments that eager refuses for a number that does not fit, one for each position, dtype and
    number."""
    for dtype in DTYPES:
        if dtype not in entry.supported_dtypes("cpu"):
            continue
        seen: set[int | str] = set()
        for sample in samples_of(entry, dtype, 6):
            args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
            for position in {*positions(args, kwargs)} - seen:
                seen.add(position)
                for number in NUMBERS:
                    bad = changed(args, kwargs, position, number)
                    made = outcome(entry.op, *clones(bad[0]), **bad[1])
                    if refused(made) and OVERFLOW in made[1]:
                        yield *bad, f"{dtype} {position} {number}"


@pytest.mark.parametrize("name", CASES)
def test_a_number_that_eager_refuses_to_convert_is_refused(name: str) -> None:
    entry = CASES[name]
    for args, kwargs, what in overflowing(entry):
        wanted = outcome(entry.op, *clones(args), **kwargs)
        with torch.no_grad():
            made = outcome(anyshape.compile(lambda *a, o=kwargs: entry.op(*a, **o)), *clones(args))
        assert refused(made) and made[0] is wanted[0], what


def test_the_samples_reach_parameters_of_the_table() -> None:
    for name in ("addcmul", "nn_functional_pad_constant", "full_like", "masked_fill"):
        assert any(True for _ in overflowing(CASES[name])), name


def test_every_row_and_parameter_of_the_table_exists() -> None:
    for row, parameters in CONVERTED.items():
        assert {*parameters} <= {p.name for p in OPS[row].signature.parameters}, row


def assigned(x: Tensor, key: Any, number: Any) -> Tensor:
    y = x.clone()
    y[key] = number
    return y


MASK = torch.tensor([True, False, True, False])
PROGRAMS: dict[str, Callable[[Tensor, Any], Any]] = {
    "where": lambda x, n: torch.where(x > 1, x, n),
    "where, first": lambda x, n: torch.where(x > 1, n, x),
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp from below": lambda x, n: x.clamp_min(n),
    "clamp in place": lambda x, n: x.clone().clamp_(max=n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "an element assigned": lambda x, n: assigned(x, 0, n),
    "a mask assigned": lambda x, n: assigned(x, MASK, n),
    "add": lambda x, n: x + n,
    "subtract": lambda x, n: x - n,
    "multiply": lambda x, n: x * n,
    "equal": lambda x, n: x == n,
    "less": lambda x, n: x < n,
    "rest": lambda x, n: x % n,
    "quotient": lambda x, n: x // n,
    "power": lambda x, n: x**n,
    "bits": lambda x, n: x & n,
    "shift": lambda x, n: x << n,
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "tensor": lambda x, n: torch.tensor(n, dtype=x.dtype),
    "fill": lambda x, n: x.clone().fill_(n),
    "masked fill": lambda x, n: x.masked_fill(x > 1, n),
    "index fill": lambda x, n: x.index_fill(0, torch.tensor([1]), n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([1]), n),
    "threshold": lambda x, n: F.threshold(x, 1, n),
    "hardtanh": lambda x, n: F.hardtanh(x, -1, n),
    "elu": lambda x, n: F.elu(x, n),
    "logit": lambda x, n: torch.logit(x, n),
    "isin": lambda x, n: torch.isin(x, n),
    "bucketize": lambda x, n: torch.bucketize(n, x.sort()[0]),
    "logical and": lambda x, n: torch.logical_and(x, torch.tensor(n)),
    "ldexp": lambda x, n: torch.ldexp(x, torch.tensor(n)),
}
CONSTANTS = (1000, -1, -200, 2**40, 1.5, -1.5, 1e10, 1e300, math.inf, math.nan, 2**63, True)
SMALL = (
    torch.int8,
    torch.float16,
    *(pytest.param(d, marks=pytest.mark.slow) for d in (torch.uint8, torch.float32, torch.bool)),
)


def assert_same(made: Any, wanted: Any, what: str) -> None:
    if refused(wanted) or refused(made):
        assert refused(made) and refused(wanted) and made[0] is wanted[0], (what, made, wanted)
        return
    assert made.dtype is wanted.dtype and made.shape == wanted.shape, what
    close = torch.allclose(made.double(), wanted.double(), rtol=1e-3, equal_nan=True)
    assert close, (what, made, wanted)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_constant_is_converted_as_by_eager(name: str, dtype: torch.dtype) -> None:
    program, x = PROGRAMS[name], torch.tensor([1, 2, 3, 0]).to(dtype)
    wanted = {n: outcome(program, x, n) for n in CONSTANTS}
    taken = [n for n in CONSTANTS if not refused(wanted[n])]
    several = anyshape.compile(lambda x: [program(x, n) for n in taken])
    for n, made in zip(taken, several(x), strict=True):
        assert_same(made, wanted[n], str(n))
    for n in (n for n in CONSTANTS if refused(wanted[n])):
        assert_same(outcome(anyshape.compile(lambda x, n=n: program(x, n)), x), wanted[n], str(n))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_size_is_converted_as_by_eager(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([1, 2, 3, 0]).to(dtype)

    def program(x: Tensor, sized: Tensor) -> Any:
        return PROGRAMS[name](x, sized.shape[0])

    fast = anyshape.compile(program)
    for size in (5, 300, 70000, 3, 256):
        sized = torch.empty(size)
        assert_same(outcome(fast, x, sized), outcome(program, x, sized), str(size))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_from_data_is_converted_as_by_eager(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([1, 2, 3, 0]).to(dtype)

    def program(x: Tensor, held: Tensor) -> Any:
        return PROGRAMS[name](x, held.item())

    for kind, numbers in (
        (torch.int64, (7, 1000, -1, -200, 2**40, 2)),
        (torch.float64, (2.0, 1000.0, -1.5, 1e10, 1e300, math.inf, math.nan, 3.0)),
    ):
        fast = anyshape.compile(program)
        for number in numbers:
            held = torch.tensor(number, dtype=kind)
            assert_same(outcome(fast, x, held), outcome(program, x, held), str(number))
