"""What random programs of Python found (`tests/fuzz_python`), each as a program of its own: in one
graph, with a break after each instruction, in calls that differ.
"""

from __future__ import annotations

import itertools
import os
from collections import ChainMap, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


class Plain:
    def __init__(self, v: Any = None) -> None:
        if v is not None:
            self.v = v


class Slotted:
    __slots__ = ("v",)


class Pair(tuple):  # type: ignore[type-arg]
    pass


class Asked:
    """Its truth is a graph break."""

    def __bool__(self) -> bool:
        os.getpid()
        return True


def _items(values: Any) -> Iterator[Any]:
    yield from values


def _said(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error).__name__, str(error)


def iterators_of_c_that_fill_lists_outside(x: Any, world: Any) -> Any:
    """What an iterator gives, it gives once: the write is repeated on the real list."""
    world["a"].extend(enumerate(world["b"]))
    world["a"] += iter({"k": 1}.items())
    world["set"].update(reversed(world["b"]))
    return x + 1, world


def truths_that_break_in_a_condition(x: Any, world: Any) -> Any:
    """Where a condition goes on is not decided while its `__bool__` runs: both ways live."""
    y = x + 1
    assert world["asked"], world["b"]
    z = x + 2
    while world["asked"]:
        break
    return y, z


def attributes_that_are_deleted(x: Any, world: Any) -> Any:
    """That an attribute is there, or not, is relied on where it is deleted."""
    said = []
    for obj in (world["plain"], world["slotted"]):
        try:
            del obj.v
            said.append("deleted")
        except AttributeError as error:
            said.append(str(error))
    return x + 1, said


def namespaces_across_breaks(x: Any, world: Any) -> Any:
    """`o.__dict__` behind a break is that of the object as it is there."""
    made, outside = Plain(1), world["plain"]
    namespace, also, other = made.__dict__, vars(made), outside.__dict__
    os.getpid()
    namespace["w"], also["z"], other["q"], made.u = 2, 3, x.shape[0], 5
    same = namespace is made.__dict__, namespace is also, other is outside.__dict__
    return same, sorted(vars(made)), namespace["u"], outside.q


def tuples_of_classes(x: Any, world: Any) -> Any:
    """An object of a subclass of tuple is itself, and what is made here is made in each call."""
    world["pair"].v = world["b"]
    made = Pair()
    made.v = x.shape[0]
    os.getpid()
    return made, made.v, world["pair"]


def iterators_stood_for(x: Any, world: Any) -> Any:
    """What runs in place of `map` and its like is no generator to the program."""
    made = [
        *(map(lambda v: v, world["b"]), filter(lambda v: v, world["b"]), zip(_items("ab"))),
        *(itertools.islice(_items("ab"), 1), itertools.chain(_items("a")), _items("c")),
    ]
    return [(type(i), _said(lambda i=i: i.send(None)), hasattr(i, "throw"), list(i)) for i in made]


def sets_of_what_cannot_be_hashed(x: Any, world: Any) -> Any:
    return _said(lambda: {1, world["b"]}), _said(lambda: {**world["plain"].__dict__, 1: 2})


def indices_before_the_beginning(x: Any, world: Any) -> Any:
    """An index below minus the length is refused, and is not that of another element."""
    a, b = world["a"], world["b"]
    refused = [_said(lambda i=i: a[i]) for i in (-1, -2, -3)]
    return x + 1, refused, _said(lambda: b[-3]), _said(lambda: b[-2])


