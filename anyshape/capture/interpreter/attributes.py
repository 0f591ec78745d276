"""Attributes and special methods, as CPython's `tp_getattro`, `tp_setattro` and `_PyType_Lookup`
have them.

Each function takes the machine and raw objects and gives a value, a `Call` or a `Frame` that nobody
has entered. A C descriptor is asked natively, a Python one is called in interpreted code.
Operators, items and iteration are in protocol.py.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from types import (
    CellType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from anyshape.capture.heap import answers, class_attributes, descriptions
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE, IMMUTABLE_TYPE
from anyshape.capture.heap.deaths import PROXY_KINDS, Hook, target_of
from anyshape.capture.heap.hidden_dicts import hidden_dict, lazy_dict, shown_dict
from anyshape.capture.heap.mirrors import mapping_behind
from anyshape.capture.heap.quiet_classes import (
    C_FUNCTIONS,
    bare_name,
    class_module,
    flags_of,
    is_slot_of_c,
    mro_of,
    namespace_of,
)
from anyshape.capture.heap.values import NULL, PROXIES, REFUSAL_CODE, Call
from anyshape.capture.interpreter import class_polyfills, polyfills
from anyshape.capture.interpreter.continuations import say_of_what
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame_views import FrameView
from anyshape.capture.interpreter.generators import Generator

METHOD_DESCRIPTOR = type(list.append)
WRAPPER_DESCRIPTOR = type(object.__init__)
CLASS_METHOD_DESCRIPTOR = type(vars(dict)["fromkeys"])
INSTANCE_METHOD = "instancemethod"  # the class of pybind11's methods, which Python has no name for
_DATA_DESCRIPTORS = frozenset({property, MemberDescriptorType, GetSetDescriptorType})
_METHOD_DOC = vars(MethodType)["__doc__"]
_GENERIC = frozenset({OrderedDict, SimpleNamespace})
"""Classes of C that name the generic access once more."""
_FORWARDING = frozenset({GenericAlias, MethodType})
# C types with an attribute access of their own.
_FOREIGN = (type(threading.local()), *PROXY_KINDS)

_object_getattribute = object.__getattribute__
_type_getattribute = type.__getattribute__
_module_getattribute = ModuleType.__getattribute__
_super_getattribute = super.__getattribute__
_object_setattr = object.__setattr__
_object_delattr = object.__delattr__


# ---- attributes ----------------------------------------------------------------------------------
def load_attr(machine: Interpreter, obj: Any, name: str) -> Any:
    """`obj.name`."""
    cls = type(obj)
    if cls is Generator:
        return obj.read(name)
    if cls is FrameView:
        return obj.read(machine, name)
    if obj is None:  # a descriptor cannot tell None from no object
        return getattr(obj, name)
    try:
        return _found(machine, obj, cls, name)
    except AttributeError as error:
        say_of_what(error, obj, name)
        raise


def _found(machine: Interpreter, obj: Any, cls: type, name: str) -> Any:
    """By what the class has for `__getattribute__`."""
    if cls in PROXIES:
        return machine.domain.getattr(obj, name)
    getattribute = machine.lookup(cls, "__getattribute__")
    if getattribute is _object_getattribute or _is_generic(machine, cls):
        hook = machine.lookup(cls, "__getattr__")
        if hook is not NULL:
            return _getattr_with_hook(machine, obj, cls, name, hook)
        return generic_getattr(machine, obj, cls, name)
    if not _is_slot(getattribute, "__getattribute__"):
        known = answers.recalled(machine.heap, obj, name) if machine.recording else NULL
        return Call(polyfills.custom_getattr, (obj, name)) if known is NULL else known
    if issubclass(cls, type):  # pybind11's metaclass has one of its own
        return _class_getattr(machine, obj, cls, name)
    if getattribute is _module_getattribute:
        return _module_getattr(machine, obj, cls, name)
    if getattribute is _super_getattribute:
        return super_getattr(machine, obj, name)
    if not flags_of(cls) & HEAP_TYPE or cls in _FORWARDING or _is_foreign(cls):
        return _native_getattr(machine, obj, name)
    hook = machine.lookup(cls, "__getattr__")
    if hook is not NULL:
        return _getattr_with_hook(machine, obj, cls, name, hook)
    return _generic_or_native(machine, obj, cls, name)


def _generic_or_native(machine: Interpreter, obj: Any, cls: type, name: str) -> Any:
    try:
        return generic_getattr(machine, obj, cls, name)
    except AttributeError:  # C's own access may know more names, and is no cause of what it raises
        if name in (instance_dict(obj) or ()):  # deleted by the segment
            raise
    return _native_getattr(machine, obj, name)


def _native_getattr(machine: Interpreter, obj: Any, name: str) -> Any:
    if type(obj) in PROXY_KINDS and _is_made(machine, obj):
        return load_attr(machine, target_of(obj), name)
    if issubclass(type(obj), MethodType) and _is_of_function(machine, type(obj), name):
        return load_attr(machine, obj.__func__, name)
    if type(obj) is GenericAlias or issubclass(type(obj), MethodType):
        try:
            return getattr(obj, name)
        except AttributeError as error:  # of a method's class, or of what the alias stands for
            refused = error if type(obj) is GenericAlias else _no_attribute(obj, name)
            return Call(polyfills.raise_it, (refused.with_traceback(None),))
    if type(obj) is CellType and name == "cell_contents" and machine.recording:
        return _cell_contents(machine, obj)
    try:
        value = getattr(obj, name)
    except AttributeError:
        if machine.recording:
            machine.heap.absent(obj, name, "unset" if instance_dict(obj) is None else "missing")
        raise
    except Exception as error:
        if machine.recording:
            machine.heap.refused(obj, name, error)
        raise
    if name == "__class__":
        return value
    if not machine.recording:
        return value
    machine.domain.reads_signals(obj, name, value)
    return machine.heap.attribute(obj, name, value)


def _is_made(machine: Interpreter, obj: Any) -> bool:
    return machine.recording and machine.heap.is_created(obj)


def _is_of_function(machine: Interpreter, kind: type, name: str) -> bool:
    """Whether a bound method asks its function for the attribute."""
    found = machine.lookup(kind, name)
    return found is NULL or found is _METHOD_DOC


def _getattr_with_hook(machine: Interpreter, obj: Any, cls: type, name: str, hook: Any) -> Any:
    try:
        result = generic_getattr(machine, obj, cls, name)
    except AttributeError:
        result = NULL
    if result is NULL:
        return call_bound(machine, hook, obj, (name,), None)
    if type(result) is Call:
        return Call(polyfills.getattr_or_hook, (obj, name, hook))
    return result


def _cell_contents(machine: Interpreter, cell: CellType) -> Any:
    """What the segment has written there, or what lies there."""
    value = machine.heap.cell(cell, "cell_contents")
    if value is NULL:
        raise ValueError("Cell is empty")
    return value


def generic_getattr(machine: Interpreter, obj: Any, cls: type, name: str) -> Any:
    """`object.__getattribute__`: data descriptor, instance dict, then the class attribute."""
    attribute = machine.lookup(cls, name)
    kind = type(attribute)
    if attribute is not NULL and (kind in _DATA_DESCRIPTORS or is_data_descriptor(machine, kind)):
        if machine.lookup(kind, "__get__") is not NULL:
            return descriptor_get(machine, attribute, obj, cls, name)
    namespace = instance_dict(obj)
    if namespace is not None:
        if machine.recording:
            value = machine.heap.instance_attribute(obj, namespace, name)
        else:
            value = namespace.get(name, NULL)
        if value is not NULL:
            return value
    if attribute is NULL:
        raise _no_attribute(obj, name)
    if kind is FunctionType:
        return MethodType(attribute, obj)
    return descriptor_get(machine, attribute, obj, cls, name)


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """The `__dict__` of an instance, past any property of that name; None if it has none."""
    found = lazy_dict(obj)
    return made_dict(obj) if found is NULL else found


def made_dict(obj: Any) -> dict[str, Any] | None:
    """The same, of one that gets it by being asked for it, too."""
    namespace = shown_dict(obj)
    if namespace is None:
        return hidden_dict(obj)
    return namespace if isinstance(namespace, dict) else None


def is_data_descriptor(machine: Interpreter, kind: type) -> bool:
    """Whether instances of `kind` have `__set__` or `__delete__`."""
    return (
        machine.lookup(kind, "__set__") is not NULL
        or machine.lookup(kind, "__delete__") is not NULL
    )


def _is_property(machine: Interpreter, kind: type, slot: str) -> bool:
    """Whether it is a subclass of `property` whose attributes go through the functions that it was
    made of."""
    return issubclass(kind, property) and machine.lookup(kind, slot) is vars(property)[slot]


def descriptor_get(machine: Interpreter, attribute: Any, obj: Any, cls: type, name: str) -> Any:
    """`attribute.__get__(obj, cls)`, or the attribute itself; `obj` NULL means: on the class."""
    kind = type(attribute)
    if kind is FunctionType:
        return attribute if obj is NULL else MethodType(attribute, obj)
    if kind is property or _is_property(machine, kind, "__get__"):
        if obj is NULL:
            return attribute
        if attribute.fget is None:
            return property.__get__(attribute, obj, cls)  # which refuses
        return Call(attribute.fget, (obj,))
    if kind is staticmethod:
        return attribute.__func__
    instance = None if obj is NULL else obj
    if kind is classmethod:
        wrapped = attribute.__func__
        if type(wrapped) is FunctionType:
            return MethodType(wrapped, cls)
        return attribute.__get__(instance, cls)
    getter = machine.lookup(kind, "__get__")
    if getter is NULL:
        return attribute
    if type(getter) is FunctionType:
        return Call(getter, (attribute, instance, cls))
    if kind in C_FUNCTIONS or bare_name(kind) == INSTANCE_METHOD:
        if obj is None:  # which to a descriptor means no object
            return getattr(obj, attribute.__name__)
        return getter(attribute, instance, cls)
    if obj is not NULL and machine.recording:
        _refuse_evaluation(machine, obj, name)
        value = machine.heap.slot(obj, attribute, cls, name)
        if type(value) is Hook:
            return value.callback
        machine.domain.reads_signals(obj, name, value)
        return value
    return getter(attribute, instance, cls)


EVALUATED = frozenset({"__bound__", "__constraints__", "__default__", "__value__"})
"""What parameters of `typing` and aliases made by syntax compute when they are asked for it."""


def _refuse_evaluation(machine: Interpreter, obj: Any, name: str) -> None:
    """C would call code of the program, unseen."""
    if name in EVALUATED and class_module(type(obj)) == "typing" and machine.heap.is_created(obj):
        if any(type(part) is FunctionType for part in gc.get_referents(obj)):
            kind = bare_name(type(obj))
            raise broken("unknown-call", f"{kind}.{name}, computed when it is read,")


def _class_getattr(machine: Interpreter, obj: Any, meta: type, name: str) -> Any:
    """`type.__getattribute__`, then the metaclass's `__getattr__`."""
    refusal = None
    try:
        result = type_getattr(machine, obj, meta, name)
    except AttributeError as error:
        refusal, result = error, NULL
    if result is not NULL and type(result) is not Call:
        return result
    hook = machine.lookup(meta, "__getattr__")
    if refusal is None:
        either = Call(class_polyfills.class_attribute_or_hook, (obj, name, hook))
        return result if hook is NULL else either
    if hook is NULL:
        raise refusal
    return call_bound(machine, hook, obj, (name,), None)


