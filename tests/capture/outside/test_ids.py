"""`id()` of what may be another object in another call: it serves inside of a segment, and is not
kept, returned or handed on."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

SEEN: set[int] = set()


def remembered(x: Tensor, value: Any) -> bool:
    known = {id(x): x}
    os.getpid()
    return known.get(id(x)) is x


def noted(x: Tensor, value: Any) -> bool:
    SEEN.add(id(value))
    return id(value) in SEEN


OUTSIDE_SET: set[int] = set()
OUTSIDE_LIST: list[int] = []
OUTSIDE_DICT: dict[int, str] = {}


def among_others(x: Tensor, value: Any) -> Any:
    """Some of the objects of these calls lie outside, and their ids there."""
    ids = (id(x), id(value))
    found = [i in OUTSIDE_SET for i in ids]
    listed = [i in OUTSIDE_LIST for i in ids]
    kept = [i in OUTSIDE_DICT for i in ids]
    return found, listed, kept, [OUTSIDE_DICT.get(i) for i in ids], x + 1


def in_a_written_set(x: Tensor, value: Any) -> Any:
    OUTSIDE_SET.add(0)
    OUTSIDE_DICT[0] = ""
    return id(value) in OUTSIDE_SET, id(value) in sorted(OUTSIDE_SET), id(x) in OUTSIDE_DICT


PROGRAMS: dict[str, Callable[[Tensor, Any], Any]] = {
    "of a value": lambda x, value: id(value),
    "in a tuple": lambda x, value: (x.shape[0], (id(value),)),
    "of a tensor": lambda x, value: id(x),
    "of a list": lambda x, value: id([value][0]),
    "across a break": remembered,
    "kept outside": noted,
}
VALUES = {
    "integers": [int(f"1000{i}") for i in range(4)],
    "floats": [i + 0.5 for i in range(4)],
    "texts": ["".join(("a", "b")) for _ in range(4)],
    "tuples": [tuple([1, 2]) for _ in range(4)],
    "lists": [[1, 2] for _ in range(4)],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_id_is_that_of_the_object_of_this_call(name: str, kind: str) -> None:
    program, fast = PROGRAMS[name], anyshape.compile(PROGRAMS[name])
    for value in VALUES[kind]:
        x = torch.ones(3)
        assert fast(x, value) == program(x, value)
    assert not fast.stats().internal_errors


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2, 3, 4, 7])
def test_copies_share_what_was_shared_wherever_a_break_is(every: int) -> None:
    fast = Compiled(lambda x, held: copy.deepcopy(held), Options(break_every=every), ByReference)
    for k in (0, 0, 5, 7):
        inner = [k, 2]
        held = {"a": inner, 1: [(1, inner), "a"]}
        made = fast(torch.ones(3), held)
        assert made == held
        assert made["a"] is made[1][0][1]


def test_a_copy_of_what_lies_outside_is_one_graph() -> None:
    held = {"a": [1, 2.5, "b"], "c": (1, [2])}
    fast = anyshape.compile(lambda x: (x + 1, copy.deepcopy(held)), fullgraph=True)
    for _ in range(2):
        made = fast(torch.ones(3))[1]
        assert made == held
        assert made["a"] is not held["a"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["integers", "floats", "lists"])
@pytest.mark.parametrize("program", [among_others, in_a_written_set])
def test_an_id_is_looked_for_outside_as_that_of_the_object_of_this_call(
    program: Callable[[Tensor, Any], Any], kind: str
) -> None:
    fast = anyshape.compile(program)
    for index in (0, 1, 3, 2, 1):
        x, value = torch.ones(3), VALUES[kind][index]
        known = {id(x): "x", id(value): "v"} if index % 2 else {}
        OUTSIDE_DICT.clear()
        OUTSIDE_DICT.update(known)
        OUTSIDE_SET.clear()
        OUTSIDE_SET.update(known)
        OUTSIDE_LIST[:] = known
        assert repr(fast(x, value)) == repr(program(x, value))
    assert not fast.stats().internal_errors


WEIGHT = torch.nn.Parameter(torch.ones(3))


def test_the_id_of_a_tensor_that_is_the_same_one_in_each_call_is_its_own() -> None:
    known = {id(WEIGHT): "weight"}
    fast = anyshape.compile(lambda x: (x + WEIGHT, known[id(WEIGHT)]), fullgraph=True)
    for size in (3, 1):
        assert fast(torch.ones(size))[1] == "weight"


@pytest.mark.filterwarnings("ignore")
def test_ids_of_arguments_are_compared_as_they_are() -> None:
    x = torch.ones(3)
    held = id(x)
    fast = anyshape.compile(lambda a, b: (a + 1, id(a) == id(b), id(a) == held, id(a.shape[0])))
    for a, b in ((x, x), (torch.ones(3), x), (x, torch.ones(3))):
        assert fast(a, b)[1:] == (a is b, a is x, id(3))


HELD = torch.ones(3)
HELD_ID = id(HELD)


def is_held(a: Tensor) -> Any:
    y = a + 1
    return y, id(a) == HELD_ID, id(a) != HELD_ID


@pytest.mark.filterwarnings("ignore")
def test_the_id_of_an_argument_is_compared_with_one_kept_outside() -> None:
    fast = anyshape.compile(is_held)
    for a in (HELD, torch.ones(3), HELD):
        assert fast(a)[1:] == (a is HELD, a is not HELD)


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "remainder": lambda a, b: id(a) % 16 + id(a) // 16,
    "difference": lambda a, b: id(a) - id(b),
    "order": lambda a, b: id(a) < id(b),
    "text": lambda a, b: (f"{id(a):x}", hex(id(a)), str(id(b)), "%d" % id(a)),
    "negative": lambda a, b: -id(a),
    "sorted": lambda a, b: sorted([id(a), id(b)]) == [id(a), id(b)],
    "hash": lambda a, b: hash(id(a)) ^ hash((id(a), 1)),
    "sum": lambda a, b: sum([id(a), id(b)]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_of_an_id_is_of_this_call(name: str) -> None:
    compute = COMPUTED[name]

    def program(x: Tensor, a: Any, b: Any) -> Any:
        return x + 1, compute(a, b)

    fast = anyshape.compile(program)
    values = [[i] for i in range(6)]
    for a, b in zip(values, reversed(values), strict=True):
        assert fast(torch.ones(3), a, b)[1] == compute(a, b)
    assert not fast.stats().internal_errors


GIVEN = {
    "compared": lambda x, value, number: id(value) == number,
    "key": lambda x, value, number: {number: 1}.get(id(value)),
    "looked for": lambda x, value, number: number in {id(value): 1},
    "in a tuple": lambda x, value, number: (id(value), 1) == (number, 1),
    "in a set": lambda x, value, number: len({number, id(value)}),
    "of the tensor": lambda x, value, number: id(x) == number,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", GIVEN)
def test_an_id_that_was_handed_in_is_compared_with_that_of_the_object_of_this_call(
    kind: str,
) -> None:
    program = GIVEN[kind]
    fast = anyshape.compile(lambda x, value, number: (x + 1, program(x, value, number)))
    first, second, x, y = [1], [2], torch.ones(3), torch.ones(3)
    for value, tensor, number in (
        (first, x, id(first)),
        (second, y, id(first)),
        (second, x, id(x)),
        (second, y, id(x)),
    ):
        assert fast(tensor, value, number)[1] == program(tensor, value, number)
    assert not fast.stats().internal_errors


class Config:
    """Some of its attributes have two names, as those of transformers' configs."""

    names: ClassVar[dict[str, str]] = {"width": "hidden"}

    def __init__(self) -> None:
        self.hidden, self.parts, self.kind = 3, [1, 2], "".join(("a", "b"))

    def __getattribute__(self, name: str) -> Any:
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


