"""What C callables do: which only read containers, which write one, which make a new one, which
must not be called while recording.

Tables only. `native_calls.py` uses them to hand mirrors to readers and to log writers; a domain
uses `PURE` to decide whether a C function of constants may simply be called.
"""

from __future__ import annotations

import _codecs
import _json
import _string  # type: ignore[import-not-found]
import abc
import binascii
import bisect
import builtins
import collections
import functools
import heapq
import inspect
import itertools
import math
import operator
import os
import re
import sys
import types
import unicodedata
import zlib
from collections import OrderedDict, defaultdict, deque
from typing import Any

TRUSTED = frozenset(sys.stdlib_module_names) | {"torch", "anyshape", "numpy"}
"""Packages whose code hardly ever changes."""
C_DESCRIPTORS = frozenset(
    {
        type(list.append),
        type(object.__init__),
        type(vars(dict)["fromkeys"]),
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.BuiltinFunctionType,
    }
)


def _methods(cls: type, names: str) -> list[Any]:
    return [vars(cls)[name] for name in names.split() if name in vars(cls)]


_LIST = (
    "append extend insert remove pop clear reverse sort __setitem__ __delitem__ __iadd__ __imul__ "
    "__init__"
)
_DICT = (
    "__setitem__ __delitem__ pop popitem clear update setdefault __ior__ __init__ move_to_end "
    "__missing__"
)
_SET = (
    "add discard remove pop clear update difference_update intersection_update "
    "symmetric_difference_update __ior__ __iand__ __isub__ __ixor__ __init__"
)
_DEQUE = (
    "append appendleft extend extendleft insert pop popleft remove rotate reverse clear "
    "__setitem__ __delitem__ __iadd__ __imul__ __init__"
)

COUNT_ELEMENTS = vars(collections)["_count_elements"]  # what `Counter` counts with

# C functions that write a list before they compare all that they will compare.
SIFTERS: frozenset[Any] = frozenset(
    getattr(heapq, name) for name in "heappush heappop heapify heapreplace heappushpop".split()
)
# Writers that a proxy they hash, compare or add to would end half done: tried on a copy first.
STEPWISE: frozenset[Any] = SIFTERS | {COUNT_ELEMENTS}
# Writers that compare what lies in the container.
COMPARING_MUTATORS: frozenset[Any] = SIFTERS | {
    *[list.remove, list.sort, deque.remove, bisect.insort_left, bisect.insort_right]
}

# C methods that write their first argument.
MUTATORS: frozenset[Any] = frozenset(
    [
        *_methods(list, _LIST),
        *_methods(dict, _DICT),
        *_methods(OrderedDict, _DICT),
        *_methods(defaultdict, _DICT),
        *_methods(collections.Counter, ""),
        *_methods(set, _SET),
        *_methods(deque, _DEQUE),
        *_methods(bytearray, _LIST),
        *SIFTERS,
        *[bisect.insort_left, bisect.insort_right, COUNT_ELEMENTS],
    ]
)

_MOVING = (
    "append appendleft clear extend extendleft insert pop popleft reverse rotate __setitem__ "
    "__delitem__ __iadd__ __getitem__"
)
# C methods that look into none of the elements of their first argument.
MOVERS: frozenset[Any] = frozenset([*_methods(list, _MOVING), *_methods(deque, _MOVING)])

# C methods whose first argument after the container is hashed.
KEYED: frozenset[Any] = frozenset(
    [
        *_methods(dict, "get pop setdefault __getitem__ __setitem__ __delitem__ __contains__"),
        *_methods(OrderedDict, "pop setdefault __setitem__ __delitem__ move_to_end"),
        *_methods(set, "add discard remove __contains__"),
        *_methods(frozenset, "__contains__"),
    ]
)

# Writers that read their other arguments as a whole (an append only stores its argument).
ABSORBERS: frozenset[Any] = frozenset(
    [
        *_methods(list, "extend __iadd__ __init__"),
        *_methods(dict, "update __ior__ __init__"),
        *_methods(OrderedDict, "update __ior__ __init__"),
        *_methods(set, _SET),
        *_methods(deque, "extend extendleft __iadd__ __init__"),
        *_methods(bytearray, "extend __iadd__ __init__"),
        COUNT_ELEMENTS,
    ]
)
# Writers that may raise when they have written some of what they write.
HALFWAY: frozenset[Any] = ABSORBERS - frozenset(_methods(set, "add discard remove pop clear")) | {
    list.sort
}
# And those that do where they are given a slice.
SLICE_WRITERS: frozenset[Any] = frozenset([list.__setitem__, bytearray.__setitem__])