def type_getattr(machine: Interpreter, obj: Any, meta: type, name: str) -> Any:
    """`type.__getattribute__`: metaclass data descriptor, own MRO, metaclass attribute."""
    meta_attribute = machine.lookup(meta, name)
    kind = type(meta_attribute)
    is_data = meta_attribute is not NULL and is_data_descriptor(machine, kind)
    if is_data and machine.lookup(kind, "__get__") is not NULL:
        return _metatype_get(machine, meta_attribute, obj, meta, name)
    attribute = machine.lookup(obj, name)
    if attribute is not NULL:
        return descriptor_get(machine, attribute, NULL, obj, name)
    if meta_attribute is not NULL:
        return descriptor_get(machine, meta_attribute, obj, meta, name)
    raise AttributeError(f"type object {descriptions.class_name(obj)!r} has no attribute {name!r}")


def _metatype_get(machine: Interpreter, attribute: Any, obj: Any, meta: type, name: str) -> Any:
    if type(attribute) not in (GetSetDescriptorType, MemberDescriptorType):
        return descriptor_get(machine, attribute, obj, meta, name)
    if name == "__dict__":
        class_attributes.refuse_written(machine.heap)
        value = attribute.__get__(obj, meta)
        if machine.heap.is_created(obj):
            machine.heap.create(mapping_behind(value))  # made with the class, and shows its writes
            machine.heap.create(value)
        return value
    if not machine.recording or not class_attributes.may_change(obj):
        return attribute.__get__(obj, meta)
    if name == "__annotations__":
        class_attributes.make_annotations(machine.heap, obj)
    class_attributes.refuse_hidden(machine.heap, obj, attribute, name)
    return machine.heap.slot(obj, attribute, meta, name)


