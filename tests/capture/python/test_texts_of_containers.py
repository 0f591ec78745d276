"""Texts of containers in which objects of the program lie, and `str.format` of such objects: each
part is asked for its text, in C's order."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import GraphBreakError

ASKED: list[Any] = []


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        ASKED.append(self.name)
        return f"<{self.name}>"


class Said(Named):
    def __str__(self) -> str:
        ASKED.append("str")
        return "said"

    def __format__(self, spec: str) -> str:
        ASKED.append(spec)
        return f"[{spec}]"


class Holding:
    def __init__(self, held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        return f"Holding({self.held!r})"


class Growing:
    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __repr__(self) -> str:
        if len(self.values) < 5:
            self.values.append(0)
        return "g"


class Failing:
    def __repr__(self) -> str:
        raise ValueError("no text")


def containers(x: Tensor, outside: list[Any]) -> Any:
    a, b = Named("a"), Said("b")
    shown = [str([a, b, 1]), repr((a,)), f"{(a, b)}", "%s %s" % (a, [b]), format({"k": a, b: 2.5})]
    return (
        x + 1,
        shown,
        repr({a}),
        str(frozenset([b])),
        str(outside),
        f"{[a]!s:>9}",
        repr([[a], []]),
    )


def recursive(x: Tensor, outside: list[Any]) -> Any:
    values: list[Any] = [Named("a")]
    values.append(values)
    values.append((values, {"v": values}))
    holds: list[Any] = []
    holds.append(Holding(holds))
    return x + 1, repr(values), str(holds)


def growing(x: Tensor, outside: list[Any]) -> Any:
    values: list[Any] = []
    values.append(Growing(values))
    return x + 1, repr(values), values[1:]


def failing(x: Tensor, outside: list[Any]) -> Any:
    try:
        return x, str([Named("a"), Failing(), Named("b")])
    except ValueError as error:
        return x + 1, str(error)


def formats(x: Tensor, outside: list[Any]) -> Any:
    a, b = Named("a"), Said("b")
    shown = ["{} {!r} {:>3}".format(a, b, 4), "{1}{0!s}{{}}{1:x}".format(a, b)]
    return x + 1, shown, "{p}{p!r}{n}".format(p=b, n=[a]), "{}".format(outside)


def refused(x: Tensor, outside: list[Any]) -> Any:
    found = []
    for text in ("{} {}", "{0} {}", "{q}", "{:y}{}", "{"):
        try:
            found.append(text.format(Named("a")))
        except (IndexError, ValueError, KeyError, TypeError) as error:
            found.append(repr(error))
    return x + 1, found


@pytest.mark.parametrize("program", [containers, recursive, growing, failing, formats])
def test_each_part_is_asked_for_its_text(program: Callable[..., Any]) -> None:
    _compare(program, anyshape.compile(program, fullgraph=True))


def test_c_says_what_it_refuses() -> None:
    _compare(refused, anyshape.compile(refused))


def _compare(program: Callable[..., Any], fast: Callable[..., Any]) -> None:
    x = torch.ones(2)
    for outside in ([Named("o"), 1], [Named("o"), 1], [Said("p"), [Named("q")]]):
        ASKED.clear()
        expected = str(program(x, outside)), list(ASKED)
        ASKED.clear()
        assert (str(fast(x, outside)), list(ASKED)) == expected


class Number:
    def __init__(self, value: int) -> None:
        self.value = value

    def __add__(self, other: Number) -> Number:
        return Number(self.value + other.value)


def test_operators_of_the_program_take_no_turns_of_its_loops() -> None:
    def program(x: Tensor) -> Any:
        total = Number(0)
        for i in range(40):
            total = total + Number(i)
        return x + total.value

    fast = anyshape.compile(program, fullgraph=True, options={"unroll_budget": 90})
    assert fast(torch.ones(2)).tolist() == program(torch.ones(2)).tolist()


OUTSIDE = bytearray(3)


def test_what_is_read_into_an_array_made_inside() -> None:
    def program(x: Tensor, into: bytearray) -> Any:
        made, file = bytearray(3), io.BytesIO(b"abcdef")
        count = file.readinto(made)
        return x + 1, made, count, file.read(1), file.readinto(into), bytes(into)

    x = torch.ones(2)
    with pytest.raises(GraphBreakError):
        anyshape.compile(program, fullgraph=True)(x, bytearray(2))
    assert str(anyshape.compile(program)(x, bytearray(2))) == str(program(x, bytearray(2)))


def test_functions_of_statistics_are_of_values() -> None:
    def program(x: Tensor) -> Any:
        return x + statistics.NormalDist(100, 15).inv_cdf(0.3)

    fast = anyshape.compile(program, fullgraph=True)
    assert torch.equal(fast(torch.ones(2)), program(torch.ones(2)))
