"""Objects of the program that live across graph breaks: classes, closures, globals, modules."""

from __future__ import annotations

import abc
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
import traceback
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.capture.breaking.harness import native, program


@dataclass
class Box:
    a: Any
    b: int = 3
    c: list = field(default_factory=list)

    def scaled(self, k):
        return Box(self.a * k, self.b + 1, [*self.c, self.a])


@program()
def dataclasses_(x):
    b = Box(x)
    native(x)
    b = b.scaled(2)
    b.b += 5
    native(b.a)
    d = dataclasses.replace(b, b=9)
    return d, dataclasses.asdict(Box(1, 2)), b.c


@dataclass(frozen=True)
class FBox:
    a: Any
    n: int = 0

    def next(self):
        return dataclasses.replace(self, a=self.a + 1, n=self.n + 1)


@program()
def frozen_dataclass(x):
    b = FBox(x)
    for _ in range(3):
        b = b.next()
        native(b.a)
    return b.a, b.n


class Pt(NamedTuple):
    x: Any
    y: Any = 1


@program()
def namedtuples(x):
    p = Pt(x, x + 1)
    native(p.x)
    q = p._replace(y=p.y * 2)
    a, b = q
    return q, a + b, q._asdict()


@program()
def dict_mutation(x):
    d = {"a": x}
    d["b"] = d["a"] * 2
    native(x)
    d.setdefault("c", []).append(x)
    d.pop("a")
    d.update(z=x + 1)
    native(x)
    for k, v in list(d.items()):
        if isinstance(v, list):
            d[k + "2"] = v + v
    del d["c"]
    return d


@program()
def closure_nonlocal(x):
    n = 0
    acc = x

    def add(y):
        nonlocal n, acc
        n += 1
        acc = acc + y
        return n

    add(x)
    native(x)
    add(x * 2)
    native(acc)
    return acc, n, add(x), acc


def va(*args, k=1, **kw):
    native(args[0])
    return sum(args) * k + sum(kw.values())


@program()
def varargs(x):
    t = (x, x + 1)
    return va(*t, x, k=2, **{"q": x, "r": 1})


class Prop:
    def __init__(self, t):
        self._t = t
        self.reads = 0

    @property
    def t(self):
        self.reads += 1
        native(self._t)
        return self._t * self.reads

    @t.setter
    def t(self, v):
        self._t = v


@program()
def properties(x):
    p = Prop(x)
    a = p.t
    p.t = a + 1
    b = p.t
    return a, b, p.reads


class GA:
    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__["seen"].append(name)
        return len(name)


@program()
def getattr_(x):
    g = GA()
    y = x * g.abc
    native(y)
    z = y + g.hello
    return z, g.seen, getattr(g, "zz", None), hasattr(g, "__foo__")


class Sl:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program()
def slots(x):
    s = Sl(x)
    native(x)
    s.a = s.a + 1
    ok = hasattr(s, "b")
    s.b = 4
    native(x)
    return s.a, s.b, ok


@program()
def lambda_defaults(x):
    fs = [lambda y, k=k: y * k for k in range(3)]
    native(x)
    return [f(x) for f in fs]


COUNT = 0


TABLE = {}


HIST = []


@program()
def global_counter(x):
    global COUNT
    COUNT += 1
    TABLE[COUNT] = x.shape[0]
    native(x)
    HIST.append(COUNT)
    COUNT += 1
    return x * COUNT


@program()
def random_(x):
    random.seed(3)
    a = random.random()
    y = x * a
    b = random.randint(0, 10)
    l = [1, 2, 3, 4]
    random.shuffle(l)
    return y + b, l


@program()
def time_(x):
    t = time.time()
    y = x + 1
    p = time.perf_counter()
    return y, t > 0, time.time() >= t


logger = logging.getLogger("probe")


@program()
def logging_(x):
    logger.warning("size %d", x.shape[0])
    y = x + 1
    logger.info("no")
    logger.warning("val %s", float(y.sum()))
    return y


class HookNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.calls = []
        with torch.no_grad():
            self.l.weight.fill_(0.1)
            self.l.bias.fill_(0.2)
        self.l.register_forward_hook(self.hook)
        self.l.register_forward_pre_hook(lambda m, a: (a[0] * 2,))

    def hook(self, m, a, o):
        self.calls.append(tuple(o.shape))
        native(o.detach())
        return o + 1

    def forward(self, x):
        return self.l(x), len(self.calls)


HN = HookNet()


@program()
def hooks(x):
    HN.calls.clear()
    return HN(x)


@program()
def class_inside(x):
    class C:
        k = 3

        def f(self, y):
            return y * self.k

    c = C()
    y = c.f(x)
    native(y)
    return c.f(y)


@program()
def partial_(x):
    f = functools.partial(torch.mul, x)
    native(x)
    g = functools.partial(va, x, k=3)
    return f(2), g(x)


@functools.lru_cache(None)
def cached(n):
    return n * n


@program()
def lru(x):
    return x * cached(x.shape[0]), cached(3)


class E(enum.Enum):
    A = 1
    B = 2


@program()
def enums(x):
    m = E.A
    native(x)
    return x * m.value, m is E.A, E(2), [e.name for e in E]


@program()
def strings(x):
    s = f"{x.shape[0]}-{x.dtype}"
    native(x)
    return s + f"{native(x):.2f}", "%s" % (x.shape,), str(x.device)


@program()
def sets(x):
    s = {1, 2}
    s.add(x.shape[1])
    native(x)
    s |= {9}
    fs = frozenset(s)
    return sorted(s), len(fs)


