"""Lists that are being sorted, and whether the program has written to one meanwhile: C code sees it
even where the list is as it was in the end.
"""

from __future__ import annotations

from dataclasses import field
from types import CodeType
from typing import Any, TypeAlias

from anyshape.nouns import mutable

CallSite: TypeAlias = tuple[CodeType, int]
"""An instruction of the program."""


@mutable
class SortedLists:
    """By the id of the list as the program sees it; and where the program calls `list.sort`."""

    written: dict[int, bool] = field(default_factory=dict)
    call_sites: dict[int, CallSite] = field(default_factory=dict)

    def called(self, values: list[Any], call_site: CallSite) -> None:
        """`list.sort` is called."""
        self.call_sites[id(values)] = call_site

    def begin(self, values: list[Any]) -> None:
        """The list is being sorted from here on."""
        self.written[id(values)] = False

    def write(self, values: Any) -> None:
        """A container is about to be written."""
        if id(values) in self.written:
            self.written[id(values)] = True

    def end(self, values: list[Any]) -> bool:
        """The list is sorted: whether it was written meanwhile."""
        self.call_sites.pop(id(values), None)
        return self.written.pop(id(values), False)
