"""Iteration with interpreted calls in its middle: list, zip, sorted, unpacking, ... (see
polyfills.py).
"""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Callable
from types import FunctionType
from typing import Any

from anyshape.capture.heap.purity import COUNT_ELEMENTS
from anyshape.capture.heap.values import ABSENT, PROXIES
from anyshape.capture.interpreter.intrinsic_names import (
    bind,
    created,
    find,
    global_name,
    is_subtype,
    native,
)
from anyshape.capture.interpreter.polyfills import is_or_equals

_TOO_LARGE = "cannot fit 'int' into an index-sized integer"


def iterator_by_iter(obj: Any) -> Any:
    cls = type(obj)
    iterator = bind(find(cls, "__iter__"), obj, cls)()
    if find(type(iterator), "__next__") is ABSENT:
        raise TypeError(f"iter() returned non-iterator of type {type(iterator).__name__!r}")
    return iterator


def iterator_by_getitem(obj: Any) -> Any:
    return items_until_index_error(obj, 0)


def items_until_index_error(obj: Any, index: Any) -> Any:
    while True:
        if index == sys.maxsize:
            raise OverflowError("iter index too large")
        try:
            value = obj[index]
        except (IndexError, StopIteration):
            return
        index += 1
        yield value


def calls_until(fn: Any, sentinel: Any) -> Any:
    while True:
        try:
            value = fn()
        except StopIteration:
            return
        if is_or_equals(sentinel, value):
            return
        yield value


def next_or_default(iterator: Any, default: Any) -> Any:
    try:
        return next(iterator)
    except StopIteration:
        return default


_DICT: dict[Any, Any] = {}
_BOTH_WAYS: tuple[Any, ...] = ([], range(0), deque(), _DICT, _DICT.values(), _DICT.items())
_ONE_WAY: tuple[Any, ...] = ((), "", "\u0100", b"", bytearray(), set(), range(1 << 70))
COUNTED = frozenset(
    [
        *[type(iter(items)) for items in (*_ONE_WAY, *_BOTH_WAYS)],
        *[type(reversed(items)) for items in _BOTH_WAYS],
    ]
)
"""Iterators whose length C knows without asking anybody."""


def list_of(iterable: Any) -> Any:
    cls = type(iterable)
    if cls in COUNTED or (
        find(cls, "__len__") is ABSENT and find(cls, "__length_hint__") is ABSENT
    ):
        return elements_of(iter(iterable))
    iterator = iter(iterable)
    length_hint(iterable, 0)  # as list() and tuple() ask before they take the first element
    return elements_of(iterator)


def taken(iterable: Any) -> Any:
    """As `PySequence_Fast`: it is the iterator that C makes a list of, and so asks once more."""
    return list_of(iter(iterable))


def elements_of(iterator: Any) -> Any:
    values: list[Any] = []
    while True:
        value = next(iterator, ABSENT)
        if value is ABSENT:
            return values
        values.append(value)


def hint_of_reversed(obj: Any, left: Any, default: Any) -> Any:
    """`operator.length_hint` of a `reversed` that has so many items left."""
    try:
        length = len(obj)
    except TypeError:
        return default
    return 0 if length < left else left


def length_hint_or(obj: Any, default: Any) -> Any:
    default = operator.index(default)
    return length_hint(obj, default)


def length_hint(obj: Any, default: Any) -> Any:
    cls = type(obj)
    if find(cls, "__len__") is not ABSENT:
        try:
            return len(obj)
        except TypeError:
            pass
    hint = find(cls, "__length_hint__")
    if hint is ABSENT:
        return default
    try:
        result = bind(hint, obj, cls)()
    except TypeError:
        return default
    if result is NotImplemented:
        return default
    if not is_subtype(type(result), int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(result).__name__}")
    if result < 0:
        raise ValueError("__length_hint__() should return >= 0")
    if result > sys.maxsize:
        raise OverflowError(_TOO_LARGE)
    return result


def make_from_elements(make: Any, iterable: Any, *rest: Any) -> Any:
    return created(make(elements_of(iter(iterable)), *rest))


