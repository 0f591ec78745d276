"""Lists that are being sorted, and whether the program has written to one meanwhile: C code sees it
even where the list is as it was in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class SortedLists:
    """By the id of the list as the program sees it."""

    written: dict[int, bool] = field(default_factory=dict)

    def begin(self, values: list[Any]) -> None:
        """The list is being sorted from here on."""
        self.written[id(values)] = False

    def write(self, values: Any) -> None:
        """A container is about to be written."""
        if id(values) in self.written:
            self.written[id(values)] = True

    def end(self, values: list[Any]) -> bool:
        """The list is sorted: whether it was written meanwhile."""
        return self.written.pop(id(values), False)
