"""The object protocol, CPython slot by slot: operators, comparison, truth, length, items,
iteration, formatting.

Each function takes the machine and raw objects and gives a value, a `Call` or a `Frame` that nobody
has entered. Proxies go to the domain, types with only C slots to the C function itself (so that
results and error texts are CPython's own), and Python-defined slots to interpreted code: directly
where one call is all, else by a polyfill. Attributes are in attributes.py.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from types import CellType, GenericAlias, MappingProxyType, SimpleNamespace
from typing import Any

from anyshape.capture.heap import decimals
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.hidden_dicts import hides
from anyshape.capture.heap.nested_containers import length_of, values_of
from anyshape.capture.heap.quiet_classes import bare_name, flags_of, has_entry, is_slot_of_c
from anyshape.capture.heap.values import NULL, PROXIES, Call, SizeValue
from anyshape.capture.interpreter import (
    c_callbacks,
    class_polyfills,
    iteration_polyfills,
    mapping_polyfills,
    polyfills,
    search_polyfills,
    size_texts,
)
from anyshape.capture.interpreter.attributes import (
    call_bound,
    descriptor_get,
    is_python,
    rely_on_names,
)
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.operators import COMPARISONS, UNARY, Operator

# Exact types whose operators and protocols are C all through and hold no Python code of the user.
PLAIN = frozenset(
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
    }
)
CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
TAKING_PROXIES = ("or", "mod")
"""Operators to which a read-only proxy is the mapping that it shows."""
SIZED = (list, dict, set, tuple, frozenset, MappingProxyType)


# ---- operators -----------------------------------------------------------------------------------
SEQUENCES = (list, tuple, str, bytes, bytearray, deque)
"""Whose own `+` and `*` come behind those of numbers, which any method in Python gives a class."""


def binary(machine: Interpreter, op: Operator, a: Any, b: Any) -> Any:
    """`a op b`, or `a op= b` for an operator of `INPLACE`."""
    left, right = type(a), type(b)
    if machine.recording:
        machine.domain.will_compute(a, b)
    if left in PLAIN and right in PLAIN:
        return op.function(a, b)
    if left in PROXIES or right in PROXIES:
        return _proxy_binary(machine, op, a, b)
    if (
        is_python(machine, left, op.method)
        or (issubclass(left, SEQUENCES) and is_python(machine, left, op.reflected))
        or is_python(machine, right, op.reflected)
        or (op.in_place is not None and is_python(machine, left, op.in_place))
    ):
        return Call(polyfills.binary_op, (a, b, op.method, op.reflected, op.in_place, op.sign))
    if machine.recording and MappingProxyType in (left, right):
        if left is MappingProxyType and (op.in_place is not None or op.name != "or"):
            return op.function(a, b)  # which refuses
        if op.name in TAKING_PROXIES or op.in_place is not None:
            a, b = machine.heap.behind(a), machine.heap.behind(b)
    made = None if op.in_place is None else _taken_in_place(machine, op.in_place, a, b)
    if made is None and machine.recording:
        made = machine.operated(op.function, a, b)
    return machine.native(op.function, (a, b), {}) if made is None else made


def _taken_in_place(machine: Interpreter, method: str, a: Any, b: Any) -> Call | None:
    """`a += b` and `a |= b` where C code would iterate over what is the program's."""
    if (
        method == "__iadd__"
        and issubclass(type(a), (list, deque))
        and needs_interpretation(machine, b)
    ):
        append = iteration_polyfills.extend_list if issubclass(type(a), list) else deque.extend
        return Call(iteration_polyfills.extended, (append, a, b))
    if method == "__ior__" and issubclass(type(a), dict):
        if must_be_taken_first(machine, b) or is_python_mapping(machine, b):
            ordered = issubclass(type(a), OrderedDict)
            update = mapping_polyfills.update_of(ordered)
            return Call(mapping_polyfills.dict_updated, (update, a, b))
    return None


