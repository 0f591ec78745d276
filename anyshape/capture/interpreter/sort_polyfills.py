"""`list.sort` with interpreted comparisons: C's own algorithm, comparison by comparison.

Which comparisons are made, and in which order, is what a program sees whose `__lt__` does more than
compare, and it decides the result where `<` is no total order (of sets, say). The algorithm is that
of CPython 3.11 and 3.12: Tim Peters' listsort.txt, with the merge order of powersort. `heapq` in
the same way: its list is left as C leaves it where a comparison raises.
"""

from __future__ import annotations

import operator
from types import FunctionType
from typing import Any

from anyshape.capture.interpreter.intrinsic_names import created, find, is_subtype, native, sorts
from anyshape.capture.interpreter.iteration_polyfills import list_of
from anyshape.capture.interpreter.polyfills import compare_by, is_or_equals
from anyshape.capture.interpreter.versions import VERSION

MIN_GALLOP = 7
LARGE_HEAP = 2500
"""From so many elements on, C makes a heap in an order that is kinder to the processor's cache."""


def sorted_of(iterable: Any, key: Any, reverse: Any) -> Any:
    values = list_of(iterable)
    sort_in_place(values, key, reverse)
    return created(values)


def sort_in_place(values: Any, key: Any, reverse: Any) -> None:
    """`list.sort`: the list is empty meanwhile, so that a key or a comparison cannot change it."""
    if type(reverse) is not bool:
        reverse = operator.index(reverse) if VERSION.reverse_is_number else bool(reverse)
    items = native(list.__getitem__, values, slice(None))
    native(list.clear, values)
    sorts(values, True)
    order = native(list, native(range, native(len, items)))
    try:
        keys = items if key is None else [key(value) for value in items]
        if reverse:
            order.reverse()
        try:
            sort_order(order, keys)
        finally:
            if reverse:
                order.reverse()
            items = [items[index] for index in order]
    finally:
        changed = sorts(values, False) or native(list.__len__, values) > 0
        native(list.__setitem__, values, slice(None), items)
    if changed:
        raise ValueError("list modified during sort")


class Compared:
    """A key of `functools.cmp_to_key`."""

    __slots__ = ("compare", "obj")
    __hash__ = None  # type: ignore[assignment] # as CPython's, which has none

    def __init__(self, compare: Any, obj: Any) -> None:
        self.compare = compare
        self.obj = obj

    def __lt__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) >= 0


def cmp_to_key(mycmp: Any) -> Any:
    return lambda obj: Compared(mycmp, obj)


# ---- comparisons ---------------------------------------------------------------------------------
def comparison_of(keys: Any) -> Any:
    """How C compares keys of one class: by its slot first, whose NotImplemented makes it ask again
    as `<` does. Of tuples it does so with their first elements."""
    in_tuples = type(keys[0]) is tuple and len(keys[0]) > 0
    kind = type(keys[0][0]) if in_tuples else type(keys[0])
    if not is_subtype(type(find(kind, "__lt__")), FunctionType):
        return less
    for key in keys:
        if in_tuples and (type(key) is not tuple or len(key) == 0):
            return less
        if type(key[0] if in_tuples else key) is not kind:
            return less
    return less_by_first if in_tuples else less_by_slot


def less(a: Any, b: Any) -> Any:
    return a < b


def less_by_slot(a: Any, b: Any) -> Any:
    result = compare_by(a, b, type(a), "__lt__")
    return a < b if result is NotImplemented else result


def less_by_first(a: Any, b: Any) -> Any:
    index = 0
    while index < len(a) and index < len(b):
        if not is_or_equals(a[index], b[index]):
            break
        index += 1
    if index >= len(a) or index >= len(b):
        return len(a) < len(b)
    return a[index] < b[index] if index else less_by_slot(a[0], b[0])