# operator.iadd(list, x) is list.__iadd__(list, x).
IN_PLACE: dict[Any, dict[type, Any]] = {
    **{
        fn: {c: vars(c)["__iadd__"] for c in (list, deque, bytearray)}
        for fn in (operator.iadd, operator.iconcat)
    },
    operator.imul: {c: vars(c)["__imul__"] for c in (list, deque, bytearray)},
    operator.ior: {c: vars(c)["__ior__"] for c in (OrderedDict, dict, set)},
    operator.iand: {set: set.__iand__},
    operator.isub: {set: set.__isub__},
    operator.ixor: {set: set.__ixor__},
    operator.setitem: {
        c: vars(c)["__setitem__"] for c in (list, OrderedDict, dict, deque, bytearray)
    },
    operator.delitem: {
        c: vars(c)["__delitem__"] for c in (list, OrderedDict, dict, deque, bytearray)
    },
}

_CONTAINER_READS = {
    list: (
        "copy count index __add__ __mul__ __rmul__ __contains__ __eq__ __len__ __iter__ "
        "__getitem__ __reversed__ __repr__"
    ),
    tuple: (
        "count index __add__ __mul__ __rmul__ __contains__ __eq__ __len__ __iter__ __getitem__ "
        "__repr__ __hash__"
    ),
    dict: (
        "copy get items keys values __contains__ __eq__ __len__ __iter__ __getitem__ __or__ "
        "__ror__ __reversed__ __repr__"
    ),
    OrderedDict: "copy items keys values __eq__ __iter__ __or__ __ror__ __reversed__ __repr__",
    set: (
        "copy union intersection difference symmetric_difference issubset issuperset isdisjoint "
        "__or__ __and__ __sub__ __xor__ __contains__ __eq__ __len__ __iter__ __le__ __lt__ "
        "__ge__ __gt__ __repr__"
    ),
    frozenset: (
        "copy union intersection difference symmetric_difference issubset issuperset isdisjoint "
        "__or__ __and__ __sub__ __xor__ __contains__ __eq__ __len__ __iter__ __le__ __lt__ "
        "__ge__ __gt__ __repr__ __hash__"
    ),
    deque: (
        "copy count index __add__ __mul__ __contains__ __eq__ __len__ __iter__ __getitem__ "
        "__reversed__ __repr__"
    ),
    str: "join format format_map __mod__ startswith endswith",
}

_OPERATOR_READS = [
    getattr(operator, name)
    for name in "add mul mod concat contains countOf indexOf getitem eq ne lt le gt ge".split()
]
_OPERATOR_READS += [operator.or_, operator.and_, operator.sub, operator.xor]
_OPERATOR_READS += [  # in place, of what has no such method: tuples, frozensets, texts
    getattr(operator, name) for name in "iadd imul imod iconcat ior iand isub ixor".split()
]

# C callables that read containers among their arguments as a whole and keep none of them.
READERS: frozenset[Any] = frozenset(
    [
        *[method for cls, names in _CONTAINER_READS.items() for method in _methods(cls, names)],
        *_OPERATOR_READS,
        *[
            list,
            tuple,
            dict,
            set,
            frozenset,
            OrderedDict,
            deque,
            zip,
            enumerate,
            reversed,
            map,
            filter,
        ],
        *[tuple.__new__, frozenset.__new__],
        *[sorted, sum, min, max, any, all, len, iter, bool, str, repr, format, hash, bytes],
        *[
            itertools.chain,
            itertools.islice,
            itertools.product,
            itertools.accumulate,
            itertools.starmap,
            math.prod,
            math.fsum,
        ],
    ]
)