def _proxy_binary(machine: Interpreter, op: Operator, a: Any, b: Any) -> Any:
    """A proxy meets an object of a Python class that defines the operator: the class decides; else
    the domain does.
    """
    left = type(a)
    names = (op.method,) if op.in_place is None else (op.in_place, op.method)
    sign = op.sign if op.in_place is None else f"{op.sign}="
    if any(_decides(machine, a, name, first=True) for name in names):
        return Call(polyfills.proxy_right, (a, b, names, op.reflected, sign))
    if _decides(machine, b, op.reflected):
        return Call(polyfills.proxy_left, (a, b, op.reflected, sign))
    added = left in (list, tuple) and op.sign == "+" and type(b) is not SizeValue
    if left in (str, list, tuple) and op.sign == "%" or added:
        return machine.native(op.function, (a, b), {})
    if op.sign == "+" and size_texts.are_texts(a, b):
        return size_texts.joined((a, b))
    if op.sign == "*" and (size_texts.are_texts(a) or size_texts.are_texts(b)):
        return machine.native(op.function, (a, b), {})
    if op.in_place is not None:
        return machine.domain.inplace(op.sign, a, b)
    return machine.domain.binary(op.sign, a, b)


def _decides(machine: Interpreter, obj: Any, method: str, *, first: bool = False) -> bool:
    """Whether a method of a Python class is asked where the object meets a proxy. A tensor that
    is asked before it hands itself to the object's `__torch_function__`."""
    cls = type(obj)
    if cls in PROXIES or not flags_of(cls) & HEAP_TYPE or issubclass(type(obj), (int, float)):
        return False
    return is_python(machine, cls, method) and (first or not has_entry(cls, "__torch_function__"))


def _proxy_compare(machine: Interpreter, sign: str, a: Any, b: Any) -> Any:
    method, reflected, _ = COMPARISONS[sign]
    for obj, proxy, name in ((a, b, method), (b, a, reflected)):
        names = (name, "__eq__") if sign == "!=" else (name,)
        if any(_decides(machine, obj, defined, first=obj is a) for defined in names):
            return Call(polyfills.compare_with_proxy, (obj, proxy, name, sign, obj is a))
    return machine.domain.compare(sign, a, b)


def compare(machine: Interpreter, sign: str, a: Any, b: Any) -> Any:
    """`a < b` and the like."""
    left, right = type(a), type(b)
    method, reflected, function = COMPARISONS[sign]
    if machine.recording:
        machine.domain.will_compare(a, b)
        if sign not in ("==", "!="):
            machine.domain.will_compute(a, b)
    if left in PLAIN and right in PLAIN:
        return function(a, b)
    if left in PROXIES or right in PROXIES:
        return _proxy_compare(machine, sign, a, b)
    if is_python(machine, left, method) or is_python(machine, right, reflected):
        return Call(polyfills.rich_compare, (a, b, method, reflected, sign))
    if sign == "!=" and (is_python(machine, left, "__eq__") or is_python(machine, right, "__eq__")):
        return Call(polyfills.rich_compare, (a, b, method, reflected, sign))
    if machine.recording:
        if issubclass(left, SimpleNamespace) and issubclass(right, SimpleNamespace):
            return compare_namespaces(a, b, function)
        if left is CellType and right is CellType:  # C compares what they hold
            raise broken("unknown-call", "comparing cells")
        a, b = machine.heap.mirror(a), machine.heap.mirror(b)
        if any(is_compared_in_python(machine, value) for value in (a, b)):
            return _compare_containers(machine, sign, a, b, function)
        machine.heap.look_inside(a)
        machine.heap.look_inside(b)
        machine.domain.will_distinguish(a, b)
        if decimals.are_among((a, b)):
            return machine.native(function, (a, b), {})
    return function(a, b)


def compare_namespaces(a: Any, b: Any, function: Callable[[Any, Any], Any]) -> Call:
    """`SimpleNamespace.__eq__(a, b)` and the like."""
    for cls in (type(a), type(b)):
        if hides(cls):
            raise broken("unknown-call", f"comparing {bare_name(cls)}, whose `__dict__` is code,")
    return Call(class_polyfills.namespaces_compare, (a, b, function))


