"""What may lie on a virtual stack besides plain Python objects, and the signals that stop
interpretation.

Constants have no wrapper: a local, a cell or a stack slot holds the raw object. Only the classes in
`PROXIES` stand for something else (a symbolic size, a symbolic float or bool, a tensor of the
graph, a text that differs from call to call); `type(v) in PROXIES` is the one test. Native code
that touches a proxy by mistake raises `ProxyLeak`, so that a leak ends in a break and never in a
wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from types import (
    BuiltinMethodType,
    CellType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, NoReturn

from anyshape.ir.graph import Value
from anyshape.ir.scalars import Operand
from anyshape.nouns import frozen
from anyshape.symbolic import Expr


class _Null:
    """No value: an unbound local, the empty slot under a callable, the end of an iteration."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL"

    def __bool__(self) -> NoReturn:
        raise InterpreterBug("NULL was used as a value")


NULL = _Null()


class _Lost:
    """The value of a local that a program point has left out: nothing reads it by name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "LOST"


LOST = _Lost()


class _Absent:
    """What interpreted polyfills use for "not there"; unlike `NULL` it may lie in a local."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


class Call:
    """A tail call: a hook or handler returns it to have the interpreter call `fn` instead of giving
    a value itself.
    """

    __slots__ = ("args", "fn", "kwargs")

    def __init__(
        self, fn: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"Call({self.fn!r}, {self.args!r}, {self.kwargs!r})"


class Break(BaseException):
    """The segment ends here: every virtual frame is at the beginning of the instruction that could
    not be captured.

    `call` is the one thing to be done natively, if it is known (`fn`, `args`, `kwargs` as they are,
    proxies included).
    """

    def __init__(
        self, reason: str, what: str = "", hint: str = "", call: Call | None = None, **context: Any
    ) -> None:
        super().__init__(reason, what)
        self.reason = reason
        self.what = what
        self.hint = hint
        self.call = call
        self.context: Mapping[str, Any] = context


class ProxyLeak(BaseException):
    """Native code touched a proxy; the interpreter turns it into a `Break`."""

    def __init__(self, proxy: str, method: str) -> None:
        super().__init__(f"{method} of {proxy}")


class InterpreterBug(BaseException):
    """A mistake of ours, with the user's line; the caller runs the segment natively instead, with
    one warning.
    """


_FORBIDDEN = """
bool int float complex index len iter next contains getitem setitem delitem hash eq ne lt le gt
ge add radd iadd sub rsub isub mul rmul imul matmul rmatmul imatmul truediv rtruediv itruediv
floordiv rfloordiv ifloordiv mod rmod imod divmod rdivmod pow rpow ipow lshift rlshift ilshift
rshift rrshift irshift and rand iand or ror ior xor rxor ixor neg pos abs invert round trunc
floor ceil call enter exit str repr format bytes reversed reduce reduce_ex copy deepcopy getattr
""".split()


def _refusal(method: str) -> Callable[..., NoReturn]:
    def refuse(self: Proxy, *args: object, **kwargs: object) -> NoReturn:
        raise ProxyLeak(self.shown, method)

    refuse.__name__ = method
    return refuse


REFUSAL_CODE = _refusal("").__code__
"""The code of every slot that refuses: it is nothing of the program's, and never interpreted."""


class Proxy:
    """Base of the proxies: every protocol slot that native code could use raises `ProxyLeak`.
    `shown`: what messages call it."""

    __slots__ = ("__weakref__",)
    shown = "a value"


for _name in _FORBIDDEN:
    setattr(Proxy, f"__{_name}__", _refusal(f"__{_name}__"))


class SizeValue(Proxy):
    """A symbolic int; ``kind`` is int, or the class of numpy's that it is to the program."""

    __slots__ = ("expr", "kind")
    shown = "a size"

    def __init__(self, expr: Expr, kind: type = int) -> None:
        self.expr = expr
        self.kind = kind


class ScalarValue(Proxy):
    """A float or a bool computed from sizes or data; `scalar` is a node of ir.scalars or a symbolic
    condition. ``is_wide``: to the program it is numpy's float64.
    """

    __slots__ = ("is_wide", "kind", "scalar")
    shown = "a number"

    def __init__(self, scalar: Operand, kind: type = float, is_wide: bool = False) -> None:
        self.scalar = scalar
        self.kind = kind
        self.is_wide = is_wide


class TensorValue(Proxy):
    """A tensor of the graph; `value` is an ir Value, `python` the Python class it shows,
    `attributes` what was set on it.
    """

    __slots__ = ("attributes", "identified", "python", "value")
    shown = "a tensor"

    def __init__(self, value: Value, python: type | None = None) -> None:
        self.value = value
        self.python = python
        self.attributes: dict[str, Any] | None = None
        self.identified: Callable[[], None] | None = None  # called when its identity matters

    def __hash__(self) -> int:
        """As a tensor's: by identity."""
        if self.identified is not None:
            self.identified()
        return object.__hash__(self)  # and not its value's, which may become another one


class OpaqueValue(Proxy):
    """A text or a range that native code makes anew in each call, or a tensor that is not
    understood (`description` says what it is): handed on, and never looked into. `source` says
    where it lies."""

    __slots__ = ("description", "kind", "source")

    def __init__(self, source: Any, kind: type, description: str = "") -> None:
        self.source = source
        self.kind = kind
        self.description = description


@frozen
class Formed:
    """A text that a function of C forms in each call, of arguments with sizes or texts in them."""

    function: Callable[..., str]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class TextValue(Proxy):
    """A text with sizes in it, formed in each call: shown, returned and handed on, and never looked
    into. `parts` are texts, and what is `Formed`."""

    __slots__ = ("parts",)
    shown = "a text with sizes in it"
    kind = str

    def __init__(self, parts: tuple[str | Formed, ...]) -> None:
        self.parts = parts


BY_VALUE = frozenset({int, float, complex, str, bytes, tuple})
"""Classes whose objects are relied on by their values."""
IMMUTABLE = frozenset(
    {
        int,
        float,
        bool,
        complex,
        str,
        bytes,
        type(None),
        type(NotImplemented),
        type(...),
        range,
        slice,
        type,
    }
)
"""Classes whose objects nobody can write to."""
METHOD_WITH_CLASS = type(re.compile("").match)
"""A method of C, bound to an object, that is told in which class it was found."""
BOUND_IN_C = frozenset({BuiltinMethodType, METHOD_WITH_CLASS, MethodWrapperType})
"""Methods of C: one of an object that the trace has made was made by reading it."""
C_METHODS = frozenset({MethodDescriptorType, WrapperDescriptorType})
"""What a class of C has that gives such methods."""

SYMBOLIC_NUMBERS: frozenset[type] = frozenset({SizeValue, ScalarValue})
PROXIES: frozenset[type] = frozenset({SizeValue, ScalarValue, TensorValue, OpaqueValue, TextValue})


def is_empty(cell: CellType) -> bool:
    """Whether nothing lies in a cell: its variable has no value."""
    return contents(cell) is NULL


def contents(cell: CellType) -> Any:
    """What lies in a cell; NULL where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return NULL
