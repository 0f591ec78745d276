"""Functions of `itertools`, for iterables or functions of the virtual program; interpreted, as in
polyfills.py.

Each asks its arguments for their iterators, as C does when it makes the object, and gives a
generator that stands for it (`interpreter/iterator_states.py`).
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.iteration_polyfills import list_of


def chain(*iterables: Any) -> Any:
    return chained(iter(iterables), None)


def chain_from_iterable(iterables: Any) -> Any:
    return chained(iter(iterables), None)


def chained(source: Any, active: Any) -> Any:
    """Where `source` fails, C has let go of it."""
    while True:
        if active is None:
            rest, source = source, None
            iterable: Any = ABSENT if rest is None else next(rest, ABSENT)
            if iterable is ABSENT:
                return
            active = iter(iterable)
            source = rest
        value = next(active, ABSENT)
        if value is ABSENT:
            active = None
        else:
            yield value


def islice(iterable: Any, *bounds: Any) -> Any:
    limits = slice(*bounds)
    start = 0 if limits.start is None else limits.start
    step = 1 if limits.step is None else limits.step
    return sliced(iter(iterable), start, limits.stop, step, 0)


def sliced(iterator: Any, wanted: Any, stop: Any, step: Any, position: Any) -> Any:
    """`position` items have been taken; the next one that is given is the one at `wanted`."""
    while True:
        given = position >= wanted
        if given and stop is not None and position >= stop:
            return
        value = next(iterator)
        position += 1
        if given:
            wanted += step
            if stop is not None and wanted > stop:
                wanted = stop
            yield value


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


def accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    return accumulated(iter(iterable), operator.add if func is None else func, ABSENT, initial)


def accumulated(iterator: Any, func: Any, total: Any, initial: Any) -> Any:
    while True:
        if initial is not None:
            total, initial = initial, None
        elif total is ABSENT:
            total = next(iterator)
        else:
            total = func(total, next(iterator))
        yield total


def starmap(function: Any, iterable: Any) -> Any:
    return starred(function, iter(iterable))


def starred(function: Any, iterator: Any) -> Any:
    while True:
        args = next(iterator)
        yield function(*(args if type(args) is tuple else tuple(args)))


def takewhile(predicate: Any, iterable: Any) -> Any:
    return taken_while(predicate, iter(iterable))


def taken_while(predicate: Any, iterator: Any) -> Any:
    while True:
        value = next(iterator)
        if not predicate(value):
            return
        yield value


def dropwhile(predicate: Any, iterable: Any) -> Any:
    return dropped_while(predicate, iter(iterable), 0)


def dropped_while(predicate: Any, iterator: Any, begun: Any) -> Any:
    while True:
        value = next(iterator)
        if begun or not predicate(value):
            begun = 1
            yield value


def filterfalse(predicate: Any, iterable: Any) -> Any:
    return filtered_false(predicate, iter(iterable))


def filtered_false(predicate: Any, iterator: Any) -> Any:
    while True:
        value = next(iterator)
        if not (value if predicate is None or predicate is bool else predicate(value)):
            yield value


def compress(data: Any, selectors: Any) -> Any:
    return compressed(iter(data), iter(selectors))


def compressed(data: Any, selectors: Any) -> Any:
    while True:
        value = next(data)
        if next(selectors):
            yield value


def pairwise(iterable: Any) -> Any:
    return paired(iter(iterable), ABSENT)


def paired(iterator: Any, before: Any) -> Any:
    if before is ABSENT:
        before = next(iterator)
    while True:
        first, before = before, next(iterator)
        yield first, before


def cycle(iterable: Any) -> Any:
    return cycled(iter(iterable), [], 0)


def cycled(iterator: Any, saved: Any, index: Any) -> Any:
    while True:
        if iterator is not None:
            value = next(iterator, ABSENT)
            if value is not ABSENT:
                saved.append(value)
                yield value
                continue
            iterator = None
        if not saved:
            return
        value = saved[index]
        index = (index + 1) % len(saved)
        yield value


def product(*iterables: Any, repeat: Any = 1) -> Any:
    pools = [list_of(pool) for pool in iterables] * repeat
    rows: list[tuple[Any, ...]] = [()]
    for pool in pools:
        rows = [(*row, value) for row in rows for value in pool]
    return multiplied(pools, rows, 0)


def multiplied(pools: Any, rows: Any, given: Any) -> Any:
    while pools is not None:  # its state is told by them: what nobody reads is lost over a break
        if given >= len(rows):
            return
        given += 1
        yield rows[given - 1]


def zip_longest(*iterables: Any, fillvalue: Any = None) -> Any:
    return zipped_longest([iter(iterable) for iterable in iterables], fillvalue)


def zipped_longest(iterators: Any, fillvalue: Any) -> Any:
    live = 0
    for iterator in iterators:
        live += iterator is not None
    while True:
        if not live:
            return
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
    # A value, its key, the group that may go on.
    return grouped(iter(iterable), key, [ABSENT, ABSENT, None], ABSENT)


def grouped(iterator: Any, key: Any, state: Any, target: Any) -> Any:
    while True:
        state[2] = None
        while state[1] is ABSENT or _is_same(target, state[1]):
            _step(iterator, key, state)
        target = state[1]
        state[2] = number = [target]
        yield target, group(iterator, key, state, number)


def group(iterator: Any, key: Any, state: Any, number: Any) -> Any:
    while state[2] is number:
        if state[0] is ABSENT:
            _step(iterator, key, state)
        if not _is_same(number[0], state[1]):
            raise StopIteration
        value = state[0]
        state[0] = state[1] = ABSENT
        yield value


def _step(iterator: Any, key: Any, state: Any) -> None:
    value = next(iterator, ABSENT)
    if value is ABSENT:
        raise StopIteration
    value_key = value if key is None else key(value)
    state[0] = value
    state[1] = value_key


def _is_same(a: Any, b: Any) -> Any:
    return a is not ABSENT and b in (a,)  # one object or equal, as C compares