def make_from_list(make: Any, iterable: Any, *rest: Any, **kwargs: Any) -> Any:
    return created(make(list_of(iterable), *rest, **kwargs))


def bytes_of(make: Any, iterable: Any) -> Any:
    """Each element is asked for its number before the next is taken."""
    iterator = iter(iterable)
    if make is bytes:
        length_hint(iterable, 0)
    parts = native(list)
    while True:
        value = next(iterator, ABSENT)
        if value is ABSENT:
            return created(make(native(bytes.join, b"", parts)))
        native(list.append, parts, native(make, native(list, (value,))))


def fill_from_list(method: Any, receiver: Any, *iterables: Any) -> Any:
    return method(receiver, *[list_of(iterable) for iterable in iterables])


def fill_from_hashed(method: Any, receiver: Any, *iterables: Any) -> Any:
    return method(receiver, *[hashed(iterable) for iterable in iterables])


def make_from_hashed(make: Any, iterable: Any) -> Any:
    return created(make(hashed(iterable)))


def hashed(iterable: Any) -> Any:
    """The elements; where the program sees that they are hashed, each is before the next is taken,
    once: then a set of them."""
    values: list[Any] = []
    members: Any = ABSENT
    for value in iterable:
        if members is ABSENT and hashes_in_python(value):
            members = native(set, values)
        if members is ABSENT:
            values.append(value)
        else:
            native(set.add, members, value)
    return values if members is ABSENT else members


def hashes_in_python(value: Any) -> Any:
    """Whether the program sees that C code hashes the value, or compares it with its equals."""
    cls = type(value)
    for name in ("__hash__", "__eq__"):
        if is_subtype(type(find(cls, name)), FunctionType):
            return True
    return False


def set_of(make: Any, iterable: Any) -> Any:
    members = created(native(make))
    update_set(members, iterable)
    return members


def union_of(receiver: Any, *iterables: Any) -> Any:
    result = created(native(set.union, receiver))
    update_set(result, *iterables)
    return result


def difference_of(receiver: Any, *iterables: Any) -> Any:
    result = created(native(set.difference, receiver))
    remove_from_set(result, *iterables)
    return result


def dict_from_keys(make: Any, iterable: Any, value: Any = None) -> Any:
    made = created(native(make))
    for key in iterable:
        made[key] = value
    return made


def common_of(receiver: Any, *iterables: Any) -> Any:
    """`set.intersection`: C takes no more once it has found every element, each of which it hashes
    once."""
    kept = receiver
    for iterable in iterables:
        members, kept = kept, set()
        for value in iterable:
            if hashes_in_python(value):
                native(set.update, kept, native(set.intersection, members, native(list, (value,))))
            elif value in members:
                native(set.add, kept, value)
            if len(kept) == len(members):
                break
    return kept


def frozen_common_of(receiver: Any, *iterables: Any) -> Any:
    return native(frozenset, common_of(receiver, *iterables))


def keep_common(receiver: Any, *iterables: Any) -> None:
    kept = common_of(receiver, *iterables)
    native(set.clear, receiver)
    native(set.update, receiver, kept)


def is_subset(receiver: Any, iterable: Any) -> Any:
    """`set.issubset` of what is no set."""
    return len(common_of(receiver, iterable)) == len(receiver)


def is_disjoint(members: Any, iterable: Any) -> Any:
    for value in iterable:
        if value in members:
            return False
    return True


def is_superset(members: Any, iterable: Any) -> Any:
    for value in iterable:
        if value not in members:
            return False
    return True


def extend_by(append: Any, receiver: Any, iterable: Any) -> None:
    """`list.extend` and the like: what is taken is stored before the next one is asked for."""
    for value in iterable:
        append(receiver, value)


def extend_list(receiver: Any, iterable: Any) -> None:
    iterator = iter(iterable)
    length_hint(iterable, 8)
    while True:
        value = next(iterator, ABSENT)
        if value is ABSENT:
            return
        native(list.append, receiver, value)


