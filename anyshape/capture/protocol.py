"""The object protocol, CPython slot by slot: attributes, operators, comparison, items, iteration, truth, length, formatting.

Each function takes the machine and raw objects and gives a value, a `Call` or a `Frame` that nobody has entered. Proxies go to the domain,
types with only C slots to the C function itself (so that results and error texts are CPython's own), and Python-defined slots to
interpreted code: directly where one call is all, else by a polyfill.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any

from anyshape.capture import polyfills
from anyshape.capture.generators import Generator
from anyshape.capture.values import NULL, PROXIES, Call
from anyshape.capture.views import FrameView

if TYPE_CHECKING:
    from anyshape.capture.machine import Machine

_HEAP_TYPE = 1 << 9
METHOD_DESCRIPTOR = type(list.append)
WRAPPER_DESCRIPTOR = type(object.__init__)
CLASS_METHOD_DESCRIPTOR = type(vars(dict)["fromkeys"])
_C_FUNCTIONS = frozenset(
    {METHOD_DESCRIPTOR, WRAPPER_DESCRIPTOR, BuiltinFunctionType, CLASS_METHOD_DESCRIPTOR}
)
_DATA_DESCRIPTORS = frozenset({property, MemberDescriptorType, GetSetDescriptorType})
# Exact types whose operators and protocols are C all through and hold no Python code of the user.
PLAIN = frozenset(
    {
        int,
        float,
        bool,
        complex,
        str,
        bytes,
        bytearray,
        type(None),
        type(NotImplemented),
        type(...),
        range,
        slice,
    }
)
CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
_FORWARDING = frozenset({GenericAlias, MethodType})
# Our own objects that programs hold, and C types with an attribute access of their own.
_OWN = frozenset({Generator, FrameView})
_FOREIGN = (type(threading.local()), weakref.ProxyType, weakref.CallableProxyType)

_object_getattribute = object.__getattribute__
_type_getattribute = type.__getattribute__
_module_getattribute = ModuleType.__getattribute__
_super_getattribute = super.__getattribute__
_object_setattr = object.__setattr__
_object_delattr = object.__delattr__


# ---- attributes ---------------------------------------------------------------------------------------------------------------
def load_attr(machine: Machine, obj: Any, name: str) -> Any:
    """`obj.name`."""
    cls = type(obj)
    if cls in PROXIES:
        return machine.domain.getattr(obj, name)
    if obj is None or cls in _OWN:  # a descriptor cannot tell None from no object
        return getattr(obj, name)
    getattribute = machine.lookup(cls, "__getattribute__")
    if getattribute is _object_getattribute:
        hook = machine.lookup(cls, "__getattr__")
        if hook is NULL:
            return generic_getattr(machine, obj, cls, name)
        return _getattr_with_hook(machine, obj, cls, name, hook)
    if type(getattribute) is FunctionType:
        return Call(polyfills.custom_getattr, (obj, name))
    if getattribute is _type_getattribute:
        return type_getattr(machine, obj, cls, name)
    if getattribute is _module_getattribute:
        return _module_getattr(machine, obj, cls, name)
    if getattribute is _super_getattribute:
        return super_getattr(machine, obj, name)
    if not cls.__flags__ & _HEAP_TYPE or cls in _FORWARDING or _is_foreign(cls):
        return _native_getattr(machine, obj, name)
    hook = machine.lookup(cls, "__getattr__")
    if type(hook) is FunctionType:
        return _getattr_with_hook(machine, obj, cls, name, hook)
    return generic_getattr(machine, obj, cls, name)


def _native_getattr(machine: Machine, obj: Any, name: str) -> Any:
    if type(obj) is GenericAlias or isinstance(obj, MethodType):
        value = getattr(obj, name, NULL)
        if value is NULL:
            return Call(polyfills.raise_it, (_no_attribute(obj, name),))
        return value
    value = getattr(obj, name)
    if name == "__class__":
        return value
    return machine.heap.attribute(obj, name, value) if machine.recording else value


def _getattr_with_hook(machine: Machine, obj: Any, cls: type, name: str, hook: Any) -> Any:
    try:
        result = generic_getattr(machine, obj, cls, name)
    except AttributeError:
        result = NULL
    if result is NULL:
        return call_bound(machine, hook, obj, (name,), None)
    if type(result) is Call:
        return Call(polyfills.getattr_or_hook, (obj, name, hook))
    return result


def generic_getattr(machine: Machine, obj: Any, cls: type, name: str) -> Any:
    """`object.__getattribute__`: data descriptor, instance dict, other descriptor, class attribute."""
    attribute = machine.lookup(cls, name)
    kind = type(attribute)
    if attribute is not NULL and (kind in _DATA_DESCRIPTORS or is_data_descriptor(machine, kind)):
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
    try:
        namespace = _object_getattribute(obj, "__dict__")
    except AttributeError:
        return None
    return namespace if isinstance(namespace, dict) else None


def is_data_descriptor(machine: Machine, kind: type) -> bool:
    """Whether instances of `kind` have `__set__` or `__delete__`."""
    return (
        machine.lookup(kind, "__set__") is not NULL
        or machine.lookup(kind, "__delete__") is not NULL
    )


def descriptor_get(machine: Machine, attribute: Any, obj: Any, cls: type, name: str) -> Any:
    """`attribute.__get__(obj, cls)`, or the attribute itself; `obj` NULL means: on the class."""
    kind = type(attribute)
    if kind is FunctionType:
        return attribute if obj is NULL else MethodType(attribute, obj)
    if kind is property:
        if obj is NULL:
            return attribute
        if attribute.fget is None:
            raise AttributeError(f"property {name!r} of {cls.__qualname__!r} object has no getter")
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
    if kind in _C_FUNCTIONS:
        return attribute.__get__(instance, cls)
    if obj is not NULL and machine.recording:
        return machine.heap.slot(obj, attribute, cls, name)
    return getter(attribute, instance, cls)


def type_getattr(machine: Machine, obj: Any, meta: type, name: str) -> Any:
    """`type.__getattribute__`: metaclass data descriptor, own MRO, metaclass attribute, the metaclass's `__getattr__`."""
    meta_attribute = machine.lookup(meta, name)
    if meta_attribute is not NULL and is_data_descriptor(machine, type(meta_attribute)):
        return _metatype_get(machine, meta_attribute, obj, meta, name)
    attribute = machine.lookup(obj, name)
    if attribute is not NULL:
        return descriptor_get(machine, attribute, NULL, obj, name)
    if meta_attribute is not NULL:
        return descriptor_get(machine, meta_attribute, obj, meta, name)
    hook = machine.lookup(meta, "__getattr__")
    if hook is not NULL:
        return call_bound(machine, hook, obj, (name,), None)
    raise AttributeError(
        f"type object {obj.__name__!r} has no attribute {name!r}", name=name, obj=obj
    )


