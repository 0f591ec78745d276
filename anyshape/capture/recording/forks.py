"""Branches on sizes in one capture: which were joined, and why others were not."""

from __future__ import annotations

from dataclasses import field
from types import CodeType

from anyshape.capture.interpreter.frame import Code
from anyshape.ir.graph import Location
from anyshape.nouns import frozen, mutable


@frozen
class Refusal:
    """Why the two sides of a branch on sizes are not one."""

    condition: str
    reason: str
    location: Location | None

    def __str__(self) -> str:
        return f"{self.condition}: not joined, {self.reason}" + (
            f"  # {self.location}" if self.location else ""
        )


@mutable
class Forks:
    """The counts and the budget of joins; `sizes/join.py` writes them."""

    left: int
    joined: int = 0
    guarded: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    running: dict[tuple[Code, int], list[int]] = field(default_factory=dict)
    """Jumps whose sides are being run, by code and instruction: the ids of their frames."""
    endless: set[tuple[Code, int]] = field(default_factory=set)
    """Jumps of functions that called themselves until no side was run any more."""
    kept: frozenset[tuple[CodeType, int]] = frozenset()
    """Branches on data that are not joined, see ``choices.py``."""
    meetings: dict[tuple[Code, int], tuple[int, frozenset[int]]] = field(default_factory=dict)
