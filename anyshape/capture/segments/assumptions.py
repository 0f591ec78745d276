"""What a capture takes for granted until the program shows otherwise, and what shows it.

In: nothing. Out: `Assumed`, with which a capture begins; the exceptions that end one; and for each
of these what is taken for granted no more when the capture begins again (`DENIALS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from anyshape.capture.guards.guard_failures import OUTSIDE_CONTAINERS
from anyshape.capture.heap.deaths import DeathsAreMet, DeathsAreUnknown, Watch
from anyshape.capture.heap.past_caches import CachesAreSeen
from anyshape.capture.heap.sorted_lists import CallSite
from anyshape.capture.recording.choices import ChoicesAreSeen
from anyshape.capture.recording.decimal_contexts import ContextsAreEntered
from anyshape.capture.tensors import aliases
from anyshape.capture.tensors.leaves import FrozenViewsAreSeen
from anyshape.capture.tensors.mode_contexts import NotWithin
from anyshape.capture.tensors.refused_by_eager import RefusedByEager
from anyshape.capture.tensors.strides_of_ones import StridesOfOnesMatter
from anyshape.ir.graph import Location
from anyshape.nouns import frozen


@frozen
class Assumed:
    """What a capture takes for granted until the program shows otherwise. Behind each the module
    that says what it is."""

    forms_texts: bool = True  # sizes/formed_texts.py
    picks_are_views: bool = False  # tensors/aliases.py
    own_strides: bool = False  # tensors/strides_of_ones.py
    counters: frozenset[str] = frozenset()  # guards/counters.py
    relied: frozenset[str] = frozenset()  # of what dispatch/widening.py names
    refused: frozenset[Location] = frozenset()  # tensors/refused_by_eager.py
    checkpoints: bool = True  # tensors/checkpoints.py
    functions: str = ""  # tensors/autograd_functions.py: why those of the program end it
    ordered: bool = False  # tensors/tensor_hooks.py: autograd sees each operator
    own_backwards: bool = False  # tensors/own_backwards.py
    contexts: bool = True  # tensors/mode_contexts.py
    takes_gradients: bool = True  # tensors/aliases.py
    lays_gradients_out: bool = False  # tensors/aliases.py
    freezes: bool = True  # tensors/leaves.py
    sorts_natively: frozenset[CallSite] = frozenset()  # heap/sorted_lists.py
    works_natively: bool = False  # python/pickles.py
    caches: frozenset[int] = frozenset()  # heap/past_caches.py: ids of those that are called
    enters_decimals: bool = True  # recording/decimal_contexts.py
    reads_files: bool = True  # segments/owned_objects.py
    weak_references: Watch = "unmet"  # heap/deaths.py
    expects: bool = True  # recording/expected.py
    nothing_raises: bool = True  # recording/expected.py
    kept: frozenset[tuple[CodeType, int]] = frozenset()  # recording/choices.py
    relies_on_contents: bool = False  # recording/scalar_contents.py


LOOKING = frozenset({"changing-value", "proxy-leak", "unknown-call"})
"""Breaks that a text of sizes may cause by being formed in each call only."""

UNKNOWN_NUMBERS = frozenset({"tensor-branch", "undecided-size", "size-needed"})
"""Breaks at numbers that only data tells."""

NEEDED = LOOKING | UNKNOWN_NUMBERS | {"operator-unknown"}
"""Breaks that a number of each call may cause where a constant would not."""


class Counts(BaseException):
    """The program writes another number or tensor where it has read one: it is to be a symbol or
    an argument."""

    def __init__(self, sources: frozenset[str]) -> None:
        self.sources = sources


class NotOnce(BaseException):
    """The segment ends inside a checkpoint: torch's own is to run."""


class BreaksInSort(BaseException):
    """The segment ends while a list is sorted."""

    def __init__(self, call_sites: frozenset[CallSite]) -> None:
        self.call_sites = call_sites


class BreaksInWorkOfC(BaseException):
    """The segment ends while a polyfill does what C code would do."""


class FilesAreOpen(BaseException):
    """The segment ends while a file is open that the program reads."""


class LooksIntoTexts(BaseException):
    """The program may look into a text of sizes: it is to be a constant."""


class NumbersAreNeeded(BaseException):
    """The segment ends where numbers that lie in tensors from outside may tell how it goes on."""


class FactorsAreNeeded(BaseException):
    """The segment ends where a float may tell how it goes on that was taken for a number of each
    call, though it has had one value only."""


class LedElsewhere(BaseException):
    """The program raises where data did not lead to a side that can only raise: a ``try`` around
    that side may be what it is about."""


DENIALS: Mapping[type[BaseException], Callable[[Assumed, Any], dict[str, Any]]] = {
    LooksIntoTexts: lambda assumed, found: {"forms_texts": False},
    aliases.PicksAreSeen: lambda assumed, found: {"picks_are_views": True},
    FrozenViewsAreSeen: lambda assumed, found: {"freezes": False},
    aliases.GradientsAreSeen: lambda assumed, found: (
        {"takes_gradients": False} if assumed.lays_gradients_out else {"lays_gradients_out": True}
    ),
    StridesOfOnesMatter: lambda assumed, found: {"own_strides": True},
    ChoicesAreSeen: lambda assumed, found: {"kept": assumed.kept | found.branches},
    BreaksInSort: lambda assumed, found: {
        "sorts_natively": assumed.sorts_natively | found.call_sites
    },
    CachesAreSeen: lambda assumed, found: {"caches": assumed.caches | found.caches},
    BreaksInWorkOfC: lambda assumed, found: {"works_natively": True},
    FilesAreOpen: lambda assumed, found: {"reads_files": False},
    ContextsAreEntered: lambda assumed, found: {"enters_decimals": False},
    DeathsAreMet: lambda assumed, found: {"weak_references": "watched"},
    DeathsAreUnknown: lambda assumed, found: {"weak_references": "refused"},
    NotWithin: lambda assumed, found: {"contexts": False},
    NotOnce: lambda assumed, found: {"checkpoints": False},
    RefusedByEager: lambda assumed, found: {"refused": assumed.refused | found.calls},
    Counts: lambda assumed, found: {"counters": assumed.counters | found.sources},
    LedElsewhere: lambda assumed, found: {"nothing_raises": False},
    FactorsAreNeeded: lambda assumed, found: {"relied": frozenset({OUTSIDE_CONTAINERS})},
    NumbersAreNeeded: lambda assumed, found: {"relies_on_contents": True},
}
"""What may end a capture, and what is no longer taken for granted when it begins again."""