def _metatype_get(machine: Machine, attribute: Any, obj: Any, meta: type, name: str) -> Any:
    if type(attribute) in (GetSetDescriptorType, MemberDescriptorType):
        return attribute.__get__(obj, meta)
    return descriptor_get(machine, attribute, obj, meta, name)


def _module_getattr(machine: Machine, obj: Any, cls: type, name: str) -> Any:
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
    raise AttributeError(f"module {obj.__name__!r} has no attribute {name!r}", name=name, obj=obj)


def super_getattr(machine: Machine, obj: Any, name: str) -> Any:
    """An attribute of a `super()` object."""
    if name == "__class__" or obj.__self_class__ is None:
        return getattr(obj, name)
    return super_lookup(machine, obj.__thisclass__, obj.__self__, obj.__self_class__, name, obj)


def super_lookup(
    machine: Machine, this: type, receiver: Any, start: type, name: str, obj: Any
) -> Any:
    """`super(this, receiver).name`: along the MRO of `start` after `this`."""
    mro = start.__mro__
    position = mro.index(this) + 1 if this in mro else len(mro)
    for base in mro[position:]:
        namespace = type.__dict__["__dict__"].__get__(base)
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
    return AttributeError(
        f"{type(obj).__name__!r} object has no attribute {name!r}", name=name, obj=obj
    )


