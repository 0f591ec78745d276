"""Users' programs, as they write them, by subject."""

from __future__ import annotations

from benchmarks.zoo.entry import Entry
from benchmarks.zoo.programs import (
    decided,
    detection,
    layers,
    libraries,
    pictures,
    sequences,
    tables,
    training,
    wrappers,
)
from benchmarks.zoo.programs.making import entries_of

SUBJECTS = (
    *(detection, tables, sequences, pictures, layers),
    *(wrappers, decided, libraries, training),
)
ENTRIES: tuple[Entry, ...] = tuple(entry for subject in SUBJECTS for entry in entries_of(subject))