def is_compared_in_python(machine: Interpreter, value: Any) -> bool:
    """Whether C code that compares it would meet a proxy, code of the program, or a container that
    is not what the program sees."""
    return (
        holds_proxy(value)
        or c_callbacks.defines(machine, value, c_callbacks.ORDER)
        or (issubclass(type(value), deque) and is_python(machine, type(value), "__iter__"))
        or machine.heap.holds_changed(value)
    )


def _compare_containers(
    machine: Interpreter, sign: str, a: Any, b: Any, function: Callable[[Any, Any], Any]
) -> Any:
    equality = sign in ("==", "!=")
    for base in (list, tuple):
        if issubclass(type(a), base) and issubclass(type(b), base):
            if equality and _are_sizes(a) and _are_sizes(b):
                equal = _equal_sizes(machine, a, b)
                if sign == "==":
                    return equal
                return not equal if type(equal) is bool else machine.domain.unary("not", equal)
            return Call(polyfills.sequence_compare, (a, b, sign))
    if equality and issubclass(type(a), dict) and issubclass(type(b), dict):
        return Call(polyfills.dict_compare, (a, b, sign))
    made = machine.operated(function, a, b)
    return machine.native(function, (a, b), {}) if made is None else made


def _are_sizes(values: Sequence[Any]) -> bool:
    """Ints, of which two make one condition; a comparison with numpy's is a bool of numpy's."""
    return all(
        type(value) is int or (type(value) is SizeValue and value.kind is int)
        for value in values_of(values)
    )


