"""Would C code run code of the program? It does where it compares, sorts or prints objects whose
classes say in Python how, where it is handed a function, and so on; what that code reads would go
unseen.

In: a C callable and its arguments. Out: yes or no. Methods of torch's and the standard library's
own classes (an enum's text) do not count: they read what does not change.
"""

from __future__ import annotations

import builtins
import datetime
import dis
import functools
import heapq
import itertools
import operator
import re
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    SimpleNamespace,
    UnionType,
)
from typing import Any

from anyshape.capture.heap import purity, times
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.mirrors import VIEWS, mapping_behind
from anyshape.capture.heap.nested_containers import elements_of, values_of
from anyshape.capture.heap.quiet_classes import C_FUNCTIONS, class_module, flags_of, is_slot_of_c
from anyshape.capture.heap.quiet_reads import quiet_getattr
from anyshape.capture.heap.values import NULL, PROXIES, contents
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.nouns import frozen

EQUALITY = ("__eq__", "__iter__")  # two deques are compared as they iterate
ORDER = ("__lt__", "__gt__", "__le__", "__ge__", *EQUALITY)
NUMBER = ("__index__", "__int__", "__float__", "__complex__", "__trunc__", "__round__")
TEXT = ("__repr__", "__str__", "__format__")
ITERATION = ("__iter__", "__next__", "__len__", "__length_hint__", "__getitem__", "__reversed__")
ATTRIBUTES = ("__getattribute__", "__getattr__")
MAPPING = ("keys", "items", "__getitem__", *ITERATION, *ATTRIBUTES)
WRITES = ("__setitem__", "__delitem__", "__setattr__", "__delattr__")
ARITHMETIC = ("__add__", "__radd__", "__iadd__", "__mul__", "__rmul__", "__neg__", "__abs__")
ANY = tuple(
    dict.fromkeys(
        (*NUMBER, *TEXT, *ORDER, *MAPPING, *ARITHMETIC, "__ne__", "__hash__", "__bool__")
        + (
            *WRITES,
            "__contains__",
            "__missing__",
            "__call__",
            "__bytes__",
            "__fspath__",
            "__divmod__",
            "__del__",
        )
    )
)
"""What C code may ask the class of an argument for, where no table says less."""
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
HASHED_BY_PARTS = (tuple, frozenset)
PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None), type, FunctionType})

_KEEPING = (*CONTAINERS, OrderedDict, defaultdict, object, type, str, int, float, complex)
"""Classes whose methods ask nothing of what lies in them, but for those that tables name."""
_ITEMS = WRITES[:2]
_PRINTERS = frozenset(
    [
        *[str, repr, format, ascii, list.__repr__, tuple.__repr__, dict.__repr__, set.__repr__],
        *[str.format, str.format_map, str.__mod__, operator.mod],
    ]
)
_SORTERS = frozenset(
    [*[sorted, min, max, list.sort], *[f for f in vars(heapq).values() if callable(f)]]
)
COMPARERS = purity.SEARCHERS | frozenset(
    [
        *[vars(cls)[name] for cls in (list, tuple, dict, deque) for name in ("__eq__", "__ne__")],
        *[list.remove, deque.remove, operator.countOf, operator.indexOf, operator.contains],
        *[operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge],
    ]
)
_INDEXERS = frozenset(
    [
        *[vars(cls)[name] for cls in (list, bytearray, deque) for name in ("insert", "pop")],
        *[vars(cls)[name] for cls in (list, bytearray, deque) for name in _ITEMS],
        *[operator.setitem, operator.delitem, deque.rotate, enumerate],
    ]
)
_SETS = (
    *("union", "update", "intersection", "intersection_update", "difference", "difference_update"),
    *("symmetric_difference", "symmetric_difference_update", "issubset", "issuperset"),
    *("isdisjoint", "__or__", "__and__", "__sub__", "__xor__", "__ior__", "__iand__", "__isub__"),
)
HASHERS = frozenset(
    [
        *[vars(cls)[name] for cls in (set, frozenset) for name in _SETS if name in vars(cls)],
        *[set, frozenset, hash, operator.or_, operator.and_, operator.sub, operator.xor],
        *[operator.ior, operator.iand, operator.isub, operator.ixor, dict.fromkeys],
        *[cls for cls in (dict, OrderedDict, defaultdict)],
        *[vars(cls)[name] for cls in (dict, OrderedDict) for name in ("update", "__init__")],
        *[vars(cls)["__or__"] for cls in (dict, OrderedDict, defaultdict)],
        *[vars(cls)["__ior__"] for cls in (dict, OrderedDict)],
        purity.COUNT_ELEMENTS,
    ]
)
SUBSTITUTIONS = frozenset({re.Pattern.sub, re.Pattern.subn})


