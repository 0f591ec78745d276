"""A bytearray from outside is read and written as a container is: operators on it are not worked out
while capturing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.capture.by_reference import compiled

READS: dict[str, Callable[[Any], Any]] = {
    "equal": lambda b: (b == b"ab", b != b"ab", b"ab" == b, b == bytearray(b"ab")),
    "ordered": lambda b: (b < b"abc", b >= b"ab", b"b" > b),
    "joined": lambda b: (b + b"c", b"c" + b, b * 2, 2 * b, b"%s" % b, b % ()),
    "asked": lambda b: (97 in b, b"ab" in b, not b, bool(b), len(b)),
    "taken": lambda b: (b[0:1], b[-1:], [*b], bytes(b), f"{b}", str(b), b.hex()),
    "branched": lambda b: "long" if len(b) > 2 else "short" if b else "empty",
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "added": lambda b: b.__iadd__(b"c"),
    "appended": lambda b: b.append(3),
    "stored": lambda b: b.__setitem__(slice(0, 1), b"zz"),
}


@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("name", READS)
def test_what_is_read_of_it_is_guarded(name: str, every: int) -> None:
    def program(x: Any, b: bytearray) -> Any:
        return x + 1, READS[name](b)

    fast = compiled(program, fullgraph=False, break_every=every)
    for content in (b"ab", b"abc", b"", b"b", b"ab"):
        wanted = program(torch.ones(2), bytearray(content))[1]
        assert fast(torch.ones(2), bytearray(content))[1] == wanted
    assert not fast.mistakes


def added_in_place(x: Any, b: bytearray) -> Any:
    same = b
    b += b"c"
    os.getpid()
    same *= 2
    return x + 1, b is same


def added_behind_a_break(x: Any, b: bytearray) -> Any:
    made = bytearray(b)
    same = made
    os.getpid()
    made += b"c"
    os.getpid()
    made *= 2
    del same[0]
    return x + 1, (made, made is same)


@pytest.mark.parametrize("every", [0, 1, 2, 3])
@pytest.mark.parametrize("program", [added_in_place, added_behind_a_break])
def test_it_is_written_once_a_call(program: Any, every: int) -> None:
    fast = compiled(program, fullgraph=False, break_every=every)
    for _ in range(3):
        ours, theirs = bytearray(b"ab"), bytearray(b"ab")
        assert fast(torch.ones(2), ours)[1] == program(torch.ones(2), theirs)[1]
        assert ours == theirs


@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("name", WRITES)
def test_methods_write_it_once_a_call(name: str, every: int) -> None:
    def program(x: Any, b: bytearray) -> Any:
        return x + 1, (WRITES[name](b), len(b))

    fast = compiled(program, fullgraph=False, break_every=every)
    for _ in range(3):
        ours, theirs = bytearray(b"ab"), bytearray(b"ab")
        assert fast(torch.ones(2), ours)[1] == program(torch.ones(2), theirs)[1]
        assert ours == theirs
