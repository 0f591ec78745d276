"""Which special methods of subclasses of builtins an operation calls, with arguments of which kinds.

Tables: the builtins, the methods that a subclass overrides, one at a time, and the operations. A
cell is one of each: the operation runs natively and compiled, on an object that is handed in and on
one that the program makes.
"""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import gc
import heapq
import itertools
import json
import math
import operator
import types
import warnings
from collections import Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

LOG: list[tuple[Any, ...]] = []
Pair = collections.namedtuple("Pair", ["a", "b"])

# What each builtin is made of, and a key of it.
BUILTINS: dict[type, tuple[tuple[Any, ...], Any]] = {
    list: (([2, 1, 3],), 0),
    tuple: (([2, 1, 3],), 0),
    deque: (([2, 1, 3],), 0),
    dict: (({"a": 1, "b": 2},), "a"),
    set: (([2, 1, 3],), 0),
    frozenset: (([2, 1, 3],), 0),
    str: (("bac",), 0),
    bytes: ((b"bac",), 0),
    bytearray: ((b"bac",), 0),
    int: ((2,), 0),
    float: ((2.5,), 0),
    OrderedDict: (({"a": 1, "b": 2},), "a"),
    defaultdict: ((int, {"a": 1, "b": 2}), "a"),
    Counter: (("aab",), "a"),
    UserList: (([2, 1, 3],), 0),
    UserDict: (({"a": 1, "b": 2},), "a"),
    UserString: (("bac",), 0),
    Pair: ((1, 2), 0),
}

# What a method answers where the builtin has none.
ANSWERS: dict[str, Callable[..., Any]] = {
    "__bool__": lambda s: True,
    "__index__": lambda s: 1,
    "__int__": lambda s: 1,
    "__len__": lambda s: 2,
    "__iter__": lambda s: iter(()),
    "__reversed__": lambda s: iter(()),
    "__contains__": lambda s, o: True,
    "__getitem__": lambda s, k: (7, 8)[k if type(k) is int else 0],  # and then IndexError
    "__setitem__": lambda s, k, v: None,
    "__delitem__": lambda s, k: None,
    "__missing__": lambda s, k: 5,
    "__call__": lambda s, *a: len(a),
    "__del__": lambda s: None,
    "__length_hint__": lambda s: 2,
    "__next__": lambda s: 1,
    "__enter__": lambda s: 1,
    "__exit__": lambda s, *a: None,
    "__copy__": lambda s: 1,
    "__getattr__": lambda s, n: 6,
    **dict.fromkeys("__add__ __radd__ __iadd__ __or__ __ror__ __ior__".split(), lambda s, o: 4),
    **dict.fromkeys("__mul__ __rmul__ __and__ __sub__".split(), lambda s, o: 3),
    "keys": lambda s: ["a"],
    "items": lambda s: [("a", 1)],
    "get": lambda s, *a: 8,
}
COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
TEXTS = ("__repr__", "__str__", "__format__")
METHODS = (*ANSWERS, *COMPARISONS, *TEXTS, "__hash__", "__getattribute__", "__setattr__")


def kinds(values: tuple[Any, ...]) -> tuple[str, ...]:
    """The classes of arguments; names of attributes as they are."""
    return tuple(v if type(v) is str else type(v).__name__ for v in values)


def subclass(base: type, method: str) -> type:
    """A subclass whose `method` is written down, and does as the builtin's does."""
    original = getattr(base, method, None)
    if original is object.__getattribute__ or original is None and method in ANSWERS:
        original = original or ANSWERS[method]

    def overridden(*args: Any) -> Any:
        LOG.append((method, *kinds(args)))
        return original(*args)

    overridden.__name__ = method
    made = type("Sub" + base.__name__, (base,), {"__module__": __name__})
    setattr(made, method, overridden)
    return made


def _store(o: Any, k: Any, v: Any) -> Any:
    o[k] = v
    return o


def _delete(o: Any, k: Any) -> Any:
    del o[k]
    return o


def _attribute(o: Any) -> Any:
    o.x = 1
    return o.x


def _unpacked(o: Any) -> Any:
    a, *b = o
    return a, b


def _two(o: Any) -> Any:
    a, b = o
    return a, b


def _matched(o: Any) -> Any:
    match o:
        case {"a": a}:
            return "mapping", a
        case [a, b]:
            return "two", a, b
        case [a, *_]:
            return "many", a
        case int() | str():
            return "plain"
    return None


