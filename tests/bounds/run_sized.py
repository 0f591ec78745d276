"""Runs programs of `sized_programs.py`, each in a process of its own, and prints a line of JSON for each.

    python run_sized.py DTYPE MOST NUMBER...

DTYPE is one of torch's, or "turn" for another one from program to program; MOST says how many
assignments of sizes each program is called with. One compiled function serves them all. Arguments and
results end where their memory ends; under the sanitizers that is torch's own memory, whose bounds they know.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from guarded import guarded, guarded_empty
from isolated import isolated
from sized_programs import DTYPES, PROGRAMS, Program, assignments

from anyshape import api  # all of it, once for all processes
from anyshape.errors import AnyshapeWarning
from anyshape.options import from_environment
from anyshape.runtime.launch import RUNTIME_FUNCTIONS


def differences(program: Program, dtype: torch.dtype, most: int) -> str:
    """What was not as eager's; empty where all was."""
    function = program.function()
    fast = api.compile(program.function())
    sanitized = from_environment().sanitize  # it knows the bounds of torch's own memory only
    if not sanitized:
        RUNTIME_FUNCTIONS["anyshape.empty_cpu"] = guarded_empty
    for number, sizes in enumerate(assignments(program.names, most)):
        print(f"{sizes}", file=sys.stderr, flush=True)
        wanted = outcome(function, program.arguments(sizes, dtype, number))
        given = program.arguments(sizes, dtype, number)
        found = outcome(fast, given if sanitized else map(guarded, given))
        try:
            compare(found, wanted)
        except AssertionError as error:
            return f"{sizes}: {error}"
    return ""


def outcome(function, args):
    try:
        made = function(*args)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)
    return made if isinstance(made, tuple) else (made,)


def compare(found, wanted):
    if isinstance(wanted, type) or isinstance(found, type):
        assert found is wanted, f"{found}, eager {wanted}"
        return
    for ours, theirs in zip(found, wanted, strict=True):
        tolerance = {torch.bfloat16: 3e-2, torch.float16: 4e-3}.get(theirs.dtype, 2e-5)
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def main(dtype: str, most: str, *numbers: str) -> None:
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", AnyshapeWarning)  # a mistake of ours hides nowhere
    torch.set_num_threads(1)
    for number in map(int, numbers):
        kind = DTYPES[number % len(DTYPES)] if dtype == "turn" else getattr(torch, dtype)
        print(f"{number} {PROGRAMS[number].text} of {kind}", file=sys.stderr, flush=True)
        said = isolated(lambda: differences(PROGRAMS[number], kind, int(most)))
        print(json.dumps([number, said]), flush=True)


if __name__ == "__main__":
    compare(torch.ones(1), torch.ones(1))  # loads what it needs, once for all processes
    main(*sys.argv[1:])
