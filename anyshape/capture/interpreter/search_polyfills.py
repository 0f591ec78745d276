"""`max` and `min`; `index`, `count` and `remove` of lists, tuples and deques, interpreted (see
polyfills.py): elements are compared one after the other, and comparing them may change the
container.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import Any

from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.intrinsic_names import is_subtype, native
from anyshape.capture.interpreter.polyfills import is_or_equals
from anyshape.capture.interpreter.versions import VERSION

UNNAMED = "deque.remove(x): x not in deque"


def _names_what_is_missing() -> bool:
    try:
        deque[int]().remove(0)
    except ValueError as error:
        return str(error) != UNNAMED
    return False


NAMED = _names_what_is_missing()
"""Whether `deque.remove` says what is not there, as some versions of CPython do."""
LAST = (1 << 63) - 1


def index_of(values: Any, item: Any, start: Any = 0, stop: Any = LAST) -> Any:
    start, stop = bound_of(values, start), bound_of(values, stop)
    index = 0
    for value in own_elements(values):
        if index >= stop:
            break
        if index >= start and is_or_equals(value, item):
            return index
        index += 1
    if is_subtype(type(values), tuple):
        raise ValueError("tuple.index(x): x not in tuple")
    kind = "list" if is_subtype(type(values), list) else "deque"
    raise ValueError(f"{item!r} is not in {kind}")


def bound_of(values: Any, bound: Any) -> Any:
    """Where a search starts or stops; a deque or list counts from its end below 0."""
    if not hasattr(type(bound), "__index__"):
        raise TypeError("slice indices must be integers or have an __index__ method")
    bound = operator.index(bound)
    if bound >= 0:
        return bound
    bound += native(len, values)
    return 0 if bound < 0 else bound


def count_of(values: Any, item: Any) -> Any:
    count = 0
    for value in own_elements(values):
        if is_or_equals(value, item):
            count += 1
    return count


def is_among(values: Any, item: Any) -> Any:
    for value in own_elements(values):
        if is_or_equals(value, item):
            return True
    return False


def remove_from_list(values: Any, item: Any) -> None:
    index = 0
    for value in own_elements(values):
        if is_or_equals(value, item):
            native(list.__delitem__, values, slice(index, index + 1))
            return
        index += 1
    raise ValueError("list.remove(x): x not in list")


def remove_from_deque(values: Any, item: Any) -> None:
    index = 0
    for value in own_elements(values):
        if is_or_equals(value, item):
            native(deque.__delitem__, values, index)
            return
        index += 1
    raise ValueError(f"{item!r} is not in deque" if NAMED else UNNAMED)


def own_elements(values: Any) -> Any:
    """Those that lie there when they are asked for, whatever `__iter__` its class has."""
    for base in (list, tuple, deque):
        if is_subtype(type(values), base):
            return native(base.__iter__, values)


# ---- bisect --------------------------------------------------------------------------------------
def bisect_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    lo, hi = _halved(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def bisect_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    lo, hi = _halved(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def _halved(a: Any, lo: Any, hi: Any) -> Any:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    return lo, len(a) if hi is None or hi == -1 else hi


def insort_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def insort_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


def extreme_of(name: Any, values: Any, key: Any, default: Any, better: Any, of: Any) -> Any:
    """`of`: compares integers at once, since nobody sees in which order; or None."""
    best = best_key = ABSENT
    integers: list[Any] = []
    for value in values:
        if of is not None and best is ABSENT and type(value) is int:
            integers.append(value)
            continue
        if integers:
            best = best_key = of(integers)
            integers = []
        value_key = value if key is None else key(value)
        if best is ABSENT or better(value_key, best_key):
            best, best_key = value, value_key
    if integers:
        return of(integers)
    if best is ABSENT and default is ABSENT:
        raise ValueError(f"{name}() {VERSION.empty}")
    return default if best is ABSENT else best
