"""What is wrong with numbers that only the device knows: one bit for each kind of mistake.

A kernel never reads or writes outside of what it was given: it takes less, and sets a bit of
`faults`, if it was given one. `check_faults` raises the error that the CPU version raises at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

STARTS = 1
LENGTHS = 2
PAGE_TABLE = 4
MAX_QUERIES = 8

FAULTS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        STARTS: ("starts", "begin with 0, never fall, and end within the rows of q"),
        LENGTHS: (
            "lengths",
            "be from 0 to what a row of the page table holds, and for write_pages at least the "
            "sequence's number of new rows",
        ),
        PAGE_TABLE: ("page_table", "name pages that exist, for every key of every sequence"),
        MAX_QUERIES: ("max_queries", "be at least the most queries that a sequence has"),
    }
)


def new_faults(device: torch.device | str) -> Tensor:
    """int32 [1] for `faults=`: nothing is wrong yet."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def check_faults(faults: Tensor) -> None:
    """Raise ValueError, naming the argument, if a kernel found a mistake. Waits for the device."""
    bits = int(faults)
    for bit, (argument, must) in FAULTS.items():
        if bits & bit:
            raise ValueError(f"{argument} must {must}")