def runs_program_code(machine: Interpreter, fn: Any, args: tuple[Any, ...]) -> bool:
    """Does this call compare, order or print what a class of the program compares, orders or
    prints in Python, or call back a function of the program?"""
    owner = quiet_getattr(fn, "__self__")
    if fn in SUBSTITUTIONS or (type(owner) is re.Pattern and fn.__name__ in ("sub", "subn")):
        given = args[1:] if fn in SUBSTITUTIONS else args
        return bool(given) and type(given[0]) not in (str, bytes)
    if fn is getattr(operator, "call", None):
        return True
    if times.is_quiet(fn, args):
        return False
    if type(fn) is BuiltinFunctionType and _makes_by_code(machine, fn, owner):
        return True
    if type(fn) in purity.CALLABLE_TYPES and _asks_nobody(machine, fn, args):
        return False
    if any(_is_asked(machine, arg, names) for arg, names in _asked(fn, args)):
        return True
    if fn in _INDEXERS:
        return any(_is_index(machine, arg) for arg in args[1:])
    if fn in HASHERS:
        return any(hashes_elements(machine, arg) for arg in args)
    if fn in _PRINTERS:
        methods: tuple[str, ...] = (*TEXT, *NUMBER, *MAPPING)
    elif fn in _SORTERS:
        methods = ORDER
    elif fn in COMPARERS:
        methods = EQUALITY
    elif _looks_at_arguments_alone(fn):
        return False
    else:
        methods = ANY
    return any(defines(machine, arg, methods) for arg in args)


