"""A write to memory that is read through another view: eager's refusal, or eager's very result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor], Any]

OVERLAPPING: dict[str, Program] = {
    "rows, copied": lambda x: x[1:].copy_(x[:-1]),
    "columns, copied": lambda x: x[:, 1:].copy_(x[:, :-1]),
    "columns, set": lambda x: x.__setitem__((slice(None), slice(1, None)), x[:, :-1]),
    "rows, added": lambda x: x[1:].add_(x[:-1]),
    "columns, added": lambda x: x[:, 1:].add_(x[:, :-1]),
    "itself transposed": lambda x: x.add_(x.t()),
    "a row of it": lambda x: x.sub_(x[0]),
    "a column of it": lambda x: x.sub_(x[:, :1]),
    "an element of it": lambda x: x.div_(x[1, 1]),
    "an element of it, filled": lambda x: x.fill_(x[1, 1]),
    "an element of it, at a mask": lambda x: x.__setitem__(x > 2, x[0, 0]),
    "a row repeated": lambda x: x.add_(x[:1].expand(x.shape)),
    "every other row": lambda x: x[::2].add_(x[:2]),
    "of its elements in a row": lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]),
    "rows at places": lambda x: x.index_add_(0, torch.tensor([0, 1]), x[:2]),
    "an operand between": lambda x: x[1:].addcmul_(x[1:], x[:-1]),
    "out": lambda x: torch.add(x[1:], x[:-1], out=x[1:]),
    "out of another shape": lambda x: torch.sum(x, 0, out=x[0]),
    "itself in another shape": lambda x: x[None].add_(x),
    "itself as a mask in another shape": lambda x: x.bool()[None].masked_fill_(x.bool(), 0),
    "itself, copied in another shape": lambda x: x[None].copy_(x),
    "itself at places": lambda x: x.index_add_(0, torch.arange(x.shape[0]), x),
    "itself, scattered": lambda x: x.scatter_(0, torch.zeros(x.shape, dtype=torch.int64), x),
    "where, out": lambda x: torch.where(x > 0, x, x[0], out=x),
    "one column, at another stride": lambda x: x[:, :1][:, ::2].add_(x[:, :1]),
    "one column, copied at another stride": lambda x: x[:, 1:2][:, ::3].copy_(x[:, 1:2]),
}

APART: dict[str, Program] = {
    "itself": lambda x: x.mul_(x),
    "itself by another name": lambda x: x.mul_(x.detach().view_as(x)),
    "the same part, made twice": lambda x: x[:, 1:].add_(x[:, 1:]),
    "halves": lambda x: x[: x.shape[0] // 2].add_(x[x.shape[0] - x.shape[0] // 2 :]),
    "two rows": lambda x: x[-1].add_(x[0]),
    "rows that data picks": lambda x: x[x.argmax() // 3].add_(x[x.argmin() // 3]),
    "two columns": lambda x: x.__setitem__((slice(None), 0), x[:, 1]),
    "two rows, transposed": lambda x: x.T[0].add_(x.T[1]),
    "parts": lambda x: torch.Tensor.add_(*x[:, :2].chunk(2, 1)),
    "of one list": lambda x: x.unbind(1)[0].add_(x.unbind(1)[1]),
    "odd and even": lambda x: x.view(-1)[0:8:2].add_(x.view(-1)[1:8:2]),
    "parts of a view": lambda x: x.view(x.shape[0], 3, 1)[0].add_(x.view(x.shape[0], 3, 1)[1]),
    "what was computed": lambda x: x[1:].add_(x[:-1] * 1),
    "out": lambda x: torch.add(x[0], x[1], out=x[1]),
    "columns of one, at two strides": lambda x: x[:, :1][:, ::2].add_(x[:, 1:2]),
}


def outcome(program: Program, n: int) -> tuple[Any, Tensor]:
    x = torch.arange(1.0, 3 * n + 1).reshape(n, 3)
    try:
        program(x)
    except RuntimeError as error:
        return str(error), x
    return None, x


def assert_as_eager(program: Program) -> Any:
    def writing(x: Tensor) -> Tensor:
        program(x)
        return x * 1

    fast = anyshape.compile(writing)
    for n in (3, 4, 3, 2):
        (refused, ours), (wanted, theirs) = outcome(fast, n), outcome(writing, n)
        assert refused == wanted
        assert torch.equal(ours, theirs)
    return fast


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.filterwarnings("ignore")
def test_what_overlaps_is_refused_or_done_as_by_eager(name: str) -> None:
    assert_as_eager(OVERLAPPING[name])


@pytest.mark.parametrize("name", APART)
def test_parts_that_are_apart_are_captured(name: str) -> None:
    fast = assert_as_eager(APART[name])
    assert fast.stats().graph_breaks == 0


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.mul_(2),
        lambda y: torch.relu_(y),
        lambda y: y.copy_(y + 1),
        lambda y: torch.nn.functional.relu(y, inplace=True),
    ],
    ids=["mul_", "relu_", "copy_", "relu in place"],
)
@pytest.mark.parametrize("n", [3, 1])
def test_a_write_that_eager_refuses_is_refused_where_it_stands(write, n: int) -> None:
    def program(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        x += 1
        w = (x * y[0, 0]).sin() + x.cos()
        write(y)
        z += 1
        return w

    fast = anyshape.compile(program)
    for rows in (n, 4, 2):
        given, wanted = (
            (torch.zeros(3), torch.ones(rows, 1).expand(rows, 4), torch.zeros(2)) for _ in range(2)
        )
        with pytest.raises(RuntimeError, match="more than one element"):
            program(*wanted)
        with pytest.raises(RuntimeError, match="more than one element"):
            fast(*given)
        for one, other in zip(given, wanted, strict=True):
            assert torch.equal(one, other)


def test_a_tensor_that_was_dense_in_an_earlier_call_is_refused_as_early() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        w = x.sum()
        torch.nn.functional.relu(y, inplace=True)
        x.index_put_((y[0] > 0,), torch.ones(()))
        return w

    fast = anyshape.compile(program)
    fast(torch.zeros(3), torch.ones(4))
    for _ in range(2):
        x = torch.zeros(3)
        with pytest.raises(RuntimeError, match="more than one element"):
            fast(x, torch.ones(1).expand(4))
        assert not x.any()
    assert fast(torch.ones(2), torch.ones(8)[::2]) == 2
