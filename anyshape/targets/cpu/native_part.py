"""One step of a native region as C text, and what it is done to."""

from __future__ import annotations

from dataclasses import field

from anyshape.nouns import mutable

Slot = tuple[str, int]
"""("table" | "pointer" | "handle" | "blob", number): a slot of ``v``; ("number", index): one of
``n``; ("word", index): the same among operands that may be either. In a plan alone: ("given",
number): the number; ("step", ``Does``): a function that regions share."""
Base = int | Slot
"""Memory that addresses are near: the arena, an outer buffer, one of its own, or another slot."""


@mutable
class Part:
    """One step as text over ``v[a[i]]`` and ``n[a[i]]``, and the slots that these are."""

    lines: list[str] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)

    def __call__(self, slot: Slot) -> str:
        if slot not in self.slots:
            self.slots.append(slot)
        return f"{'n' if slot[0] == 'number' else 'v'}[a[{self.slots.index(slot)}]]"
