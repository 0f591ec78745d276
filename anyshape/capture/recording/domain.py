"""The domain that records, as the rooms above the recorder see it: what they may ask of it.

`segments/symbolic_domain.py` has the one that there is.
"""

from __future__ import annotations

import types
from abc import abstractmethod
from typing import Any, Protocol

import torch

from anyshape.capture.guards.reliance import Reliance
from anyshape.capture.heap.deaths import Deaths
from anyshape.capture.heap.decimals import Contexts
from anyshape.capture.heap.sources import Source
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.interpreter.domain import Domain
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.recording.forks import Forks
from anyshape.capture.recording.functions import Functions
from anyshape.capture.recording.recorder import Recorder
from anyshape.symbolic import Condition


class EndsWithCapture(Protocol):
    """What capture has changed in the process, and puts back."""

    def end(self) -> None: ...


class RecordingDomain(Domain):
    """A domain with a recorder, and with what the program sees of outside objects."""

    recorder: Recorder
    relied: Reliance
    forks: Forks
    widen: frozenset[str]
    forms_texts: bool
    has_formed: bool
    functions: Functions
    interpreted: set[types.CodeType]  # of the functions that the segment has entered
    enters_contexts: bool
    decimals: Contexts  # of `decimal`, from outside
    made_stream: bool = False  # others may have been told of it, and write to it
    opened: list[Any] | None = None  # files that are read; None: CPython alone opens any
    has_reported: bool = False  # something is printed or logged at the segment's end
    listeners: set[int]  # ids of who hears, at the segment's end, what the program says
    ids: set[int]  # of objects that may be others in another call, or behind a break
    plain: set[Any]  # functions that are interpreted, whatever their arguments
    deaths: Deaths  # of what the program refers to weakly
    collects: bool = False  # whether the collector is called at the segment's end
    noted: dict[int, Any] | None = None  # warnings, by module, since filters were written here
    hears_c: EndsWithCapture | None = None  # what breaks where C code warns meanwhile
    unread_names: set[str]  # what the segment's end writes under them is not read before
    context_values: dict[int, tuple[Any, Any]]  # variables of contexts, and what was set in them
    context_readings: dict[int, Any]  # what asks and sets them, in each call
    kept_in_c: list[Any]  # what a cache of C was handed, and may give back in another call

    # ---- outside objects -------------------------------------------------------------------------
    @abstractmethod
    def readable_source(self, obj: Any, kind: str) -> Source | None:
        """Where an outside object came from."""

    @abstractmethod
    def see(self, source: Source, value: Any) -> Any:
        """What the program sees of a value found at `source`; relies on what it sees."""

    @abstractmethod
    def rely_on_object(self, obj: Any) -> None:
        """Relies on an outside one being this very object."""

    @abstractmethod
    def as_it_was(self, value: Any) -> Any:
        """What lay outside where a tuple or method that was made of its parts stands for it."""

    @abstractmethod
    def seen(self, value: Any) -> Any:
        """A value that torch code will look into, outside containers read at any depth."""

    @abstractmethod
    def lift(self, tensor: torch.Tensor) -> TensorValue:
        """A real tensor that no source is known of: a constant of the segment."""

    @abstractmethod
    def twin(self, real: Any) -> Any:
        """What stands for an outside generator in this trace; None if nothing yet."""

    @abstractmethod
    def keep_twin(self, real: Any, twin: Any) -> None:
        """From now on `twin` stands for `real`."""

    @abstractmethod
    def generators(self) -> list[Generator]:
        """The twins of outside generators that this trace has advanced."""

    @abstractmethod
    def take_id(self, obj: Any) -> int:
        """The id of an object that may be another one in the next call."""

    @abstractmethod
    def handed_generators(self) -> list[Generator]:
        """The twins of generators that the program handed from one instruction to the next."""

    # ---- nodes and numbers -----------------------------------------------------------------------
    @abstractmethod
    def argument(self, value: Any) -> Any:
        """A value of the virtual stack as an argument of a node."""

    @abstractmethod
    def arguments(self, values: Any) -> tuple[Any, ...]:
        """Values of the virtual stack as arguments of a node."""

    @abstractmethod
    def concrete(self, value: Any, fn: Any) -> Any:
        """A size as a plain int, for C code that needs one."""

    @abstractmethod
    def will_guard(self) -> None:
        """A branch on sizes could not be joined; many of them are a loop over sizes."""

    @abstractmethod
    def require(self, condition: Condition | bool, message: Any) -> None:
        """A precondition that the program states: `torch._check`."""

    # ---- effects ---------------------------------------------------------------------------------
    @abstractmethod
    def defer(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An effect whose result nobody uses: done at the end of the segment, in order."""

    @abstractmethod
    def wrote_tensor(self, x: TensorValue) -> None:
        """A tensor was written in place."""