# ---- the algorithm -------------------------------------------------------------------------------
def sort_order(order: Any, keys: Any) -> None:
    """Sorts indices of keys; where a comparison raises, they are left as C leaves them."""
    count = len(order)
    if count < 2:
        return
    lt = comparison_of(keys)
    runs: list[Any] = []  # each its start, its length and its power
    gallop = [MIN_GALLOP]
    shortest = shortest_run(count)
    low = 0
    while low < count:
        length = prepare_run(order, keys, lt, low, count, shortest)
        if runs:
            power = power_of(runs[-1][0], runs[-1][1], length, count)
            while len(runs) > 1 and runs[-2][2] > power:
                merge_at(order, keys, lt, runs, len(runs) - 2, gallop)
            runs[-1][2] = power
        runs.append([low, length, 0])
        low += length
    while len(runs) > 1:
        at = len(runs) - 2
        if at > 0 and runs[at - 1][1] < runs[at + 1][1]:
            at -= 1
        merge_at(order, keys, lt, runs, at, gallop)


def shortest_run(count: Any) -> Any:
    odd = 0
    while count >= 64:
        odd |= count & 1
        count >>= 1
    return count + odd


def prepare_run(order: Any, keys: Any, lt: Any, low: Any, end: Any, shortest: Any) -> Any:
    """The length of a sorted run from `low` on, made as long as the shortest one may be."""
    length = run_length(order, keys, lt, low, end)
    if length >= shortest:
        return length
    wanted = min(shortest, end - low)
    insert_sorted(order, keys, lt, low, low + wanted, low + length)
    return wanted


def run_length(order: Any, keys: Any, lt: Any, low: Any, end: Any) -> Any:
    """That of the run that begins at `low`, which is turned round if it descends."""
    if low + 1 == end:
        return 1
    at = low + 1
    descends = True if lt(keys[order[at]], keys[order[at - 1]]) else False
    at += 1
    while at < end:
        if (True if lt(keys[order[at]], keys[order[at - 1]]) else False) is not descends:
            break
        at += 1
    if descends:
        order[low:at] = order[low:at][::-1]
    return at - low


def insert_sorted(order: Any, keys: Any, lt: Any, low: Any, end: Any, start: Any) -> None:
    """Binary insertion of what lies from `start` on into the sorted run in front of it."""
    while start < end:
        pivot = order[start]
        left, right = low, start
        while left < right:
            middle = (left + right) >> 1
            if lt(keys[pivot], keys[order[middle]]):
                right = middle
            else:
                left = middle + 1
        order[left : start + 1] = [pivot, *order[left:start]]
        start += 1


def power_of(start: Any, first: Any, second: Any, count: Any) -> Any:
    """The depth of the merge between two runs in a nearly optimal tree of merges."""
    result = 0
    a = 2 * start + first
    b = a + first + second
    while True:
        result += 1
        if a >= count:
            a -= count
            b -= count
        elif b >= count:
            return result
        a <<= 1
        b <<= 1


def merge_at(order: Any, keys: Any, lt: Any, runs: Any, at: Any, gallop: Any) -> None:
    start, first, _ = runs[at]
    other, second, _ = runs[at + 1]
    runs[at][1] = first + second
    del runs[at + 1]
    skipped = gallop_right(keys, lt, keys[order[other]], order, start, first, 0)
    start += skipped
    first -= skipped
    if first == 0:
        return
    last = keys[order[start + first - 1]]
    second = gallop_left(keys, lt, last, order, other, second, second - 1)
    if second <= 0:
        return
    merge = merge_low if first <= second else merge_high
    merge(order, keys, lt, start, first, other, second, gallop)


def gallop_left(keys: Any, lt: Any, key: Any, a: Any, base: Any, count: Any, hint: Any) -> Any:
    """Where in the sorted run the key belongs, left of its equals, looked for from `hint` on."""
    before, offset = 0, 1
    if lt(keys[a[base + hint]], key):
        most = count - hint
        while offset < most and lt(keys[a[base + hint + offset]], key):
            before, offset = offset, 2 * offset + 1
        offset = min(offset, most)
        before, offset = before + hint, offset + hint
    else:
        most = hint + 1
        while offset < most:
            if lt(keys[a[base + hint - offset]], key):
                break
            before, offset = offset, 2 * offset + 1
        offset = min(offset, most)
        before, offset = hint - offset, hint - before
    before += 1
    while before < offset:
        middle = before + ((offset - before) >> 1)
        if lt(keys[a[base + middle]], key):
            before = middle + 1
        else:
            offset = middle
    return offset


