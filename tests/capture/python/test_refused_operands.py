"""Operators between a tensor or a size and what has no such operator with it: what C says, or does
after all; and whom torch asks on the way."""

import collections
import copy
import datetime
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

OTHERS = {
    "list": [1],
    "tuple": (1,),
    "text": "a",
    "bytes": b"a",
    "dict": {1: 2},
    "set": {1},
    "none": None,
    "class": object,
    "deque": collections.deque([1]),
    "bytearray": bytearray(b"a"),
    "complex": 1j,
    "slice": slice(1),
    "range": range(3),
}
OPERATORS = (
    *("add", "sub", "mul", "truediv", "mod", "pow", "matmul", "lshift", "or_"),
    *("iadd", "isub", "imul", "ipow", "imatmul", "ior", "lt", "eq"),
)
SIDES: dict[str, Callable[[Any, torch.Tensor, Any], Any]] = {
    "tensor left": lambda op, y, other: op(y, other),
    "tensor right": lambda op, y, other: op(other, y),
    "size left": lambda op, y, other: op(y.size(0), other),
    "size right": lambda op, y, other: op(other, y.size(0)),
}
FUNCTIONS = [getattr(operator, name) for name in OPERATORS]


def program_of(functions: Any, side: Any, other: Any) -> Any:
    def program(x: torch.Tensor) -> Any:
        y, made, mine = x + 1, [], copy.copy(other)
        for function in functions:
            try:
                made.append(side(function, y, mine))
            except TypeError as error:
                made.append(str(error))
        return y, made, mine

    return program


@pytest.mark.parametrize("at", SIDES)
@pytest.mark.parametrize("kind", sorted({*OTHERS} - {"complex", "deque", "bytearray"}))
def test_operator_that_two_values_do_not_have_says_what_c_says(kind: str, at: str) -> None:
    x = torch.arange(3.0)
    program = program_of(FUNCTIONS, SIDES[at], OTHERS[kind])
    fast = anyshape.compile(program)
    assert str(fast(x)) == str(program(x))
    assert not fast.stats().internal_errors


@pytest.mark.parametrize(
    ("function", "kind", "at"),
    [
        (operator.add, "complex", "size left"),
        (operator.mul, "complex", "size right"),
        (operator.iadd, "deque", "tensor right"),
        (operator.isub, "deque", "tensor right"),
        (operator.add, "deque", "tensor right"),
        (operator.mod, "bytearray", "tensor right"),
        (operator.add, "bytearray", "tensor right"),
        (operator.ior, "dict", "tensor right"),
    ],
)
def test_operator_that_c_has_after_all_is_done(function: Any, kind: str, at: str) -> None:
    x = torch.arange(3.0)
    program = program_of([function], SIDES[at], OTHERS[kind])
    fast = anyshape.compile(program)
    assert str(fast(x)) == str(program(x))
    assert not fast.stats().internal_errors


def test_most_refusals_end_no_graph() -> None:
    x = torch.arange(3.0)
    program = program_of([operator.add, operator.pow], SIDES["tensor right"], "a")
    assert str(anyshape.compile(program, fullgraph=True)(x)) == str(program(x))


LOG: list[str] = []


class Counted(tuple[int, ...]):
    """Says when it is asked for its length."""

    def __len__(self) -> int:
        LOG.append("len")
        return super().__len__()


@pytest.mark.parametrize(
    "ask",
    [
        lambda y, other: y == other,
        lambda y, other: other != y,
        lambda y, other: [y] == [other],
        lambda y, other: [other, 1].count(1),
    ],
)
def test_sequence_of_the_program_is_asked_for_its_length_as_often_as_torch_does(ask: Any) -> None:
    def program(x: torch.Tensor, other: Any) -> Any:
        y = x + 1
        return y, ask(y, other)

    def seen(fn: Any) -> Any:
        LOG.clear()
        return fn(torch.arange(3.0), Counted((1,)))[1], [*LOG]

    fast = anyshape.compile(program)
    assert [seen(fast), seen(fast)] == [seen(program), seen(program)]


class Refusing(int):
    def __add__(self, other: Any) -> Any:
        return NotImplemented

    __iadd__ = __lt__ = __add__  # type: ignore[assignment]

    def __pow__(self, other: Any, modulus: Any = None) -> Any:  # type: ignore[override]
        return NotImplemented


REFUSING: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add,
    operator.iadd,
    operator.lt,
    lambda a, b: pow(a, b, b),
    lambda a, b: b + a,
)


@pytest.mark.parametrize("refuse", range(len(REFUSING)))
def test_errors_call_classes_of_c_as_c_does(refuse: int) -> None:
    """With their modules."""
    others = [collections.deque(), collections.OrderedDict(), datetime.timedelta(1), 3, "a", None]

    def program(x: torch.Tensor) -> Any:
        said = []
        for other in (*others, Refusing(1), x, x.shape[0], x.shape):
            try:
                said.append(str(REFUSING[refuse](Refusing(2), other)))
            except TypeError as error:
                said.append(str(error))
        return x + 1, said

    assert anyshape.compile(program)(torch.ones(2))[1] == program(torch.ones(2))[1]