def _equal_sizes(machine: Interpreter, a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Whether two shapes are equal: one condition, and not a branch for each size."""
    equal: Any = length_of(a) == length_of(b)
    for x, y in zip(values_of(a), values_of(b)):
        same = equal if equal is False else compare(machine, "==", x, y)
        if same is False or equal is True:
            equal = same
        elif same is not True:
            equal = machine.domain.binary("&", equal, same)
    return equal


def holds_proxy(value: Any, depth: int = 3) -> bool:
    """Whether a built-in container has a proxy in it, a few levels down."""
    kind = type(value)
    if kind in PROXIES:
        return True
    if depth == 0:
        return False
    if issubclass(type(value), (list, tuple, dict)):
        return any(holds_proxy(item, depth - 1) for item in values_of(value))
    if kind is slice:
        return (
            type(value.start) in PROXIES
            or type(value.stop) in PROXIES
            or type(value.step) in PROXIES
        )
    return False


def unary(machine: Interpreter, op: str, a: Any) -> Any:
    """`-a`, `+a`, `~a`, `abs(a)`."""
    cls = type(a)
    method, function = UNARY[op]
    if machine.recording:
        machine.domain.will_compute(a)
    if cls in PLAIN:
        return function(a)
    if cls in PROXIES:
        return machine.domain.unary(op, a)
    if is_python(machine, cls, method):
        return call_bound(machine, machine.lookup(cls, method), a, (), None)
    return machine.native(function, (a,), {})


# ---- truth, length, containment ------------------------------------------------------------------
def truth(machine: Interpreter, value: Any) -> Any:
    """`bool(value)`: a bool, or a `Call` that gives one."""
    cls = type(value)
    if cls in PLAIN:
        return bool(value)
    if cls in PROXIES:
        return machine.domain.branch(value, machine.current())
    if is_python(machine, cls, "__bool__"):
        return Call(polyfills.truth_by_bool, (value,))
    if machine.lookup(cls, "__bool__") is NULL and is_python(machine, cls, "__len__"):
        return Call(polyfills.truth_by_len, (value,))
    if machine.recording and issubclass(type(value), SIZED):
        return truth(machine, machine.heap.length(value))
    if machine.lookup(cls, "__bool__") is NULL and machine.lookup(cls, "__len__") is NULL:
        return True
    return machine.native(bool, (value,), {})


def length(machine: Interpreter, value: Any) -> Any:
    """`len(value)`."""
    cls = type(value)
    if cls in PROXIES:
        return machine.domain.length(value)
    if is_python(machine, cls, "__len__"):
        return Call(polyfills.length_by_len, (value,))
    if machine.recording:
        return machine.heap.length(value)
    return machine.native(len, (value,), {})


def contains(machine: Interpreter, container: Any, item: Any) -> Any:
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
            or (machine.recording and has_entry(cls, "__next__"))
        ):
            return Call(polyfills.contains_by_iteration, (container, item))
    elif attribute is not None and not is_slot_of_c(cls, "__contains__", attribute):
        return Call(polyfills.contains_by_method, (container, item))
    if machine.recording:
        return _recorded_contains(machine, container, item)
    return operator.contains(container, item)


def _recorded_contains(machine: Interpreter, container: Any, item: Any) -> Any:
    container = machine.heap.behind(container)
    if issubclass(type(container), (dict, set, frozenset)):
        item = plain_key(machine, item)
    container = machine.heap.read_contains(container, item)
    if issubclass(type(container), (list, tuple, deque)) and any(
        holds_proxy(value) or c_callbacks.defines(machine, value, c_callbacks.EQUALITY)
        for value in (item, container)
    ):
        return Call(search_polyfills.is_among, (container, item))
    if type(container) is range and type(item) in PROXIES:
        return Call(polyfills.range_contains, (container, item))
    if issubclass(type(container), (str, bytes)) and type(item) in PROXIES:
        raise broken("proxy-leak", "a text that differs from call to call")
    if decimals.are_among((container, item)):
        return machine.native(operator.contains, (container, item), {})
    value = operator.contains(container, item)
    return machine.heap.answer_contains(container, item, value)


def will_exhaust(machine: Interpreter, iterable: Any) -> None:
    """C code is about to advance it, if it is an iterator."""
    if machine.recording and has_entry(type(iterable), "__next__"):
        machine.domain.will_advance(iterable)


# ---- items ---------------------------------------------------------------------------------------
def asks_index(machine: Interpreter, cls: type) -> bool:
    """Whether C code that wants an index asks code of the program: an integer is one as it is."""
    return not issubclass(cls, int) and is_python(machine, cls, "__index__")


def _asks_bounds(machine: Interpreter, key: slice) -> bool:
    return any(asks_index(machine, type(part)) for part in (key.start, key.stop, key.step))


def load_item(machine: Interpreter, obj: Any, key: Any) -> Any:
    """`obj[key]`."""
    cls = type(obj)
    if cls in CONTAINERS or cls is str:
        if machine.recording:
            return _recorded_item(machine, obj, key)
        if (
            cls is not dict
            and cls not in PLAIN
            and type(key) is not int
            and asks_index(machine, type(key))
        ):
            return Call(polyfills.item_by_index, (obj, key))
        return obj[key]
    if cls in PROXIES:
        return machine.domain.getitem(obj, key)
    attribute = machine.lookup(cls, "__getitem__")
    if attribute is NULL:
        if issubclass(type(obj), type):
            return _class_item(machine, obj, key)
        raise TypeError(f"{bare_name(cls)!r} object is not subscriptable")
    if not is_slot_of_c(cls, "__getitem__", attribute):
        return call_bound(machine, attribute, obj, (key,), None)
    if issubclass(type(obj), dict) and is_python(machine, cls, "__missing__"):
        return Call(polyfills.item_or_missing, (obj, key))
    if machine.recording:
        if issubclass(type(obj), defaultdict):
            return recorded_default(machine, obj, key)
        return _recorded_item(machine, obj, key)
    return machine.native(operator.getitem, (obj, key), {})


def plain_key(machine: Interpreter, key: Any) -> Any:
    """What C code hashes for a key."""
    if machine.recording and c_callbacks.hashes_outside(machine, key):
        raise broken("unknown-call", f"{bare_name(type(key))}.__hash__, called by C code,")
    if type(key) in PROXIES or (type(key) is tuple and holds_proxy(key)):
        return machine.domain.key(key)
    if machine.recording and issubclass(type(key), c_callbacks.HASHED_BY_PARTS):
        machine.heap.look_inside((key,))
    return key


def _recorded_item(machine: Interpreter, obj: Any, key: Any) -> Any:
    obj = machine.heap.behind(obj)
    by_number = type(key) in PROXIES and not issubclass(type(obj), dict)
    by_number |= type(key) is SizeValue and type(obj) is dict
    if by_number or (type(key) is slice and holds_proxy(key)):
        return machine.domain.getitem(obj, key)
    if issubclass(type(obj), dict):
        return machine.heap.item(obj, plain_key(machine, key))
    kind = type(key)
    if kind is slice and _asks_bounds(machine, key):
        return Call(iteration_polyfills.item_by_slice, (obj, key))
    if kind not in PLAIN and asks_index(machine, kind):
        return Call(polyfills.item_by_index, (obj, key))
    found = machine.heap.item(obj, key)
    return machine.domain.part_of(obj, found) if kind is slice and type(obj) is not list else found


def recorded_default(machine: Interpreter, obj: Any, key: Any) -> Any:
    """`obj[key]` of a `defaultdict`: its factory is the program's, and so is what it makes."""
    key = plain_key(machine, key)
    value = machine.heap.item_or_null(obj, key)
    return Call(polyfills.item_or_default, (obj, key)) if value is NULL else value


def _class_item(machine: Interpreter, cls: Any, key: Any) -> Any:
    if cls is type:
        return GenericAlias(type, key)
    attribute = machine.lookup(cls, "__class_getitem__")
    if attribute is NULL or attribute is None:
        raise TypeError(f"type {bare_name(cls)!r} is not subscriptable")
    bound = descriptor_get(machine, attribute, NULL, cls, "__class_getitem__")
    return Call(bound, (key,))


def store_item(machine: Interpreter, obj: Any, key: Any, value: Any) -> Any:
    """`obj[key] = value` (with `value` NULL: `del obj[key]`)."""
    cls = type(obj)
    delete = value is NULL
    name = "__delitem__" if delete else "__setitem__"
    attribute = NULL if cls in PROXIES else machine.lookup(cls, name)
    in_python = attribute is not NULL and not is_slot_of_c(cls, name, attribute)
    if cls in PROXIES or (type(key) in PROXIES and not (in_python or issubclass(type(obj), dict))):
        return (
            machine.domain.delitem(obj, key) if delete else machine.domain.setitem(obj, key, value)
        )
    if attribute is NULL:  # C's own refusal, whose text depends on the kind of class
        shown = 0 if asks_index(machine, type(key)) else key
        return operator.delitem(obj, shown) if delete else operator.setitem(obj, shown, None)
    if in_python:
        return call_bound(machine, attribute, obj, (key,) if delete else (key, value), None)
    fills = type(key) is slice and issubclass(type(obj), (list, bytearray))
    if fills and must_be_taken_first(machine, value):
        return Call(iteration_polyfills.store_of(_asks_bounds(machine, key)), (obj, key, value))
    if machine.recording:
        key = plain_key(machine, key) if issubclass(type(obj), dict) else key
        return machine.native(attribute, (obj, key) if delete else (obj, key, value), {})
    if delete:
        return operator.delitem(obj, key)
    return operator.setitem(obj, key, value)


# ---- iteration -----------------------------------------------------------------------------------
def iterate(machine: Interpreter, obj: Any) -> Any:
    """`iter(obj)`."""
    cls = type(obj)
    if cls is Generator:
        return obj
    if cls in PROXIES:
        return machine.domain.iterate(obj)
    attribute = machine.lookup(cls, "__iter__")
    if is_python(machine, cls, "__iter__"):
        return Call(iteration_polyfills.iterator_by_iter, (obj,))
    if attribute is NULL and is_python(machine, cls, "__getitem__"):
        return Call(iteration_polyfills.iterator_by_getitem, (obj,))
    if not machine.recording:
        return iter(obj)
    made = iter(machine.heap.mirror(obj))
    return made if made is obj else machine.heap.create(made)


ASKED_BY_ITERATION = ("__iter__", "__next__", "__len__", "__length_hint__")


def needs_interpretation(machine: Interpreter, iterable: Any) -> bool:
    """Whether native code that iterated over it would run code of the virtual program."""
    cls = type(iterable)
    if cls in CONTAINERS or cls in PLAIN:
        return False
    if cls is Generator or cls in PROXIES:
        return True
    return any(is_python(machine, cls, name) for name in ASKED_BY_ITERATION) or (
        machine.lookup(cls, "__iter__") is NULL and is_python(machine, cls, "__getitem__")
    )


def class_shown(machine: Interpreter, obj: Any) -> type:
    """The class that an error names: a proxy's is the one that it shows."""
    return machine.domain.type_of(obj) if type(obj) in PROXIES else type(obj)


def is_not_iterable(machine: Interpreter, obj: Any) -> bool:
    """Whether its class has nothing to iterate by, which `*` asks before anything else."""
    if type(obj) is Generator:
        return False
    cls = class_shown(machine, obj)
    return machine.lookup(cls, "__iter__") is NULL and machine.lookup(cls, "__getitem__") is NULL


def must_be_taken_first(machine: Interpreter, iterable: Any) -> bool:
    """Whether C code that hashes what it iterates over is handed a list instead: hashing ends a
    segment where data decides the element, and what C code took of an iterator cannot be put back.
    Nor can an iterator inside of one of C be put back where a fork ends, if others hold it too.
    """
    advanced = machine.recording and has_entry(type(iterable), "__next__")
    return advanced or needs_interpretation(machine, iterable)


def is_python_mapping(machine: Interpreter, source: Any) -> bool:
    """Whether C code that merges a mapping, or looks whether it is one, would run code of the
    program."""
    cls = type(source)
    if cls in CONTAINERS or cls in PLAIN or cls is Generator or cls in PROXIES:
        return False
    if not flags_of(cls) & HEAP_TYPE and issubclass(cls, (dict, *CONTAINERS)):
        return False
    return any(is_python(machine, cls, name) for name in c_callbacks.MAPPING)


def must_be_taken_for_a_set(machine: Interpreter, iterable: Any) -> bool:
    """The same of what a set is filled from: C code looks into sets, whatever `__iter__` says."""
    in_c = issubclass(type(iterable), (set, frozenset))
    return not in_c and must_be_taken_first(machine, iterable)


# ---- text ----------------------------------------------------------------------------------------
ARGS_OF = vars(BaseException)["args"].__get__
TEXTS_OF_ERRORS = {vars(BaseException)["__str__"]: "str", vars(KeyError)["__str__"]: "repr"}
"""What the text of an exception that holds one thing is of that."""


def text(machine: Interpreter, kind: str, value: Any) -> Any:
    """`str(value)` or `repr(value)` (`kind` says which)."""
    cls = type(value)
    if cls is str and kind == "str":
        return value
    if cls is Generator:
        return repr(value)
    if cls in PROXIES or size_texts.is_shown_later(machine, value):
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
    shown = machine.heap.behind(value) if machine.recording else value
    if shown is not value:  # `str` of a proxy is that of the dict
        return text(machine, kind, shown) if kind == "str" else Call(polyfills.proxy_repr, (shown,))
    if kind == "str" and issubclass(cls, BaseException) and machine.recording:
        args_of_error = ARGS_OF(value)
        form = TEXTS_OF_ERRORS.get(machine.lookup(cls, "__str__"))
        if form and len(args_of_error) == 1 and machine.heap.is_created(value):
            return text(machine, form, args_of_error[0])
    function = str if kind == "str" else repr
    rely_on_names(machine, value)
    made = machine.operated(function, value) if machine.recording else None
    return machine.native(function, (value,), {}) if made is None else made


def format_value(machine: Interpreter, value: Any, spec: Any) -> Any:
    """`format(value, spec)`."""
    cls = type(value)
    if machine.recording:
        machine.domain.will_compute(value)
    if cls in PLAIN and type(spec) not in PROXIES:
        return format(value, spec)
    if cls in PLAIN or cls in PROXIES or size_texts.is_shown_later(machine, value):
        return machine.domain.format(value, spec)
    if is_python(machine, cls, "__format__"):
        return Call(polyfills.format_by_method, (value, spec))
    if machine.lookup(cls, "__format__") is object.__format__ and not spec:
        return text(machine, "str", value)
    made = machine.operated(format, value, spec) if machine.recording else None
    return machine.native(format, (value, spec), {}) if made is None else made
