"""numpy's scalars, which torch takes for Python's numbers, and the functions that make them.

In: any object. Out: the int, float, complex or bool that it stands for. numpy is not imported:
who hands us one of its scalars has done so.
"""

from __future__ import annotations

import sys
from typing import Any

from anyshape.capture.heap.breaks import broken

REAL = "biuf"  # kinds of dtypes: bool, signed, unsigned, floating
NUMERIC = REAL + "c"
FLOAT_BYTES = 8


def plain_number(value: Any) -> int | float | complex | None:
    """The Python number that this is, for Python's arithmetic; None if it is none."""
    if value is True or value is False:
        return value
    if is_numpy_number(value, REAL):
        number: int | float = value.item()
        return number
    if issubclass(type(value), int):
        return value if type(value) is int else int.__int__(value)
    if issubclass(type(value), float):
        return value if type(value) is float else float.__float__(value)
    if issubclass(type(value), complex):
        return value if type(value) is complex else complex.__complex__(value)
    return None


def number_beside_tensor(value: Any) -> int | float | complex | None:
    """The Python number that torch takes this for beside a tensor: a bool of numpy's is a float.

    Breaks at a complex one, whose imaginary part torch drops with a warning.
    """
    if is_numpy_number(value, "c"):
        raise broken("unknown-call", "a complex number of numpy's beside a tensor")
    number = plain_number(value)
    return float(number) if type(number) is bool and is_numpy_number(value, "b") else number


SIZE_BITS = 27
"""Of sizes with whose product an integer of numpy's is taken for one of Python's."""


def is_wide(value: Any) -> bool:
    """Is it numpy's float64, which is Python's number in another class?"""
    return is_numpy_number(value, "f") and value.dtype.itemsize == FLOAT_BYTES


def is_narrow(value: Any) -> bool:
    """Is it a float of numpy's that a Python number beside it is rounded to?"""
    return is_numpy_number(value, "f") and value.dtype.itemsize < FLOAT_BYTES


def wraps(value: Any) -> bool:
    """Is it an integer or a truth of numpy's, of whose arithmetic with sizes the result may be none
    of Python's: that of few bits or without a sign wraps, and so does that of large ones."""
    if is_numpy_number(value, "ub"):
        return True
    if not is_numpy_number(value, "i"):
        return False
    bits: int = value.item().bit_length() + SIZE_BITS
    return bits >= 8 * value.dtype.itemsize


def is_function_of_numbers(fn: Any, args: tuple[Any, ...]) -> bool:
    """Is it one of numpy's functions, such as ``numpy.sqrt``, called with numbers only?"""
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(fn), numpy.ufunc):
        return False
    return all(plain_number(arg) is not None for arg in args)


def is_square_root(fn: Any) -> bool:
    """Is it ``numpy.sqrt``?"""
    numpy = sys.modules.get("numpy")
    return numpy is not None and fn is numpy.sqrt


def is_numpy_number(value: Any, kinds: str = NUMERIC) -> bool:
    """Is it a number of numpy's, such as ``numpy.float32(2)``, of one of these kinds of dtype?"""
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None and issubclass(type(value), numpy.generic) and value.dtype.kind in kinds
    )


def numpy_bool(truth: bool) -> Any:
    """The bool of numpy's, where the program has imported it."""
    return sys.modules["numpy"].bool_(truth)


def float64(number: float) -> Any:
    """The float of numpy's, where the program has imported it."""
    return sys.modules["numpy"].float64(number)