def fill_list(receiver: Any, iterable: Any) -> None:
    native(list.clear, receiver)
    extend_list(receiver, iterable)


def extended(fill: Any, receiver: Any, iterable: Any) -> Any:
    """`receiver += iterable`."""
    fill(receiver, iterable)
    return receiver


def update_set(receiver: Any, *iterables: Any) -> None:
    for iterable in iterables:
        for value in iterable:
            native(set.add, receiver, value)


def remove_from_set(receiver: Any, *iterables: Any) -> None:
    for iterable in iterables:
        for value in iterable:
            native(set.discard, receiver, value)


def count_elements(counts: Any, iterable: Any) -> None:
    for value in iterable:
        if hashes_in_python(value):
            native(COUNT_ELEMENTS, counts, native(list, (value,)))
        else:
            native(dict.__setitem__, counts, value, native(dict.get, counts, value, 0) + 1)


def store_slice(target: Any, key: Any, iterable: Any) -> Any:
    """`target[key] = iterable`: C reads the bounds before it takes an item."""
    key = native(settled_bounds, key, len(target))
    if is_subtype(type(target), bytearray):
        target[key] = bytes_of(bytearray, iterable)
    else:
        target[key] = list_of(assigned(iterable, key.step))


def assigned(iterable: Any, step: Any) -> Any:
    """Its iterator; C calls every TypeError on the way to it by one name."""
    try:
        return iter(iterable)
    except TypeError:
        pass
    if step is None or step == 1:
        raise TypeError("can only assign an iterable")
    raise TypeError("must assign iterable to extended slice")


def item_by_slice(obj: Any, key: Any) -> Any:
    return obj[asked_bounds(key)]


def store_asked_slice(target: Any, key: Any, iterable: Any) -> Any:
    """The same, where the program says what the bounds are; those of bytes are read twice."""
    bounds = asked_bounds(key)
    if is_subtype(type(target), bytearray):
        values = bytes_of(bytearray, iterable)
        target[asked_bounds(key)] = values
    else:
        store_slice(target, bounds, iterable)


def store_of(asks: bool) -> Callable[..., Any]:
    return store_asked_slice if asks else store_slice


def settled_bounds(key: slice, length: int) -> slice:
    """The bounds that C works out for this length; raises what C has against them. Those that are
    worked out later stay as they are, and those of steps, whose sides mean something else then."""
    parts = (length, key.start, key.stop, key.step)
    if any(type(part) in PROXIES for part in parts):
        length, *shown = [1 if type(part) in PROXIES else part for part in parts]
        slice(*shown).indices(length)
        return key
    start, stop, step = key.indices(length)
    return slice(start, stop) if step == 1 else key


