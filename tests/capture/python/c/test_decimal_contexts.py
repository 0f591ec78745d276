"""Decimal numbers are computed as the thread's context says in each call, whose flags they set."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import (
    Context,
    Decimal,
    FloatOperation,
    Inexact,
    getcontext,
    localcontext,
    setcontext,
)
from typing import Any

import pytest
import torch

import anyshape

X = torch.ones(2)
OUTSIDE = Decimal(3)


def quotients(x):
    quotient = Decimal("1.5") / Decimal(7)
    return x + 1, float(quotient), str(quotient)


def comparisons(x):
    a = Decimal("1.5")
    return x + 1, a < 7.5, a == 7.5, OUTSIDE < 7.5, OUTSIDE == 3.0


def comparisons_in_containers(x):
    a = Decimal("1.5")
    return x + 1, a in [1.0, 3.0], [a, 2] == [1.5, 2], max(a, 2.5), sorted([a, 2.5])[1]


def sums(x):
    a = Decimal("1.234567")
    return x + 1, str(sum([a, a])), str(round(a, 3)), f"{a:.3f}", divmod(a, 1)[0] > 0, str(-a)


def flags_between(x):
    context, y = getcontext(), x + 1
    context.clear_flags()
    a = Decimal.from_float(7.5)
    before = context.flags[FloatOperation]
    equal = a == 7.5
    return y, before, equal, context.flags[FloatOperation]


def exact(x):
    a = Decimal("1.5")
    return x + 1, a + a > 2, float(a * 2)


@pytest.fixture(autouse=True)
def _context() -> Iterator[None]:
    with localcontext():
        yield


def seen(program, prec):
    setcontext(Context(prec=prec))
    results = program(X)[1:]
    return results, [signal for signal, on in getcontext().flags.items() if on]


@pytest.mark.parametrize(
    "program", [quotients, comparisons, comparisons_in_containers, sums, flags_between, exact]
)
def test_numbers_and_flags_are_those_of_each_call(program):
    fast = anyshape.compile(program)
    for prec in (28, 5, 28, 5):
        assert seen(fast, prec) == seen(program, prec)


@pytest.mark.parametrize("program", [exact, quotients, sums])
def test_flags_that_nobody_reads_inside_are_set_behind_one_graph(program):
    fast = anyshape.compile(program, fullgraph=True)
    for prec in (28, 5, 28):
        assert seen(fast, prec) == seen(program, prec)


def test_a_flag_is_set_by_each_segment_that_sets_it_and_only_there():
    def program(x):
        said = [str(Decimal(1) / 7), str(Decimal(1) / 3)]
        flags = getcontext().flags  # ends the segment
        said.append([signal.__name__ for signal, on in flags.items() if on])
        getcontext().clear_flags()
        said.append(str(Decimal(2) / 3))
        said.append([signal.__name__ for signal, on in flags.items() if on])
        return x + 1, said

    fast = anyshape.compile(program)
    for _ in range(3):
        getcontext().clear_flags()
        expected = program(X)[1]
        getcontext().clear_flags()
        assert fast(X)[1] == expected


def test_where_a_flag_is_trapped_the_error_comes():
    def program(x):
        try:
            return x + 1, str(Decimal(1) / 7)
        except Inexact as error:
            return x + 2, type(error)

    fast = anyshape.compile(program)
    for traps in ([], [Inexact], []):
        with localcontext(Context(traps=traps)):
            expected = program(X)
        with localcontext(Context(traps=traps)) as context:
            found = fast(X)
            assert found[1] == expected[1] and torch.equal(found[0], expected[0])
            assert context.flags[Inexact]


def test_signals_of_a_context_made_inside_are_read_in_c():
    def program(x):
        context = Context(traps=[FloatOperation])
        return x + 1, [on for _, on in context.traps.items()], context.traps[FloatOperation]

    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(X)[1:] == program(X)[1:]


class Own(Context):
    @property
    def own(self):
        return 5


def test_attributes_of_a_class_of_the_program_over_that_of_c():
    def program(x):
        context = Own(prec=4)
        try:
            text = str(context.missing)
        except AttributeError as error:
            text = str(error)
        return x + 1, context.own, context.prec, text, len(list(context.flags))

    assert anyshape.compile(program)(X)[1:] == program(X)[1:]


def test_a_number_made_inside_leaves_the_function_as_another_one_each_time():
    def program(x, given):
        a = Decimal("1.50")
        return x + 1, a, given, a + 1, Decimal("-NaN123"), Decimal("1E+5")

    fast = anyshape.compile(program, fullgraph=True)
    for _ in range(2):
        given = Decimal("2.50")
        found, wanted = fast(X, given)[1:], program(X, given)[1:]
        assert list(map(str, found)) == list(map(str, wanted)) and found[1] is given
    assert fast(X, given)[1] is not fast(X, given)[1]


METHODS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys("as_integer_ratio as_tuple is_nan adjusted normalize is_signed".split(), ()),
    **dict.fromkeys("number_class canonical radix to_eng_string copy_abs next_plus".split(), ()),
    **{"scaleb": (2,), "__format__": (".1f",), "copy_sign": (-1,), "compare": (2,), "fma": (2, 3)},
    **{"sqrt": (), "quantize": (Decimal("0.1"),), "max": (9,), "ln": ()},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_a_number_is_computed_as_the_context_says(name: str) -> None:
    """One that writes a flag of the context is computed natively."""

    def program(x: torch.Tensor) -> Any:
        number = Decimal("2.25")
        return x + 1, getattr(number, name)(*METHODS[name])

    def seen(fn: Any, precision: int) -> Any:
        with localcontext() as context:
            context.prec = precision
            context.clear_flags()
            found = fn(torch.ones(2))[1]
            return repr(found), [flag for flag, on in context.flags.items() if on]

    fast = anyshape.compile(program)
    for precision in (28, 3, 28):
        assert seen(fast, precision) == seen(program, precision)


def test_methods_that_write_no_flag_are_in_one_graph() -> None:
    def program(x: torch.Tensor) -> Any:
        number = Decimal("2.5")
        return x + 1, number.as_integer_ratio(), number.as_tuple(), f"{number:.1f}", number.is_nan()

    assert (
        anyshape.compile(program, fullgraph=True)(torch.ones(2))[1:] == program(torch.ones(2))[1:]
    )


def of_own_contexts(x):
    context = Context(prec=4, traps=[])
    found = [context.divide(Decimal(1), Decimal(3)), context.divide(1, 7), context.abs(-1)]
    found += [context.number_class(Decimal(3)), context.create_decimal("1.23456"), context.copy()]
    for refused in (
        lambda: context.divide("1", 2),
        lambda: context.divide(1),
        lambda: Context(traps=[Inexact], prec=3).divide(1, 3),
    ):
        try:
            refused()
        except (TypeError, Inexact) as error:
            found.append(repr(error))
    return x + 1, [*map(str, found)]


@pytest.mark.parametrize("ways", [{"fullgraph": True}, {"options": {"break_every": 3}}])
def test_a_context_made_inside_computes_and_keeps_its_own_flags(ways):
    fast = anyshape.compile(of_own_contexts, **ways)
    for prec in (28, 3):
        assert seen(fast, prec) == seen(of_own_contexts, prec)