def rely_on_names(machine: Interpreter, value: Any) -> None:
    """C code will show a class or a function by its names."""
    for base, names in _SHOWN_BY.items():
        if issubclass(type(value), base):
            for name in names:
                _metatype_get(machine, namespace_of(base)[name], value, type(value), name)


def rely_on_being_abstract(machine: Interpreter, cls: type) -> None:
    """C code makes no instance of a class with abstract methods left."""
    try:
        _metatype_get(machine, _ABSTRACT, cls, type(cls), "__abstractmethods__")
    except AttributeError:
        return


_ABSTRACT = vars(type)["__abstractmethods__"]
_SHOWN_BY = {type: ("__module__", "__qualname__"), FunctionType: ("__qualname__",)}


def _module_getattr(machine: Interpreter, obj: Any, cls: type, name: str) -> Any:
    try:
        return generic_getattr(machine, obj, cls, name)
    except AttributeError:
        pass
    hook = machine.lookup(cls, "__getattr__")
    if hook is not NULL:
        return call_bound(machine, hook, obj, (name,), None)
    own = vars(obj).get("__getattr__")
    if own is not None:
        return Call(own, (name,))
    raise AttributeError(_text_of_absence(obj, name), name=name, obj=obj)


def _text_of_absence(module: ModuleType, name: str) -> str:
    """C's own: of a module without a name, or in the middle of its import, it says so."""
    try:
        _module_getattribute(module, name)
    except AttributeError as error:
        return str(error)
    return f"module {module.__name__!r} has no attribute {name!r}"  # the segment has deleted it