def load_method(machine: Machine, obj: Any, name: str) -> Any:
    """`obj.name` about to be called: a plain Python function as `(function, obj)` in a tuple of two, else as `load_attr`."""
    cls = type(obj)
    if cls not in PROXIES and machine.lookup(cls, "__getattribute__") is _object_getattribute:
        attribute = machine.lookup(cls, name)
        if type(attribute) is FunctionType:
            namespace = instance_dict(obj)
            if namespace is None or name not in namespace:
                return _Bound(attribute)
    return load_attr(machine, obj, name)


class _Bound:
    """Marks a plain function found in the class by `load_method`."""

    __slots__ = ("function",)

    def __init__(self, function: Any) -> None:
        self.function = function


BOUND = _Bound


def store_attr(machine: Machine, obj: Any, name: str, value: Any) -> Any:
    """`obj.name = value`; the result is to be thrown away."""
    cls = type(obj)
    if cls in PROXIES:
        return machine.domain.setattr(obj, name, value)
    setter = machine.lookup(cls, "__setattr__")
    if type(setter) is FunctionType:
        return Call(setter, (obj, name, value))
    if setter is _object_setattr or _is_generic_setter(cls):
        return generic_setattr(machine, obj, name, value)
    return machine.heap.native_setattr(obj, name, value)


def _is_foreign(cls: type) -> bool:
    return issubclass(cls, _FOREIGN)


def _is_generic_setter(cls: type) -> bool:
    return bool(cls.__flags__ & _HEAP_TYPE) and not issubclass(cls, (type, *_FOREIGN))


def generic_setattr(machine: Machine, obj: Any, name: str, value: Any) -> Any:
    """`object.__setattr__` (and, with `value` NULL, `object.__delattr__`)."""
    cls = type(obj)
    if isinstance(obj, type):
        return machine.heap.native_setattr(obj, name, value)
    attribute = machine.lookup(cls, name)
    kind = type(attribute)
    if attribute is not NULL and kind is not FunctionType:
        method = "__delete__" if value is NULL else "__set__"
        if kind is property:
            accessor = attribute.fdel if value is NULL else attribute.fset
            if accessor is None:
                what = "deleter" if value is NULL else "setter"
                raise AttributeError(
                    f"property {name!r} of {cls.__qualname__!r} object has no {what}"
                )
            return Call(accessor, (obj,) if value is NULL else (obj, value))
        slot = machine.lookup(kind, method)
        if type(slot) is FunctionType:
            return Call(slot, (attribute, obj) if value is NULL else (attribute, obj, value))
        if slot is not NULL:
            return machine.heap.set_slot(obj, attribute, name, value)
        if is_data_descriptor(machine, kind):
            raise AttributeError(method)
    return _set_in_dict(machine, obj, name, value, attribute)


def _set_in_dict(machine: Machine, obj: Any, name: str, value: Any, attribute: Any) -> Any:
    namespace = instance_dict(obj)
    if namespace is None or (machine.recording is False and not isinstance(obj, ModuleType)):
        # The C function itself: its key sharing and its error texts.
        if value is NULL:
            return _object_delattr(obj, name)
        return _object_setattr(obj, name, value)
    return machine.heap.set_instance_attribute(obj, namespace, name, value)


