"""Who is told of a warning, of a line in a log, or of what is printed, while the program runs.

In: what the program says. Out: nothing where streams alone hear it, which the segment's end is
early enough for; a break where code of the program does. A list that records warnings, and a
handler of an installed package, may be looked at later: reading them in the same segment ends it.
"""

from __future__ import annotations

import functools
import io
import logging
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.purity import is_library
from anyshape.capture.heap.quiet_classes import bare_name, class_module, mro_of, namespace_of
from anyshape.capture.recording.domain import RecordingDomain

Heard = Literal["nobody", "a stream", "a package", "a list", "the program"]

LEVELS = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.exception: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}


def refuse_printed(domain: RecordingDomain, stream: str, what: str) -> None:
    """A break where the program has a stream of its own in this place of `sys`."""
    heap, sources = domain.machine.heap, domain.recorder.sources
    seen = heap.is_shadowed(vars(sys)) or sources.of(getattr(sys, stream)) is not None
    if seen or domain.relied.asked(who_reads, (stream,)) == "the program":
        raise broken("unknown-call", f"{what}, where the program may look at what is printed,")


def refuse_warned(domain: RecordingDomain) -> None:
    """A break where the program hears warnings; who records them is not read in this segment."""
    heard = domain.relied.asked(who_is_warned, ())
    if heard == "the program" or domain.machine.heap.is_shadowed(vars(warnings)):
        raise broken("unknown-call", "a warning that the program hears,")
    if heard == "a stream":
        refuse_printed(domain, "stderr", "a warning")
        return
    found, sources = record_of_warnings(), domain.recorder.sources
    if _hears_later(domain, found):
        asked = sources.const(record_of_warnings, "the warnings that are recorded")
        sources.remember(found, sources.child(asked, "call", ()))
        domain.recorder.changed.add(list)  # it is none of the lists that are read, in any call


def refuse_logged(domain: RecordingDomain, logger: Any, level: Any) -> None:
    """A break where a handler, a filter or a class of the program hears a line of this level."""
    known = is_library(class_module(type(logger))) and _by_name(logger.name) is logger
    heard = "the program"
    if known and type(level) is int:
        heard = domain.relied.asked(who_hears, (logger.name, level))
    if heard == "the program":
        raise broken("unknown-call", "a line in a log that the program hears,")
    if heard == "a package":
        for handler in _handlers_of(logger):
            if not is_library(class_module(type(handler))):
                _hears_later(domain, handler)
    if heard != "nobody":
        refuse_printed(domain, "stderr", "a line in a log")


def _hears_later(domain: RecordingDomain, listener: Any) -> bool:
    """At the segment's end: the program may not have it in its hands already. Is it new here?"""
    if id(listener) in domain.listeners:
        return False
    known = domain.recorder.sources.of(listener) is not None
    if known or domain.machine.heap.is_shadowed(listener):
        raise broken("unknown-call", f"what a {bare_name(type(listener))} hears")
    domain.listeners.add(id(listener))
    return True


# ---- asked again before each call ----------------------------------------------------------------
def who_reads(stream: str) -> Heard:
    """What is written to `sys.stdout` or `sys.stderr`."""
    found = getattr(sys, stream, None)
    if found is None:
        return "nobody"
    write = next(
        (
            namespace_of(base)["write"]
            for base in mro_of(type(found))
            if "write" in namespace_of(base)
        ),
        None,
    )
    own = type(write) is types.FunctionType and is_of_the_program(write.__module__)
    return "the program" if own or write is None else "a stream"


def who_is_warned() -> Heard:
    """By `warnings.warn`, where a filter lets it through."""
    names = vars(warnings)
    if names["showwarning"] is not names["_showwarning_orig"]:
        return "the program"
    formats = names["formatwarning"]
    if formats is not names["_formatwarning_orig"] and _is_the_programs(formats):
        return "the program"
    if record_of_warnings() is not None:
        return "a list"
    shows = names["_showwarnmsg_impl"]
    plain = type(shows) is types.FunctionType and shows.__module__ == "warnings"
    return "a stream" if plain else "the program"


def _is_the_programs(fn: Any) -> bool:
    return type(fn) is not types.FunctionType or is_of_the_program(fn.__module__)


def record_of_warnings() -> Any:
    """The list that `warnings.catch_warnings(record=True)` has given; None if there is none."""
    shows = vars(warnings)["_showwarnmsg_impl"]
    appends = type(shows) is types.BuiltinMethodType and shows.__name__ == "append"
    return shows.__self__ if appends and type(shows.__self__) is list else None


def who_hears(name: str, level: int) -> Heard:
    """A line of this level by the logger of this name."""
    logger = _by_name(name)
    if logger is None or logging.getLogRecordFactory() is not logging.LogRecord:
        return "the program"
    if not logger.isEnabledFor(level):
        return "nobody"
    heard: set[Heard] = set()
    for holder in _holders_of(logger):
        if holder.filters or not is_library(class_module(type(holder))):
            return "the program"
        heard |= {_kind_of(handler) for handler in holder.handlers}
    order: tuple[Heard, ...] = ("the program", "a package", "a stream", "nobody")
    return next((kind for kind in order if kind in heard), "a stream")  # the last resort


def _kind_of(handler: Any) -> Heard:
    if is_of_the_program(class_module(type(handler))) or handler.filters:
        return "the program"
    formatter = handler.formatter
    if formatter is not None and is_of_the_program(class_module(type(formatter))):
        return "the program"
    if not is_library(class_module(type(handler))):
        return "a package"
    if isinstance(handler, logging.NullHandler):
        return "nobody"
    plain = isinstance(handler, logging.StreamHandler)
    stream = handler.stream if plain else None
    shown = stream is None or isinstance(stream, io.IOBase)
    own = is_of_the_program(class_module(type(stream)))
    return "a stream" if plain and shown and not own else "the program"


def _by_name(name: str) -> Any:
    if name == "root":
        return logging.root
    found = logging.root.manager.loggerDict.get(name)
    return found if isinstance(found, logging.Logger) else None


def _holders_of(logger: Any) -> Iterator[Any]:
    """The logger and those that it hands its lines on to."""
    while logger is not None:
        yield logger
        logger = logger.parent if logger.propagate else None


def _handlers_of(logger: Any) -> Iterator[Any]:
    for holder in _holders_of(logger):
        yield from holder.handlers


def is_of_the_program(module: str) -> bool:
    """Is it no module of the standard library, and of no installed package?"""
    if is_library(module):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or not Path(file).is_relative_to(_packages())


@functools.cache
def _packages() -> Path:
    return Path(sysconfig.get_path("purelib"))