CONFIG = Config()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("breaks", [False, True])
def test_a_copy_of_an_object_that_reads_its_attributes_itself_is_captured_whole(
    breaks: bool,
) -> None:
    """It was cut at each id that `deepcopy` notes: thirty specializations for one."""

    def program(x: Tensor) -> Any:
        made = copy.deepcopy(CONFIG)
        made.parts.append(made.width)
        y = x * made.width
        if breaks:
            os.getpid()
        return y + len(made.parts), made.parts, made.kind

    fast = anyshape.compile(program)
    for size in (3, 4, 5):
        mine, expected = fast(torch.ones(size)), program(torch.ones(size))
        assert torch.equal(mine[0], expected[0])
        assert mine[1:] == expected[1:]
    assert CONFIG.parts == [1, 2]
    assert fast.stats().specializations == 1 + breaks
    assert not fast.stats().internal_errors


@pytest.mark.filterwarnings("ignore")
def test_parts_of_a_tuple_that_is_made_anew_at_each_read_are_asked_about() -> None:
    """In `co_varnames`, which is another tuple each time, lie the texts of which ids are noted."""

    def program(x: Tensor) -> Any:
        names = program.__code__.co_varnames
        return x + 1, [{id("x"): 1}.get(id(name), 0) for name in names]

    fast = anyshape.compile(program)
    for size in (3, 4):
        assert fast(torch.ones(size))[1] == program(torch.ones(size))[1]
    assert not fast.stats().internal_errors
