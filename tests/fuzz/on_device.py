"""Random programs on another device than the CPU: what they are handed and make lies there."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

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
