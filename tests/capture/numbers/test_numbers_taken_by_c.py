"""C code that takes numbers of data, or of sizes, out of an iterator: results, and where the iterator
is left, are as in CPython."""

from __future__ import annotations

import array
import bisect
import collections
import datetime
import functools
import heapq
import itertools
import math
import operator
import statistics
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import PerformanceWarning


def changed(target: Any, method: str, *args: Any) -> list[Any]:
    getattr(target, method)(*args)
    return sorted(target) if isinstance(target, set) else list(target)


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda it: array.array("q", it).tolist(),
    "array.extend": lambda it: changed(array.array("q", [5]), "extend", it),
    "partial of array": lambda it: functools.partial(array.array, "q")(it).tolist(),
    "bytes": lambda it: bytes(it),
    "bytearray": lambda it: list(bytearray(it)),
    "bytearray.extend": lambda it: changed(bytearray(b"a"), "extend", it),
    "int.from_bytes": lambda it: int.from_bytes(it, "big"),
    "set": lambda it: sorted(set(it)),
    "set.update": lambda it: changed({0}, "update", it),
    "set.union": lambda it: sorted({0}.union(it)),
    "set.difference": lambda it: sorted({2}.difference(it)),
    "set.isdisjoint": lambda it: {2}.isdisjoint(it),
    "set.issuperset": lambda it: {2, 3}.issuperset(it),
    "set.issubset": lambda it: {2, 3}.issubset(it),
    "frozenset": lambda it: sorted(frozenset(it)),
    "frozenset.isdisjoint": lambda it: frozenset({2}).isdisjoint(it),
    "frozenset.issuperset": lambda it: frozenset({2, 3}).issuperset(it),
    "frozenset.issubset": lambda it: frozenset({2, 3}).issubset(it),
    "deque": lambda it: list(collections.deque(it, maxlen=2)),
    "deque.extendleft": lambda it: changed(collections.deque([1]), "extendleft", it),
    "list": list,
    "list.extend": lambda it: changed([0], "extend", it),
    "list.__setitem__": lambda it: changed([0, 9], "__setitem__", slice(0, 1), it),
    "sum": sum,
    "max": max,
    "sorted": sorted,
    "any": any,
    "fsum": math.fsum,
    "prod": math.prod,
    "join": lambda it: ",".join(map(str, it)),
    "dict.fromkeys": dict.fromkeys,
    "dict": lambda it: dict(zip(it, "abc", strict=False)),
    "Counter": lambda it: dict(collections.Counter(it)),
    "nlargest": lambda it: heapq.nlargest(2, it),
    "merge": lambda it: list(heapq.merge(it, [1])),
    "insort": lambda it: functools.reduce(lambda made, v: bisect.insort(made, v) or made, it, []),
    "fmean": statistics.fmean,
    "pstdev": statistics.pstdev,
    "reduce": lambda it: functools.reduce(operator.add, it),
    "countOf": lambda it: operator.countOf(it, 2),
    "indexOf": lambda it: operator.indexOf(it, 2),
    "contains": lambda it: operator.contains(it, 2),
    "in": lambda it: 2 in it,
    "struct.pack": lambda it: struct.pack("3q", *it),
    "accumulate": lambda it: list(itertools.accumulate(it)),
    "islice": lambda it: list(itertools.islice(it, 2)),
    "pairwise": lambda it: list(itertools.pairwise(it)),
    "takewhile": lambda it: list(itertools.takewhile(lambda v: v < 3, it)),
    "combinations": lambda it: list(itertools.combinations(it, 2)),
    "tee": lambda it: [list(each) for each in itertools.tee(it)],
    "filterfalse": lambda it: list(itertools.filterfalse(None, it)),
    "pairs": lambda it: list(zip(it, it, strict=False)),
    "enumerate": lambda it: [i for i, v in enumerate(it) if v],
    "next": lambda it: next(it),
    "np.fromiter": lambda it: np.fromiter(it, dtype=np.int64).tolist(),
    "Size": lambda it: torch.Size(it),
}


def generated(values: list[int]) -> Iterator[int]:
    yield from values


ITERATORS: dict[str, Callable[[list[int]], Iterator[int]]] = {
    "list": iter,
    "tuple": lambda values: iter(tuple(values)),
    "reversed": reversed,
    "dict values": lambda values: iter(dict(enumerate(values)).values()),
    "deque": lambda values: iter(collections.deque(values)),
    "map": lambda values: map(int, values),
    "filter": lambda values: filter(None, values),
    "chain": lambda values: itertools.chain(values),
    "islice": lambda values: itertools.islice(values, 9),
    "generator": generated,
}
# README, "Known to be wrong": what a fork copies, and what else holds it.
UNMENDED = {
    (consumer, name) for consumer in ("any", "in", "enumerate") for name in ("dict values", "deque")
}
SOURCES: dict[str, Callable[[Tensor], list[Any]]] = {
    "data": lambda x: x.tolist(),
    "sizes": lambda x: [x.shape[0], x.shape[0] - 1, 2],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_c_code_takes_what_it_takes_in_python(consumer: str, source: str) -> None:
    for name, make in ITERATORS.items():
        if (consumer, name) in UNMENDED:
            continue

        def program(x: Tensor, make: Any = make) -> Any:
            iterator = make(SOURCES[source](x))
            return CONSUMERS[consumer](iterator), list(iterator), x + 1

        fast = anyshape.compile(program)
        for values in ([1, 2, 3], [3, 2, 2]):
            x = torch.tensor(values)
            assert repr(fast(x)) == repr(program(x)), name


@pytest.mark.parametrize("make", [list, tuple, collections.deque])
def test_what_only_stores_numbers_captures_them(make: Any) -> None:
    def program(x: Tensor) -> Any:
        a, b = make(iter([x.shape[0], x.shape[1]]))
        return x * a + b

    fast = anyshape.compile(program, fullgraph=True)
    for shape in ((2, 3), (4, 5)):
        x = torch.ones(shape)
        assert torch.equal(fast(x), program(x))
    assert fast.stats().specializations == 1


@pytest.mark.parametrize("make", [bytes, bytearray])
def test_so_many_zero_bytes(make: Any) -> None:
    """A size is no container that could be iterated over."""

    def program(x: Any) -> Any:
        return x + 1, make(x.shape[0]), make([x.shape[0]])

    fast = anyshape.compile(program)
    for length in (3, 5, 1):
        x = torch.ones(length)
        assert fast(x)[1:] == program(x)[1:]
    assert fast.stats().internal_errors == 0


def test_c_reads_numbers_of_outside_objects_and_sizes_as_plain_ones() -> None:
    """The longest length of a deque, how a text is padded, what a text is translated to."""

    def taken(x: Tensor, kept: collections.deque[int]) -> Any:
        most, days = kept.maxlen, datetime.timedelta(days=1)
        assert most is not None
        made = [collections.deque(kept, n) for n in (most, x.shape[0])]
        for each in made:
            each.extend([1, 2])
        texts = [f"{1:>{n}}|{'a':<{n}}|{2.5:.{n}f}" for n in (most, x.shape[0])]
        texts.append("ab".translate({97: "x" * x.shape[0]}))
        return x * sum(map(sum, made)), texts, (days * most).days

    fast = anyshape.compile(taken)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)
        for most, size in ((3, 2), (4, 2), (5, 3)):
            kept = collections.deque(range(1, 6), most)
            found, expected = (run(torch.ones(size), kept) for run in (fast, taken))
            assert torch.equal(found[0], expected[0])
            assert found[1:] == expected[1:]
    assert fast.stats().internal_errors == 0