def delete_attr(machine: Machine, obj: Any, name: str) -> Any:
    """`del obj.name`."""
    cls = type(obj)
    if cls in PROXIES:
        return machine.domain.delattr(obj, name)
    deleter = machine.lookup(cls, "__delattr__")
    if type(deleter) is FunctionType:
        return Call(deleter, (obj, name))
    if deleter is _object_delattr or _is_generic_setter(cls):
        return generic_setattr(machine, obj, name, NULL)
    return machine.heap.native_setattr(obj, name, NULL)


# ---- special methods ----------------------------------------------------------------------------------------------------------
def call_bound(
    machine: Machine, attribute: Any, obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> Call:
    """Call a raw class attribute as a method of `obj`."""
    kind = type(attribute)
    if kind is FunctionType or kind is METHOD_DESCRIPTOR or kind is WRAPPER_DESCRIPTOR:
        return Call(attribute, (obj, *args), kwargs)
    bound = descriptor_get(machine, attribute, obj, type(obj), "")
    if type(bound) is Call:
        return Call(polyfills.call_result, (bound.fn, bound.args, args, kwargs or {}))
    return Call(bound, args, kwargs)


def is_python(machine: Machine, cls: type, name: str) -> bool:
    """Whether special method `name` of `cls` is Python code (or anything else that is no C slot)."""
    attribute = machine.lookup(cls, name)
    return attribute is not NULL and attribute is not None and type(attribute) not in _C_FUNCTIONS


def special(machine: Machine, obj: Any, name: str, *args: Any) -> Call | None:
    """A call of special method `name`, or None where the class has none (or sets it to None)."""
    attribute = machine.lookup(type(obj), name)
    if attribute is NULL or attribute is None:
        return None
    return call_bound(machine, attribute, obj, args, None)


# ---- operators ------------------------------------------------------------------------------------------------------------------
class Operator:
    """A binary operator: its sign, special methods and C function."""

    __slots__ = ("function", "in_place", "method", "name", "reflected", "sign")

    def __init__(
        self, sign: str, name: str, function: Callable[[Any, Any], Any], in_place: bool
    ) -> None:
        self.sign = sign
        self.name = name
        self.method = f"__{name}__"
        self.reflected = f"__r{name}__"
        self.in_place = f"__i{name}__" if in_place else None
        self.function = function


_NAMES = (
    ("+", "add", operator.add, operator.iadd),
    ("-", "sub", operator.sub, operator.isub),
    ("*", "mul", operator.mul, operator.imul),
    ("/", "truediv", operator.truediv, operator.itruediv),
    ("//", "floordiv", operator.floordiv, operator.ifloordiv),
    ("%", "mod", operator.mod, operator.imod),
    ("**", "pow", operator.pow, operator.ipow),
    ("@", "matmul", operator.matmul, operator.imatmul),
    ("<<", "lshift", operator.lshift, operator.ilshift),
    (">>", "rshift", operator.rshift, operator.irshift),
    ("&", "and", operator.and_, operator.iand),
    ("|", "or", operator.or_, operator.ior),
    ("^", "xor", operator.xor, operator.ixor),
)
BINARY = {sign: Operator(sign, name, function, False) for sign, name, function, _ in _NAMES}
INPLACE = {sign: Operator(sign, name, function, True) for sign, name, _, function in _NAMES}
COMPARISONS: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "<": ("__lt__", "__gt__", operator.lt),
    "<=": ("__le__", "__ge__", operator.le),
    "==": ("__eq__", "__eq__", operator.eq),
    "!=": ("__ne__", "__ne__", operator.ne),
    ">": ("__gt__", "__lt__", operator.gt),
    ">=": ("__ge__", "__le__", operator.ge),
}


def binary(machine: Machine, op: Operator, a: Any, b: Any) -> Any:
    """`a op b`, or `a op= b` for an operator of `INPLACE`."""
    left, right = type(a), type(b)
    if left in PLAIN and right in PLAIN:
        return op.function(a, b)
    if left in PROXIES or right in PROXIES:
        return _proxy_binary(machine, op, a, b)
    if (
        is_python(machine, left, op.method)
        or is_python(machine, right, op.reflected)
        or (op.in_place is not None and is_python(machine, left, op.in_place))
    ):
        return Call(polyfills.binary_op, (a, b, op.method, op.reflected, op.in_place, op.sign))
    return machine.native(op.function, (a, b), {})


