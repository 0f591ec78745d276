"""What eager raises for some data, the compiled program raises too, also where nobody reads the
result.

The cases are found: each operator of torch's database that has a row, with its samples, whose data
is replaced by data that operators refuse. Where eager takes the sample and refuses what replaces
it, so must the compiled program.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

import anyshape
from anyshape.ops import OPS
from anyshape.ops.refusals import RANKS
from anyshape.ops.table import Pointwise, Scatter, Structural
from tests.ops.database import samples_of
from tests.ops.test_op_db import row_of

CRASHES = {"nn.functional.ctc_loss", "linalg.eig", "linalg.eigvals", "linalg.ldl_solve"}
"""Eager itself reads or writes past its buffers with such data."""
CASES = {e.formatted_name: e for e in op_db if row_of(e.name) and e.name not in CRASHES}

REFUSED: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    (
        "past the end",
        lambda t: torch.full_like(t, 1 << 12 if not t.dtype.is_floating_point else 1e6),
    ),
    ("negative", lambda t: torch.full_like(t, -(1 << 12) if t.dtype.is_signed else 0)),
    ("-1", lambda t: torch.full_like(t, -1 if t.dtype.is_signed else 0)),
    ("zeros", torch.zeros_like),
    ("NaN", lambda t: torch.full_like(t, float("nan")) if t.is_floating_point() else t),
    ("infinite", lambda t: torch.full_like(t, float("inf")) if t.is_floating_point() else t),
    ("false", lambda t: torch.zeros_like(t) if t.dtype is torch.bool else t),
    ("true", lambda t: torch.ones_like(t) if t.dtype is torch.bool else t),
)
"""What replaces the elements of one tensor among the arguments."""
DTYPES = (torch.float32, torch.int64)
OTHER = torch.ones(3)


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def replaced(value: Any, old: Tensor, new: Tensor) -> Any:
    if value is old:
        return new
    if type(value) in (list, tuple):
        return type(value)(replaced(item, old, new) for item in value)
    return value


def raised(function: Callable[..., Any], *args: Any, **kwargs: Any) -> type | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*args, **kwargs)
        except Exception as error:
            return type(error)
    return None


def clones(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return type(value)(map(clones, value)) if type(value) in (list, tuple) else value


def samples(entry: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for dtype in DTYPES:
        if dtype in entry.supported_dtypes("cpu"):
            for sample in samples_of(entry, dtype, 3):
                yield (sample.input, *sample.args), dict(sample.kwargs)


@functools.cache
def refused(name: str) -> dict[str, tuple[Any, Any, Any]]:
    """By what replaces an argument that eager refuses then: a sample that eager takes, its options,
    and the sample so changed."""
    entry = CASES[name]
    found: dict[str, tuple[Any, Any, Any]] = {}
    for args, kwargs in samples(entry):
        if raised(entry.op, *clones(args), **kwargs):
            continue
        for (n, tensor), (what, change) in itertools.product(enumerate(tensors_in(args)), REFUSED):
            if not tensor.numel() or tensor.is_complex() or f"{n} {what}" in found:
                continue
            bad = replaced(args, tensor, change(tensor))
            if raised(entry.op, *clones(bad), **kwargs):
                found[f"{n} {what}"] = args, kwargs, bad
    return found


def program(entry: Any, kwargs: dict[str, Any], *, read: bool) -> Callable[..., Any]:
    """The operator, and a sum that does not need it."""
    function = entry.op

    def unread(*args: Any) -> Any:
        function(*args, **kwargs)
        return OTHER + 1

    return (lambda *args: function(*args, **kwargs)) if read else unread


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("name", CASES)
def test_data_that_eager_refuses_is_refused(name: str, read: bool) -> None:
    entry = CASES[name]
    for what, (good, kwargs, bad) in refused(name).items():
        fast = anyshape.compile(program(entry, kwargs, read=read))
        with torch.no_grad():
            assert raised(fast, *clones(good)) is None, what
            wanted = raised(entry.op, *clones(bad), **kwargs)
            assert raised(fast, *clones(bad)) is wanted, what
            assert raised(fast, *clones(good)) is None, what


def without_elements(args: Any) -> Iterator[tuple[str, Any]]:
    """The arguments, one dimension of one tensor of no elements."""
    for n, tensor in enumerate(tensors_in(args)):
        for d in range(tensor.dim()):
            if tensor.shape[d]:
                yield f"{n} along {d}", replaced(args, tensor, tensor.narrow(d, 0, 0).clone())


@pytest.mark.parametrize("name", CASES)
def test_nothing_along_a_dimension_is_refused_as_eager_refuses_it(name: str) -> None:
    entry, seen = CASES[name], set()
    for args, kwargs in samples(entry):
        if raised(entry.op, *clones(args), **kwargs):
            continue
        for what, bad in without_elements(args):
            wanted = raised(entry.op, *clones(bad), **kwargs)
            if not wanted or what in seen:
                continue
            seen.add(what)
            with torch.no_grad():
                fast = anyshape.compile(program(entry, kwargs, read=False))
                assert raised(fast, *clones(bad)) is wanted, what


RANKED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "dot": (torch.dot, (1, 1)),
    "vdot": (torch.vdot, (1, 1)),
    "outer": (torch.outer, (1, 1)),
    "addr": (torch.addr, (2, 1, 1)),
    "addmv": (torch.addmv, (1, 2, 1)),
    "addbmm": (torch.addbmm, (2, 3, 3)),
    "trace": (torch.trace, (2,)),
    "diag": (torch.diag, (2,)),
    "tril": (torch.tril, (2,)),
    "triu": (torch.triu, (2,)),
    "linear": (torch.nn.functional.linear, (2, 2)),
    "bilinear": (torch.nn.functional.bilinear, (2, 2, 3, 1)),
    "corrcoef": (torch.corrcoef, (2,)),
}


@pytest.mark.parametrize("name", RANKED)
def test_a_rank_that_eager_refuses_is_refused_where_nobody_reads(name: str) -> None:
    function, ranks = RANKED[name]
    for position, change in itertools.product(range(len(ranks)), (-1, 1)):
        wanted = [n + change * (i == position) for i, n in enumerate(ranks)]
        if min(wanted) < 0:
            continue
        args = [torch.ones((3,) * n) for n in wanted]
        fast = anyshape.compile(lambda *xs: (function(*xs), OTHER + 1)[1])
        assert raised(fast, *args) is raised(function, *args), (position, change)


def test_a_tensor_without_dimensions_has_none_to_take_apart() -> None:
    function = lambda x: torch.unflatten(x.sum(), 0, (1, -1))
    assert raised(anyshape.compile(function), torch.ones(3)) is raised(function, torch.ones(3))


def test_the_ranks_that_are_tested_are_those_of_rows() -> None:
    """The others are tested by torch's database: tests/ops/test_refused_by_eager.py."""
    assert set(RANKED) <= set(RANKS)


