"""Builtins of C that read all attributes of an object: what `copy` and `pickle` ask of it, and the
list of its names (see builtins.py).
"""

from __future__ import annotations

import copyreg
from collections import OrderedDict, deque
from collections.abc import Callable
from types import WrapperDescriptorType
from typing import Any

from anyshape.capture.heap import class_attributes
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.quiet_classes import (
    bare_name,
    flags_of,
    is_slot_of_c,
    mro_of,
    namespace_of,
)
from anyshape.capture.heap.values import PROXIES, Call
from anyshape.capture.interpreter import attributes, class_polyfills
from anyshape.capture.interpreter.domain import Interpreter

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Interpreter", Args, Kwargs], Any]


def _reduce_ex(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """What `copy` and `pickle` ask of an object: code of the program says what it holds."""
    if machine.recording and len(args) == 2 and not kwargs and type(args[1]) is int:
        obj, protocol = args
        asked = attributes.is_python(machine, type(obj), "__getattribute__")
        if _is_reduced(machine, type(obj)) and (protocol >= 2 or not asked):
            if protocol < 2 and machine.lookup(type(obj), "__reduce__") is object.__reduce__:
                return Call(COPYREG["_reduce_ex"], args)
            slots = _slot_names(machine, type(obj))
            return Call(class_polyfills.reduce_object, (obj, slots, asked))
    if args:
        refuse_state(machine, args[0])
    return machine.native(object.__reduce_ex__, args, kwargs)


def _slot_names(machine: Interpreter, kind: type) -> Any:
    """The slots that `copy` and `pickle` ask for, in a list that the class keeps once it was asked;
    the interpreted code that reads it relies on what is in it."""
    names = COPYREG["_slotnames"](kind)
    kept = namespace_of(kind).get("__slotnames__") is names and type(names) is list
    return machine.lookup(kind, "__slotnames__") if kept else tuple(names)


def _reduced_by(method: Any) -> Handler:
    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if args:
            refuse_state(machine, args[0])
        return machine.native(method, args, kwargs)

    return handler


def _reduce(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`object.__reduce__`, which asks `copyreg` as protocol 0 does."""
    if machine.recording and len(args) == 1 and not kwargs and _is_reduced(machine, type(args[0])):
        return Call(COPYREG["_reduce_ex"], (args[0], 0))
    if args:
        refuse_state(machine, args[0])
    return machine.native(object.__reduce__, args, kwargs)


REDUCERS = [vars(cls)["__reduce__"] for cls in (set, frozenset, deque, OrderedDict, bytearray)]


def refuse_state(machine: Interpreter, obj: Any) -> None:
    """C reads all attributes of the object: from outside, these are neither relied on nor what the
    segment has set them to."""
    if machine.recording and flags_of(type(obj)) & HEAP_TYPE:
        if type(obj) not in PROXIES and not machine.heap.is_created(obj):
            raise broken("unknown-call", f"the state of a {bare_name(type(obj))}")


def _getstate(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if machine.recording and len(args) == 1 and not kwargs and _is_reduced(machine, type(args[0])):
        slots = _slot_names(machine, type(args[0]))
        return Call(class_polyfills.state_of, (args[0], slots))
    if args:
        refuse_state(machine, args[0])
    return machine.native(GETSTATE, args, kwargs)


GETSTATE = getattr(object, "__getstate__", None)  # since 3.11
COPYREG = vars(copyreg)
REDUCED = (object, list, dict, tuple, int, float, str, bytes, complex)
"""Classes of C that keep nothing which is not asked for by a special method."""


def _is_reduced(machine: Interpreter, kind: type) -> bool:
    """Whether all that the object has is in its attributes, or in a base that tells it."""
    if not flags_of(kind) & HEAP_TYPE or issubclass(kind, type):
        return False
    bases = [b for b in mro_of(kind) if not flags_of(b) & HEAP_TYPE]
    own = isinstance(machine.lookup(kind, "__dict__"), property)
    return not own and all(any(b is base for base in REDUCED) for b in bases)


def _object_dir(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or kwargs or not machine.recording:
        return machine.native(object.__dir__, args, kwargs)
    if lists_plainly(machine, args[0]):
        return Call(class_polyfills.names_in_object, args)
    class_attributes.refuse_written(machine.heap)
    refuse_state(machine, args[0])
    class_attributes.rely_on_all_names(machine.heap, type(args[0]))
    return machine.native(object.__dir__, args, kwargs)


def _type_dir(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if machine.recording and len(args) == 1 and issubclass(type(args[0]), type):
        class_attributes.refuse_written(machine.heap)
        class_attributes.rely_on_all_names(machine.heap, args[0])
    return machine.native(type.__dir__, args, kwargs)


def lists_plainly(machine: Interpreter, obj: Any) -> bool:
    """Whether its class, and what it holds, are where `object.__dir__` looks for them."""
    kind = type(obj)
    if kind in PROXIES or not flags_of(kind) & HEAP_TYPE or issubclass(kind, type):
        return False
    if attributes.is_python(machine, type(kind), "__getattribute__"):
        return False  # C asks the class, and the metaclass hears it
    found = machine.lookup(kind, "__getattribute__")
    looks = type(found) is WrapperDescriptorType and is_slot_of_c(kind, "__getattribute__", found)
    namespace = machine.lookup(kind, "__dict__")
    return (
        looks
        and machine.lookup(kind, "__class__") is _CLASS_OF
        and not isinstance(namespace, property)
    )


_CLASS_OF = vars(object)["__class__"]

STATE_BUILTINS: dict[Any, Handler] = {
    object.__reduce_ex__: _reduce_ex,
    object.__reduce__: _reduce,
    **{method: _reduced_by(method) for method in REDUCERS},
    GETSTATE: _getstate,
    object.__dir__: _object_dir,
    type.__dir__: _type_dir,
}
