"""Text of C to which a compiler gives few of its passes, or none."""

from __future__ import annotations

PASSES = """
#ifndef __SANITIZE_ADDRESS__
#pragma GCC optimize("{}")
#endif
"""
FEW_PASSES = PASSES.format("O1")
"""Behind it stands what has no loops over elements: a third of the time of ``-O3``."""


def with_few_passes(text: str, passes: str = FEW_PASSES) -> str:
    """The same between other text."""
    begin, end = "\n#pragma GCC push_options", "#pragma GCC pop_options\n"
    return f"{begin}{passes}{text}{end}"


def without_passes(text: str) -> str:
    """The same for what hardly ever runs: it is compiled in half of the time again."""
    return with_few_passes(text, PASSES.format("O0"))
