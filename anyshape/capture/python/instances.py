"""Calling classes, and the class statement.

`type.__call__` is `__new__` and then `__init__`: C ones are called natively, Python ones are
interpreted. A class statement is an interpreted polyfill (`class_polyfills.build_class`) around the
frame of its body.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from types import FunctionType
from typing import Any
from weakref import ReferenceType

from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.quiet_classes import flags_of
from anyshape.capture.heap.values import ABSENT, Call
from anyshape.capture.interpreter import (
    attributes,
    class_polyfills,
    intrinsic_names,
    iteration_polyfills,
    protocol,
)
from anyshape.capture.interpreter.continuations import Become
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.python import jsons
from anyshape.capture.python.builtins import TYPE_HANDLERS

_STORING = (list, tuple, deque)
_ITERATING = (*_STORING, set, frozenset)
_type_call = type.__call__
_object_new = object.__new__


def instantiate(
    machine: Interpreter, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`cls(*args, **kwargs)`."""
    if type(cls) is not type and machine.recording:
        machine.domain.inherits(cls)
    handler = TYPE_HANDLERS.get(cls)
    if handler is not None:
        return handler(machine, args, kwargs)
    meta = type(cls)
    if meta is not type:
        meta_call = machine.lookup(meta, "__call__")
        if meta_call is not _type_call:
            if type(meta_call) is FunctionType:
                return Call(meta_call, (cls, *args), kwargs)
            return Call(class_polyfills.construct_by_metaclass, (cls, args, kwargs))
        if issubclass(cls, type):
            return machine.native(cls, args, kwargs)
    made = jsons.made_by_copy(machine, cls, args, kwargs)
    if made is not NotImplemented:
        return made
    answer = machine.domain.instantiate(cls, args, kwargs)
    if answer is not NotImplemented:
        return answer
    return construct(machine, cls, args, kwargs)


def construct(machine: Interpreter, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`type.__call__(cls, *args, **kwargs)`."""
    if machine.recording and type(cls) is not type:
        attributes.rely_on_being_abstract(machine, cls)
    new = _new_of(machine, cls)
    init = machine.lookup(cls, "__init__")
    if type(new) is FunctionType:
        return Call(class_polyfills.construct, (cls, new, args, kwargs))
    if type(init) is not FunctionType:
        if issubclass(cls, OrderedDict) and attributes.is_python(machine, cls, "__setitem__"):
            return Call(class_polyfills.construct, (cls, new, args, kwargs))
        return _native_instance(machine, cls, args, kwargs)
    if new is _object_new:
        try:
            obj = _object_new(cls)  # it ignores the arguments where __init__ is overridden
        except TypeError:  # abstract, or a C base makes its instances in a way of its own
            return _native_instance(machine, cls, args, kwargs)
    else:
        weak = issubclass(cls, ReferenceType)  # the domain knows when it ends
        obj = machine.native(new, (cls, *args), kwargs) if weak else new(cls, *args, **kwargs)
        if not issubclass(type(obj), cls):
            return obj
    if machine.recording:
        machine.heap.create(obj)
    frame = machine.call(init, (obj, *args), kwargs)
    if type(frame) is not Frame:
        return obj
    frame.continuation = Become(obj, strict=True)
    return frame


def _new_of(machine: Interpreter, cls: Any) -> Any:
    new = machine.lookup(cls, "__new__")
    return new.__func__ if issubclass(type(new), staticmethod) else new


def _native_instance(
    machine: Interpreter, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    stores = issubclass(cls, _STORING)
    needs = protocol.needs_interpretation if stores else protocol.must_be_taken_first
    if args and issubclass(cls, _ITERATING) and needs(machine, args[0]):
        return Call(iteration_polyfills.make_from_list, (cls, *args), kwargs)
    obj = machine.native(cls, args, kwargs)
    if machine.recording and issubclass(type(obj), cls) and flags_of(cls) & HEAP_TYPE:
        machine.heap.create(obj)
    return obj


def type_call(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`type.__call__` called by name, as metaclasses do through `super().__call__(...)`: C's call
    of such a class would ask the metaclass again."""
    cls, *given = args
    rest = tuple(given)
    if cls is type:
        return machine.native(cls, rest, kwargs)
    if machine.lookup(type(cls), "__call__") is _type_call:
        return construct(machine, cls, rest, kwargs)
    return Call(class_polyfills.construct, (cls, _new_of(machine, cls), rest, kwargs))


def build_class(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`__build_class__(body, name, *bases, metaclass=..., **keywords)`."""
    body, name, *bases = args
    keywords = dict(kwargs)
    metaclass = keywords.pop("metaclass", ABSENT)
    return Call(class_polyfills.build_class, (body, name, tuple(bases), metaclass, keywords))


def run_class_body(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The frame of a class body, whose names are those of `namespace`."""
    body, namespace = args
    frame = machine.frame_of(body, (), {})
    frame.names = namespace
    return frame


INSTANCE_HANDLERS = {
    type.__call__: type_call,
    intrinsic_names.run_class_body: run_class_body,
    __builtins__["__build_class__"]
    if isinstance(__builtins__, dict)
    else __builtins__.__build_class__: build_class,
}
