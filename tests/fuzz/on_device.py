"""Random programs on another device than the CPU: what they are handed and make lies there."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

from torch import Tensor
from torch.utils._pytree import tree_map_only

from tests.fuzz.oracle import DRAWS, call, differences
from tests.fuzz.programs import Fuzzed, function_of, seed

FACTORY = re.compile(
    r"\btorch\.(zeros|ones|full|arange|empty|empty_strided|eye|linspace|tensor|tril_indices"
    r"|rand|randn|randint|randperm|normal)\("
)
"""What makes a tensor of numbers alone."""


def moved(program: Fuzzed, device: str) -> Fuzzed:
    """The program on that device."""
    return replace(
        program,
        inputs=tuple(replace(entry, device=device) for entry in program.inputs),
        lines=tuple(_made_on(device, line) for line in program.lines),
        result=_made_on(device, program.result),
    )


def raises_anywhere(program: Fuzzed) -> bool:
    """Does a call raise? A GPU checks indices while others of its programs run, and cannot be used
    afterwards; where the CPU divides by zero and refuses it, a GPU has some number."""
    function = function_of(program.source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in range(len(program.sizes)):
            seed()
            try:
                function(*program.arguments(case))
            except Exception:
                return True
    return False


def is_said_by_torch(program: Fuzzed, device: str) -> bool:
    """Do its two devices agree in every call? Stores to one place, and a list that holds a tensor
    twice, are done in any order on a GPU."""
    if DRAWS.search(program.source):
        return True
    there = moved(program, device)
    for case in range(len(program.sizes)):
        here, far = (call(function_of(p.source), p.arguments(case)) for p in (program, there))
        results = tree_map_only(Tensor, lambda t: t.cpu(), (far.arguments, far.results))
        far = replace(far, arguments=results[0], results=results[1], gradients=here.gradients)
        if any(": values " in text for text in differences(far, here, exact=False)):
            return False
    return True


def _made_on(device: str, text: str) -> str:
    """The text, whose factories name the device."""
    parts = []
    for found in FACTORY.finditer(text):
        end = _closing(text, found.end())
        parts.append((end, f", device={device!r}"))
    for end, added in sorted(parts, reverse=True):
        text = text[:end] + added + text[end:]
    return text


def _closing(text: str, at: int) -> int:
    """Where the parenthesis is closed that is open here."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at - 1