def super_getattr(machine: Interpreter, obj: Any, name: str) -> Any:
    """An attribute of a `super()` object."""
    if name == "__class__" or obj.__self_class__ is None:
        return getattr(obj, name)
    return super_lookup(machine, obj.__thisclass__, obj.__self__, obj.__self_class__, name, obj)


def super_lookup(
    machine: Interpreter, this: type, receiver: Any, start: type, name: str, obj: Any
) -> Any:
    """`super(this, receiver).name`: along the MRO of `start` after `this`."""
    machine.domain.inherits(start)
    mro = mro_of(start)
    position = next((i for i, base in enumerate(mro, 1) if base is this), len(mro))
    for base in mro[position:]:
        namespace = namespace_of(base)
        attribute = class_attributes.written(machine.heap, base, name)
        if attribute is not class_attributes.NOT_WRITTEN:
            if attribute is NULL:
                continue
            return descriptor_get(
                machine, attribute, NULL if receiver is start else receiver, start, name
            )
        if name in namespace:
            attribute = namespace[name]
            if machine.recording:
                attribute = machine.heap.class_attribute(base, name, attribute)
            return descriptor_get(
                machine, attribute, NULL if receiver is start else receiver, start, name
            )
    if obj is None:
        obj = super(this, receiver)
    return getattr(obj, name)


