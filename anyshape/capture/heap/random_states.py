"""What a generator of `random` holds: 624 words and a position, which C code reads and sets whole.

In: a `random.Random`, or an object of a class derived from it. Out: its state, whatever methods its
class has. A generator that capture draws from has a twin in the heap's slots, which is drawn from
in its place; one that the trace has made is its own twin, once its state is known.
"""

from __future__ import annotations

import _random
from collections.abc import Mapping
from typing import Any

KIND: Any = _random.Random
STATE = "(the state)"
"""In place of an attribute's name."""
BY_CHANCE = None
"""The twin of a generator that the trace has made, and that the system has seeded: in each call it
gives other numbers."""
Slots = Mapping[tuple[int, str], tuple[Any, Any]]

state_of = KIND.getstate
seed = KIND.seed


def twin_of(slots: Slots, rng: Any) -> Any:
    """None where its state is not known."""
    found = slots.get((id(rng), STATE))
    return None if found is None else found[1]


def is_by_chance(slots: Slots, rng: Any) -> bool:
    """Whether the system has seeded it."""
    return slots.get((id(rng), STATE), (rng, rng))[1] is BY_CHANCE


def with_state(kind: Any, state: tuple[int, ...] | None) -> Any:
    """A bare generator; without a state the system seeds it."""
    made = KIND.__new__(kind)
    seed(made) if state is None else KIND.setstate(made, state)
    return made


def put(rng: Any, twin: Any) -> None:
    """Replays what a segment has drawn and seeded."""
    KIND.setstate(rng, state_of(twin))