def _proxy_binary(machine: Machine, op: Operator, a: Any, b: Any) -> Any:
    """A proxy meets an object of a Python class that defines the operator: the class decides; else the domain does."""
    left = type(a)
    if left not in PROXIES and is_python(machine, left, op.method) and left.__flags__ & _HEAP_TYPE:
        return Call(polyfills.proxy_right, (a, b, op.method, op.in_place, op.sign))
    if left in (str, list, tuple) and op.sign == "%" or (left in (list, tuple) and op.sign == "+"):
        return machine.native(op.function, (a, b), {})
    if op.in_place is not None:
        return machine.domain.inplace(op.sign, a, b)
    return machine.domain.binary(op.sign, a, b)


def compare(machine: Machine, sign: str, a: Any, b: Any) -> Any:
    """`a < b` and the like."""
    left, right = type(a), type(b)
    method, reflected, function = COMPARISONS[sign]
    if left in PLAIN and right in PLAIN:
        return function(a, b)
    if left in PROXIES or right in PROXIES:
        return machine.domain.compare(sign, a, b)
    if is_python(machine, left, method) or is_python(machine, right, reflected):
        return Call(polyfills.rich_compare, (a, b, method, reflected, sign))
    if sign == "!=" and (is_python(machine, left, "__eq__") or is_python(machine, right, "__eq__")):
        return Call(polyfills.rich_compare, (a, b, method, reflected, sign))
    if machine.recording:
        a, b = machine.heap.mirror(a), machine.heap.mirror(b)
        if holds_proxy(a) or holds_proxy(b):
            return _compare_containers(machine, sign, a, b, function)
    return function(a, b)


def _compare_containers(
    machine: Machine, sign: str, a: Any, b: Any, function: Callable[[Any, Any], Any]
) -> Any:
    for base in (list, tuple):
        if isinstance(a, base) and isinstance(b, base):
            return Call(polyfills.sequence_compare, (a, b, sign))
    if isinstance(a, dict) and isinstance(b, dict):
        return Call(polyfills.dict_compare, (a, b, sign))
    return machine.native(function, (a, b), {})


def holds_proxy(value: Any, depth: int = 3) -> bool:
    """Whether a built-in container has a proxy in it, a few levels down."""
    kind = type(value)
    if kind in PROXIES:
        return True
    if depth == 0:
        return False
    if isinstance(value, (list, tuple)):
        return any(holds_proxy(item, depth - 1) for item in value)
    if isinstance(value, dict):
        return any(holds_proxy(item, depth - 1) for item in value.values())
    if kind is slice:
        return (
            type(value.start) in PROXIES
            or type(value.stop) in PROXIES
            or type(value.step) in PROXIES
        )
    return False


UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "-": ("__neg__", operator.neg),
    "+": ("__pos__", operator.pos),
    "~": ("__invert__", operator.invert),
    "abs": ("__abs__", abs),
}


def unary(machine: Machine, op: str, a: Any) -> Any:
    """`-a`, `+a`, `~a`, `abs(a)`."""
    cls = type(a)
    method, function = UNARY[op]
    if cls in PLAIN:
        return function(a)
    if cls in PROXIES:
        return machine.domain.unary(op, a)
    if is_python(machine, cls, method):
        return call_bound(machine, machine.lookup(cls, method), a, (), None)
    return machine.native(function, (a,), {})


