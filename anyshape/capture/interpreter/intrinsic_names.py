"""Names that only interpreted polyfills may call: the interpreter answers them itself (builtins.py
has their handlers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from anyshape.capture.heap.values import InterpreterBug


def _only_interpreted(name: str) -> NoReturn:
    raise InterpreterBug(f"intrinsics.{name} was called natively")


def find(cls: type, name: str) -> Any:
    """The raw attribute of a class along its MRO, or ABSENT."""
    _only_interpreted("find")


def bind(attribute: Any, obj: Any, cls: type) -> Any:
    """`attribute.__get__(obj, cls)` as a lookup of a special method does it."""
    _only_interpreted("bind")


def generic_getattr(obj: Any, name: str) -> Any:
    """Attribute access without `__getattr__` and `__getattribute__` of Python code."""
    _only_interpreted("generic_getattr")


def is_subtype(cls: type, base: type) -> bool:
    """Whether `base` is in the MRO of `cls`."""
    _only_interpreted("is_subtype")


def has_identity(a: Any, b: Any) -> bool:
    """Whether `a is b` says more than `a == b`: not of symbolic numbers, unless both may be NaN."""
    _only_interpreted("has_identity")


def native(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a C function as it is, without a handler."""
    _only_interpreted("native")


def run_class_body(body: Any, namespace: Any) -> Any:
    """Run the body of a class statement in `namespace`; gives its `__class__` cell or None."""
    _only_interpreted("run_class_body")


def global_name(globals_: dict[str, Any], builtins: dict[str, Any], name: str) -> Any:
    """A global or builtin name."""
    _only_interpreted("global_name")


def remembered(obj: Any, name: str, value: Any) -> Any:
    """Say that `obj.name` gave `value`, by way of code of the program."""
    _only_interpreted("remembered")


def raise_thrown(error: BaseException, handled: BaseException | None) -> NoReturn:
    """Raise what was thrown into a generator that handles an exception, or none: that, and not what
    its callers handle, becomes the context."""
    _only_interpreted("raise_thrown")


def sorts(values: list[Any], begins: bool) -> bool:
    """Say that a list is being sorted from here on, or no more: was it written meanwhile?"""
    _only_interpreted("sorts")


def past_cache(cache: Any, since: Any, given: Any, result: Any) -> Any:
    """Say that the function of a cache is called, and then what it was given and has given: since
    then. See `heap/past_caches.py`."""
    _only_interpreted("past_cache")


def created(value: Any) -> Any:
    """Say that `value` was made in this trace."""
    _only_interpreted("created")


def works_for(cls: type, file: Any, twin: Any) -> Any:
    """An object of this class of C, made of a file, whose work `twin` does."""
    _only_interpreted("works_for")