def _loop(o: Any) -> Any:
    found = []
    for value in o:
        found.append(value)
    return found


def _with(o: Any) -> Any:
    with o as value:
        return value


def _gen(o: Any) -> Any:
    yield from o


def _star(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def _in_place(symbol: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(f"def apply(a, b):\n    a {symbol} b\n    return a", scope)
    return scope["apply"]


def _mutate(make: Callable[[], Any], name: str, *more: Any) -> Callable[..., Any]:
    def apply(o: Any, p: Any, k: Any) -> Any:
        target = make()
        return getattr(target, name)(o, *more), target

    return apply


# Each is given an object of the subclass, another one that is equal, and a key.
OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "len": lambda o, p, k: len(o),
    "bool": lambda o, p, k: bool(o),
    "not": lambda o, p, k: not o,
    "if": lambda o, p, k: 1 if o else 2,
    "and": lambda o, p, k: o and 1,
    "hash": lambda o, p, k: hash(o),
    "eq": lambda o, p, k: o == p,
    "eq plain": lambda o, p, k: [o == 1, 1 == o],
    "ne": lambda o, p, k: o != p,
    "lt": lambda o, p, k: o < p,
    "ge": lambda o, p, k: o >= p,
    "operator.eq": lambda o, p, k: operator.eq(o, p),
    "in": lambda o, p, k: k in o,
    "not in": lambda o, p, k: 77 not in o,
    "operator.contains": lambda o, p, k: operator.contains(o, k),
    "countOf": lambda o, p, k: operator.countOf(o, k),
    "indexOf": lambda o, p, k: operator.indexOf(o, 3),
    "getitem": lambda o, p, k: o[k],
    "missing": lambda o, p, k: o["zz"],
    "slice": lambda o, p, k: o[0:2],
    "operator.getitem": lambda o, p, k: operator.getitem(o, k),
    "itemgetter": lambda o, p, k: operator.itemgetter(k, k)(o),
    "setitem": lambda o, p, k: _store(o, k, 9),
    "set slice": lambda o, p, k: _store(o, slice(0, 2), [8]),
    "set slice of list": lambda o, p, k: _store([1, 2, 3], slice(0, 1), o),
    "set stepped slice": lambda o, p, k: _store([1, 2, 3, 4, 5], slice(0, 5, 2), o),
    "delitem": lambda o, p, k: _delete(o, k),
    "iter": lambda o, p, k: next(iter(o)),
    "reversed": lambda o, p, k: list(reversed(o)),
    "loop": lambda o, p, k: _loop(o),
    "comprehension": lambda o, p, k: [v for v in o],
    "set comprehension": lambda o, p, k: {v for v in o},
    "generator": lambda o, p, k: list(v for v in o),
    "yield from": lambda o, p, k: list(_gen(o)),
    **{
        cls.__name__: (lambda cls: lambda o, p, k: cls(o))(cls)
        for cls in (list, tuple, set, frozenset, dict, deque, Counter, OrderedDict, str, bytes)
    },
    **{
        cls.__name__: (lambda cls: lambda o, p, k: cls(o))(cls)
        for cls in (int, float, complex, bytearray, range, types.MappingProxyType, UserList)
    },
    **{
        fn.__name__: (lambda fn: lambda o, p, k: fn(o))(fn)
        for fn in (sorted, sum, max, min, any, all, math.prod, dict.fromkeys, abs, round)
    },
    **{
        fn.__name__: (lambda fn: lambda o, p, k: fn(o))(fn)
        for fn in (repr, ascii, format, callable, operator.index, operator.length_hint, bin, chr)
    },
    "max key": lambda o, p, k: max(o, key=lambda v: v),
    "max two": lambda o, p, k: max(o, p) is o,
    "min two": lambda o, p, k: min([o, p]) is o,
    "sorted two": lambda o, p, k: sorted([o, p])[0] is o,
    "sort two": lambda o, p, k: [o, p].sort(),
    "f-string": lambda o, p, k: f"{o} {o!r} {o:}",
    "percent": lambda o, p, k: "%s %r" % (o, o),
    "percent one": lambda o, p, k: "%s" % o,
    "percent number": lambda o, p, k: "%d" % (o,),
    "percent mapping": lambda o, p, k: "%(a)s" % o,
    "str.format": lambda o, p, k: "{} {!r}".format(o, o),
    "format_map": lambda o, p, k: "{a}".format_map(o),
    "list display": lambda o, p, k: [0, *o],
    "tuple display": lambda o, p, k: (*o, 0),
    "set display": lambda o, p, k: {*o, 0},
    "dict display": lambda o, p, k: {**o, "z": 1},
    "star": lambda o, p, k: _star(*o),
    "double star": lambda o, p, k: _star(**o),
    "unpack": lambda o, p, k: _unpacked(o),
    "unpack two": lambda o, p, k: _two(o),
    "match": lambda o, p, k: _matched(o),
    "with": lambda o, p, k: _with(o),
    "call": lambda o, p, k: o(1),
    "partial": lambda o, p, k: functools.partial(o, 1)(2),
    "map call": lambda o, p, k: list(map(o, [1, 2])),
    "enumerate": lambda o, p, k: list(enumerate(o)),
    "zip": lambda o, p, k: list(zip(o, p)),
    "map": lambda o, p, k: list(map(str, o)),
    "filter": lambda o, p, k: list(filter(None, o)),
    "filter truth": lambda o, p, k: len(list(filter(None, [o, p]))),
    "chain": lambda o, p, k: list(itertools.chain(o, p)),
    "islice": lambda o, p, k: list(itertools.islice(o, 2)),
    "product": lambda o, p, k: list(itertools.product(o, p)),
    "combinations": lambda o, p, k: list(itertools.combinations(o, 2)),
    "accumulate": lambda o, p, k: list(itertools.accumulate(o)),
    "groupby": lambda o, p, k: [key for key, _ in itertools.groupby(o)],
    "reduce": lambda o, p, k: functools.reduce(lambda a, b: b, o),
    "any of two": lambda o, p, k: (any([o]), all([o, p])),
    "add": lambda o, p, k: o + p,
    "add to list": lambda o, p, k: [1] + o,
    "add list": lambda o, p, k: o + [1],
    "add number": lambda o, p, k: [o + 1, 1 + o],
    "add text": lambda o, p, k: ["x" + o, o + "x"],
    "add tuple": lambda o, p, k: (1,) + o,
    "iadd": lambda o, p, k: _in_place("+=")(o, p),
    "iadd list": lambda o, p, k: _in_place("+=")([1], o),
    "iadd deque": lambda o, p, k: _in_place("+=")(deque([1]), o),
    "operator.iadd": lambda o, p, k: operator.iadd(o, p),
    "operator.concat": lambda o, p, k: operator.concat(o, p),
    "mul": lambda o, p, k: o * 2,
    "rmul": lambda o, p, k: 2 * o,
    "list mul": lambda o, p, k: [1] * o,
    "imul": lambda o, p, k: _in_place("*=")(o, 2),
    "or": lambda o, p, k: o | p,
    "dict or": lambda o, p, k: {"a": 1} | o,
    "set or": lambda o, p, k: {1} | o,
    "or dict": lambda o, p, k: o | {"a": 1},
    "ior": lambda o, p, k: _in_place("|=")(o, p),
    "dict ior": lambda o, p, k: _in_place("|=")({"c": 1}, o),
    "set ior": lambda o, p, k: _in_place("|=")({1}, o),
    "and operator": lambda o, p, k: o & p,
    "set and": lambda o, p, k: {1} & o,
    "sub": lambda o, p, k: o - p,
    "set sub": lambda o, p, k: {1, 7} - o,
    "isub": lambda o, p, k: _in_place("-=")(o, p),
    "xor": lambda o, p, k: o ^ p,
    "neg": lambda o, p, k: -o,
    "index list": lambda o, p, k: [1, 2, 3][o],
    "slice list": lambda o, p, k: [1, 2, 3][:o],
    "key of dict": lambda o, p, k: len({o: 1}),
    "key looked up": lambda o, p, k: {o: 1}[p],
    "key absent": lambda o, p, k: {1: 1}.get(o),
    "member of set": lambda o, p, k: o in {p},
    "set of both": lambda o, p, k: len({o, p}),
    "in list": lambda o, p, k: [o in [o], o in [p], p in [1, o]],
    "in deque": lambda o, p, k: p in deque([1, o]),
    "in tuple": lambda o, p, k: p in (1, o),
    "list.index": lambda o, p, k: [1, o].index(p),
    "list.count": lambda o, p, k: [1, o].count(p),
    "list.remove": lambda o, p, k: [1, o].remove(p),
    "deque.index": lambda o, p, k: deque([1, o]).index(p),
    "deque.count": lambda o, p, k: deque([1, o]).count(p),
    "deque.remove": lambda o, p, k: deque([1, o]).remove(p),
    "lists equal": lambda o, p, k: [o] == [p],
    "tuples order": lambda o, p, k: (1, o) < (1, p),
    "dicts equal": lambda o, p, k: {"k": o} == {"k": p},
    "deques equal": lambda o, p, k: deque([o]) == deque([p]),
    "equal plain list": lambda o, p, k: [o == [2, 1, 3], [2, 1, 3] == o],
    "equal plain dict": lambda o, p, k: [o == {"a": 1, "b": 2}, {"a": 1, "b": 2} == o],
    "method eq": lambda o, p, k: o.__eq__(p),
    "method iter": lambda o, p, k: list(o.__iter__()),
    "method len": lambda o, p, k: o.__len__(),
    "copy.copy": lambda o, p, k: copy.copy(o),
    "copy.deepcopy": lambda o, p, k: copy.deepcopy(o),
    "copy": lambda o, p, k: o.copy(),
    "index": lambda o, p, k: o.index(3),
    "count": lambda o, p, k: o.count(1),
    "append": lambda o, p, k: o.append(1),
    "extend": lambda o, p, k: o.extend(p),
    "insert": lambda o, p, k: o.insert(1, 5),
    "remove": lambda o, p, k: o.remove(1),
    "pop": lambda o, p, k: o.pop(),
    "popitem": lambda o, p, k: o.popitem(),
    "clear": lambda o, p, k: o.clear(),
    "sort": lambda o, p, k: o.sort(),
    "reverse": lambda o, p, k: o.reverse(),
    "rotate": lambda o, p, k: o.rotate(1),
    "appendleft": lambda o, p, k: o.appendleft(1),
    "extendleft": lambda o, p, k: o.extendleft(p),
    "get": lambda o, p, k: o.get("zz", 3),
    "setdefault": lambda o, p, k: o.setdefault("zz", 3),
    "pop key": lambda o, p, k: o.pop("a"),
    "keys": lambda o, p, k: list(o.keys()),
    "items": lambda o, p, k: list(o.items()),
    "values": lambda o, p, k: list(o.values()),
    "keys and": lambda o, p, k: o.keys() & p.keys(),
    "keys equal": lambda o, p, k: o.keys() == p.keys(),
    "items equal": lambda o, p, k: o.items() == p.items(),
    "key view in": lambda o, p, k: "a" in o.keys(),
    "move_to_end": lambda o, p, k: o.move_to_end("a"),
    "most_common": lambda o, p, k: o.most_common(1),
    "elements": lambda o, p, k: list(o.elements()),
    "update": lambda o, p, k: o.update(p),
    "union": lambda o, p, k: o.union(p),
    "issubset": lambda o, p, k: o.issubset(p),
    "isdisjoint": lambda o, p, k: o.isdisjoint(p),
    "add element": lambda o, p, k: o.add(9),
    "discard": lambda o, p, k: o.discard(1),
    "upper": lambda o, p, k: o.upper(),
    "split": lambda o, p, k: o.split("a"),
    "replace": lambda o, p, k: o.replace("a", "b"),
    "startswith": lambda o, p, k: ["bac".startswith(o), o.startswith("b")],
    "join self": lambda o, p, k: o.join(["1", "2"]),
    "join": lambda o, p, k: ",".join(o),
    "join it": lambda o, p, k: ",".join([o, p]),
    "bytes.join": lambda o, p, k: b"".join(o),
    "translate": lambda o, p, k: "abc".translate(o),
    "find": lambda o, p, k: "abacus".find(o),
    "list.extend": _mutate(lambda: [1], "extend"),
    "list.insert": _mutate(lambda: [1, 2], "insert", 7),
    "list.pop": _mutate(lambda: [1, 2, 3], "pop"),
    "list.append": lambda o, p, k: [[].append(o)],
    "deque.extend": _mutate(lambda: deque([1]), "extend"),
    "deque.extendleft": _mutate(lambda: deque([1]), "extendleft"),
    "deque.rotate": _mutate(lambda: deque([1, 2]), "rotate"),
    "dict.update": _mutate(lambda: {"a": 0}, "update"),
    "dict.setdefault": lambda o, p, k: {p: 1}.setdefault(o, 2),
    "dict.pop": lambda o, p, k: {p: 1}.pop(o),
    "OrderedDict.update": _mutate(lambda: OrderedDict(a=0), "update"),
    "Counter.update": _mutate(lambda: Counter("a"), "update"),
    "defaultdict.update": _mutate(lambda: defaultdict(int), "update"),
    **{
        f"set.{name}": _mutate(lambda: {1, 7}, name)
        for name in "update union intersection difference issubset issuperset isdisjoint".split()
    },
    "set.add": lambda o, p, k: {p}.add(o),
    "set.discard": lambda o, p, k: {p}.discard(o),
    "bytearray.extend": _mutate(lambda: bytearray(b"a"), "extend"),
    "ChainMap": lambda o, p, k: collections.ChainMap(o)["a"],
    "heapify": lambda o, p, k: heapq.heapify(o),
    "heappush": lambda o, p, k: heapq.heappush(o, 0),
    "heappush it": lambda o, p, k: heapq.heappush([p], o),
    "nlargest": lambda o, p, k: heapq.nlargest(2, o),
    "bisect": lambda o, p, k: bisect.bisect(o, 2),
    "bisect it": lambda o, p, k: bisect.bisect([p], o),
    "json": lambda o, p, k: json.dumps(o),
    "getattr": lambda o, p, k: getattr(o, "nothing", None),
    "hasattr": lambda o, p, k: hasattr(o, "nothing"),
    "attribute": lambda o, p, k: _attribute(o),
    "setattr": lambda o, p, k: setattr(o, "y", 2),
    "vars": lambda o, p, k: len(vars(o)),
    "isinstance": lambda o, p, k: [isinstance(o, list), isinstance(o, collections.abc.Mapping)],
    "type": lambda o, p, k: type(o).__name__,
    "class": lambda o, p, k: o.__class__.__name__,
    "bound": lambda o, p, k: o.__len__,
    "identity": lambda o, p, k: [o is p, o is o],
    "held": lambda o, p, k: ([o], {"o": p}),
    "given back": lambda o, p, k: o,
    "dropped": lambda o, p, k: None,
    "from_iterable": lambda o, p, k: list(itertools.chain.from_iterable([o, p])),
    "starmap": lambda o, p, k: list(itertools.starmap(_star, [o])),
    "next default": lambda o, p, k: next(iter(o), None),
    "sum start": lambda o, p, k: sum([[1]], o),
    "divmod": lambda o, p, k: divmod(o, 2),
    "pow": lambda o, p, k: o**2,
    "mod": lambda o, p, k: o % 2,
    "truediv": lambda o, p, k: 5 / o,
    "shift": lambda o, p, k: 1 << o,
    "Counter of both": lambda o, p, k: Counter([o, p]),
    "dict of pairs": lambda o, p, k: dict([(o, 1), [p, 2]]),
    "OrderedDict of pairs": lambda o, p, k: OrderedDict([(o, 1), (p, 2)]),
    "fromkeys of both": lambda o, p, k: dict.fromkeys([o, p]),
    "dicts equal by key": lambda o, p, k: {o: 1} == {p: 1},
    "dict or by key": lambda o, p, k: {o: 1} | {p: 2},
    "dict update by key": lambda o, p, k: {o: 1}.update({p: 2}),
    "set display of both": lambda o, p, k: len({*[o, p], *(p, o)}),
    "dict display by key": lambda o, p, k: len({**{o: 1}, **{p: 2}}),
    "dict comprehension by key": lambda o, p, k: len({each: 1 for each in (o, p)}),
    "intersection of lists": lambda o, p, k: {o}.intersection([p]),
    "intersection of iterators": lambda o, p, k: {o}.intersection(iter([p])),
    "set and of both": lambda o, p, k: {o} & {p},
    "remembered": lambda o, p, k: functools.lru_cache(lambda v: 1)(o),
    "bytes of list": lambda o, p, k: bytes([o, p]),
    "bytearray of iterator": lambda o, p, k: bytearray(iter([o, p])),
    "bytearray.extend list": lambda o, p, k: bytearray(b"a").extend([o]),
    "fsum of both": lambda o, p, k: math.fsum([o, p]),
    "bisect in list": lambda o, p, k: bisect.bisect([o, p], 2),
    "slices equal": lambda o, p, k: slice(o, p) == slice(p, o),
    "sorted three": lambda o, p, k: sorted([o, p, o])[0] is o,
    "sorted tuples": lambda o, p, k: sorted([(o, 1), (p, 0)])[0][0] is p,
    "repeat": lambda o, p, k: [o * [1], [1] * o, o * "a"],
    "isclose": lambda o, p, k: math.isclose(o, 2),
    "sqrt": lambda o, p, k: math.sqrt(o),
}


class Shown:
    """A text of a value; the operands are told by their names, and nothing of theirs is called."""

    def __init__(self, o: Any, p: Any) -> None:
        self.names = {id(o): "o", id(p): "p"}

    def text(self, value: Any) -> Any:
        if id(value) in self.names:
            return self.names[id(value)]
        return self.inside(value)

    def inside(self, value: Any) -> Any:
        kind = type(value)
        name = kind.__name__
        for base in (list, tuple, deque, set, frozenset):
            if issubclass(kind, base):
                items = [self.text(item) for item in base.__iter__(value)]
                return (name, *(sorted(items, key=repr) if base in (set, frozenset) else items))
        for base in (OrderedDict, dict):
            if issubclass(kind, base):
                pairs = base.items(value)
                return (name, *[(self.text(key), self.text(held)) for key, held in pairs])
        for base in (str, bytes, bytearray, float, int, complex):
            if issubclass(kind, base):
                return name, base.__repr__(value)
        if issubclass(kind, BaseException):
            return name, *map(self.text, value.args)
        if issubclass(kind, (UserList, UserDict, UserString)):
            return name, self.text(object.__getattribute__(value, "__dict__")["data"])
        if issubclass(kind, types.MethodType):
            return name, value.__name__, self.text(value.__self__)
        return (name,)


def inside(x: torch.Tensor, make: Callable[[], Any], operation: Any, key: Any) -> Any:
    """The program makes the objects."""
    o, p = make(), make()
    y = x + 1
    result = operation(o, p, key)
    return y * 2, result, o, p


def outside(x: torch.Tensor, o: Any, p: Any, operation: Any, key: Any) -> Any:
    """The objects are handed in."""
    y = x + 1
    result = operation(o, p, key)
    return y * 2, result, o, p


def seen(call: Callable[..., Any], made: type, name: str, where: str) -> tuple[Any, Any]:
    """What an operation calls, and what it gives or raises."""
    base = made.__mro__[1]
    given, key = BUILTINS[base]
    make = functools.partial(made, *given)
    x, operation = torch.ones(2), OPERATIONS[name]
    if "__del__" in vars(made):
        gc.collect()  # what earlier cells have left
    arguments = (make,) if where == "inside" else (make(), make())
    LOG.clear()
    try:
        _, result, o, p = call(x, *arguments, operation, key)
    except Exception as error:
        log = list(LOG)
        o, p = arguments if where == "outside" else (None, None)
        result = error
        error.__traceback__ = None
    else:
        log = list(LOG)
    shown = Shown(o, p)
    texts = shown.text(result), shown.inside(o), shown.inside(p)
    del arguments, result, o, p
    return [*log, "then", *LOG[len(log) :]], texts


PROGRAMS: dict[str, Callable[..., Any]] = {"inside": inside, "outside": outside}


def differences(
    base: type, method: str, operations: Any = tuple(OPERATIONS), every: int = 0
) -> Iterator[str]:
    """What differs in a row of the grid: one builtin, one method, all operations."""
    made = subclass(base, method)
    gc.collect()
    gc.freeze()
    for where, program in PROGRAMS.items():
        for name in operations:
            wanted = seen(program, made, name, where)
            fast = Compiled(program, Options(break_every=every), ByReference)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [seen(fast, made, name, where) for _ in range(2)]
            for number, one in enumerate(found):
                if one != wanted:
                    cell = f"{base.__name__} {method} {name} {where} call {number}"
                    yield f"{cell}\n  found  {one}\n  wanted {wanted}"
                    break
            if fast.mistakes:
                yield f"{base.__name__} {method} {name} {where}: {next(iter(fast.mistakes.values()))}"
