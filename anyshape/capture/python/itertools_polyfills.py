"""Functions of `itertools` and others that iterate, for iterables or functions of the virtual
program; interpreted, as in polyfills.py.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.iteration_polyfills import list_of


def chain(*iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


def chain_from_iterable(iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


def islice(iterable: Any, *bounds: Any) -> Any:
    limits = slice(*bounds)
    start = 0 if limits.start is None else limits.start
    step = 1 if limits.step is None else limits.step
    stop = limits.stop
    iterator = iter(iterable)
    position = 0
    wanted = start
    while stop is None or position < max(start, stop):
        if stop is not None and wanted >= stop and position >= start:
            return
        value = next(iterator, ABSENT)
        if value is ABSENT:
            return
        if position == wanted and (stop is None or position < stop):
            yield value
            wanted += step
        position += 1


def islice_by_methods(iterable: Any, *bounds: Any) -> Any:
    """One whose bounds are asked for their numbers, before the iterable is for its iterator,
    and the step when the others have been taken."""
    numbers = [_bound_of(bound) for bound in bounds[:2]]
    itertools.islice((), *numbers)
    numbers += [_bound_of(bound) for bound in bounds[2:]]
    return itertools.islice(iterable, *numbers)


def _bound_of(bound: Any) -> Any:
    """C drops what a bound raises that is asked, and refuses it as one below 0."""
    if bound is None:
        return None
    try:
        return operator.index(bound)
    except BaseException:
        return -1


def accumulate(iterable: Any, func: Any = operator.add, *, initial: Any = None) -> Any:
    iterator = iter(iterable)
    func = operator.add if func is None else func
    total = initial
    if initial is None:
        total = next(iterator, ABSENT)
        if total is ABSENT:
            return
    yield total
    for value in iterator:
        total = func(total, value)
        yield total


def starmap(function: Any, iterable: Any) -> Any:
    for args in iterable:
        yield function(*args)


def takewhile(predicate: Any, iterable: Any) -> Any:
    for value in iterable:
        if not predicate(value):
            return
        yield value


def dropwhile(predicate: Any, iterable: Any, begun: Any = 0) -> Any:
    iterator = iter(iterable)
    for value in iterator:
        if begun or not predicate(value):
            yield value
            break
    yield from iterator


def filterfalse(predicate: Any, iterable: Any) -> Any:
    for value in iterable:
        if not (value if predicate is None else predicate(value)):
            yield value


def compress(data: Any, selectors: Any) -> Any:
    for value, selected in zip(data, selectors, strict=False):
        if selected:
            yield value


def pairwise(iterable: Any) -> Any:
    iterator = iter(iterable)
    before = next(iterator, ABSENT)
    if before is ABSENT:
        return
    for value in iterator:
        yield before, value
        before = value


def cycle(iterable: Any) -> Any:
    saved = []
    for value in iterable:
        yield value
        saved.append(value)
    while saved:
        yield from saved


def product(*iterables: Any, repeat: Any = 1) -> Any:
    return _rows([list_of(pool) for pool in iterables] * repeat)


def _rows(pools: Any) -> Any:
    rows: list[tuple[Any, ...]] = [()]
    for pool in pools:
        rows = [(*row, value) for row in rows for value in pool]
    yield from rows


def zip_longest(*iterables: Any, fillvalue: Any = None) -> Any:
    iterators = [iter(iterable) for iterable in iterables]
    live = len(iterators)
    while live:
        row = []
        for index, iterator in enumerate(iterators):
            value = fillvalue if iterator is None else next(iterator, ABSENT)
            if value is ABSENT:
                live -= 1
                if not live:
                    return
                iterators[index] = None
                value = fillvalue
            row.append(value)
        yield tuple(row)


def groupby(iterable: Any, key: Any = None) -> Any:
    iterator = iter(iterable)
    state: list[Any] = [ABSENT, ABSENT, None]  # a value, its key, the group that may go on
    target: Any = ABSENT
    while True:
        state[2] = None
        while state[1] is ABSENT or _is_same(target, state[1]):
            if not _steps(iterator, key, state):
                return
        target = state[1]
        state[2] = number = [target]
        yield target, _group(iterator, key, state, number)


def _group(iterator: Any, key: Any, state: Any, number: Any) -> Any:
    while state[2] is number:
        if state[0] is ABSENT and not _steps(iterator, key, state):
            return
        if not _is_same(number[0], state[1]):
            return
        value = state[0]
        state[0] = state[1] = ABSENT
        yield value


def _steps(iterator: Any, key: Any, state: Any) -> Any:
    value = next(iterator, ABSENT)
    if value is ABSENT:
        return False
    value_key = value if key is None else key(value)
    state[0] = value
    state[1] = value_key
    return True


def _is_same(a: Any, b: Any) -> Any:
    return a is not ABSENT and b in (a,)  # one object or equal, as C compares


def at_once(make: Any, positions: Any, args: Any, kwargs: Any) -> Any:
    """An iterator whose iterables are asked for theirs when it is made."""
    first, last = positions
    iterators = [iter(arg) for arg in args[first:last]]
    return make(*args[:first], *iterators, *args[last:], **kwargs)