def test_the_data_finds_operators_that_raise() -> None:
    for name in ("gather", "take", "bincount", "linalg_inv", "cholesky", "nn_functional_one_hot"):
        assert refused(name), name


NUMBERS: dict[str, Callable[..., Any]] = {
    "a mask, a number": lambda x, m, v: x.masked_fill(m, 1000),
    "a mask, a number in a tensor": lambda x, m, v: x.masked_fill(m, v),
    "a mask, a number in a tensor, unread": lambda x, m, v: (x.masked_fill(m, v), x + 1)[1],
    "assigned to a mask": lambda x, m, v: x.__setitem__(m, 1e300),
    "assigned to a mask from a tensor": lambda x, m, v: x.__setitem__(m, v),
    "assigned to an element": lambda x, m, v: x.__setitem__(0, 1e300),
    "infinity assigned": lambda x, m, v: x.__setitem__(m, float("inf")),
    "filled": lambda x, m, v: x.fill_(1000),
    "filled at places": lambda x, m, v: x.index_fill(0, torch.tensor([0]), v),
    "full": lambda x, m, v: torch.full((2,), 1000, dtype=x.dtype),
    "like another": lambda x, m, v: torch.full_like(x, 1e300),
    "scattered": lambda x, m, v: torch.scatter(x, 0, torch.tensor([0]), 1000),
    "negative": lambda x, m, v: x.masked_fill(m, -1),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32", "float16", "bool"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_does_not_fit_is_refused(name: str, dtype: str) -> None:
    fast = anyshape.compile(NUMBERS[name])
    for value in (torch.tensor(7), torch.tensor(1000), torch.tensor(-1.5), torch.tensor(1e10)):
        xs = [torch.tensor([1, 0, 1]).to(getattr(torch, dtype)) for _ in range(2)]
        mask = torch.tensor([True, False, True])
        wanted = raised(NUMBERS[name], xs[0], mask, value)
        assert raised(fast, xs[1], mask, value) is wanted
        assert torch.equal(*xs)


def test_rows_that_are_checked_say_that_they_raise() -> None:
    checked = {n for n, r in OPS.items() if r.data_indices is not None or r.divisor is not None}
    assert checked <= {name for name, row in OPS.items() if row.raises}
    core = {
        n
        for n, r in OPS.items()
        if r.raises and isinstance(r.lower, (Pointwise, Scatter, Structural))
    }
    assert core == checked


def test_ranks_are_refused_of_arguments_that_are_given_by_name() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.trace(input=x)
        return x + 1

    fast = anyshape.compile(program)
    for shape in ((3, 3), (3, 3, 3), (2, 3)):
        x = torch.ones(shape)
        if len(shape) == 2:
            assert torch.equal(fast(x), program(x))
            continue
        with pytest.raises(RuntimeError):
            program(x)
        with pytest.raises(RuntimeError):
            fast(x)
