"""Keys that are numbers or texts of a class of the program's, whose `repr` is no Python."""

from __future__ import annotations

import enum
import os
from typing import Any

import pytest
import torch

import anyshape


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Name(str):
    def __repr__(self) -> str:
        return "no python"


KEYS = (Colour.RED, Colour.BLUE, Name("a"), Name("b c"), True, None, 1.5, (Colour.RED, 2))


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("key", KEYS)
def test_a_value_by_key_is_read_and_guarded(key: Any, fullgraph: bool) -> None:
    table: dict[Any, Any] = {key: torch.ones(2), "n": 3}

    def program(x: Any) -> Any:
        y = x + table[key]
        if not fullgraph:
            os.getpid()
        return y * table["n"], table.get(key) is None

    fast = anyshape.compile(program, fullgraph=fullgraph)
    for value in (torch.ones(2), torch.full((2,), 5.0)):
        table[key] = value
        found, missing = fast(torch.ones(2))
        assert torch.equal(found, (1 + value) * 3)
        assert not missing


def test_attributes_of_such_names_are_set_and_read() -> None:
    class Held:
        pass

    def program(x: Any, held: Any) -> Any:
        made = Held()
        made.__dict__[Name("q")] = x * 2
        os.getpid()
        return made, getattr(held, Name("v")) + x, made.__dict__["q"]

    held = Held()
    held.v = torch.ones(2)  # type: ignore[attr-defined]
    made, total, q = anyshape.compile(program)(torch.ones(2), held)
    assert torch.equal(total, torch.full((2,), 2.0))
    assert made.q is q
    assert torch.equal(q, torch.full((2,), 2.0))
