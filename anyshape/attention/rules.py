"""Which keys a query sees, and how a score is made: what every version of attention here is given.

A sequence has n queries and L keys. Its queries are the last n positions: query i stands at
position L - n + i, and key j at position j.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """A score is scale * (query . key), then soft_cap * tanh(score / soft_cap) if `soft_cap` > 0.

    `causal`: a query sees no key behind its own position. `window` > 0: it sees only keys less than
    `window` positions away, on both sides unless causal.
    """

    scale: float
    causal: bool
    window: int
    soft_cap: float

    def first(self, position: int) -> int:
        """The first key that a query at this position sees."""
        return max(0, position - self.window + 1) if self.window else 0

    def end(self, position: int, keys: int) -> int:
        """Past the last of `keys` keys that a query at this position sees."""
        ahead = 1 if self.causal else self.window or keys
        return max(0, min(keys, position + ahead))
