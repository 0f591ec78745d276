"""Warnings of a program that has written filters in the same segment:

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("careful")
    return len(found)

In: `_filters_mutated()`, which says that there are others, and `warnings.warn` behind it. Out: the
module's names are written as those of any module; who is shown the warning is interpreted; what is
noted in `__warningregistry__` is an effect. C code that warns during capture asks the filters that
the process has, not those of the segment: an entry of ours among them ends the segment there.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.quiet_classes import class_module
from anyshape.capture.heap.values import NULL, PROXIES, Call
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.python import warning_polyfills
from anyshape.capture.python.recorded_warnings import recorded
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments import listeners

Args = tuple[Any, ...]
REGISTRY = "__warningregistry__"
MUTATED = vars(warnings)["_filters_mutated"]


# ---- filters are written -------------------------------------------------------------------------
def filters_mutated(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    """What was told before may be told again: nothing has been, since."""
    if args or kwargs or type(vars(warnings)["filters"]) is not list:
        raise broken("unknown-call", name_of(MUTATED))
    refuse_fork(domain)
    _hear_c(domain)
    domain.noted = {}
    domain.machine.heap.log(_mutate, warnings, ())


def _mutate(module: Any) -> None:
    MUTATED()


def refuse_fork(domain: RecordingDomain) -> None:
    """On both sides of a branch something else may be told."""
    if domain.recorder.depth or domain.machine.heap.journal is not None:
        raise broken("fork", "a write to the filters of warnings")


class _AsksForTheThread(type):
    """C asks whether a warning is of this class before it asks any other filter."""

    thread: int | None

    def __subclasscheck__(cls, category: type) -> bool:
        of_the_collector = issubclass(category, ResourceWarning)
        if threading.get_ident() == cls.thread and not of_the_collector:
            raise broken("unknown-call", "C code that warns behind a write to the filters")
        return False


class HeardInC:
    """While there is one, C code that warns in this thread breaks instead."""

    def __init__(self, filters: list[Any]) -> None:
        self.kind = _AsksForTheThread("Heard", (), {"thread": threading.get_ident()})
        self.filters = filters
        self.entry = ("default", None, self.kind, None, 0)
        for name, module in list(sys.modules.items()):  # what was told there would not be asked for
            if name.partition(".")[0] == "anyshape":
                vars(module).pop(REGISTRY, None)
        filters.insert(0, self.entry)

    def end(self) -> None:
        """Filters are as they were; another thread may have copied them meanwhile."""
        self.kind.thread = None
        self.filters[:] = [entry for entry in self.filters if entry is not self.entry]


def _hear_c(domain: RecordingDomain) -> None:
    """The program reads its filters before an entry of ours lies among them."""
    if domain.hears_c is None:
        names, heap = vars(warnings), domain.machine.heap
        heap.global_name(names, {}, "filters")
        heap.mirror(names["filters"])
        domain.hears_c = HeardInC(names["filters"])


# ---- the program warns ---------------------------------------------------------------------------
def warn(domain: RecordingDomain, frame: Frame | None, given: dict[str, Any]) -> Call:
    """The warning of a frame of the program."""
    message, category = given.get("message"), given.get("category")
    source = given.get("source")
    if issubclass(type(message), Warning):
        category = type(message)
    elif category is None:
        category = UserWarning
    known = issubclass(type(category), type) and issubclass(category, Warning)
    if not known or frame is None or type(message) in PROXIES or domain.leaves_work_to_c:
        raise broken("unknown-call", "warnings.warn")
    refuse_fork(domain)
    line = frame.code.lines[max(frame.index - 1, 0)] or frame.code.code.co_firstlineno
    module = domain.machine.heap.item_or_null(frame.globals, "__name__")
    module = "<string>" if module is NULL else module
    if type(module) is not str or "message" not in given:
        raise broken("unknown-call", "warnings.warn")
    at = frame.code.code.co_filename, line, module, frame.globals
    return Call(warning_polyfills.warn_explicit, (message, category, source, *at))


def _is_noted(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> bool:
    names, key = args
    found = _noted(domain, names)
    domain.machine.heap.log(partial(_begin, names), warnings, ())
    return key in found


def _note_key(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    names, key = args
    _noted(domain, names).add(key)
    domain.machine.heap.log(partial(_note, names), warnings, (key,))


def _noted(domain: RecordingDomain, names: dict[str, Any]) -> set[Any]:
    """What has been told of a module since filters were written here. The program does not look
    there in the same segment."""
    refuse_fork(domain)
    if domain.noted is None or domain.machine.heap.is_created(names):
        raise broken("unknown-call", "warnings.warn")
    domain.unread_names.add(REGISTRY)
    registry = names.get(REGISTRY)
    if registry is not None:
        if domain.machine.heap.is_shadowed(registry) or domain.machine.heap.is_created(registry):
            raise broken("unknown-call", "warnings.warn")
        domain.listeners.add(id(registry))
    return domain.noted.setdefault(id(names), (names, set()))[1]


def _begin(names: dict[str, Any], module: Any) -> dict[Any, Any]:
    """The registry of a module, emptied if filters have changed since it was written."""
    registry: dict[Any, Any] = names.setdefault(REGISTRY, {})
    version = _version()
    if registry.get("version") != version:
        registry.clear()
        registry["version"] = version
    return registry


def _note(names: dict[str, Any], module: Any, key: Any) -> None:
    _begin(names, module)[key] = True


def _version() -> Any:
    """Of the filters, as C notes it where it looks whether something has been told."""
    registry: dict[Any, Any] = {}
    with recorded():
        warnings.warn_explicit("", Warning, "", 0, registry=registry)
    return registry["version"]


def _show_later(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    refuse_fork(domain)
    listeners.refuse_printed(domain, "stderr", "a warning")
    (message,) = args
    shown = message.message
    plain = class_module(type(shown)) == "builtins" and all(type(arg) is str for arg in shown.args)
    if not plain:  # its text is formed when it is shown
        raise broken("unknown-call", "a warning of the program's own class")
    domain.machine.heap.log(_show, warnings, (message,))


def _show(module: Any, message: Any) -> None:
    vars(module)["_showwarnmsg"](message)


def _left_to_c(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    raise broken("unknown-call", "warnings.warn, where C goes by what was told before,")


HANDLERS: Mapping[Any, Callable[..., Any]] = {
    MUTATED: filters_mutated,
    warning_polyfills.is_noted: _is_noted,
    warning_polyfills.note_key: _note_key,
    warning_polyfills.show_later: _show_later,
    warning_polyfills.left_to_c: _left_to_c,
}
