"""Calls of C code in a recording machine: what they read of outside containers is relied on, what
they write is logged.

In: a C function and its arguments. Out: its result, registered as made by the trace where nobody
else holds it. `purity` says what a function reads and writes; the heap has the mirrors and the log.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from sys import getrefcount
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from anyshape.capture.heap import purity
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.effects import Failing
from anyshape.capture.heap.iterators import FORKABLE, TELLING, may_give
from anyshape.capture.heap.nested_containers import CONTAINERS, values_of
from anyshape.capture.heap.quiet_classes import bare_name, has_entry, is_of_code
from anyshape.capture.heap.quiet_reads import quiet_getattr
from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.unread_writes import is_blind, is_key
from anyshape.capture.heap.values import IMMUTABLE, NULL, PROXIES, Break, Call

_ADOPTING = frozenset({list, tuple, dict})
_ADOPT_AT_MOST = 1000
_new_class = type.__new__


def native(heap: Heap, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call C code in a recording machine: mutators write mirrors and are logged, readers get
    mirrors.
    """
    if _computes_with_numbers(fn, args) and not kwargs:
        heap.domain.will_compute(*args)
        return fn(*args)
    return _native(heap, fn, args, kwargs)


def _native(heap: Heap, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    domain = heap.domain
    _refuse_iterators(heap, fn, args)
    _refuse_written(heap, fn, args)
    if type(fn) not in purity.CALLABLE_TYPES:
        result = _result(heap, domain.call_native(fn, args, kwargs))
        return heap.create(result) if _makes_class(fn) else result
    writer = _writer_in_place(fn, args) if fn in purity.IN_PLACE else None
    if writer is not None:
        written = _mutate(heap, writer, args, kwargs)
        if written is not NotImplemented:
            return written
        args = tuple([heap.mirror(arg) for arg in args])  # another operator, or a TypeError
    if fn in purity.MUTATORS and args and _is_container(args[0]):
        return _mutate(heap, fn, args, kwargs)
    if fn is dict.get and _asks_one_key(args, kwargs):
        found = heap.item_or_null(*args[:2])
        return found if found is not NULL else args[2] if len(args) > 2 else None
    if fn in purity.FIRST_READERS and args:
        args = (heap.mirror(args[0]), *args[1:])
        if fn in purity.SEARCHERS:
            args = (args[0], *map(heap.mirror, args[1:]))
            for arg in args:
                heap.look_inside(arg)
            args = (args[0], *map(heap.as_it_lies, args[1:]))  # what is compared by identity, too
    elif fn in purity.PAIR_READERS and args:
        args = (*args[:-1], _pairs(heap, args[-1]))
    elif fn in purity.READERS:
        args = tuple([heap.mirror(arg) for arg in args])
        if fn in purity.DEEP_READERS:
            for arg in args:
                heap.look_inside(arg)
            args = tuple(map(heap.as_it_lies, args))
        kwargs = {name: heap.mirror(value) for name, value in kwargs.items()} if kwargs else kwargs
    result = _result(heap, domain.call_native(fn, args, kwargs))
    _adopt_reduced(heap, fn, args, result)
    if fn is type or fn is _new_class or (type(fn) is type and fn in purity.MAKERS):
        heap.create(result)
    return result


def _computes_with_numbers(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether C makes numbers of numbers that are known: nothing lies outside, nobody is asked."""
    if type(fn) is not BuiltinFunctionType or fn not in purity.ARITHMETIC:
        return False
    return all([type(arg) in purity.NUMBERS for arg in args])


def _writer_in_place(fn: Any, args: tuple[Any, ...]) -> Any:
    """The method of a container's class in C that an operator calls, if it writes."""
    for base, method in purity.IN_PLACE[fn].items():
        if args and issubclass(type(args[0]), base):
            if base is OrderedDict and _stores_in_python(type(args[0])):
                raise broken("unknown-call", "`|=` of an OrderedDict with a `__setitem__`")
            if is_of_code(type(args[0]), method.__name__):  # `operator.iconcat`: C has its own way
                raise broken("unknown-call", f"{fn.__name__} of a class with a {method.__name__}")
            return method
    return None


def _stores_in_python(cls: type) -> bool:
    return is_of_code(cls, "__setitem__")


def _asks_one_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether `dict.get(*args)` asks a plain dict for a key that C compares without a surprise:
    nothing else is read of it."""
    if kwargs or len(args) not in (2, 3) or not is_key(args[1]):
        return False
    return type(args[0]) in (dict, OrderedDict)  # another may make what it is asked for


def _refuse_old_iterators(heap: Heap, args: tuple[Any, ...]) -> None:
    for arg in args:
        if type(arg) in FORKABLE and not heap.is_made_inside(arg):
            raise broken("fork", f"C code gets a {bare_name(type(arg))}")


def _refuse_iterators(heap: Heap, fn: Any, args: tuple[Any, ...]) -> None:
    if any(type(arg) in TELLING for arg in args):
        _refuse_to_take(fn, args)
        if heap.journal is not None:
            _refuse_old_iterators(heap, args)


def _refuse_written(heap: Heap, fn: Any, args: tuple[Any, ...]) -> None:
    """C code that is handed a module or a function would not see what this segment wrote to it."""
    for arg in args:
        if type(arg) is FunctionType or issubclass(type(arg), ModuleType):
            names = vars(arg)
            known = heap.mirrors.get(id(names))
            if known is not None and not _shows(known.state, names):
                name = getattr(fn, "__qualname__", bare_name(type(fn)))
                raise broken("unknown-call", f"{name} of a written {bare_name(type(arg))}")


def _shows(state: dict[str, Any], names: dict[str, Any]) -> bool:
    """Whether a mirror of names has what is outside, object by object."""
    return state.keys() == names.keys() and all(names[name] is state[name] for name in names)


def _refuse_to_take(fn: Any, args: tuple[Any, ...]) -> None:
    """Break in front of a call that would take proxies out of an iterator and look at them: behind
    it, what was taken before the break is lost.
    """
    if type(fn) in purity.CALLABLE_TYPES and fn in purity.UNLOOKING:
        return
    owner = quiet_getattr(fn, "__objclass__")  # an iterator's own methods
    for arg in args:
        if type(arg) in TELLING and type(arg) is not owner and may_give(arg, PROXIES):
            name = getattr(fn, "__qualname__", bare_name(type(fn)))
            raise broken("proxy-leak", f"{name} takes numbers out of a {bare_name(type(arg))}")


def _result(heap: Heap, result: Any) -> Any:
    """What a native call gave: new if nobody but this frame holds it."""
    if type(result) not in IMMUTABLE and type(result) is not Call and getrefcount(result) <= 2:
        _adopt(heap, result, 3)
    return result


def _adopt(heap: Heap, value: Any, depth: int) -> None:
    """Register a new object, and what only it holds."""
    heap.create(value)
    kind = type(value)
    if issubclass(type(value), partial):  # its dict is a new one always
        heap.create(value.keywords)
    if depth == 0 or kind not in _ADOPTING or len(value) > _ADOPT_AT_MOST:
        return
    for item in list(value.values()) if kind is dict else value:
        # References: the container, the list of values of a dict, `item`, the argument.
        if type(item) not in IMMUTABLE and getrefcount(item) <= (4 if kind is dict else 3):
            _adopt(heap, item, depth - 1)


REDUCING = (object.__reduce_ex__, object.__reduce__)


def _adopt_reduced(heap: Heap, fn: Any, args: tuple[Any, ...], result: Any) -> None:
    if fn in REDUCING and args and type(args[0]) in TELLING and heap.is_created(args[0]):
        _adopt_iterators(heap, result)


def _adopt_iterators(heap: Heap, reduced: Any) -> None:
    """What C has made for an iterator of the trace, and tells of it, is of the trace, too."""
    for part in reduced if type(reduced) is tuple else ():
        if type(part) in TELLING:
            heap.create(part)
        _adopt_iterators(heap, part)


def _pairs(heap: Heap, arg: Any) -> Any:
    """The argument of `dict(...)`: a mapping, or an iterable of pairs, which are read too."""
    state = heap.mirror(arg)
    return (
        [heap.mirror(pair) for pair in state] if issubclass(type(state), (list, tuple)) else state
    )


def _mutate(heap: Heap, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = args[0]
    if fn in purity.PAIR_READERS and len(args) > 1:
        args = (target, _pairs(heap, args[1]), *args[2:])
    outside = heap.domain.records and id(target) not in heap.created
    blind = outside and is_blind(fn, args[1:], kwargs)
    if blind and id(target) not in heap.mirrors:
        if issubclass(type(target), dict):
            heap.domain.will_look_up(target, args[1])
        heap.store_unread(fn, target, args[1:])
        return None
    rest = args[1:]
    if fn in purity.ABSORBERS or (fn in purity.SLICE_WRITERS and slice in map(type, rest[:1])):
        rest = tuple([_given(heap, arg) if outside else heap.mirror(arg) for arg in rest])
    by_key = blind and issubclass(type(target), dict)
    state = heap.write_entry(target, args[1]) if by_key else heap.write(target)
    if fn in purity.COMPARING_MUTATORS:
        heap.look_inside((*values_of(state), *rest))
    if fn in purity.STEPWISE and issubclass(type(state), (list, dict)):
        _try_on_a_copy(heap, fn, state, rest, kwargs)
    try:
        result = heap.domain.call_native(fn, (state, *rest), kwargs)
    except Exception as error:
        if fn in purity.HALFWAY and id(state) in heap.owners:
            _log_what_failed(heap, fn, state, rest, kwargs, error)
        raise
    if id(state) in heap.owners and result is not NotImplemented:
        heap.log(fn, heap.real(state), rest, kwargs)
    return target if result is state else result


def _log_what_failed(
    heap: Heap, fn: Any, state: Any, rest: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> None:
    """A writer that failed may have written some of what it was given: it fails so once more when
    the writes are replayed, on the same values."""
    given = (*rest, *kwargs.values())
    inside = [item for arg in given if issubclass(type(arg), CONTAINERS) for item in values_of(arg)]
    if any(type(item) in PROXIES for item in (*given, *inside)):
        raise _half_done(fn) from error
    heap.log(Failing(fn), heap.real(state), rest, kwargs)


def _try_on_a_copy(
    heap: Heap, fn: Any, state: Any, rest: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises ``Break`` where a proxy, or an error in what is outside, would end the writer half
    done. What the trace made is left half done, as C leaves it, when the error comes once more."""
    trial: Any = (
        [*list.__iter__(state)] if issubclass(type(state), list) else dict(dict.items(state))
    )
    try:
        heap.domain.call_native(fn, (trial, *rest), kwargs)
    except Exception as error:
        if id(state) in heap.owners and trial:  # in an empty one nothing was written
            raise _half_done(fn) from error


def _half_done(fn: Any) -> Break:
    return broken("unknown-call", f"{fn.__qualname__}, which may be half done,")


def _given(heap: Heap, arg: Any) -> Any:
    """What a writer is given to iterate over, such that the same can be written once more: what
    an iterator gives, it gives once."""
    if has_entry(type(arg), "__next__"):
        return heap.create(heap.domain.call_native(list, (arg,), {}))
    return heap.mirror(arg)


def _makes_class(fn: Any) -> bool:
    return issubclass(type(fn), type) and issubclass(fn, type)


def _is_container(obj: Any) -> bool:
    return issubclass(type(obj), (list, dict, set, deque, bytearray))
