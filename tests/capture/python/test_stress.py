"""A break after every k-th instruction (the option `break_every`): each program is then a test of how
state is put together again, and gives what it gives natively.

A part of the programs for each distance, another one each; all of them: `python -m
tests.capture.python.test_stress`.
"""

from __future__ import annotations

import itertools
import sys
import warnings
import zlib
from typing import Any

import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.breaking import harness as breaking
from tests.capture.by_reference import ByReference
from tests.capture.plain import harness as plain

PLAIN = dict(plain.cases())
BREAKING = breaking.programs()
DISTANCES = ((1, 0), (2, 0), (3, 0), (7, 0), (3, 1))
"""`break_every` and `break_seed`."""
PARTS = 36
"""Of the programs, so many parts: each distance takes one in `make test`."""

OURS = "the interpreter's own calls are on the stack, or what it does takes long in pieces"
PROCESS = "C code keeps state of the process that a break in its middle shows"
NOT_IN_PIECES = {
    "control.deep_recursion_of_frames": OURS,
    "classes.dataclasses": OURS,
    "classes.enum": OURS,
    "exceptions.format_exc": OURS,
    "exceptions.traceback_lines": "a frame is asked for its line after it has moved on",
    "builtin_functions.frames": "a frame is asked for its line after it has moved on",
    "functions.lru_cache": "a symbolic argument goes past the cache",
    "library.weakref_dict": PROCESS,
    "objects.logging_": OURS,
}


def part(names: Any, number: int) -> list[str]:
    kept = [name for name in names if name not in NOT_IN_PIECES]
    return [name for name in kept if zlib.crc32(name.encode()) % PARTS == number]


def check_plain(name: str, every: int, seed: int) -> None:
    case = PLAIN[name]
    native = plain.outcome(case, case.__code__)
    fast = Compiled(case, Options(break_every=every, break_seed=seed), ByReference)
    assert plain.outcome(fast, case.__code__) == native
    assert not fast.mistakes, fast.mistakes


def check_breaking(name: str, every: int, seed: int) -> None:
    made = BREAKING[name]
    options = {"fullgraph": False, "break_every": every, "break_seed": seed}
    fast = breaking.compiled(made.fn, **options)
    scope = made.fn.__globals__
    with torch.set_grad_enabled(made.grad):
        for x in itertools.islice(breaking.arguments(made.grad), 2):
            given, taken = (x.detach().clone().requires_grad_(made.grad) for _ in range(2))
            wanted = breaking.observed(made.fn, scope, given)
            breaking.check_same(breaking.observed(fast, scope, taken), wanted)


SAMPLE = [
    (name, *DISTANCES[index % len(DISTANCES)])
    for index, name in enumerate([*part(PLAIN, 0), *part(PLAIN, 1), *part(BREAKING, 0)])
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "every", "seed"), SAMPLE)
def test_a_program_in_pieces_is_the_program(name: str, every: int, seed: int) -> None:
    (check_plain if name in PLAIN else check_breaking)(name, every, seed)


def main() -> int:
    """Every program at every distance; says which differ."""
    warnings.simplefilter("ignore")
    wrong = 0
    for every, seed in DISTANCES:
        for name in (*PLAIN, *BREAKING):
            if name in NOT_IN_PIECES:
                continue
            try:
                (check_plain if name in PLAIN else check_breaking)(name, every, seed)
            except BaseException as error:
                wrong += 1
                print(f"every {every}, seed {seed}: {name}: {str(error)[:300]}", flush=True)
    print(f"{wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
