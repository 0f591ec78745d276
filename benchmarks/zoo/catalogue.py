"""All entries of the zoo."""

from __future__ import annotations

from benchmarks.zoo import media, programs, text
from benchmarks.zoo.entry import Entry

ENTRIES: tuple[Entry, ...] = (*text.ENTRIES, *media.ENTRIES, *programs.ENTRIES)
