"""Builtins that iterate: list, zip, sorted, next, generators' methods, ... (see builtins.py)."""

from __future__ import annotations

import functools
import math
import operator
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from anyshape.capture.heap import purity
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.iterators import TELLING
from anyshape.capture.heap.nested_containers import elements_of
from anyshape.capture.heap.quiet_classes import has_entry
from anyshape.capture.heap.values import ABSENT, NULL, PROXIES, SYMBOLIC_NUMBERS, Call
from anyshape.capture.interpreter import (
    attributes,
    c_callbacks,
    generators,
    iteration_polyfills,
    mapping_polyfills,
    polyfills,
    protocol,
    search_polyfills,
    size_texts,
    sort_polyfills,
)
from anyshape.capture.interpreter.continuations import RESUME, ResumeOr
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.generators import CLOSING, Generator
from anyshape.capture.interpreter.versions import VERSION
from anyshape.capture.python.iterator_positions import gives_no_loose_tuple

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Interpreter", Args, Kwargs], Any]


# Those that store what they iterate over, and look at none of it.
_STORING = (list.extend, list.__init__, deque.extend, deque.extendleft)


# ---- iteration -----------------------------------------------------------------------------------
def _iter(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and callable(args[0]) and machine.recording:
        return Call(iteration_polyfills.calls_until, args)
    if len(args) == 1:
        return protocol.iterate(machine, args[0])
    return machine.native(iter, args, kwargs)


def _next(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    iterator: Any = args[0] if args else None
    cls = type(iterator)
    if cls is Generator:
        default = args[1] if len(args) > 1 else NULL
        if default is not NULL:
            frame = iterator.begin(None, ResumeOr(default))
            return default if frame is None else frame
        return resume_generator(iterator, None)
    if attributes.is_python(machine, cls, "__next__"):
        if len(args) == 1:
            return attributes.special(machine, iterator, "__next__")
        return Call(iteration_polyfills.next_or_default, args)
    if not machine.recording or not has_entry(cls, "__next__"):
        return next(*args, **kwargs)
    value = machine.heap.advance(iterator, shared=True)
    if value is not NULL:
        return value
    if len(args) > 1:
        return args[1]
    raise StopIteration


def _next_of(kind: type) -> Handler:
    """The `__next__` of an iterator of C, bound or not: what `next` does of the very class."""
    method: Any = vars(kind)["__next__"]

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        known = len(args) == 1 and type(args[0]) is kind and _is_known(machine, args[0])
        return _next(machine, args, kwargs) if known else machine.native(method, args, kwargs)

    return handler


def _is_known(machine: Interpreter, iterator: Any) -> bool:
    """Whether it is of this trace, or the recorder knows where it lies: that of a bound method from
    outside is known to C alone."""
    heap, domain = machine.heap, machine.domain
    return not machine.recording or heap.is_created(iterator) or domain.is_outside(iterator)


def resume_generator(generator: Generator, value: Any) -> Frame:
    """The frame to enter for `generator.send(value)`."""
    frame = generator.begin(value, RESUME)
    if frame is None:
        raise StopIteration
    return frame


def _generator_next(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return resume_generator(args[0], None)


def _generator_send(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return resume_generator(*args)


def _generator_throw(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    generator, *what = args
    error = generators.thrown_exception(*what)
    if VERSION.warns_of_thrown_parts and len(what) > 1:
        return Call(polyfills.throw_made_of_parts, (generator, error))
    return generator.throwing(error, RESUME)


def _iterator_reduce(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    made, state, *rest = Generator.__reduce_ex__(*args)
    return machine.heap.create((made, machine.heap.create(state), *rest))


def _iterator_set(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return Generator.__setstate__(*args)


def _generator_close(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    generator = args[0]
    if generator.finished:
        return None
    if not generator.started:
        generator.closed_unstarted()
        return None
    return generator.throwing(GeneratorExit(), CLOSING)


def _asks(stores: bool, filled: Any) -> Callable[[Interpreter, Any], bool]:
    """Whether what is iterated over must be interpreted, by what is filled from it."""
    if stores:
        return protocol.needs_interpretation
    in_set = filled in (set, frozenset)
    return protocol.must_be_taken_for_a_set if in_set else protocol.must_be_taken_first


_MADE_BY: dict[Any, Any] = {
    **dict.fromkeys((list, tuple), iteration_polyfills.make_from_list),
    **dict.fromkeys((bytes, bytearray), iteration_polyfills.bytes_of),
    set: iteration_polyfills.set_of,
    frozenset: iteration_polyfills.make_from_hashed,
}


def _container(make: Any) -> Handler:
    """`list(values)` and the like; `bytes` asks its elements for numbers as `set` hashes them."""
    needs = _asks(make in (list, tuple, deque), make)
    polyfill = _MADE_BY.get(make, iteration_polyfills.make_from_elements)

    itself = make in (tuple, frozenset)

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs:
            if itself and type(args[0]) is make:
                return args[0]
            if needs(machine, args[0]):
                return Call(polyfill, (make, *args))
        return machine.native(make, args, kwargs)

    return handler


_BUFFERS = (bytes, bytearray, memoryview, array)


def _bytes(make: Any) -> Handler:
    """`bytes(value)` and `bytearray(value)`: they take what gives its memory away as it lies, and
    ask for a number before they iterate."""
    by_elements = _container(make)

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs:
            cls = type(args[0])
            if make is bytes and attributes.is_python(machine, cls, "__bytes__"):
                return Call(polyfills.bytes_by_method, args)
            if cls in SYMBOLIC_NUMBERS or issubclass(cls, (int, str, *_BUFFERS)):
                return machine.native(make, args, kwargs)
            if protocol.asks_index(machine, cls):
                return Call(polyfills.bytes_by_index, (make, *args))
        return by_elements(machine, args, kwargs)

    return handler


def _new_container(new: Any) -> Handler:
    """`tuple.__new__(cls, iterable)`."""
    of_tuple = new is tuple.__new__
    needs = _asks(of_tuple, tuple if of_tuple else frozenset)
    polyfill = (
        iteration_polyfills.fill_from_list if of_tuple else iteration_polyfills.fill_from_hashed
    )

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and needs(machine, args[1]):
            return Call(polyfill, (new, *args))
        return machine.native(new, args, kwargs)

    return handler


# Those that store what they take before they ask for more, and how.
_STEPWISE: dict[Any, tuple[Any, ...]] = {
    list.extend: (iteration_polyfills.extend_list,),
    list.__init__: (iteration_polyfills.fill_list,),
    deque.extend: (iteration_polyfills.extend_by, deque.append),
    deque.extendleft: (iteration_polyfills.extend_by, deque.appendleft),
    set.update: (iteration_polyfills.update_set,),
    set.difference_update: (iteration_polyfills.remove_from_set,),
    set.union: (iteration_polyfills.union_of,),
    set.difference: (iteration_polyfills.difference_of,),
    purity.COUNT_ELEMENTS: (iteration_polyfills.count_elements,),
    set.intersection: (iteration_polyfills.common_of,),
    set.intersection_update: (iteration_polyfills.keep_common,),
    frozenset.intersection: (iteration_polyfills.frozen_common_of,),
    **{
        method: (iteration_polyfills.is_subset,)
        for method in (set.issubset, frozenset.issubset)
        if VERSION.subsets_intersect
    },
}


def _filler(method: Any) -> Handler:
    """`list.extend` and the like, which iterate over their arguments."""
    needs = _asks(method in _STORING, getattr(method, "__objclass__", None))
    whole = (iteration_polyfills.fill_from_hashed, method)
    polyfill, *first = _STEPWISE.get(method, whole)

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if any(needs(machine, arg) for arg in args[1:]):
            return Call(polyfill, (*first, *args))
        return machine.native(method, args, kwargs)

    return handler


def _in_place(method: Any) -> Handler:
    """`list.__iadd__` called by its name: as the operator."""
    append = iteration_polyfills.extend_list if method is list.__iadd__ else deque.extend

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and protocol.needs_interpretation(machine, args[1]):
            return Call(iteration_polyfills.extended, (append, *args))
        return machine.native(method, args, kwargs)

    return handler


def _set_question(method: Any, polyfill: Any) -> Handler:
    """`set.isdisjoint` and the like, which take elements until one is decisive."""

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and not kwargs and protocol.must_be_taken_for_a_set(machine, args[1]):
            return Call(polyfill, args)
        return machine.native(method, args, kwargs)

    return handler


def _adder(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`math.fsum`, which wants each element as a float before it takes the next."""
    if len(args) == 1 and protocol.must_be_taken_first(machine, args[0]):
        return Call(iteration_polyfills.make_from_elements, (math.fsum, *args))
    return machine.native(math.fsum, args, kwargs)


def _dict_maker(make: Any, position: int = 0) -> Handler:
    """`dict(source)`; `position` is that of the source among the arguments."""
    update = mapping_polyfills.update_of(make is OrderedDict)

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == position + 1 and _is_python_source(machine, args[position]):
            return Call(mapping_polyfills.dict_of, (update, make, args, kwargs))
        return machine.native(make, args, kwargs)

    return handler


def _dict_update(method: Any) -> Handler:
    ordered = method in (OrderedDict.update, OrderedDict.__init__)
    update = mapping_polyfills.update_of(ordered)

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and _is_python_source(machine, args[1]):
            return Call(update, (*args, kwargs))
        if ordered and len(args) in (1, 2):  # C stores by what the class says, too
            if attributes.is_python(machine, type(args[0]), "__setitem__"):
                return Call(update, (args[0], args[1] if len(args) == 2 else {}, kwargs))
        return machine.native(method, args, kwargs)

    return handler


def _fromkeys(machine: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    if args and protocol.must_be_taken_first(machine, args[0]):
        return Call(iteration_polyfills.dict_from_keys, (fn.__self__, *args))
    return machine.native(fn, args, kwargs)


def _is_python_source(machine: Interpreter, source: Any) -> bool:
    if protocol.is_python_mapping(machine, source):
        return True
    if issubclass(type(source), (list, tuple)):  # of pairs, which C iterates over
        if any(protocol.needs_interpretation(machine, pair) for pair in elements_of(source)):
            return True
    return protocol.must_be_taken_first(machine, source)


def _zip(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if any(protocol.must_be_taken_first(machine, arg) for arg in args):
        return Call(iteration_polyfills.zip_of, (args, kwargs.get("strict", False)))
    return machine.native(zip, args, kwargs)


def _enumerate(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if args and (type(start) in PROXIES or protocol.must_be_taken_first(machine, args[0])):
        return Call(iteration_polyfills.enumerate_of, (args[0], start))
    return machine.native(enumerate, args, kwargs)


def _map(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args and args[0] is id and not gives_no_loose_tuple(args[1:]):
        if machine.recording:
            raise broken("unknown-call", "id of what an iterator gives")
        return map(*args, **kwargs)
    if len(args) > 1 and not kwargs:
        return Call(iteration_polyfills.map_of, args)
    return machine.native(map, args, kwargs)


def _filter(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        return Call(iteration_polyfills.filter_of, args)
    return machine.native(filter, args, kwargs)


def _reversed(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        cls = type(args[0])
        if attributes.is_python(machine, cls, "__reversed__"):
            return attributes.special(machine, args[0], "__reversed__")
        if machine.lookup(cls, "__reversed__") is NULL and attributes.is_python(
            machine, cls, "__getitem__"
        ):
            return Call(iteration_polyfills.reversed_by_getitem, args)
    return machine.native(reversed, args, kwargs)


def _reduce(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) in (2, 3) and not kwargs:
        return Call(iteration_polyfills.reduce_of, (*args, ABSENT)[:3])
    return machine.native(functools.reduce, args, kwargs)


def _any_or_all(name: str) -> Handler:
    polyfill = iteration_polyfills.any_of if name == "any" else iteration_polyfills.all_of
    function = any if name == "any" else all

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not (
            kwargs or type(args[0]) in (list, tuple) and all(type(item) is bool for item in args[0])
        ):
            return Call(polyfill, args)
        return machine.native(function, args, kwargs)

    return handler


def _sum(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) not in (1, 2) or (kwargs and set(kwargs) != {"start"}):
        return machine.native(sum, args, kwargs)
    if not protocol.needs_interpretation(machine, args[0]) and all_plain(_seen(machine, args[0])):
        return machine.native(sum, args, kwargs)
    start = args[1] if len(args) == 2 else kwargs.get("start", 0)
    return Call(iteration_polyfills.sum_of, (args[0], start))


def _prod(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or (kwargs and set(kwargs) != {"start"}):
        return machine.native(math.prod, args, kwargs)
    start = kwargs.get("start", 1)
    plain = type(start) in (int, float) and all_plain(args[0])
    if plain and not protocol.needs_interpretation(machine, args[0]):
        return machine.native(math.prod, args, kwargs)
    return Call(iteration_polyfills.prod_of, (args[0], start))


def _seen(machine: Interpreter, values: Any) -> Any:
    """A container as the program sees it, with what it has written into it."""
    outside = machine.recording and type(values) in protocol.CONTAINERS
    return machine.heap.mirror(values) if outside else values


def all_plain(values: Any) -> bool:
    """Whether a container (no iterator) holds only constants whose operators are C."""
    return type(values) in protocol.CONTAINERS and all(
        type(value) in protocol.PLAIN for value in values
    )


def _extreme(name: str) -> Handler:
    better = operator.gt if name == "max" else operator.lt
    function = max if name == "max" else min

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if not args or set(kwargs) - {"key", "default"}:
            return machine.native(function, args, kwargs)
        values = args[0] if len(args) == 1 else args
        key, default = kwargs.get("key"), kwargs.get("default", ABSENT)
        if key is None and (all_plain(_seen(machine, values)) or type(values) is range):
            return machine.native(function, args, kwargs)
        if len(args) > 1 and default is not ABSENT:
            return machine.native(function, args, kwargs)
        of, seen = None if key is not None else function, _seen(machine, values)
        if of and type(seen) in (list, tuple) and any(type(value) in PROXIES for value in seen):
            made, of = machine.domain.extremum(name, seen), None
            if made is not NotImplemented:
                return made
        return Call(search_polyfills.extreme_of, (name, values, key, default, better, of))

    return handler


def _sorted(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not machine.recording or len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.native(sorted, args, kwargs)
    key, reverse = kwargs.get("key"), kwargs.get("reverse", False)
    if key is None and all_plain(_seen(machine, args[0])):
        return machine.native(sorted, args, kwargs)
    return Call(sort_polyfills.sorted_of, (args[0], key, reverse))


def _search(method: Any, polyfill: Any) -> Handler:
    """`list.index` and the like, where elements are symbolic or compared by code of the program.
    Such code may change a deque, which then says so in a way of its own."""
    owner = method.__objclass__
    most = 4 if method.__name__ == "index" else 2

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        right = not kwargs and 2 <= len(args) <= most and issubclass(type(args[0]), owner)
        if not right or not machine.recording:
            return machine.native(method, args, kwargs)
        values = machine.heap.mirror(args[0])
        asked = [*args[1:], *owner.__iter__(values)]
        by_code = any(c_callbacks.defines(machine, value, c_callbacks.EQUALITY) for value in asked)
        if owner is deque and by_code:
            return machine.native(method, args, kwargs)
        if by_code or any(map(protocol.holds_proxy, asked)):
            return Call(polyfill, (values, *args[1:]))
        return machine.native(method, args, kwargs)

    return handler


_SEARCHES: dict[Any, Any] = {
    **{kind.index: search_polyfills.index_of for kind in (list, tuple, deque)},
    **{kind.count: search_polyfills.count_of for kind in (list, tuple, deque)},
    list.remove: search_polyfills.remove_from_list,
    deque.remove: search_polyfills.remove_from_deque,
}


def _call_sort(machine: Interpreter, values: Any) -> None:
    """Where the graph breaks in the middle of `list.sort`, C code does all of it: it sees more of
    what happens to the list meanwhile than another segment would."""
    frame = next(frame for frame in machine.frames() if not frame.code.hidden)
    call_site = frame.code.code, frame.index
    if call_site in machine.domain.sorts_natively:
        raise broken("unknown-call", "list.sort, in which the graph breaks,")
    machine.heap.sorting.called(machine.heap.mirror(values), call_site)


def _list_sort(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not machine.recording or len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.native(list.sort, args, kwargs)
    key, reverse = kwargs.get("key"), kwargs.get("reverse", False)
    if key is None and all_plain(_seen(machine, args[0])):
        return machine.native(list.sort, args, kwargs)
    made_by = key if key is not None and issubclass(type(key), type) else object
    if machine.lookup(made_by, "__del__") is not NULL:
        raise broken("unknown-call", f"list.sort, by keys of class {made_by.__name__},")
    _call_sort(machine, args[0])
    return Call(sort_polyfills.sort_in_place, (args[0], key, reverse))


def _join_bytes(method: Any) -> Handler:
    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and protocol.must_be_taken_first(machine, args[1]):
            if method is bytes.join:
                return Call(iteration_polyfills.join_of, (method, *args))
            if machine.recording:  # it is locked meanwhile
                raise broken("unknown-call", "bytearray.join")
        return machine.native(method, args, kwargs)

    return handler


def _join(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and protocol.must_be_taken_first(machine, args[1]):
        return Call(iteration_polyfills.join_of, (str.join, *args))
    if (
        len(args) == 2
        and issubclass(type(args[1]), (list, tuple))
        and protocol.holds_proxy(args[1], 1)
    ):
        if size_texts.are_texts(args[0], *args[1]):
            return size_texts.joined([t for text in args[1] for t in (args[0], text)][1:])
        raise broken("proxy-leak", "a text that differs from call to call")
    return machine.native(str.join, args, kwargs)


ITERATION_TYPES: dict[Any, Handler] = {
    **{cls: _container(cls) for cls in (list, tuple, set, frozenset, deque)},
    **{cls: _bytes(cls) for cls in (bytes, bytearray)},
    dict: _dict_maker(dict),
    OrderedDict: _dict_maker(OrderedDict),
    defaultdict: _dict_maker(defaultdict, 1),
    zip: _zip,
    enumerate: _enumerate,
    map: _map,
    filter: _filter,
    reversed: _reversed,
}

DICT_UPDATES = (dict.update, dict.__init__, OrderedDict.update, OrderedDict.__init__)
# C methods that iterate over their arguments.
_FILLERS = (
    *_STORING,
    *(set.symmetric_difference, set.symmetric_difference_update, set.issubset),
    *(frozenset.symmetric_difference, frozenset.issubset),
    *(set.update, set.union, set.difference, set.intersection),
    *(set.difference_update, set.intersection_update),
    *(frozenset.union, frozenset.difference, frozenset.intersection),
    purity.COUNT_ELEMENTS,
)

ITERATION_BUILTINS: dict[Any, Handler] = {
    iter: _iter,
    next: _next,
    any: _any_or_all("any"),
    all: _any_or_all("all"),
    sum: _sum,
    math.prod: _prod,
    math.fsum: _adder,
    min: _extreme("min"),
    max: _extreme("max"),
    sorted: _sorted,
    list.sort: _list_sort,
    **{method: _search(method, polyfill) for method, polyfill in _SEARCHES.items()},
    str.join: _join,
    **{method: _join_bytes(method) for method in (bytes.join, bytearray.join)},
    functools.reduce: _reduce,
    **{method: _filler(method) for method in _FILLERS},
    **{method: _in_place(method) for method in (list.__iadd__, deque.__iadd__)},
    **{
        method: _set_question(method, iteration_polyfills.is_disjoint)
        for method in (set.isdisjoint, frozenset.isdisjoint)
    },
    **{
        method: _set_question(method, iteration_polyfills.is_superset)
        for method in (set.issuperset, frozenset.issuperset)
    },
    **{method: _dict_update(method) for method in DICT_UPDATES},
    **{cls.__new__: _new_container(cls.__new__) for cls in (tuple, frozenset)},
    **{vars(kind)["__next__"]: _next_of(kind) for kind in TELLING},
    Generator.__next__: _generator_next,
    Generator.send: _generator_send,
    Generator.throw: _generator_throw,
    Generator.close: _generator_close,
    Generator.__reduce_ex__: _iterator_reduce,
    Generator.__setstate__: _iterator_set,
}

# Class methods implemented in C, by class and name.
CLASS_METHODS: dict[tuple[type, str], Callable[[Interpreter, Any, Args, Kwargs], Any]] = {
    (dict, "fromkeys"): _fromkeys,
    (OrderedDict, "fromkeys"): _fromkeys,
}
