"""Containers and iterators that live across graph breaks, made by C code or by the program."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import logging
import operator
import random
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.capture.breaking.harness import native, program


@program()
def itertools_(x):
    out = []
    for a, b in itertools.product([1, 2], [x, x + 1]):
        out.append(b * a)
        native(b)
    c = itertools.count(3)
    out.append(x * next(c))
    native(x)
    out.append(x * next(c))
    for i, j in zip(itertools.cycle([1, 2]), [x, x, x]):
        out.append(j * i)
        native(j)
    return out


@program()
def deque_(x):
    q = collections.deque([x], maxlen=3)
    for i in range(5):
        q.append(q[-1] + i)
        native(q[0])
        if i == 2:
            q.popleft()
    c = collections.Counter("aab")
    dd = collections.defaultdict(list)
    dd["a"].append(x)
    native(x)
    dd["b"]
    return list(q), c, dict(dd), len(q)


@program()
def consume_list(x):
    it = iter([x, x + 1, x + 2])
    a = next(it)
    native(a)
    return a, list(it), list(it)


@program()
def consume_tuple(x):
    it = iter((x, x + 1, x + 2))
    native(x)
    return tuple(it), next(it, None)


@program()
def consume_zip(x):
    it = iter([x, x + 1, x + 2])
    z = zip([1, 2, 3], it)
    next(z)
    native(x)
    r = [b * a for a, b in z]
    return r, list(it)


@program()
def zip_after(x):
    it = iter([x, x + 1, x + 2])
    native(x)
    z = zip([1, 2], it)
    r = [b * a for a, b in z]
    native(x)
    return r, list(it)


@program()
def unpack(x):
    it = iter([x, x + 1, x + 2])
    native(x)
    a, b, c = it
    native(x)
    return a, b, c


@program()
def extend(x):
    it = iter([x, x + 1])
    native(x)
    l = [1]
    l.extend(it)
    l += [*it]
    return l, {**dict(zip("ab", l))}


@program()
def star(x):
    it = iter([x, x + 1, x + 2])
    native(x)
    a, *b = it
    return a, b


@program()
def contains(x):
    it = iter([1, 2, 3])
    native(x)
    r = 2 in it
    return r, list(it), x


@program()
def dd_lambda(x):
    d = collections.defaultdict(lambda: torch.zeros(2))
    d["a"] += 1
    native(x)
    d["a"] += 1
    d["b"]
    return dict(d)


@program()
def dd_int(x):
    d = collections.defaultdict(int)
    for c in "hello":
        d[c] += 1
    native(x)
    d["z"] += x.shape[0]
    return d


@program()
def dd_nested(x):
    d = collections.defaultdict(lambda: collections.defaultdict(list))
    d[1][2].append(x)
    native(x)
    d[1][2].append(x + 1)
    d[3][1]
    return d[1][2], len(d), list(d)


@program()
def dd_set(x):
    d = collections.defaultdict(set)
    d["a"].add(1)
    d["a"].add(x.shape[0])
    return d


class DD(collections.defaultdict):
    def __missing__(self, key):
        self[key] = v = [key]
        return v


@program()
def dd_sub(x):
    d = DD(list)
    d["q"].append(x)
    native(x)
    d["q"].append(1)
    return dict(d)


@program()
def counter(x):
    c = collections.Counter([1, 1, 2])
    native(x)
    c.update([2, 2])
    c[9] += 1
    return c, c.most_common(1), x


@program()
def odict(x):
    o = collections.OrderedDict(a=x)
    o["b"] = [x]
    native(x)
    o.move_to_end("a")
    o["b"].append(1)
    return o, o.popitem()


@program()
def dq(x):
    q = collections.deque([x], maxlen=2)
    q.append([x])
    native(x)
    q[-1].append(2)
    q.rotate(1)
    return list(q)


@program()
def chainmap(x):
    m = collections.ChainMap({"a": [x]}, {"b": x})
    m["z"] = [1]
    native(x)
    m["z"].append(2)
    return dict(m), m.maps


@program()
def cyc(x):
    c = itertools.cycle([1, 2, 3])
    next(c)
    native(x)
    return next(c), next(c), next(c), x


@program()
def cyct(x):
    c = itertools.cycle([x, x + 1])
    next(c)
    native(x)
    return next(c), next(c), next(c), x


@program()
def combos(x):
    out = []
    for a, b in itertools.combinations([x, x + 1, x + 2], 2):
        native(a)
        out.append(a * b)
    for a, b in itertools.permutations([1, 2], 2):
        native(x)
        out.append(x * a + b)
    for a, b in itertools.combinations_with_replacement([x, 1], 2):
        native(x)
        out.append((a, b))
    return out


@program()
def tee(x):
    a, b = itertools.tee([x, x + 1])
    next(a)
    native(x)
    return list(a), list(b)


@program()
def group(x):
    out = []
    for k, g in itertools.groupby([(1, x), (1, x + 1), (2, x)], key=lambda t: t[0]):
        native(x)
        out.append((k, list(g)))
    return out


@program()
def pair(x):
    out = []
    for a, b in itertools.pairwise([x, x + 1, x + 2]):
        native(x)
        out.append(a * b)
    for a, b in itertools.pairwise([1, 2, 3]):
        native(x)
        out.append(a * b)
    return out


@program()
def acc(x):
    return [native(v) for v in itertools.accumulate([x, x + 1])], [
        (native(x), v) for v in itertools.accumulate([1, 2, 3])
    ]


@program()
def zl(x):
    out = []
    for a, b in itertools.zip_longest([1, 2, 3], [x]):
        native(x)
        out.append((a, b))
    return out


@program()
def comp(x):
    return [(native(x), v) for v in itertools.compress([1, 2, 3], [1, 0, 1])], [
        (native(v), v) for v in itertools.compress([x, x + 1], [1, 0])
    ]


@program()
def isl(x):
    return [(native(x), v) for v in itertools.islice([1, 2, 3], 1, None)], [
        (native(v), v) for v in itertools.islice(itertools.count(x.shape[0]), 0)
    ]


@program()
def fromkeys(x):
    d = dict.fromkeys([1, 2], [])
    d[1].append(x)
    native(x)
    d[2].append(1)
    return d


@program()
def sortl(x):
    l = sorted([3, 1])
    native(x)
    l.append(x)
    return l


@program()
def split(x):
    l = "a b".split()
    l.append("c")
    native(x)
    l.append("d")
    return l, x


@program()
def heap(x):
    h = []
    heapq.heappush(h, (1, "a"))
    native(x)
    heapq.heappush(h, (0, "b"))
    return h, heapq.nsmallest(1, h), x


@program()
def enumr(x):
    out = []
    for i, (a, b) in enumerate(zip([x, x + 1], [1, 2])):
        native(a)
        out.append(a * i + b)
    for k, v in {"a": x, "b": x + 1}.items():
        native(v)
        out.append((k, v))
    for v in reversed([x, x + 1]):
        native(v)
        out.append(v)
    for v in map(lambda t: t + 1, [x, x]):
        native(v)
        out.append(v)
    for v in filter(None, [0, 1, 2]):
        native(x)
        out.append(v)
    return out


@program()
def strit(x):
    return (
        [(c, native(x)) for c in "abc"],
        [(b, native(x)) for b in b"ab"],
        sorted((k, native(x)) for k in {1, 2}),
    )


@program()
def yfl(x):
    def g():
        yield from [x, x + 1]
        yield from (x, 1)
        yield from range(2)

    out = []
    for v in g():
        native(x)
        out.append(v)
    return out


@program()
def shared(x):
    a = [x]
    b = [a, a]
    native(x)
    a.append(1)
    c = (a, {"k": a})
    native(x)
    b[0].append(2)
    return a, b, c, b[0] is b[1], c[0] is a


G = []


@program()
def glob(x):
    l = [x]
    G.append(l)
    native(x)
    l.append(1)
    r = G[-1] is l
    G.pop()
    return l, r


@program()
def dflt(x, seen=[]):
    y = []
    y.append(seen)
    native(x)
    seen.append(x.shape[0])
    r = y[0] is seen, len(seen) > 0
    seen.clear()
    return r


@program()
def slicel(x):
    l = [x, x + 1, x + 2]
    m = l[1:]
    native(x)
    m.append(1)
    l[0:1] = m
    del l[-1]
    return l, m


@program()
def ba(x):
    b = bytearray(b"ab")
    b.append(99)
    native(x)
    b.append(100)
    return bytes(b), b