@program()
def deepcopy_(x):
    d = {"a": [x, 1]}
    e = copy.deepcopy(d)
    f = copy.copy(d)
    f["a"].append(3)
    return d, e, f


class Mod(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.register_buffer("run", torch.zeros(4))
        self.hist = []

    def forward(self, x):
        self.n += 1
        self.run.add_(x.sum(0) if x.dim() == 2 and x.shape[1] == 4 else 1)
        self.hist.append(x.shape[0])
        native(x)
        self.last = x * self.n
        return self.last + self.run.sum()


@program()
def module_state(x):
    m = Mod()
    a = m(x)
    b = m(x + 1)
    return a, b, m.n, m.hist, m.run, m.last


@program()
def setattr_tensor(x):
    y = x + 1
    y.tag = "q"
    native(y)
    return y * 2, y.tag


@program()
def sorted_key(x):
    return (
        sorted([3, 1, 2], key=lambda v: native(x * v)),
        min([x, x + 1], key=native),
        list(map(lambda v: native(x) * v, [1, 2])),
    )


@program()
def super_calls(x):
    class A:
        def f(self, y):
            native(y)
            return y + 1

    class B(A):
        def f(self, y):
            return super().f(y) * 2

    return B().f(x)


class Base:
    def f(self, y):
        native(y)
        return y + 1


class Derived(Base):
    @classmethod
    def make(cls):
        return cls()

    @staticmethod
    def st(y):
        return y * 3

    def f(self, y):
        return super().f(y) * 2

    def __call__(self, y):
        return self.st(self.f(y))

    def __len__(self):
        return 7

    def __iter__(self):
        return iter([1, 2])

    def __contains__(self, v):
        return v == 4

    def __getitem__(self, i):
        return i * 2

    def __eq__(self, o):
        return isinstance(o, Derived)

    def __hash__(self):
        return 3


@program()
def dunder(x):
    d = Derived.make()
    return d(x), len(d), list(d), 4 in d, d[x.shape[0]], d == Derived(), {d: 1}[Derived()]


@program()
def kwonly_defaults(x):
    def f(a, /, b=2, *, c, d=x):
        return a * b + c + d

    native(x)
    return f(x, c=1), f(x, 3, c=x, d=0)


@program()
def global_tensor(x):
    global GT
    GT = GT + 1
    native(x)
    GTL.append(GT)
    return x + GT


GT = torch.ones(1)


GTL = []


@program()
def warnings_(x):
    warnings.warn("hey", UserWarning)
    native(x)
    return x


@program()
def iter_next_protocol(x):
    class It:
        def __init__(self):
            self.i = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.i += 1
            native(x)
            if self.i > 3:
                raise StopIteration
            return x * self.i

    return list(It()), [v for v in It()]


@program()
def getters(x):
    rows = [(2, x), (1, x + 1)]
    second = operator.itemgetter(1)
    native(x)
    return (
        [second(row) for row in rows],
        sorted([(2, "a"), (1, "b")], key=operator.itemgetter(0, 1)),
        operator.attrgetter("shape")(x),
        operator.methodcaller("sum", dim=0)(x),
    )


@program()
def equal_tuples_of_other_types(x):
    found = []
    for pair in ((1, 1), (True, 1), (1.0, 1), (x, 1)):
        native(x)
        found.append(pair[0] * 2)
    return found


@program()
def classes_made_inside(x):
    shared = [1]

    class Base(abc.ABC):
        items = shared
        table = {}

        @abc.abstractmethod
        def scaled(self): ...

    class Made(Base):
        def scaled(self):
            return len(self.items)

    made = Made()
    native(x)
    shared.append(2)
    made.table["n"] = made.scaled()
    native(x)
    return made.scaled(), Made.table, type(made) is Made, Base.items is shared, shared


@program()
def cells_of_classes_made_inside(x):
    class Doubling:
        def of(self):
            return x * 2

    native(x)
    return Doubling().of()


@program()
def exceptions_with_all_that_they_hold(x):
    try:
        try:
            open("/no/such/file")
        except OSError as error:
            raise SystemExit(3) from error
    except SystemExit as error:
        kept = error
    native(x)
    cause = kept.__cause__
    lines = [entry.name for entry in traceback.extract_tb(cause.__traceback__)]
    return kept.code, cause.filename, cause.errno, kept.__context__ is cause, lines


class Tagged(set):
    def __init__(self, items, tag):
        super().__init__(items)
        self.tag = tag


class Counting(collections.deque):
    pass


@program()
def subclasses_with_attributes(x):
    tagged = Tagged([1, 2], "t")
    queue = Counting([1, 2], 5)
    queue.name = "q"
    text = Bytes(b"ab")
    text.name = "b"
    native(x)
    queue.append(3)
    return (
        tagged.tag,
        sorted(tagged),
        type(queue).__name__,
        queue.name,
        list(queue),
        queue.maxlen,
        bytes(text),
        text.name,
    )


class Bytes(bytearray):
    pass


@program()
def containers_that_hold_themselves(x):
    values = [x]
    values.append(values)
    pair = (1, values)
    values.append(pair)
    native(x)
    return values[1] is values, values[2][1] is values, values[2] is pair


@program()
def tuples_by_their_class(x):
    point = Pt(x, x + 1)
    pair = tuple.__new__(Pt, [x, x * 2])
    native(x)
    return point._replace(y=x * 3), pair, tuple([x, x * 2])