def _no_attribute(obj: Any, name: str) -> AttributeError:
    if not flags_of(type(obj)) & HEAP_TYPE or flags_of(type(obj)) & IMMUTABLE_TYPE:
        try:  # C's own text, which names classes of C with their modules
            object.__getattribute__(obj, name)
        except AttributeError as error:
            return error.with_traceback(None)
    return AttributeError(descriptions.text_of_absence(obj, name), name=name, obj=obj)


def load_method(machine: Interpreter, obj: Any, name: str) -> Any:
    """`obj.name` about to be called: a plain Python function as `(function, obj)` in a tuple of
    two, else as `load_attr`.
    """
    cls = type(obj)
    if cls is Generator:
        obj.check_attribute(name)
    if cls not in PROXIES and machine.lookup(cls, "__getattribute__") is _object_getattribute:
        attribute = machine.lookup(cls, name)
        if type(attribute) is FunctionType:
            namespace = instance_dict(obj)
            if namespace is None or not _holds(machine, obj, namespace, name):
                return _Bound(attribute)
        if cls not in (Generator, FrameView) and obj is not None and is_silent(machine, obj, name):
            return generic_getattr(machine, obj, cls, name)
    return load_attr(machine, obj, name)


def is_silent(machine: Interpreter, obj: Any, name: str) -> bool:
    """Whether `_PyObject_GetMethod` alone looks for it: a descriptor's error stays as it is."""
    cls = type(obj)
    return (
        cls not in PROXIES
        and machine.lookup(cls, "__getattribute__") is _object_getattribute
        and machine.lookup(cls, "__getattr__") is NULL
        and machine.lookup(cls, name) is not NULL
    )


def _holds(machine: Interpreter, obj: Any, namespace: dict[str, Any], name: str) -> bool:
    """Whether an instance has an attribute of its own."""
    if machine.recording:
        return machine.heap.instance_attribute(obj, namespace, name) is not NULL
    return name in namespace


class _Bound:
    """Marks a plain function found in the class by `load_method`."""

    __slots__ = ("function",)

    def __init__(self, function: Any) -> None:
        self.function = function


BOUND = _Bound


def store_attr(machine: Interpreter, obj: Any, name: str, value: Any) -> Any:
    """`obj.name = value`; the result is to be thrown away."""
    cls = type(obj)
    if cls in PROXIES:
        return machine.domain.setattr(obj, name, value)
    if cls is Generator:
        return obj.set_attribute(name, value)
    setter = machine.lookup(cls, "__setattr__")
    if not _is_slot(setter, "__setattr__"):
        return call_bound(machine, setter, obj, (name, value), None)
    if setter is _object_setattr or cls in _GENERIC or _is_generic_setter(cls):
        return generic_setattr(machine, obj, name, value)
    if cls in PROXY_KINDS and _is_made(machine, obj):
        return store_attr(machine, target_of(obj), name, value)
    return machine.heap.native_setattr(obj, name, value)


def _is_slot(attribute: Any, name: str) -> bool:
    """Whether C code of this name does it, and neither Python's nor C's of another name."""
    return type(attribute) is WRAPPER_DESCRIPTOR and attribute.__name__ == name


def _is_generic(machine: Interpreter, cls: type) -> bool:
    """Whether C names the generic access once more: for exceptions of its own since 3.13 the
    reading alone, which must meet what the generic writing has left."""
    if cls in _GENERIC:
        return True
    of_c = issubclass(cls, BaseException) and not flags_of(cls) & HEAP_TYPE
    return of_c and machine.lookup(cls, "__setattr__") is _object_setattr


def _is_foreign(cls: type) -> bool:
    return issubclass(cls, _FOREIGN)


def _is_generic_setter(cls: type) -> bool:
    return bool(flags_of(cls) & HEAP_TYPE) and not issubclass(cls, (type, *_FOREIGN))