def _asks_nobody(machine: Interpreter, fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether no class is asked, whatever its objects could do."""
    if fn in _ORDERING:
        return all(_has_no_order(machine, arg) for arg in args)
    if fn in WRITING_INTEGERS or getattr(fn, "__objclass__", None) is int:
        return all([issubclass(type(arg), int) for arg in args])
    if fn in _STORING_AT:
        return len(args) == 3 and type(args[1]) is int
    return fn in LOOKING_UP and len(args) > 1 and type(args[1]) is str and _has_texts(args[0])


WRITING_INTEGERS = (hex, oct, bin, chr)
_STORING_AT = (list.__setitem__, deque.__setitem__)
_ORDERING = (operator.lt, operator.le, operator.gt, operator.ge)
_NO_ORDER = {name: vars(object)[name] for name in ("__lt__", "__le__", "__gt__", "__ge__")}


def _has_no_order(machine: Interpreter, value: Any) -> bool:
    """Whether C code that puts it in order asks `object` alone, which refuses."""
    return all(machine.lookup(type(value), name) is found for name, found in _NO_ORDER.items())


LOOKING_UP = tuple(vars(MappingProxyType)[n] for n in ("get", "__getitem__", "__contains__"))


def _has_texts(proxy: Any) -> bool:
    """Whether it shows a plain dict whose keys are texts, as that of a class is: comparing them
    calls nothing."""
    mapping = mapping_behind(proxy) if type(proxy) is MappingProxyType else None
    return type(mapping) is dict and all(type(key) is str for key in mapping)


def _makes_by_code(machine: Interpreter, fn: Any, cls: Any) -> bool:
    """Whether a class method of C, such as `fromkeys`, makes an object of a class that says in
    Python how."""
    if not issubclass(type(cls), type) or not flags_of(cls) & HEAP_TYPE:
        return False
    if fn.__name__.startswith("__") or fn.__name__ == "mro":
        return False
    return any(_is_of_the_program(machine, cls, name) for name in (*_MADE_ANEW, *WRITES))


def _looks_at_arguments_alone(fn: Any) -> bool:
    """Whether the function asks nothing of what lies in the containers that it is handed."""
    if type(fn) not in purity.CALLABLE_TYPES:
        return False
    owner = fn if issubclass(type(fn), type) else getattr(fn, "__objclass__", None)
    return (
        fn in ASKED
        or owner in _KEEPING
        or (owner is not None and issubclass(owner, BaseException))
        or getattr(fn, "__module__", None) == "_operator"
    )


def defines(machine: Interpreter, value: Any, methods: tuple[str, ...], depth: int = 3) -> bool:
    """Does the class of the value, or of what lies in it, define one of the methods in Python?"""
    kind = type(value)
    if kind in PLAIN or kind in PROXIES:
        return False
    if kind is _COMPARING_KEY or _asks_as_a_time(machine, value):
        return True
    parts_of = next((parts for base, parts in _HOLDERS if issubclass(kind, base)), None)
    value = value if parts_of is None else parts_of(value)
    if issubclass(type(value), CONTAINERS) and depth:
        inside = (*values_of(value), *(dict.keys(value) if issubclass(kind, dict) else ()))
        if any(defines(machine, item, methods, depth - 1) for item in inside):
            return True
    return flags_of(kind) & HEAP_TYPE != 0 and any(
        _is_of_the_program(machine, kind, name) for name in methods
    )


_COMPARING_KEY = type(functools.cmp_to_key(lambda a, b: 0))
"""Its objects are compared by a function of the program."""
_HOLDERS: tuple[tuple[Any, Callable[[Any], tuple[Any, ...]]], ...] = (
    (functools.partial, lambda p: (p.func, p.args, p.keywords, (*p.keywords,))),
    (slice, lambda s: (s.start, s.stop, s.step)),
    (CellType, lambda c: (contents(c),)),
    (SimpleNamespace, lambda n: (n.__dict__,)),
    (GenericAlias, lambda a: (a.__origin__, a.__args__)),
    (UnionType, lambda u: u.__args__),
    (weakref.ref, lambda r: (weakref.ref.__call__(r),)),
    ((MappingProxyType, *VIEWS), lambda v: (mapping_behind(v),)),
)
"""Classes of C, no containers, that compare, hash or show what they hold, and what that is."""


def _asked(fn: Any, args: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Each argument, and which methods of its class the function may call."""
    known = type(fn) in purity.CALLABLE_TYPES
    names = ASKED.get(fn, ANY) if known else ANY
    of_receiver = RECEIVER_ASKED.get(fn, ()) if known and hasattr(fn, "__objclass__") else names
    for arg in args[:1]:
        yield arg, of_receiver
    for arg in args[1:]:
        yield arg, names


def _is_asked(machine: Interpreter, value: Any, names: tuple[str, ...]) -> bool:
    """Does the class of the value define one of the methods in Python?"""
    kind = type(value)
    if not names or kind in PROXIES:
        return False
    if _asks_as_a_time(machine, value):
        return True
    if not flags_of(kind) & HEAP_TYPE:
        return False
    return any(_is_of_the_program(machine, kind, name) for name in names)


def _asks_as_a_time(machine: Interpreter, value: Any) -> bool:
    """Whether the value is a time of a `tzinfo` that the program has written, which all of C's
    methods may ask, or of a class of the program, which makes what C computes with it."""
    kind = type(value)
    if not issubclass(kind, _TIMES):
        return False
    if flags_of(kind) & HEAP_TYPE and any(
        _is_of_the_program(machine, kind, name) for name in _MADE_ANEW
    ):
        return True
    zone_of = next((of for base, of in times.ZONES.items() if issubclass(kind, base)), None)
    return zone_of is not None and any(
        _is_of_the_program(machine, type(zone_of(value)), name) for name in _OF_ZONES
    )


_TIMES = (datetime.date, datetime.time, datetime.timedelta)
_OF_ZONES = ("utcoffset", "dst", "tzname", "fromutc")


def _is_index(machine: Interpreter, value: Any) -> bool:
    parts = (value.start, value.stop, value.step) if type(value) is slice else (value,)
    return any(_is_of_the_program(machine, type(part), "__index__") for part in parts)


def hashes_elements(machine: Interpreter, value: Any) -> bool:
    """Would C code run a `__hash__` or `__eq__` of the program on what lies in the value, or on the
    value, if it is no container?"""
    if type(value) in VIEWS:
        return hashes_elements(machine, mapping_behind(value))
    elements = elements_of(value) if issubclass(type(value), CONTAINERS) else (value,)
    return any(hashes_outside(machine, element) for element in elements)


def hashes_outside(machine: Interpreter, value: Any, depth: int = 3) -> bool:
    """Would C code that hashes the value run a `__hash__` of the program on an outside object, and
    so read what no guard covers?"""
    kind = type(value)
    if kind in PLAIN or kind in PROXIES or depth == 0:
        return False
    if _asks_as_a_time(machine, value):
        return True
    if issubclass(kind, HASHED_BY_PARTS):
        if any(hashes_outside(machine, item, depth - 1) for item in values_of(value)):
            return True
        if not flags_of(kind) & HEAP_TYPE:
            return False
    if not machine.heap.is_created(value):
        return any(_is_of_the_program(machine, kind, name) for name in HASHED)
    return any(
        _is_of_the_program(machine, kind, name)
        and not _reads_itself(machine, value, machine.lookup(kind, name), depth)
        for name in HASHED
    )


def _reads_itself(machine: Interpreter, value: Any, method: Any, depth: int) -> bool:
    """Whether all that a `__hash__` or `__eq__` of this object does is to read what it holds."""
    if type(method) is not FunctionType:
        return False
    reads = _reads_of(method.__code__)
    if reads is None or not _names_what_is_fixed(method, reads.names):
        return False
    kind = type(value)
    if any(type(machine.lookup(kind, name)) is FunctionType for name in ATTRIBUTES):
        return False
    return all(
        _reads_without_code(machine, value, name, depth, further=name in reads.read_of)
        for name in reads.attributes
    )


def _names_what_is_fixed(method: FunctionType, names: frozenset[str]) -> bool:
    found = [contents(cell) for cell in method.__closure__ or ()]
    if "super" in names:  # and a method of a base, which may be the program's
        return False
    found += [method.__globals__.get(name, vars(builtins).get(name)) for name in names]
    return all(
        issubclass(type(value), type) or any(value is asked for asked in _ASKED_IN_C)
        for value in found
    )


def _reads_without_code(
    machine: Interpreter, value: Any, name: str, depth: int, *, further: bool
) -> bool:
    """Whether `value.name` is no code of the program's, and neither is its hash; `further` says
    that an attribute of it is read."""
    entry = machine.lookup(type(value), name)
    if type(entry) not in _MADE_IN_C and machine.lookup(type(entry), "__get__") is not NULL:
        return name in HASHED  # that of a base, as in `tuple.__hash__(self)`
    try:
        attribute = object.__getattribute__(value, name)
    except AttributeError:
        return True
    if further and type(attribute) not in PLAIN and not issubclass(type(attribute), type):
        return False
    return not hashes_outside(machine, attribute, depth - 1)


@frozen
class _Reads:
    """The globals that code reads, the attributes, and those of which attributes are read."""

    names: frozenset[str]
    attributes: frozenset[str]
    read_of: frozenset[str]


@functools.lru_cache(1024)
def _reads_of(code: CodeType) -> _Reads | None:
    """What the code reads, if it does nothing beside reading."""
    steps = [i for i in dis.get_instructions(code) if i.opname not in _NOTHING]
    if any(step.opname.startswith(_MORE) for step in steps):
        return None
    pairs = [(a, b) for a, b in itertools.pairwise(steps) if b.opname in _ATTRIBUTE]
    return _Reads(
        frozenset(step.argval for step in steps if step.opname == "LOAD_GLOBAL"),
        frozenset(step.argval for step in steps if step.opname in _ATTRIBUTE),
        frozenset(a.argval for a, _ in pairs if a.opname in _ATTRIBUTE),
    )


_ASKED_IN_C = (hash, isinstance, issubclass, len, NotImplemented)
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_NOTHING = ("CACHE", "PRECALL", "NOP", "EXTENDED_ARG")
_STORES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF", "STORE_NAME")
_MORE = (*_STORES, "LOAD_NAME", "DELETE_", "RAISE", "YIELD", "IMPORT", "MAKE_")


def _is_of_the_program(machine: Interpreter, kind: type, name: str) -> bool:
    """Is the method of this name written by the program? One of the standard library's is as good
    as that where it calls others of a class of the program."""
    method = machine.lookup(kind, name)
    if type(method) is staticmethod:  # which is what `__new__` is
        method = method.__func__
    if type(method) is FunctionType:
        module = method.__module__ or ""
        if not purity.is_library(module) or module == _DECIMALS_IN_PYTHON:
            return True
        hooked = type(machine.lookup(kind, "__getattribute__")) is FunctionType
        return (hooked or module in _CALLING_OTHERS) and not purity.is_library(class_module(kind))
    if method is NULL or method is None:
        return False
    if type(method) in C_FUNCTIONS:
        if name in _OF_ATTRIBUTES or _only_reads(method) or is_slot_of_c(kind, name, method):
            return False
        return not purity.is_library(class_module(kind))
    return type(method) not in _MADE_IN_C and not purity.is_library(class_module(type(method)))


_DECIMALS_IN_PYTHON = "decimal"  # as `_pydecimal` calls itself
"""Its methods write flags of a context that the program may have made."""
_OF_ATTRIBUTES = ("__setattr__", "__delattr__")
"""No C code but `setattr` and `delattr`, which are known, asks for these."""


def _only_reads(method: Any) -> bool:
    """Whether a function of C, under whatever name a class has it, writes nothing: its answer is
    the same where C code asks for it."""
    if method in purity.READERS:
        return True
    name = method.__name__
    is_slot = type(method) is type(object.__init__) and name.startswith("__")
    return is_slot and name not in _WRITING_SLOTS and not name.startswith("__i")


_WRITING_SLOTS = frozenset({*WRITES, "__next__", "__call__", "__del__", "__set__", "__delete__"})
HASHED = ("__hash__", "__eq__")
_CALLING_OTHERS = frozenset({"collections", "_collections_abc"})
_MADE_IN_C = purity.C_DESCRIPTORS
_ITERATING = frozenset(
    [
        *[list, tuple, deque, zip, enumerate, reversed, map, filter, iter, next],
        *[value for value in vars(itertools).values() if issubclass(type(value), type)],
        *[list.extend, list.__iadd__, list.__init__, tuple.__new__],
        *[deque.extend, deque.extendleft, deque.__iadd__, deque.__init__],
    ]
)
_BINARY = (
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *(f"__{reflected}{name}__" for name in ("add", "sub", "mul") for reflected in ("", "r")),
    *("__or__", "__and__", "__xor__", "__ror__", "__rand__", "__rsub__", "__rxor__"),
    *("__truediv__", "__floordiv__", "__mod__", "__divmod__", "__pow__"),
)
_DECLINING = [
    *[vars(cls)[name] for cls in (int, float, complex) for name in _BINARY if name in vars(cls)],
    *[
        vars(cls)[name]
        for cls in (object, str, bytes, bytearray, tuple, list, set, frozenset, dict, range, slice)
        for name in _BINARY[:6]
        if name in vars(cls)
    ],
]
"""Those that look at the class of the other operand, and decline what is not of theirs."""
_COMPARABLE = (int, float, complex, str, bytes, bytearray, *CONTAINERS, range, slice)


def declines(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether such a method sees by the class of the other operand that this is nothing to it."""
    if len(args) != 2:
        return False
    if fn in _OF_UNIONS:
        return type(args[1]) is not UnionType
    asked = not issubclass(type(args[1]), _COMPARABLE)
    return asked and fn in _DECLINING and fn.__objclass__ is not bytearray


_OF_UNIONS = tuple(vars(UnionType)[name] for name in ("__eq__", "__ne__"))


ASKED: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys(purity.UNLOOKING, ()),
    **dict.fromkeys(_DECLINING, ()),
    **dict.fromkeys(_ITERATING, ITERATION),
    **dict.fromkeys((dict, OrderedDict, defaultdict, dict.update, dict.__init__), MAPPING),
    **dict.fromkeys((super, property, staticmethod, classmethod, slice, object), ()),
    **dict.fromkeys((getattr, hasattr, setattr), ATTRIBUTES),
    len: ("__len__",),
    bool: ("__bool__", "__len__"),
    **dict.fromkeys((int, float, complex), (*NUMBER, "__buffer__", "__repr__")),
    **dict.fromkeys((repr, str, hash), ()),  # asked all the way down: see below
}
"""What a function asks the classes of its arguments for, where that is not anything."""
_MAKING_SETS = (
    *("copy", "union", "intersection", "difference", "symmetric_difference"),
    *("__or__", "__and__", "__sub__", "__xor__"),
)
_MADE_ANEW = ("__init__", "__new__")
_REDUCED = (*MAPPING, "__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
RECEIVER_ASKED: dict[Any, tuple[str, ...]] = {
    dict.__getitem__: ("__missing__",),
    **dict.fromkeys((dict.copy, dict.__or__, dict.__ror__), MAPPING),
    **dict.fromkeys((object.__reduce_ex__, object.__reduce__, set.__reduce__), _REDUCED),
    **dict.fromkeys((frozenset.__reduce__, bytearray.__reduce_ex__, deque.__reduce__), _REDUCED),
    **dict.fromkeys(
        (deque.copy, deque.__copy__, deque.__add__, deque.__mul__), (*ITERATION, *_MADE_ANEW)
    ),
    deque.__imul__: ITERATION,
    **{
        vars(defaultdict)[name]: (*MAPPING, *_MADE_ANEW, "__del__")
        for name in ("copy", "__copy__", "__or__", "__ror__", "__reduce__")
    },
    **{vars(cls)[name]: ("__del__",) for cls in (set, frozenset) for name in _MAKING_SETS},
    object.__getstate__: ATTRIBUTES,
    object.__dir__: ATTRIBUTES,
    object.__format__: TEXT,
    object.__str__: TEXT,
    object.__ne__: EQUALITY,
    **{
        vars(OrderedDict)[name]: (*MAPPING, *WRITES[:2], *_MADE_ANEW, "__contains__")
        for name in ("copy", "update", "pop", "popitem", "setdefault", "__eq__", "__reduce__")
    },
}
"""And that of the object whose method it is: C code knows how its own containers lie."""
