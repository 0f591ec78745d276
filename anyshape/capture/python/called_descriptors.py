"""Methods of descriptors that a program calls by name: `C.slot.__get__(obj)`, `property.__set__`,
`classmethod.__get__`, and `module.__getattribute__` (see builtins.py).

What C code keeps in an object is read and written as its attribute, where the class of the object
has this very descriptor by that name; another is left to CPython.
"""

from __future__ import annotations

from collections.abc import Callable
from types import (
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from anyshape.capture.heap.quiet_classes import class_entry, mro_of, namespace_of
from anyshape.capture.heap.values import NULL, PROXIES, Call
from anyshape.capture.interpreter import attributes, polyfills
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.python.builtin_objects import type_of

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Interpreter", Args, Kwargs], Any]

IN_C = (GetSetDescriptorType, MemberDescriptorType)
"""Descriptors of what C code keeps in an object."""
BINDING = (
    *(property, classmethod, staticmethod),
    *(MethodDescriptorType, ClassMethodDescriptorType, WrapperDescriptorType),
)
"""Descriptors whose `__get__` reads nothing of the object but its class."""
FUNCTIONS = {property: "fget", classmethod: "__func__", staticmethod: "__func__"}
"""Where each of these has the function that its `__get__` gives or calls."""
METHODS = {"__get__": (2, 3), "__set__": (3,), "__delete__": (2,)}
"""How many arguments each takes, the descriptor included."""


def _is_plain(kind: type, method: str, args: Args, kwargs: Kwargs) -> bool:
    """Whether these are arguments that `kind.method` takes, a descriptor of that class first."""
    return not kwargs and len(args) in METHODS[method] and type(args[0]) is kind


def _is_attribute(machine: Interpreter, descriptor: Any, obj: Any) -> bool:
    """Whether reading or writing the attribute of that name asks this descriptor."""
    return machine.lookup(type_of(machine, obj), descriptor.__name__) is descriptor


def _get(kind: type) -> Handler:
    native = namespace_of(kind)["__get__"]

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if not _is_plain(kind, "__get__", args, kwargs):
            return machine.native(native, args, kwargs)
        descriptor, obj, cls = (*args, None)[:3]
        if (
            type(obj) is Generator
            and class_entry(obj.python_type, descriptor.__name__) is descriptor
        ):
            return obj.read(descriptor.__name__)
        if obj is None or kind not in IN_C:
            return _bound(machine, native, args)
        if _is_attribute(machine, descriptor, obj):
            return _read(machine, obj, descriptor.__name__)
        if descriptor.__objclass__ not in mro_of(type_of(machine, obj)):
            return native(*args)  # which refuses
        return machine.native(native, args, {})

    return handler


def _bound(machine: Interpreter, native: Any, args: Args) -> Any:
    """By a descriptor that reads nothing of the object, or on a class."""
    descriptor, obj, cls = (*args, None)[:3]
    if type(obj) in PROXIES or (obj is None and not issubclass(type(cls), type)):
        return machine.native(native, args, {})
    if type(descriptor) in FUNCTIONS:
        _function_of(machine, descriptor, FUNCTIONS[type(descriptor)])
    if obj is not None:
        return attributes.descriptor_get(machine, descriptor, obj, cls or type(obj), "")
    return attributes.descriptor_get(machine, descriptor, NULL, cls, "")


def _function_of(machine: Interpreter, descriptor: Any, name: str) -> Any:
    """What the descriptor calls: another one in each call may call another."""
    value = getattr(descriptor, name)
    return machine.heap.attribute(descriptor, name, value) if machine.recording else value


def _read(machine: Interpreter, obj: Any, name: str) -> Any:
    if type(obj) in PROXIES:
        return machine.domain.getattr(obj, name)
    if issubclass(type(obj), type):
        return attributes.type_getattr(machine, obj, type(obj), name)
    return attributes.generic_getattr(machine, obj, type(obj), name)


def _write(kind: type, method: str) -> Handler:
    """`__set__` or `__delete__`."""
    native = namespace_of(kind)[method]

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        plain = _is_plain(kind, method, args, kwargs)
        if not plain or type(args[1]) in PROXIES or issubclass(type(args[1]), type):
            return machine.native(native, args, kwargs)
        descriptor, obj, value = (*args, NULL)[:3]
        if kind is property:
            accessor = _function_of(machine, descriptor, "fdel" if value is NULL else "fset")
            if accessor is None:
                return machine.native(native, args, kwargs)
            return Call(polyfills.none_after, (accessor, args[1:]))
        if not _is_attribute(machine, descriptor, obj):
            return machine.native(native, args, kwargs)
        return attributes.generic_setattr(machine, obj, descriptor.__name__, value)

    return handler


def _module_attribute(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`module.__getattribute__(name)`."""
    plain = not kwargs and len(args) == 2 and type(args[0]) is ModuleType and type(args[1]) is str
    if not plain:
        return machine.native(ModuleType.__getattribute__, args, kwargs)
    try:
        return attributes.load_attr(machine, *args)
    except AttributeError as error:  # the method's own does not say of which attribute
        raise AttributeError(*error.args) from None


DESCRIPTOR_BUILTINS: dict[Any, Handler] = {
    **{namespace_of(kind)["__get__"]: _get(kind) for kind in (*IN_C, *BINDING)},
    **{
        namespace_of(kind)[method]: _write(kind, method)
        for kind in (*IN_C, property)
        for method in ("__set__", "__delete__")
    },
    ModuleType.__getattribute__: _module_attribute,
}
