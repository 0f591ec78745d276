"""What is tested of a number that a program relies on tells it from every other one."""

from __future__ import annotations

import math
import struct

import pytest

from anyshape.ir.scalars import Scalar, ScalarInput, comparisons_with, evaluate_scalar

NUMBERS = (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, -5e-324)
HALF = ScalarInput("k", "float")
WHOLE = Scalar("float", "mul", (HALF, 2))


def truths(relied_on: float, given: float) -> list[bool]:
    tests = comparisons_with(WHOLE, relied_on * 2)
    return [bool(evaluate_scalar(test, {}, {HALF: given})) for test in tests]


@pytest.mark.parametrize("relied_on", NUMBERS, ids=repr)
def test_a_number_is_told_from_every_other_one(relied_on: float) -> None:
    alike = [n for n in NUMBERS if truths(relied_on, n) == truths(relied_on, relied_on)]
    assert [*map(bits, alike)] == [bits(relied_on)]


def bits(number: float) -> bytes:
    return struct.pack("d", number)