def asked_bounds(key: Any) -> Any:
    """The slice with what its parts say, in the order in which C asks them."""
    step = asked_bound(key.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    start = asked_bound(key.start)
    return slice(start, asked_bound(key.stop), step)


def asked_bound(part: Any) -> Any:
    if part is None:
        return None
    if find(type(part), "__index__") is ABSENT:
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    return operator.index(part)


def name_or_global(names: Any, name: Any, globals_: Any, builtins: Any) -> Any:
    """A name of a class body or of `exec`, whose mapping says in Python what it holds."""
    try:
        return names[name]
    except KeyError:
        pass
    return global_name(globals_, builtins, name)


def name_or_cell(names: Any, name: Any, cell: Any) -> Any:
    try:
        return names[name]
    except KeyError:
        pass
    try:
        return cell.cell_contents
    except ValueError:
        pass
    raise NameError(_UNBOUND_FREE.format(name), name=name)


_UNBOUND_FREE = (
    "cannot access free variable {!r} where it is not associated with a value in enclosing scope"
)


def setup_annotations(names: Any) -> None:
    try:
        names["__annotations__"]
    except KeyError:
        names["__annotations__"] = {}


def delete_name(names: Any, name: Any) -> Any:
    try:
        del names[name]
        return
    except KeyError:
        pass
    raise NameError(f"name {name!r} is not defined", name=name)


def zip_of(iterables: Any, strict: Any) -> Any:
    return zipped([iter(iterable) for iterable in iterables], strict)


def zipped(iterators: Any, strict: Any) -> Any:
    if not iterators:
        return
    while True:
        row: list[Any] = []
        for iterator in iterators:
            if strict:
                value = next(iterator, ABSENT)
                if value is ABSENT:
                    check_zip_ends(iterators, len(row))
                    raise StopIteration
            else:
                value = next(iterator)
            row.append(value)
        yield native(tuple, row)


def check_zip_ends(iterators: Any, position: Any) -> Any:
    if position:
        plural = "argument 1" if position == 1 else f"arguments 1-{position}"
        raise ValueError(f"zip() argument {position + 1} is shorter than {plural}")
    for index in range(1, len(iterators)):
        if next(iterators[index], ABSENT) is not ABSENT:
            plural = "argument 1" if index == 1 else f"arguments 1-{index}"
            raise ValueError(f"zip() argument {index + 1} is longer than {plural}")


def enumerate_of(iterable: Any, start: Any) -> Any:
    start = operator.index(start)
    return enumerated(iter(iterable), start)


def enumerated(iterator: Any, count: Any) -> Any:
    while True:
        value = next(iterator)
        count = count + 1
        yield count - 1, value


def map_of(fn: Any, *iterables: Any) -> Any:
    return mapped(fn, [iter(iterable) for iterable in iterables])


def mapped(fn: Any, iterators: Any) -> Any:
    while True:
        values: list[Any] = []
        for iterator in iterators:
            values.append(next(iterator))
        yield fn(*values)


def filter_of(fn: Any, iterable: Any) -> Any:
    return filtered(fn, iter(iterable))


def filtered(fn: Any, iterator: Any) -> Any:
    while True:
        value = next(iterator)
        if value if fn is None or fn is bool else fn(value):
            yield value


def reversed_of(obj: Any, index: Any) -> Any:
    while index >= 0:
        try:
            value = obj[index]
        except (IndexError, StopIteration):
            return
        index -= 1
        yield value


def reduce_of(fn: Any, iterable: Any, initial: Any) -> Any:
    iterator = iter(iterable)
    if initial is ABSENT:
        initial = next(iterator, ABSENT)
        if initial is ABSENT:
            raise TypeError("reduce() of empty iterable with no initial value")
    for value in iterator:
        initial = fn(initial, value)
    return initial


def any_of(iterable: Any) -> Any:
    for value in iterable:
        if value:
            return True
    return False


def all_of(iterable: Any) -> Any:
    for value in iterable:
        if not value:
            return False
    return True


def sum_of(iterable: Any, start: Any) -> Any:
    if is_subtype(type(start), str):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    for base in (bytes, bytearray):
        if is_subtype(type(start), base):
            raise TypeError(f"sum() can't sum {base.__name__} [use b''.join(seq) instead]")
    total = start
    for value in iterable:
        total = total + value
    return total


def prod_of(iterable: Any, start: Any) -> Any:
    total = start
    for value in iterable:
        total = total * value
    return total


def join_of(join: Any, separator: Any, iterable: Any) -> Any:
    return join(separator, taken(iterable))


def unpack_list(iterable: Any, count: Any) -> Any:
    """At most `count + 1` values, as UNPACK_SEQUENCE takes them."""
    values: list[Any] = []
    iterator = iter(iterable)
    while len(values) <= count:
        value = next(iterator, ABSENT)
        if value is ABSENT:
            break
        values.append(value)
    return values


def unpack_starred(iterable: Any, before: Any) -> Any:
    """The values of `a, *b = iterable`: UNPACK_EX takes so many, and makes a list of the rest."""
    values: list[Any] = []
    iterator = iter(iterable)
    while len(values) < before:
        value = next(iterator, ABSENT)
        if value is ABSENT:
            return values
        values.append(value)
    return [*values, *list_of(iterator)]


def reversed_by_getitem(obj: Any) -> Any:
    return reversed_of(obj, len(obj) - 1)
