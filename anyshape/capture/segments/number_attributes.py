"""Attributes and methods of numbers that stand for others: sizes, and numbers of each call.

In: a number that capture knows as an expression. Out: what CPython gives for an int, a float or a
bool, with this number as the method's own; what some methods give where they are called.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from anyshape.capture.heap.quiet_classes import class_entry
from anyshape.capture.heap.values import C_METHODS, SizeValue
from anyshape.capture.sizes import numbers


class Domain(Protocol):
    recorder: Any

    def type_of(self, value: Any) -> type: ...

    def unary(self, op: str, a: Any) -> Any: ...


def number_attribute(domain: Domain, value: Any, name: str) -> Any:
    """Raises CPython's AttributeError."""
    kind = domain.type_of(value)
    if name == "__class__":
        return kind
    found = class_entry(kind, name)
    if type(found) in C_METHODS:
        return types.MethodType(found, value)
    if name in ITSELF and type(found) is types.GetSetDescriptorType:
        return domain.unary("+", value)
    try:
        return getattr(kind(), name)  # the same for all of the class
    except AttributeError as error:  # CPython's own, of a number that stands for this one
        error.obj = value
        raise


ITSELF = ("real", "numerator")
"""The other attributes, `imag` and `denominator`, are the same for all numbers of a class."""


def method_call(domain: Domain, fn: Any, args: tuple[Any, ...]) -> Any:
    """What a method gives of a number whose value it does not need; None where it does."""
    method = METHODS.get(fn)
    return method(domain, *args) if method is not None and len(args) == 1 else None


def _itself(domain: Domain, value: Any) -> Any:
    return domain.unary("+", value)


def _bit_length(domain: Domain, value: Any) -> Any:
    if type(value) is not SizeValue:
        return None
    return numbers.bit_length(domain.recorder, value.expr)


METHODS: Mapping[Any, Callable[[Domain, Any], Any]] = {
    int.conjugate: _itself,
    float.conjugate: _itself,
    int.bit_length: _bit_length,
}
