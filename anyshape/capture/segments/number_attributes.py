"""Attributes and methods of numbers that stand for others: sizes, and numbers of each call.

In: a number that capture knows as an expression. Out: what CPython gives for an int, a float or a
bool, with this number as the method's own.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Protocol

from anyshape.capture.heap.values import SizeValue
from anyshape.capture.sizes import numbers

OF_ITS_VALUE = ("bit_length", "is_integer", "hex", "as_integer_ratio", "to_bytes")
"""Methods that are called on the number that this call has."""


class Domain(Protocol):
    recorder: Any

    def type_of(self, value: Any) -> type: ...

    def concrete(self, value: Any, why: str) -> Any: ...


def number_attribute(domain: Domain, value: Any, name: str) -> Any:
    """Raises CPython's AttributeError."""
    kind = domain.type_of(value)
    if name == "__class__":
        return kind
    if kind is int and name in ("real", "numerator"):
        return value
    if kind is int and name in ("imag", "denominator"):
        return int(name == "denominator")
    found = _method(kind, value, name)
    if name == "conjugate":
        return lambda: value
    known = _bit_length(domain, value) if name == "bit_length" else None
    if known is not None:
        return known
    own = domain.concrete(value, name) if name in OF_ITS_VALUE else value
    return types.MethodType(found, own)


def _method(kind: type, value: Any, name: str) -> Any:
    try:
        return getattr(kind if hasattr(kind, name) else kind(), name)
    except AttributeError as error:  # CPython's own, of a number that stands for this one
        error.obj = value
        raise


def _bit_length(domain: Domain, value: Any) -> Callable[[], Any] | None:
    if type(value) is not SizeValue:
        return None
    length = numbers.bit_length(domain.recorder, value.expr)
    return None if length is None else lambda: length
