"""The lines of `rebuild` that replay writes.

In: calls as texts. Out: lines. CPython delivers signals between instructions, and an exception that
their handlers raise must not leave one write done and the next one not. So writes that follow each
other are one call of C, which no signal interrupts as long as the writes are C's too.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import Any

from anyshape.nouns import frozen


@frozen
class Write:
    """A call: its function, what is given, and what is given by name, as texts."""

    fn: str
    given: Sequence[str]
    named: Sequence[str]


def replay(calls: Iterable[tuple[Any, ...]]) -> None:
    """Calls each entry's first element with the others."""
    deque(starmap(operator.call, calls), maxlen=0)


def line_of(writes: Sequence[Write], constant: Callable[[Any], str]) -> str:
    """What does them; `constant` names an object in the generated text."""
    if len(writes) == 1:
        (write,) = writes
        return f"{write.fn}({', '.join((*write.given, *write.named))})"
    calls = ", ".join(_entry(write, constant) for write in writes)
    return f"{constant(replay)}(({calls}))"


def _entry(write: Write, constant: Callable[[Any], str]) -> str:
    fn = write.fn
    if write.named:
        fn = f"{constant(functools.partial)}({fn}, {', '.join(write.named)})"
    return f"({', '.join((fn, *write.given))},)"
