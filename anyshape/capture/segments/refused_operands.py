"""Operators between a tensor, a size or a number of the trace and what has no such operator with
it: the error is C's own.

In: the operator as the program wrote it, and its two values. Out: what C raises for examples of
their classes. A graph break where C raises nothing for these (a size and a complex number), where
the left value may be written, and where the error of an example says too little.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import class_name
from anyshape.capture.heap.quiet_classes import class_entry
from anyshape.capture.heap.values import PROXIES, SYMBOLIC_NUMBERS
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.operators import BINARY, COMPARISONS, INPLACE
from anyshape.capture.recording.domain import RecordingDomain

EXAMPLES: tuple[Any, ...] = (1, 1.5, True, 1j, "", b"", (), range(0), frozenset(), slice(0), None)
WRITTEN = (list, dict, set, deque, bytearray)
"""Classes whose operators in place may take a tensor's rows, or be half done."""
CONVERSIONS = ("__float__", "__complex__", "__int__", "__index__")
"""What a class has whose objects stand for numbers."""
_OF_ANY_OBJECT = (None, *(vars(object)[method] for method, _, _ in COMPARISONS.values()))
_SHOWN = {"**": "** or pow()", "divmod": "divmod()"}
_BY_CLASS: Mapping[type, Any] = {type(value): value for value in EXAMPLES}


def refuse(domain: RecordingDomain, op: str, sign: str, a: Any, b: Any) -> NoReturn:
    """`a op b`, written as ``sign``, of which nothing is known."""
    in_place = sign != op
    if in_place and issubclass(type(a), WRITTEN) and hasattr(type(a), INPLACE[op].in_place or ""):
        raise broken("unknown-call", f"the operator {sign} of a {class_of(domain, a)}")
    methods = (f"__{op}__", f"__r{op}__") if op == "divmod" else _methods(op)
    if _computes(a, b, methods) or any(_has_own(value, methods) for value in (a, b)):
        raise broken("unknown-call", f"the operator {sign} of a {class_of(domain, b)}")
    function = divmod if op == "divmod" else (INPLACE if in_place else BINARY)[op].function
    said = ""
    try:
        function(_example(domain, a), _example(domain, b))
    except TypeError as error:
        said = str(error)
    except Exception:  # of the example's value, or its dtype
        said = ""
    if not said:
        raise broken("unknown-call", f"the operator {sign} of a {class_of(domain, b)}")
    if said.startswith("unsupported operand type(s)"):
        shown = _SHOWN.get(sign, sign)
        names = f"'{class_of(domain, a)}' and '{class_of(domain, b)}'"
        said = f"unsupported operand type(s) for {shown}: {names}"
    raise TypeError(said)


def refused_comparison(domain: RecordingDomain, op: str, a: Any, b: Any) -> bool:
    """`a op b`, of which nothing is known; what does not compute with numbers is equal to none."""
    if _computes(a, b, COMPARISONS[op][:2]):
        raise broken("unknown-call", f"the operator {op} of a {class_of(domain, b)}")
    if op in ("==", "!="):
        return op == "!="
    names = f"'{class_of(domain, a)}' and '{class_of(domain, b)}'"
    raise TypeError(f"'{op}' not supported between instances of {names}")


def _methods(op: str) -> tuple[str, ...]:
    return BINARY[op].method, BINARY[op].reflected


def _computes(a: Any, b: Any, methods: Iterable[str]) -> bool:
    """Whether one of them is a number of this call and the other one of a class of numbers that
    has the operator, such as `Decimal`."""
    return any(
        type(number) in SYMBOLIC_NUMBERS
        and type(other) not in PROXIES
        and type(other) not in _BY_CLASS
        and any(class_entry(type(other), name) is not None for name in CONVERSIONS)
        and any(class_entry(type(other), name) not in _OF_ANY_OBJECT for name in methods)
        for number, other in ((a, b), (b, a))
    )


def _has_own(value: Any, methods: Iterable[str]) -> bool:
    """Whether it is an object that no example is of, with such an operator of C: a `timedelta`."""
    kind = type(value)
    if kind in PROXIES or issubclass(kind, (*WRITTEN, *_BY_CLASS, torch.Tensor)):
        return False
    return any(type(class_entry(kind, name)) is types.WrapperDescriptorType for name in methods)


def _example(domain: RecordingDomain, value: Any) -> Any:
    """An object of the class, or of the one of C below it; any other object has no operators."""
    kind = domain.type_of(value) if type(value) in PROXIES else type(value)
    if issubclass(kind, torch.Tensor):
        return torch.ones(())
    if kind in _BY_CLASS:
        return _BY_CLASS[kind]
    base = next((c for c in (*WRITTEN, *_BY_CLASS) if issubclass(kind, c)), None)
    return object() if base is None else base()


def class_of(domain: RecordingDomain, value: Any) -> str:
    """The name of its class as errors of C have it."""
    if type(value) is Generator:
        return class_name(value.python_type)
    return class_name(domain.type_of(value) if type(value) in PROXIES else type(value))