# C callables that look at nothing that an iterator among their arguments gives: they store it, or
# the iterator.
UNLOOKING: frozenset[Any] = frozenset(
    [
        *[list, tuple, deque, zip, enumerate, reversed, map, filter, iter, next],
        *[type, isinstance, issubclass, callable, id, len, bool, repr, str, hash],
        *[getattr, hasattr, setattr, operator.length_hint, functools.partial],
        *[value for value in vars(itertools).values() if isinstance(value, type)],
        *[operator.is_, operator.is_not, tuple.__new__, object.__new__, list.__new__, dict.__new__],
        *_methods(object, "__init__ __eq__ __ne__ __hash__ __repr__ __str__ __getattribute__"),
        *_methods(list, "extend __iadd__ __init__"),
        *_methods(deque, "extend extendleft __iadd__ __init__"),
        *_methods(list, "append insert remove count index __contains__"),
        *_methods(deque, "append appendleft insert remove count index __contains__"),
        *_methods(tuple, "count index __contains__"),
        *KEYED,
    ]
)

# Readers that take pairs apart, which may be containers from outside themselves.
PAIR_READERS: frozenset[Any] = frozenset(
    [
        *[dict, OrderedDict],
        *[cls.__dict__[name] for cls in (dict, OrderedDict) for name in ("update", "__init__")],
    ]
)
# Readers that compare or print what they find, and so look into containers in containers.
DEEP_READERS: frozenset[Any] = READERS - frozenset(
    [
        *[list, tuple, dict, set, frozenset, OrderedDict, deque, zip, enumerate, reversed, map],
        *[filter, any, all, len, iter, bool, bytes, operator.getitem],
        *[operator.iadd, operator.imul, operator.iconcat],
        *[tuple.__new__, frozenset.__new__],
        *[itertools.chain, itertools.islice, itertools.product, itertools.starmap],
        *[
            method
            for cls in (list, tuple, dict, OrderedDict, deque)
            for method in _methods(cls, "copy items keys values __iter__ __len__ __reversed__")
        ],
        *[method for cls in (list, tuple) for method in _methods(cls, "__add__")],
        *_methods(dict, "__or__ __ror__"),
    ]
)

# Readers that look into their first argument only; the others are compared, stored or given back.
FIRST_READERS: frozenset[Any] = frozenset(
    method
    for cls in _CONTAINER_READS
    for method in _methods(cls, "get count index __contains__ __getitem__ __mul__ __rmul__")
)

# Those that compare what they look for with what they find.
SEARCHERS: frozenset[Any] = frozenset(
    method for cls in (list, tuple, deque) for method in _methods(cls, "count index __contains__")
)

# Types of callables that `in` and dict lookups may hash: no code of the program runs.
CALLABLE_TYPES: frozenset[type] = frozenset(
    {
        type,
        type(list.append),
        type(object.__init__),
        types.BuiltinFunctionType,
        types.FunctionType,
    }
)

# C callables whose result is a new mutable container.
MAKERS: frozenset[Any] = frozenset(
    [
        *[list, dict, set, OrderedDict, deque, defaultdict, sorted, bytearray],
        *_methods(list, "copy __add__ __mul__ __rmul__"),
        *_methods(dict, "copy __or__ __ror__"),
        *_methods(OrderedDict, "copy __or__ __ror__"),
        *_methods(
            set,
            "copy union intersection difference symmetric_difference "
            "__or__ __and__ __sub__ __xor__",
        ),
        *_methods(deque, "copy __add__ __mul__"),
        *_methods(str, "split rsplit splitlines"),
        *[
            tuple,
            zip,
            enumerate,
            reversed,
            iter,
            operator.add,
            operator.mul,
            operator.or_,
            operator.and_,
            operator.sub,
        ],
        *[dict.fromkeys],
    ]
)

_IMPURE_BUILTINS = (
    "print input open exec eval compile breakpoint __import__ globals locals vars id delattr "
    "setattr help"
)