def generic_setattr(machine: Interpreter, obj: Any, name: str, value: Any) -> Any:
    """`object.__setattr__` (and, with `value` NULL, `object.__delattr__`)."""
    cls = type(obj)
    if issubclass(type(obj), type):
        return machine.heap.native_setattr(obj, name, value)
    attribute = machine.lookup(cls, name)
    kind = type(attribute)
    if attribute is not NULL and kind is not FunctionType:
        method = "__delete__" if value is NULL else "__set__"
        if kind is property or _is_property(machine, kind, "__set__"):
            accessor = attribute.fdel if value is NULL else attribute.fset
            if accessor is None:  # it refuses
                return _refuse_write(attribute, obj, value)
            return Call(accessor, (obj,) if value is NULL else (obj, value))
        slot = machine.lookup(kind, method)
        if type(slot) is FunctionType:
            return Call(slot, (attribute, obj) if value is NULL else (attribute, obj, value))
        if slot is not NULL:
            return machine.heap.set_slot(obj, attribute, name, value)
        if is_data_descriptor(machine, kind):
            raise AttributeError(method)
    return _set_in_dict(machine, obj, name, value, attribute)


def _refuse_write(attribute: property, obj: Any, value: Any) -> None:
    if value is NULL:
        property.__delete__(attribute, obj)
    else:
        property.__set__(attribute, obj, value)


def _set_in_dict(machine: Interpreter, obj: Any, name: str, value: Any, attribute: Any) -> Any:
    namespace = made_dict(obj)
    if namespace is None or (machine.recording is False and not issubclass(type(obj), ModuleType)):
        # The C function itself: its key sharing and its error texts.
        if value is NULL:
            return _object_delattr(obj, name)
        return _object_setattr(obj, name, value)
    return machine.heap.set_instance_attribute(obj, namespace, name, value)


def delete_attr(machine: Interpreter, obj: Any, name: str) -> Any:
    """`del obj.name`."""
    cls = type(obj)
    if cls in PROXIES:
        return machine.domain.delattr(obj, name)
    if cls is Generator:
        return obj.set_attribute(name, NULL)
    deleter = machine.lookup(cls, "__delattr__")
    if not _is_slot(deleter, "__delattr__"):
        return call_bound(machine, deleter, obj, (name,), None)
    if deleter is _object_delattr or cls in _GENERIC or _is_generic_setter(cls):
        return generic_setattr(machine, obj, name, NULL)
    if cls in PROXY_KINDS and _is_made(machine, obj):
        return delete_attr(machine, target_of(obj), name)
    return machine.heap.native_setattr(obj, name, NULL)


# ---- special methods -----------------------------------------------------------------------------
def call_bound(
    machine: Interpreter,
    attribute: Any,
    obj: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
) -> Call:
    """Call a raw class attribute as a method of `obj`."""
    kind = type(attribute)
    if kind is FunctionType or kind is METHOD_DESCRIPTOR or kind is WRAPPER_DESCRIPTOR:
        return Call(attribute, (obj, *args), kwargs)
    bound = descriptor_get(machine, attribute, obj, type(obj), "")
    if type(bound) is Call:
        return Call(polyfills.call_result, (bound.fn, bound.args, args, kwargs or {}))
    return Call(bound, args, kwargs)


def is_python(machine: Interpreter, cls: type, name: str) -> bool:
    """Whether special method `name` of `cls` is Python code (or whatever is no C slot). What a
    proxy refuses with is not: the C function that is called instead meets it."""
    attribute = machine.lookup(cls, name)
    if attribute is NULL or attribute is None or is_slot_of_c(cls, name, attribute):
        return False
    return type(attribute) is not FunctionType or attribute.__code__ is not REFUSAL_CODE


def special(machine: Interpreter, obj: Any, name: str, *args: Any) -> Call | None:
    """A call of special method `name`, or None where the class has none (or sets it to None)."""
    attribute = machine.lookup(type(obj), name)
    if attribute is NULL or attribute is None:
        return None
    return call_bound(machine, attribute, obj, args, None)
