"""Random programs do what eager does: in the concrete domain, after every pass, and compiled.

`make test` runs the same few programs each time. `ANYSHAPE_FUZZ=1000:500` runs the 500 from seed
1000 on. A failure shows the program; once mended, it becomes a line in `test_found.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fuzz.oracle import wrong
from tests.fuzz.programs import grow

FIRST, COUNT = map(int, os.environ.get("ANYSHAPE_FUZZ", "0:16").split(":"))
LINES = 12


@dataclass(frozen=True, slots=True)
class Drawn:
    """Choices of a seeded generator."""

    generator: random.Random

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.generator.randrange(len(options))]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_program_does_what_eager_does_after_every_pass(seed: int) -> None:
    drawn = Drawn(random.Random(seed))
    program = grow(drawn, drawn.choose(range(1, LINES + 1)))
    for verify in (False, True):
        assert wrong(program, verify=verify) == [], "\n".join(
            (program.source, *map(str, program.inputs))
        )
