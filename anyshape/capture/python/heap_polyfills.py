"""`heapq` in Python, interpreted (see polyfills.py): compares in the order of C, and leaves the
list as C does where a comparison raises.
"""

from __future__ import annotations

from typing import Any

LARGE = 2500
"""From so many elements on, C makes a heap in an order that is kinder to the processor's cache."""


def heappush(heap: Any, item: Any) -> None:
    heap.append(item)
    _down(heap, 0, len(heap) - 1)


def heappop(heap: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    smallest = heap[0]
    heap[0] = last
    _up(heap, 0)
    return smallest


def heapreplace(heap: Any, item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    smallest = heap[0]
    heap[0] = item
    _up(heap, 0)
    return smallest


def heappushpop(heap: Any, item: Any) -> Any:
    if not heap or not heap[0] < item:
        return item
    if not heap:
        raise IndexError("index out of range")
    smallest = heap[0]
    heap[0] = item
    _up(heap, 0)
    return smallest


def heapify(heap: Any) -> None:
    for position in range(len(heap) // 2 - 1, -1, -1):
        _up(heap, position)


def _down(heap: Any, start: Any, position: Any) -> None:
    """Moves an element towards the root until its parent is no larger."""
    size, item = len(heap), heap[position]
    while position > start:
        above = (position - 1) // 2
        smaller = True if item < heap[above] else False
        _refuse_changed(heap, size)
        if not smaller:
            return
        item = heap[position]
        heap[position] = heap[above]
        heap[above] = item
        position = above
        item = heap[position]


def _up(heap: Any, start: Any) -> None:
    """Moves an element to the leaves along the smaller children, then back to its place."""
    size, position = len(heap), start
    while position < size // 2:
        child = 2 * position + 1
        if child + 1 < size:
            smaller = True if heap[child] < heap[child + 1] else False
            _refuse_changed(heap, size)
            child += not smaller
        moved = heap[child]
        heap[child] = heap[position]
        heap[position] = moved
        position = child
    _down(heap, start, position)


def _refuse_changed(heap: Any, size: Any) -> None:
    if len(heap) != size:
        raise RuntimeError("list changed size during iteration")
