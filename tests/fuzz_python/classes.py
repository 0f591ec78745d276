"""Classes of random programs: special methods that note that they were called, subclasses of
builtin containers, descriptors, properties, slots.

In: choices. Out: the text of a few classes. Nothing here is compared; see `oracle.py`.
"""

from __future__ import annotations

import random
import re

PRELUDE = """\
import collections, contextlib, copy, functools, itertools, operator, os
from dataclasses import dataclass, field
import torch

LOG = []


def note(*parts):
    LOG.append(parts)
    return parts[-1]


def pairs(values):
    for value in values:
        yield value
        yield (value,)


def guarded(values):
    try:
        for value in values:
            got = yield value
            note("got", got)
    except ValueError as error:
        note("caught", str(error))
        yield "late"
    finally:
        note("closed")


def delegating(values):
    found = yield from guarded(values)
    note("found", found)
    yield from ()
    return "end"


def reading(container):
    for turn in range(3):
        yield len(container)


@contextlib.contextmanager
def managed(value):
    note("in")
    try:
        yield value
    except KeyError as error:
        note("took", str(error))
    finally:
        note("out")


class Field:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        note("Field.get")
        return self if obj is None else getattr(obj, self.name, "unset")

    def __set__(self, obj, value):
        note("Field.set")
        setattr(obj, self.name, value)


class OnlySet:
    def __set__(self, obj, value):
        note("OnlySet")
        vars(obj)["only"] = value


@dataclass
class Point:
    a: object = 1
    b: list = field(default_factory=list)


class Failure(Exception):
    def __init__(self, *args, extra=None):
        super().__init__(*args)
        self.extra = extra
"""
"""What every program begins with."""

METHODS = {
    "eq": """
    def __eq__(self, other):
        note(NAME, "eq")
        return self.v == getattr(other, "v", other)

    def __hash__(self):
        return hash(NAME)
""",
    "lt": """
    def __lt__(self, other):
        note(NAME, "lt")
        return str(self.v) < str(getattr(other, "v", other))
""",
    "bool": """
    def __bool__(self):
        note(NAME, "bool")
        return bool(self.v)
""",
    "len": """
    def __len__(self):
        note(NAME, "len")
        return len(self.items)
""",
    "getitem": """
    def __getitem__(self, key):
        note(NAME, "getitem", key if type(key) is not slice else (key.start, key.stop))
        return self.items[key]
""",
    "setitem": """
    def __setitem__(self, key, value):
        note(NAME, "setitem")
        self.items.append(value)
        self.v = key
""",
    "delitem": """
    def __delitem__(self, key):
        note(NAME, "delitem")
        del self.items[key]
""",
    "contains": """
    def __contains__(self, value):
        note(NAME, "contains")
        return value in self.items
""",
    "iter": """
    def __iter__(self):
        note(NAME, "iter")
        for item in self.items:
            yield item
""",
    "next": """
    def __iter__(self):
        return self

    def __next__(self):
        note(NAME, "next")
        if not self.items or len(LOG) > 200:
            raise StopIteration
        return self.items.pop()
""",
    "call": """
    def __call__(self, *args, **kwargs):
        note(NAME, "call", len(args))
        self.items.extend(args)
        return self
""",
    "add": """
    def __add__(self, other):
        note(NAME, "add")
        return NotImplemented if isinstance(other, str) else NAME(other)

    def __radd__(self, other):
        note(NAME, "radd")
        return NAME(other)
""",
    "iadd": """
    def __iadd__(self, other):
        note(NAME, "iadd")
        self.items += [other]
        return self
""",
    "or": """
    def __or__(self, other):
        note(NAME, "or")
        return self.items

    def __ior__(self, other):
        note(NAME, "ior")
        return NotImplemented
""",
    "getattr": """
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        note(NAME, "getattr", name)
        return name
""",
    "setattr": """
    def __setattr__(self, name, value):
        note(NAME, "setattr", name)
        super().__setattr__(name, value)
""",
    "with": """
    def __enter__(self):
        note(NAME, "enter")
        return self.items

    def __exit__(self, kind, error, tb):
        note(NAME, "exit", kind and kind.__name__)
        return bool(self.v)
""",
    "repr": """
    def __repr__(self):
        note(NAME, "repr")
        return f"<NAME {len(self.items)}>"
""",
    "index": """
    def __index__(self):
        note(NAME, "index")
        return 1
""",
    "neg": """
    def __neg__(self):
        note(NAME, "neg")
        return [self, self]
""",
    "prop": """
    @property
    def twice(self):
        note(NAME, "twice")
        return [self.v, self.v]

    @twice.setter
    def twice(self, value):
        note(NAME, "set twice")
        self.v = value
""",
    "kinds": """
    @classmethod
    def made(cls, value):
        note(NAME, "made")
        cls.count += 1
        return cls(value)

    @staticmethod
    def same(value):
        return value
""",
    "field": """
    held = Field()
    only = OnlySet()
""",
    "copy": """
    def __copy__(self):
        note(NAME, "copy")
        return NAME(self.items)
""",
    "push": """
    def push(self, value, *more, key=None):
        self.items.append(value)
        self.items.extend(more)
        return super().__repr__() if key == 1 else self
""",
    "new": """
    def __new__(cls, *args):
        note(NAME, "new")
        return super().__new__(cls)
""",
    "cached": """
    @functools.cached_property
    def first(self):
        note(NAME, "first")
        return [self.v]
""",
}

