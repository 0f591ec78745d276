"""Methods of iterators of C, called by way of their class, and those of `object` that tell the
state of anything: `map.__reduce__(m)`, `object.__getstate__(m)`.

In: the method, and what may be a generator of the machine that stands for such an iterator. Out:
what the generator does under that name; of any other object, what its handler says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any

from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.iterator_states import STAND_INS
from anyshape.capture.python.builtin_iteration import ITERATION_BUILTINS
from anyshape.capture.python.object_states import GETSTATE, STATE_BUILTINS

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Interpreter", Args, Kwargs], Any]


def _itself(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return args[0]


def _refuse(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`object.__reduce__`, which knows nothing of what an iterator holds."""
    raise TypeError(f"cannot pickle '{args[0].python_type.__name__}' object")


def _set(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    args[0].check_attribute("__setstate__")
    return ITERATION_BUILTINS[Generator.__setstate__](machine, args, kwargs)


def _nothing(machine: Interpreter, args: Args, kwargs: Kwargs) -> None:
    """No attributes, nor slots."""


OWN: Mapping[str, tuple[int, Handler]] = {
    "__iter__": (1, _itself),
    "__next__": (1, ITERATION_BUILTINS[Generator.__next__]),
    "__reduce__": (1, ITERATION_BUILTINS[Generator.__reduce_ex__]),
    "__setstate__": (2, _set),
    "send": (2, ITERATION_BUILTINS[Generator.send]),
    "close": (1, ITERATION_BUILTINS[Generator.close]),
}
"""How many arguments a method takes, and what it does."""
OF_ANYTHING: Mapping[Any, tuple[int, Handler]] = {
    object.__reduce__: (1, _refuse),
    object.__reduce_ex__: (2, ITERATION_BUILTINS[Generator.__reduce_ex__]),
    GETSTATE: (1, _nothing),
}


def _of(kind: type, own: tuple[int, Handler], method: Any) -> Handler:
    """What calls the method of a class, where the generator stands for one of its objects."""
    other = {**ITERATION_BUILTINS, **STATE_BUILTINS}.get(method)
    count, handler = own

    def called(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        fits = len(args) == count and not kwargs and type(args[0]) is Generator
        if fits and issubclass(args[0].python_type, kind):
            return handler(machine, args, kwargs)
        if other is None:
            return machine.native(method, args, kwargs)
        return other(machine, args, kwargs)

    return called


ITERATOR_METHODS: dict[Any, Handler] = {
    **{
        method: _of(kind, OWN[name], method)
        for kind in (GeneratorType, *(row.cls for row in STAND_INS.values()))
        for name, method in vars(kind).items()
        if name in OWN
    },
    **{method: _of(object, own, method) for method, own in OF_ANYTHING.items()},
}