def slices_filled_with_what_was_written(x: Any, world: Any) -> Any:
    """What a slice is filled with is read as the segment has left it."""
    a, b = world["a"], world["b"]
    b.append(x.shape[0])
    a[0:1] = b
    shown = list(a)
    b.append(9)
    a[::2] = b[: (len(a) + 1) // 2]
    return x + 1, shown, list(a), _said(lambda: a.__setitem__(slice(None, None, 2), b * 2))


def exceptions_that_hold_what_was_written(x: Any, world: Any) -> Any:
    """The text of an exception is that of its arguments as the segment has left them."""
    a = world["a"]
    a.append("written")
    error = ValueError(a)
    texts = str(error), repr(error), str(KeyError(a, 1)), repr([error])
    return x + 1, texts


def slices_refused_before_anything_is_taken(x: Any, world: Any) -> Any:
    """C reads the bounds of a slice, and the step, before it takes an item."""

    def store(where: Any, key: Any, values: Any) -> None:
        where[key] = values

    values, b = _items([1, 2]), world["b"]
    refused = [
        _said(lambda: store(b, slice(x.shape[0], {}), values)),
        _said(lambda: store(b, slice({}, x.shape[0]), values)),
        _said(lambda: store(b, slice(None, x.shape[0], 0), values)),
        _said(lambda: store(b, slice(None, None, 2), world["plain"])),
        _said(lambda: store(b, slice(1, 2), world["plain"])),
        _said(lambda: store(b, slice(0, 1, 1), x.shape[0])),
    ]
    return x + 1, refused, [*values], b


def texts_joined_in_pieces(x: Any, world: Any) -> Any:
    """What lies in a list behind a break is a text that differs from call to call."""
    shown = f"{ChainMap({'a': 1}, world['texts'])!r:>9}"
    return x + 1, shown, ", ".join([repr(world["texts"]["b"]), "b"])


def writes_that_fail_when_half_is_written(x: Any, world: Any) -> Any:
    table, b = world["table"], world["b"]
    refused = [
        _said(lambda: table.update([b, 3])),
        _said(lambda: table.__ior__([[5, 6], b, 3])),
        _said(lambda: world["set"].update([1, 2, []])),
        _said(lambda: world["set"].difference_update([1], [[]])),
    ]
    return x + 1, refused, sorted(table, key=str), sorted(world["set"])


def counts_of_what_was_written(x: Any, world: Any) -> Any:
    """What is looked for is compared as it is now."""
    a, b = world["a"], world["b"]
    a.append(5)
    del b[1]
    return x + 1, [[0, 5]].count(a), ([0, 5],).index(a), a in deque([[0, 5]]), b in ([1],)


def searches_for_what_was_written(x: Any, world: Any) -> Any:
    """And shown so, where it is not found."""
    a = world["a"]
    a.append(5)
    return x + 1, [_said(lambda values=values: values.index(a)) for values in ([], (), deque())]


def searches_for_what_holds_itself(x: Any, world: Any) -> Any:
    """It is found without comparing it."""
    a, b = world["a"], world["b"]
    b.append(b)
    return x + 1, [7, b].index(b), [a, b].count(b), b.index(b)


PROGRAMS = [
    texts_joined_in_pieces,
    *(slices_refused_before_anything_is_taken, writes_that_fail_when_half_is_written),
    *(iterators_of_c_that_fill_lists_outside, truths_that_break_in_a_condition),
    *(attributes_that_are_deleted, namespaces_across_breaks, tuples_of_classes),
    *(iterators_stood_for, sets_of_what_cannot_be_hashed, indices_before_the_beginning),
    *(slices_filled_with_what_was_written, exceptions_that_hold_what_was_written),
    *(counts_of_what_was_written, searches_for_what_was_written, searches_for_what_holds_itself),
]


def worlds() -> Iterator[dict[str, Any]]:
    for number, v in enumerate((1, None, 2, None)):
        slotted = Slotted()
        if v:
            slotted.v = v
        yield {
            **{"a": [0], "b": [1, v], "set": {7}, "asked": Asked()},
            **{"plain": Plain(v), "slotted": slotted, "pair": Pair((v,)), "table": {}},
            "texts": {"a": {"b": [v, 2]}, "b": f"text {number}"},
        }


def shown(call: Callable[..., Any]) -> list[Any]:
    found = []
    for count, world in enumerate(worlds(), 2):
        result = call(torch.ones(count), world)
        plain = sorted(vars(world["plain"]).items(), key=str), vars(world["pair"])
        parts = [p is world["pair"] for p in result] if isinstance(result, tuple) else []
        found.append((repr(result).replace(repr(world["asked"]), ""), parts, plain, world["a"]))
        found.append((world["b"], world["set"], world["table"]))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2, 3])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_does_what_it_does_natively(program: Callable[..., Any], every: int) -> None:
    fast = Compiled(program, Options(break_every=every), ByReference)
    assert _without_addresses(shown(fast)) == _without_addresses(shown(program))
    assert not fast.mistakes


def _without_addresses(found: list[Any]) -> str:
    return "\n".join(part.split(" at 0x")[0] for part in repr(found).split(", "))
