"""Objects with a `__hash__` of the program's own, as keys and elements."""

import dataclasses
import enum
import functools

import pytest
import torch

import anyshape


class Key:
    def __init__(self, a):
        self.a = a

    def __eq__(self, other):
        return self.a == other.a

    def __hash__(self):
        return hash(self.a)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: object = 2


class Odd:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return self.value


class Color(enum.Enum):
    RED = 1
    BLUE = 2


TABLE = {Key(3): 10, Key(5): 20}


@functools.cache
def remembered(key):
    return key[0][0].a * 10


PROGRAMS = {
    "remembered": lambda x, o: x * remembered(((o,), 1)),
    "hash": lambda x, o: x * (hash(o) % 7),
    "hash of a tuple": lambda x, o: (hash((o, (1, o))) % 5, x),
    "hash of a frozenset": lambda x, o: (hash(frozenset([o])) % 5, x),
    "in a dict": lambda x, o: (o in {type(o)(3): 1}, x),
    "in a tuple in a dict": lambda x, o: ({(type(o)(3), 1): 1}.get((o, 1), 0), x),
    "item": lambda x, o: (TABLE.get(o, 7), o in TABLE, x),
    "in a set": lambda x, o: (o in {type(o)(3)}, len({o, type(o)(3)}), x),
    "setdefault": lambda x, o: ({type(o)(3): 1}.setdefault(o, 4), x),
    "pop": lambda x, o: ({type(o)(3): 1}.pop(o, 5), x),
    "union": lambda x, o: (len({type(o)(3): 1} | {o: 2}), len({type(o)(3)} | {o}), x),
    "difference": lambda x, o: (len({type(o)(3)} - {o}), {type(o)(3)}.issuperset([o]), x),
    "distinct": lambda x, o: (
        len(set([o, type(o)(3)])),
        len(frozenset([o, type(o)(3)])),
        len(dict.fromkeys([o, type(o)(3)])),
        x,
    ),
    "equal dicts": lambda x, o: ({type(o)(3): 1} == {o: 1}, x),
}


@pytest.mark.parametrize("cls", (Key, Frozen))
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_an_object_from_outside_holds_decides(name, cls):
    program = PROGRAMS[name]
    fast, x = anyshape.compile(program), torch.ones(2)
    for a in (1, 2, 3, 5, 3, 7):
        assert repr(fast(x, cls(a))) == repr(program(x, cls(a)))


@pytest.mark.parametrize("value", (0, -1, True, 2**61, -(2**63), 2**63, 2**200, -(2**70)))
def test_a_hash_is_rounded_as_c_rounds_it(value):
    odd = Odd(value)
    assert anyshape.compile(lambda x: (hash(odd), x))(torch.ones(1))[0] == hash(odd)


def test_sizes_in_nested_tuples_are_keys():
    def look(x, n):
        return {((3, 1), 0): "three"}.get(((x.shape[0], 1), 0), "other"), {((n, 2),)} == {((3, 2),)}

    fast = anyshape.compile(look)
    for n in (1, 3, 4, 3, 5):
        assert fast(torch.ones(n), n) == look(torch.ones(n), n)


def test_members_of_enumerations_are_keys_without_a_break():
    def choose(x, color):
        return x * {Color.RED: 2.0, Color.BLUE: 3.0}[color]

    fast, x = anyshape.compile(choose, fullgraph=True), torch.ones(2)
    for color in (Color.RED, Color.BLUE, Color.RED):
        assert torch.equal(fast(x, color), choose(x, color))