# ---- truth, length, containment -----------------------------------------------------------------------------------------------------
def truth(machine: Machine, value: Any) -> Any:
    """`bool(value)`: a bool, or a `Call` that gives one."""
    cls = type(value)
    if cls in PLAIN:
        return bool(value)
    if cls in PROXIES:
        return machine.domain.branch(value, machine.frame)  # type: ignore[arg-type]
    if is_python(machine, cls, "__bool__"):
        return Call(polyfills.truth_by_bool, (value,))
    if machine.lookup(cls, "__bool__") is NULL and is_python(machine, cls, "__len__"):
        return Call(polyfills.truth_by_len, (value,))
    if machine.recording and isinstance(value, (list, dict, set, tuple, frozenset)):
        return machine.heap.length(value) != 0
    return machine.native(bool, (value,), {})


def length(machine: Machine, value: Any) -> Any:
    """`len(value)`."""
    cls = type(value)
    if cls in PROXIES:
        return machine.domain.length(value)
    if is_python(machine, cls, "__len__"):
        return Call(polyfills.length_by_len, (value,))
    if machine.recording:
        return machine.heap.length(value)
    return machine.native(len, (value,), {})


def contains(machine: Machine, container: Any, item: Any) -> Any:
    """`item in container`."""
    cls = type(container)
    if cls in PROXIES:
        return machine.domain.contains(container, item)
    attribute = machine.lookup(cls, "__contains__")
    if attribute is NULL:
        if (
            cls is Generator
            or is_python(machine, cls, "__iter__")
            or is_python(machine, cls, "__getitem__")
        ):
            return Call(polyfills.contains_by_iteration, (container, item))
    elif attribute is not None and type(attribute) not in _C_FUNCTIONS:
        return Call(polyfills.contains_by_method, (container, item))
    if machine.recording:
        return _recorded_contains(machine, container, item)
    return operator.contains(container, item)


def _recorded_contains(machine: Machine, container: Any, item: Any) -> Any:
    container = machine.heap.read_contains(container, item)
    if isinstance(container, (list, tuple)) and (holds_proxy(item) or holds_proxy(container)):
        return Call(polyfills.contains_by_iteration, (container, item))
    if type(container) is range and type(item) in PROXIES:
        return Call(polyfills.range_contains, (container, item))
    value = operator.contains(container, item)
    return machine.heap.answer_contains(container, item, value)


# ---- items ------------------------------------------------------------------------------------------------------------------------
def load_item(machine: Machine, obj: Any, key: Any) -> Any:
    """`obj[key]`."""
    cls = type(obj)
    if cls in CONTAINERS or cls is str:
        if machine.recording:
            return _recorded_item(machine, obj, key)
        if (
            cls is not dict
            and cls not in PLAIN
            and type(key) is not int
            and is_python(machine, type(key), "__index__")
        ):
            return Call(polyfills.item_by_index, (obj, key))
        return obj[key]
    if cls in PROXIES:
        return machine.domain.getitem(obj, key)
    attribute = machine.lookup(cls, "__getitem__")
    if attribute is NULL:
        if isinstance(obj, type):
            return _class_item(machine, obj, key)
        raise TypeError(f"{cls.__name__!r} object is not subscriptable")
    if type(attribute) not in _C_FUNCTIONS:
        return call_bound(machine, attribute, obj, (key,), None)
    if isinstance(obj, dict) and is_python(machine, cls, "__missing__"):
        return Call(polyfills.item_or_missing, (obj, key))
    if machine.recording:
        return _recorded_item(machine, obj, key)
    return machine.native(operator.getitem, (obj, key), {})


def _recorded_item(machine: Machine, obj: Any, key: Any) -> Any:
    if (type(key) in PROXIES and not isinstance(obj, dict)) or (
        type(key) is slice and holds_proxy(key)
    ):
        return machine.domain.getitem(obj, key)
    kind = type(key)
    if kind not in PLAIN and not isinstance(obj, dict) and is_python(machine, kind, "__index__"):
        return Call(polyfills.item_by_index, (obj, key))
    return machine.heap.item(obj, key)


