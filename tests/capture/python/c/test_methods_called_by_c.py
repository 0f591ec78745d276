"""Special methods of the program's classes that C code calls, on an argument that is another object
in each call."""

import collections
import dataclasses
import itertools

import pytest
import torch

import anyshape


class Number:
    def __init__(self, a):
        self.a = a

    def __index__(self):
        return self.a

    def __bool__(self):
        return self.a > 2

    def __iter__(self):
        return iter(range(self.a))

    def __bytes__(self):
        return bytes([self.a])

    def __repr__(self):
        return f"Number({self.a})"


class Position:
    def __init__(self, a):
        self.a = a

    def __index__(self):
        return self.a


def stored(x, o):
    items = list(range(40))
    items[o] = 70
    items[1:o] = [80]
    del items[o]
    del items[:o]
    items.insert(o, 90)
    return items, items.pop(o) if len(items) > o.a else None, x


def chained(*iterables):
    for iterable in iterables:
        yield from iterable


PROGRAMS = {
    "and": lambda x, o: (o and 1, not o, x),
    "or": lambda x, o: (o or 1, bool(o), x),
    "bytes": lambda x, o: (bytes(o), bytearray(Position(o.a)), bytes(Position(o.a)), x),
    "counter": lambda x, o: (collections.Counter(o), x),
    "slices": lambda x, o: ([1, 2, 3, 4][:o], "abcdefgh"[1:o], (1, 2, 3, 4)[::o], x),
    "slices of tensors": lambda x, o: (torch.arange(10)[:o], range(10)[o:], x),
    "stores": stored,
    "enumerate": lambda x, o: (list(enumerate("ab", o)), x),
    "two iterations in a generator": lambda x, o: ([v for v in chained(o, o)], x),
    "chain": lambda x, o: (list(itertools.chain(o, o)), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("values", ((1, 2, 3, 5, 2, 7, 1, 4, 6), (7, 6, 5, 4, 3, 2, 1)))
def test_an_object_is_asked_in_each_call(name, values):
    program = PROGRAMS[name]
    fast, x = anyshape.compile(program), torch.ones(2)
    for a in values:
        assert repr(fast(x, Number(a))) == repr(program(x, Number(a)))


def test_an_iterator_over_arguments_holds_those_of_this_call():
    """The break lies between the two turns of a loop over a tuple of arguments."""

    def added(x, first, second):
        total = 0
        for part in (first, second):
            total = total + sum(float(v) for v in part["values"].tolist())
        return x * total

    fast, x = anyshape.compile(added), torch.ones(2)
    for n in range(1, 7):
        parts = [{"values": torch.full((n + i,), float(n + i))} for i in range(2)]
        assert torch.equal(fast(x, *parts), added(x, *parts))


MADE = []


class Made(dict):
    def __new__(cls, *args):
        MADE.append("new")
        return super().__new__(cls, *args)


class Written(dict):
    def __setitem__(self, key, value):
        MADE.append(key)
        super().__setitem__(key, value)


class Whole(int):
    def __new__(cls, *args):
        MADE.append("whole")
        return super().__new__(cls, *args)


BY_CLASS_METHODS = {
    "fromkeys by __new__": lambda: len(Made.fromkeys("ab")),
    "fromkeys by __setitem__": lambda: len(Written.fromkeys("ab")),
    "from_bytes": lambda: Whole.from_bytes(b"ab", "little") + 1,
    "mappingproxy.get with a default": lambda: vars(Made).get("absent", MADE) is MADE,
}


@pytest.mark.parametrize("name", BY_CLASS_METHODS)
def test_class_methods_of_c_make_objects_as_the_class_says(name):
    work = BY_CLASS_METHODS[name]

    def program(x):
        return x + 1, work()

    MADE.clear()
    wanted = work()
    made = MADE[:]
    fast = anyshape.compile(program)
    for _ in range(3):
        MADE.clear()
        assert fast(torch.ones(2))[1] == wanted
        assert made == MADE


def test_a_dataclass_is_made_in_one_graph():
    def program(x):
        y = x + 1

        @dataclasses.dataclass
        class Point:
            a: int
            b: list = dataclasses.field(default_factory=list)

        try:
            Point(1) < Point(2)
        except TypeError as error:
            refused = str(error)
        return y * 2, Point(1) == Point(1), dataclasses.asdict(Point(2)), refused

    fast = anyshape.compile(program, fullgraph=True)
    assert fast(torch.ones(2))[1:] == program(torch.ones(2))[1:]