def gallop_right(keys: Any, lt: Any, key: Any, a: Any, base: Any, count: Any, hint: Any) -> Any:
    """The same, right of its equals."""
    before, offset = 0, 1
    if lt(key, keys[a[base + hint]]):
        most = hint + 1
        while offset < most and lt(key, keys[a[base + hint - offset]]):
            before, offset = offset, 2 * offset + 1
        offset = min(offset, most)
        before, offset = hint - offset, hint - before
    else:
        most = count - hint
        while offset < most:
            if lt(key, keys[a[base + hint + offset]]):
                break
            before, offset = offset, 2 * offset + 1
        offset = min(offset, most)
        before, offset = before + hint, offset + hint
    before += 1
    while before < offset:
        middle = before + ((offset - before) >> 1)
        if lt(key, keys[a[base + middle]]):
            offset = middle
        else:
            before = middle + 1
    return offset


def merge_low(
    order: Any, keys: Any, lt: Any, start: Any, na: Any, b: Any, nb: Any, gallop: Any
) -> None:
    """Merges two runs from their lower ends on; the first one, the shorter, is put aside."""
    aside = order[start : start + na]
    left = [0, na, b, nb, start]  # where in `aside`, how many; where in `order`, how many; to where
    try:
        merge_upwards(order, keys, lt, aside, left, gallop)
    finally:
        a, na, b, nb, to = left
        if na == 1 and nb:  # the last of the first run belongs behind all of the second
            order[to : to + nb] = order[b : b + nb]
            to += nb
        order[to : to + na] = aside[a : a + na]


def take(order: Any, source: Any, left: Any, run: Any, count: Any) -> None:
    """Moves elements of a run to where the merged ones end: 0 is the first run, 2 the second."""
    at, to = left[run], left[4]
    order[to : to + count] = source[at : at + count]
    left[run] = at + count
    left[run + 1] -= count
    left[4] = to + count


def merge_upwards(order: Any, keys: Any, lt: Any, aside: Any, left: Any, gallop: Any) -> None:
    take(order, order, left, 2, 1)
    if left[3] == 0 or left[1] == 1:
        return
    while pick_upwards(order, keys, lt, aside, left, gallop[0]):
        gallop[0] += 1
        taken = MIN_GALLOP
        while taken >= MIN_GALLOP:
            gallop[0] -= gallop[0] > 1
            taken = gallop_upwards(order, keys, lt, aside, left)
            if taken < 0:
                return
        gallop[0] += 1


def pick_upwards(order: Any, keys: Any, lt: Any, aside: Any, left: Any, most: Any) -> Any:
    """One by one, until so many come of one run; False where a run comes to its end."""
    from_a = from_b = 0
    while from_a < most and from_b < most:
        if lt(keys[order[left[2]]], keys[aside[left[0]]]):
            take(order, order, left, 2, 1)
            from_a, from_b = 0, from_b + 1
        else:
            take(order, aside, left, 0, 1)
            from_a, from_b = from_a + 1, 0
        if left[3] == 0 or left[1] == 1:
            return False
    return True


def gallop_upwards(order: Any, keys: Any, lt: Any, aside: Any, left: Any) -> Any:
    """As many as belong in front of the other run's next one, of each; how many of one, at most;
    -1 where a run comes to its end."""
    from_a = gallop_right(keys, lt, keys[order[left[2]]], aside, left[0], left[1], 0)
    take(order, aside, left, 0, from_a)
    if from_a and left[1] <= 1:
        return -1
    take(order, order, left, 2, 1)
    if left[3] == 0:
        return -1
    from_b = gallop_left(keys, lt, keys[aside[left[0]]], order, left[2], left[3], 0)
    take(order, order, left, 2, from_b)
    if left[3] == 0:
        return -1
    take(order, aside, left, 0, 1)
    return -1 if left[1] == 1 else max(from_a, from_b)


def merge_high(
    order: Any, keys: Any, lt: Any, start: Any, na: Any, b: Any, nb: Any, gallop: Any
) -> None:
    """The same from their upper ends on; the second one, the shorter, is put aside."""
    aside = order[b : b + nb]
    left = [start, na, 0, nb, b + nb]  # as above; where the runs begin, and where the merged do
    try:
        merge_downwards(order, keys, lt, aside, left, gallop)
    finally:
        _, na, _, nb, to = left
        if nb == 1 and na:  # the first of the second run belongs in front of all of the first
            order[to - na : to] = order[start : start + na]
            to -= na
        order[to - nb : to] = aside[:nb]