# C functions without effects whose result depends on their arguments alone.
PURE: frozenset[Any] = frozenset(
    [
        *[
            value
            for name, value in vars(builtins).items()
            if callable(value)
            and name not in _IMPURE_BUILTINS.split()
            and not name.startswith("__")
        ],
        *[value for value in vars(math).values() if callable(value)],
        *[value for value in vars(operator).values() if callable(value)],
        *[value for value in vars(re).values() if callable(value)],
        *[value for value in vars(types).values() if isinstance(value, type)],
        *[
            functools.partial,
            *_methods(types.UnionType, "__eq__ __ne__"),
            bytes.maketrans,
            bytearray.maketrans,
            inspect.isfunction,
            inspect.isclass,
            inspect.ismodule,
            inspect.ismethod,
        ],
    ]
)
# C functions whose result depends on their arguments alone, where these are values.
OF_VALUES: frozenset[Any] = frozenset(
    [
        *[
            value
            for module in (binascii, unicodedata, _string, _json)
            for value in vars(module).values()
            if type(value) is types.BuiltinFunctionType
        ],
        *[zlib.crc32, zlib.adler32, zlib.compress, zlib.decompress, os.fspath],
    ]
)
NUMBERS = frozenset({int, float, bool, complex})
_OF_NUMBERS = (
    *("abs", "add", "and_", "eq", "floordiv", "ge", "gt", "index", "inv", "invert", "le", "lshift"),
    *("lt", "mod", "mul", "ne", "neg", "or_", "pos", "pow", "rshift", "sub", "truediv", "truth"),
    *("xor", "iadd", "iand", "ifloordiv", "ilshift", "imod", "imul", "ior", "ipow", "irshift"),
    *("isub", "itruediv", "ixor"),
)
# C functions that make numbers of numbers, and nothing else of them.
ARITHMETIC: frozenset[Any] = frozenset(
    [
        *[getattr(operator, name) for name in _OF_NUMBERS],
        *[value for value in vars(math).values() if type(value) is types.BuiltinFunctionType],
        *[abs, divmod, pow, round, min, max],
    ]
)
_ENCODINGS = "utf_8 ascii latin_1 raw_unicode_escape unicode_escape escape utf_16 utf_32"
# Those that may be told how to go on after an error, and those that are told which codec, too.
ENCODING: frozenset[Any] = frozenset(
    getattr(_codecs, f"{name}_{way}") for name in _ENCODINGS.split() for way in ("encode", "decode")
)
BY_CODEC: frozenset[Any] = frozenset([_codecs.encode, _codecs.decode])
# The names of codecs and of ways to go on that are C all through.
CODECS = frozenset({"utf-8", "utf8", "ascii", "latin1", "latin-1", "raw-unicode-escape"})
ERRORS = frozenset({"strict", "ignore", "replace", "backslashreplace", "surrogateescape"})
VALUES = frozenset({int, float, bool, str, bytes, complex, type(None)})


def is_of_values(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether the function depends on nothing but the values that it is given."""
    if not all(type(arg) in VALUES for arg in args):
        return False
    if fn in ENCODING:
        return all(type(arg) is not str or arg in ERRORS for arg in args[1:])
    if fn in BY_CODEC:
        return len(args) > 1 and args[1] in CODECS and all(arg in ERRORS for arg in args[2:])
    return fn in OF_VALUES


# Types whose C methods, called on a constant, have no effect and depend on nothing else.
PURE_TYPES: frozenset[type] = frozenset(
    {
        *[
            int,
            float,
            bool,
            complex,
            str,
            bytes,
            tuple,
            frozenset,
            range,
            slice,
            type(None),
            re.Pattern,
            re.Match,
        ],
        *[types.FunctionType, types.CodeType, types.MappingProxyType, types.GenericAlias, property],
    }
)
# C functions that must never be called while capturing: clock, process, random state, threads.
IMPURE_MODULES: frozenset[str] = frozenset(
    {
        "time",
        "_random",
        "random",
        "posix",
        "os",
        "_thread",
        "_io",
        "io",
        "_socket",
        "select",
        "signal",
        "gc",
        "faulthandler",
    }
)


@functools.cache
def is_library(module: str) -> bool:
    """Does a module of this name belong to torch, numpy or the standard library?"""
    return module.partition(".")[0] in TRUSTED


OF_ABC = frozenset(
    vars(abc)[f"_abc_{name}"] for name in ("init", "register", "instancecheck", "subclasscheck")
)
"""What is asked of abstract classes is relied on, and who is registered twice is so once; not how
often that was done in the process (`abc.get_cache_token`)."""
