"""An object of the program meets a size, a number from data or a tensor: its class is asked, as
Python asks it.
"""

from __future__ import annotations

import operator
import warnings
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import PerformanceWarning


class Length:
    """Compares itself with numbers, and is added to them from the right."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == getattr(other, "value", other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other)

    def __le__(self, other: Any) -> Any:
        return NotImplemented

    def __radd__(self, other: Any) -> Any:
        return other + self.value

    def __rmul__(self, other: Any) -> Any:
        return NotImplemented


class Total:
    """Has `+=` alone, and keeps what is stored under any key."""

    def __init__(self) -> None:
        self.value: Any = 0
        self.kept: list[Any] = []

    def __iadd__(self, other: Any) -> Total:
        self.value = self.value + other
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self.kept.append((key, value))

    def __delitem__(self, key: Any) -> None:
        self.kept.append(key)


def summed(x: Tensor) -> tuple[Any, ...]:
    total = Total()
    total += x.shape[0]
    total += x.sum()
    total[x.shape[0]] = x.shape[1]
    total[x.shape[0], 1] = 2
    del total[x.shape[1]]
    return total.value, total.kept


def compared(x: Tensor) -> tuple[Any, ...]:
    rows, three = x.shape[0], Length(3)
    counted = (x > 0).sum().item()
    return (
        (rows == three, three == rows, rows != three, three != rows, rows > three, three < rows),
        (counted == three, three != counted, counted > three),
        (rows + three, x + three, counted + three, sum([rows, three])),
    )


PROGRAMS = {"summed": summed, "compared": compared}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_class_is_asked_in_every_call(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for size in (3, 1, 0, 2, 17, 3):
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
        assert repr(fast(x)) == repr(program(x))
    assert fast.stats().specializations == 1


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "product": lambda x: x.shape[0] * Length(3),
    "sum": lambda x: Length(3) + x.shape[0],
    "order": lambda x: x.shape[0] >= Length(3),
    "tensor": lambda x: x * Length(3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_class_leaves_undone_raises_what_eager_raises(name: str) -> None:
    program = REFUSED[name]
    with pytest.raises(TypeError) as theirs:
        program(torch.ones(2))
    with pytest.raises(TypeError) as ours:
        anyshape.compile(program)(torch.ones(2))
    assert str(ours.value) == str(theirs.value)


class Appended:
    """Is asked before a sequence is."""

    def __radd__(self, other: Any) -> Any:
        return "added to", list(other)

    def __rmul__(self, other: Any) -> Any:
        return "multiplied with", list(other)

    def __iter__(self) -> Any:
        return iter((1, 2))

    def __index__(self) -> int:
        return 2


class Declining(Appended):
    """Leaves it to the sequence."""

    def __radd__(self, other: Any) -> Any:
        return NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return NotImplemented


def outcomes(x: Tensor, make: Callable[[], Any], other: Any) -> Any:
    found: list[Any] = [x + 1]
    for sign in ("+", "+=", "*", "*="):
        a = first = make()
        try:
            if sign == "+":
                a = a + other
            elif sign == "+=":
                a += other
            elif sign == "*":
                a = a * other
            else:
                a *= other
        except TypeError:
            a = "refused"
        found.append((sign, a, first))
    return found


@pytest.mark.parametrize("kind", [Appended, Declining])
@pytest.mark.parametrize("sequence", [[3, 4], (3, 4), deque([3]), bytearray(b"ab"), "ab"])
def test_the_right_side_is_asked_before_a_sequence_is(sequence: Any, kind: type) -> None:
    fast = anyshape.compile(lambda x, other: outcomes(x, lambda: copy(sequence), other))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PerformanceWarning)
        for n in (3, 0):
            x = torch.ones(n)
            wanted = outcomes(x, lambda: copy(sequence), kind())
            assert str(fast(x, kind())) == str(wanted)


# ---- what overrides torch's functions -----------------------------------------------------------
class Overrides:
    """Neither a tensor nor a subclass of one, as linear_operator's are."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return "asked", function.__name__, [type(arg).__name__ for arg in args]


class OverridesAndOperates(Overrides):
    __hash__ = None  # type: ignore[assignment]

    def __sub__(self, other: Any) -> Any:
        return "sub", other.sum()

    def __rsub__(self, other: Any) -> Any:
        return "rsub", other.sum()

    def __add__(self, other: Any) -> Any:
        return NotImplemented

    def __iadd__(self, other: Any) -> Any:
        return "iadd", other.sum()

    def __eq__(self, other: Any) -> Any:
        return "eq", other.sum()

    def __lt__(self, other: Any) -> Any:
        return "lt", other.sum()


TENSORS_OPERATORS = (
    *("sub", "add", "mul", "truediv", "matmul", "pow", "mod", "floordiv", "and_"),
    *("iadd", "isub", "eq", "ne", "lt", "ge"),
)


@pytest.mark.parametrize("kind", [Overrides, OverridesAndOperates])
@pytest.mark.parametrize("name", TENSORS_OPERATORS)
@pytest.mark.parametrize("is_left", [True, False])
def test_an_operator_meets_what_overrides_functions_of_torch(
    kind: type, name: str, is_left: bool
) -> None:
    operate = getattr(operator, name)

    def program(x: torch.Tensor) -> Any:
        made = kind()
        try:
            return operate(made, x * 2) if is_left else operate(x * 2, made)
        except TypeError as error:
            return str(error)

    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)
        assert str(anyshape.compile(program)(x)) == str(program(x))
