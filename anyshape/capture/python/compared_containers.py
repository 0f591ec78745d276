"""`list.__eq__(a, b)` and its like, as `super().__eq__(other)` calls them: what the class of `a`
has in their place is not asked, what lies in the containers is.

In: calls of the comparing methods of `list`, `tuple` and `dict`. Out: values, or the interpreted
comparison where C would meet code of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.values import PROXIES, Call
from anyshape.capture.interpreter import polyfills
from anyshape.capture.interpreter.attributes import is_python
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.operators import COMPARISONS
from anyshape.capture.interpreter.protocol import is_compared_in_python

Handler = Callable[[Interpreter, tuple[Any, ...], dict[str, Any]], Any]
EQUALITY = ("==", "!=")
READ_BY = ("__len__", "__getitem__")
"""What the interpreted comparison asks of the containers, and C's does not."""


def _compared(cls: type, method: str, sign: str) -> Handler:
    descriptor = vars(cls)[method]
    polyfill: Any = polyfills.dict_compare if cls is dict else polyfills.sequence_compare
    read = () if cls is dict else (vars(cls)["__getitem__"],)

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kinds = tuple(map(type, args))
        fits = len(args) == 2 and not kwargs and issubclass(kinds[0], cls)
        if not machine.recording or not fits or kinds[1] in PROXIES:
            return machine.native(descriptor, args, kwargs)
        if not issubclass(kinds[1], cls):
            return NotImplemented
        if any(is_python(machine, kind, name) for kind in kinds for name in READ_BY):
            return machine.native(descriptor, args, kwargs)
        machine.domain.will_compare(*args)
        given = tuple(map(machine.heap.mirror, args))
        if any(is_compared_in_python(machine, value) for value in given):
            return Call(polyfill, (*given, sign, *read))
        return machine.native(descriptor, args, kwargs)

    return handler


HANDLERS: Mapping[Any, Handler] = {
    vars(cls)[method]: _compared(cls, method, sign)
    for cls in (list, tuple, dict)
    for sign, (method, _, _) in COMPARISONS.items()
    if cls is not dict or sign in EQUALITY
}