BUILTIN = {
    "list": ("append", "__getitem__"),
    "dict": ("__getitem__", "update"),
    "set": ("add", "__contains__"),
    "tuple": ("__getitem__", "__len__"),
    "int": ("__add__", "__mul__"),
    "str": ("__add__", "__eq__"),
    "collections.deque": ("append", "__len__"),
    "collections.OrderedDict": ("__setitem__", "pop"),
    "collections.defaultdict": ("__missing__", "__getitem__"),
}


def plain_class(name: str, base: str, choices: random.Random) -> str:
    """A class with some special methods."""
    drawn = choices.sample(sorted(METHODS), choices.randint(2, 7))
    slots = '    __slots__ = ("v", "items")\n' if choices.random() < 0.1 and not base else ""
    fitting = [key for key in drawn if not slots or key not in ("cached", "field", "copy")]
    head = f"class {name}({base}):" if base else f"class {name}:"
    body = f"""
{head}
{slots}    count = 0

    def __init__(self, v=0, *more):
        self.v = v
        self.items = [*more]
"""
    if base and choices.random() < 0.5:
        body = f"\n{head}\n    count = 1\n"
    for key in fitting:
        quoted = re.sub(r"(note|hash)\(NAME", rf'\1("{name}"', METHODS[key])
        body += quoted.replace("NAME", name)
    return body


def builtin_class(name: str, choices: random.Random) -> str:
    """A subclass of a builtin type, which overrides a method or adds attributes."""
    base = choices.choice(sorted(BUILTIN))
    method = choices.choice(BUILTIN[base])
    text = f"\nclass {name}({base}):\n    count = 0\n    v = 3\n"
    if choices.random() < 0.6:
        text += f"""
    def {method}(self, *args):
        note("{name}", "{method}")
        return super().{method}(*args)
"""
    if choices.random() < 0.3 and base in ("list", "dict", "set"):
        text += """
    def __init__(self, *args):
        super().__init__(*args)
        self.extra = [self]
"""
    return text


def classes(choices: random.Random) -> str:
    """A0 (plain), A1 (often a subclass of it), B (of a builtin type)."""
    first = plain_class("A0", "", choices)
    second = plain_class("A1", choices.choice(["A0", ""]), choices)
    return first + "\n" + second + "\n" + builtin_class("B", choices)
