"""What a compile of one function takes: questions about sizes, solver steps, time by stage.

Comes in: what the engine counts as it answers. Goes out: a record for each stage. Nothing is
decided by it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import field

from anyshape.nouns import frozen, mutable


@frozen
class Stage:
    """What one stage of a compile took: seconds, questions that were worked out, solver steps."""

    name: str
    seconds: float
    questions: int
    steps: int

    def __str__(self) -> str:
        asked = f"{self.questions:>7} questions {self.steps:>9} steps"
        return f"{self.name:<24}{self.seconds:>8.3f} s {asked}"


@mutable(eq=False)
class Work:
    """The counts of one space."""

    questions: int = 0
    steps: int = 0
    stages: list[Stage] = field(default_factory=list)

    def stage(self, name: str) -> Counted:
        """Notes what is done inside as one stage."""
        return Counted(self, name)


@mutable(eq=False)
class Counted:
    """See ``Work.stage``."""

    work: Work
    name: str
    before: tuple[float, int, int] = (0.0, 0, 0)

    def __enter__(self) -> None:
        self.before = time.perf_counter(), self.work.questions, self.work.steps

    def __exit__(self, *failure: object) -> None:
        started, questions, steps = self.before
        seconds = time.perf_counter() - started
        counts = self.work.questions - questions, self.work.steps - steps
        self.work.stages.append(Stage(self.name, seconds, *counts))


def summed(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """One record for each stage, in order of first use."""
    found: dict[str, Stage] = {}
    for stage in stages:
        name = stage.name
        old = found.get(name, Stage(name, 0.0, 0, 0))
        found[name] = Stage(
            name,
            old.seconds + stage.seconds,
            old.questions + stage.questions,
            old.steps + stage.steps,
        )
    return tuple(found.values())