def take_last(order: Any, source: Any, left: Any, run: Any, count: Any) -> None:
    """Moves the last elements of a run to where the merged ones begin."""
    end, to = left[run] + left[run + 1], left[4]
    order[to - count : to] = source[end - count : end]
    left[run + 1] -= count
    left[4] = to - count


def merge_downwards(order: Any, keys: Any, lt: Any, aside: Any, left: Any, gallop: Any) -> None:
    take_last(order, order, left, 0, 1)
    if left[1] == 0 or left[3] == 1:
        return
    while pick_downwards(order, keys, lt, aside, left, gallop[0]):
        gallop[0] += 1
        taken = MIN_GALLOP
        while taken >= MIN_GALLOP:
            gallop[0] -= gallop[0] > 1
            taken = gallop_downwards(order, keys, lt, aside, left)
            if taken < 0:
                return
        gallop[0] += 1


def pick_downwards(order: Any, keys: Any, lt: Any, aside: Any, left: Any, most: Any) -> Any:
    from_a = from_b = 0
    while from_a < most and from_b < most:
        if lt(keys[aside[left[3] - 1]], keys[order[left[0] + left[1] - 1]]):
            take_last(order, order, left, 0, 1)
            from_a, from_b = from_a + 1, 0
        else:
            take_last(order, aside, left, 2, 1)
            from_a, from_b = 0, from_b + 1
        if left[1] == 0 or left[3] == 1:
            return False
    return True


def gallop_downwards(order: Any, keys: Any, lt: Any, aside: Any, left: Any) -> Any:
    start, na, key = left[0], left[1], keys[aside[left[3] - 1]]
    from_a = na - gallop_right(keys, lt, key, order, start, na, na - 1)
    take_last(order, order, left, 0, from_a)
    if left[1] == 0:
        return -1
    take_last(order, aside, left, 2, 1)
    if left[3] == 1:
        return -1
    nb, key = left[3], keys[order[start + left[1] - 1]]
    from_b = nb - gallop_left(keys, lt, key, aside, 0, nb, nb - 1)
    take_last(order, aside, left, 2, from_b)
    if from_b and left[3] <= 1:
        return -1
    take_last(order, order, left, 0, 1)
    return -1 if left[1] == 0 else max(from_a, from_b)


# ---- heapq ---------------------------------------------------------------------------------------
def heappush(heap: Any, item: Any) -> None:
    heap.append(item)
    sift_down(heap, 0, len(heap) - 1)


def heappop(heap: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    smallest = heap[0]
    heap[0] = last
    sift_up(heap, 0)
    return smallest


def heapreplace(heap: Any, item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    smallest = heap[0]
    heap[0] = item
    sift_up(heap, 0)
    return smallest


def heappushpop(heap: Any, item: Any) -> Any:
    if not heap or not heap[0] < item:
        return item
    return heapreplace(heap, item)


def heapify(heap: Any) -> None:
    for position in range(len(heap) // 2 - 1, -1, -1):
        sift_up(heap, position)


def sift_down(heap: Any, start: Any, position: Any) -> None:
    """Moves an element towards the root until its parent is no larger."""
    size, item = len(heap), heap[position]
    while position > start:
        above = (position - 1) // 2
        smaller = True if item < heap[above] else False
        refuse_changed(heap, size)
        if not smaller:
            return
        item = heap[position]
        heap[position] = heap[above]
        heap[above] = item
        position = above
        item = heap[position]


def sift_up(heap: Any, start: Any) -> None:
    """Moves an element to the leaves along the smaller children, then back to its place."""
    size, position = len(heap), start
    while position < size // 2:
        child = 2 * position + 1
        if child + 1 < size:
            smaller = True if heap[child] < heap[child + 1] else False
            refuse_changed(heap, size)
            child += not smaller
        moved = heap[child]
        heap[child] = heap[position]
        heap[position] = moved
        position = child
    sift_down(heap, start, position)


def refuse_changed(heap: Any, size: Any) -> None:
    if len(heap) != size:
        raise RuntimeError("list changed size during iteration")
