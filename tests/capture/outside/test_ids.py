"""`id()` of what may be another object in another call: it serves inside of a segment, and is not
kept, returned or handed on."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

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