def _class_item(machine: Machine, cls: Any, key: Any) -> Any:
    if cls is type:
        return GenericAlias(type, key)
    attribute = machine.lookup(cls, "__class_getitem__")
    if attribute is NULL:
        raise TypeError(f"type {cls.__name__!r} is not subscriptable")
    bound = descriptor_get(machine, attribute, NULL, cls, "__class_getitem__")
    return Call(bound, (key,))


def store_item(machine: Machine, obj: Any, key: Any, value: Any) -> Any:
    """`obj[key] = value` (with `value` NULL: `del obj[key]`)."""
    cls = type(obj)
    delete = value is NULL
    if cls in PROXIES or (type(key) in PROXIES and not isinstance(obj, dict)):
        return (
            machine.domain.delitem(obj, key) if delete else machine.domain.setitem(obj, key, value)
        )
    name = "__delitem__" if delete else "__setitem__"
    attribute = machine.lookup(cls, name)
    if attribute is NULL:
        what = "deletion" if delete else "assignment"
        raise TypeError(f"{cls.__name__!r} object {_DOES_NOT[delete]} item {what}")
    if type(attribute) not in _C_FUNCTIONS:
        return call_bound(machine, attribute, obj, (key,) if delete else (key, value), None)
    if machine.recording:
        return machine.native(attribute, (obj, key) if delete else (obj, key, value), {})
    if delete:
        return operator.delitem(obj, key)
    return operator.setitem(obj, key, value)


_DOES_NOT = {False: "does not support", True: "doesn't support"}


# ---- iteration ----------------------------------------------------------------------------------------------------------------------
def iterate(machine: Machine, obj: Any) -> Any:
    """`iter(obj)`."""
    cls = type(obj)
    if cls is Generator:
        return obj
    if cls in PROXIES:
        return machine.domain.iterate(obj)
    attribute = machine.lookup(cls, "__iter__")
    if attribute is not NULL and attribute is not None and type(attribute) not in _C_FUNCTIONS:
        return Call(polyfills.iterator_by_iter, (obj,))
    if attribute is NULL and is_python(machine, cls, "__getitem__"):
        return Call(polyfills.iterator_by_getitem, (obj,))
    if machine.recording:
        return iter(machine.heap.mirror(obj))
    return iter(obj)


def needs_interpretation(machine: Machine, iterable: Any) -> bool:
    """Whether native code that iterated over it would run code of the virtual program."""
    cls = type(iterable)
    if cls in CONTAINERS or cls in PLAIN:
        return False
    if cls is Generator or cls in PROXIES:
        return True
    return (
        is_python(machine, cls, "__iter__")
        or is_python(machine, cls, "__next__")
        or (machine.lookup(cls, "__iter__") is NULL and is_python(machine, cls, "__getitem__"))
    )


# ---- text -----------------------------------------------------------------------------------------------------------------------------
def text(machine: Machine, kind: str, value: Any) -> Any:
    """`str(value)` or `repr(value)` (`kind` says which)."""
    cls = type(value)
    if cls is str and kind == "str":
        return value
    if cls in PROXIES:
        return machine.domain.unary(kind, value)
    method = f"__{kind}__"
    if is_python(machine, cls, method):
        return Call(polyfills.text_by_method, (value, method))
    if (
        kind == "str"
        and machine.lookup(cls, "__str__") is object.__str__
        and is_python(machine, cls, "__repr__")
    ):
        return Call(polyfills.text_by_method, (value, "__repr__"))
    return machine.native(str if kind == "str" else repr, (value,), {})


def format_value(machine: Machine, value: Any, spec: str) -> Any:
    """`format(value, spec)`."""
    cls = type(value)
    if cls in PLAIN:
        return format(value, spec)
    if cls in PROXIES:
        return machine.domain.format(value, spec)
    if is_python(machine, cls, "__format__"):
        return Call(polyfills.format_by_method, (value, spec))
    if machine.lookup(cls, "__format__") is object.__format__ and not spec:
        return text(machine, "str", value)
    return machine.native(format, (value, spec), {})
