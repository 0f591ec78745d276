"""`warnings.warn` of a program: an effect at the end of the segment, of the program's own line.

In: the call. Out: nothing, or a break where it is an error; the warning comes when the segment's
writes do, once for each line as natively, since it goes by the file, the line and the registry of
the frame that it is about.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import NULL, Call
from anyshape.capture.interpreter import calls_of_the_program
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.python import pickles
from anyshape.capture.python.builtin_objects import count_visible, visible_frame
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments import filtered_warnings, listeners
from anyshape.errors import warn_outside


def warn(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Defers the warning; one about a caller of the compiled function finds that line then."""
    given = _given(args, kwargs)
    if domain.noted is not None:
        return _warn_here(domain, given)
    category = given.get("category") or UserWarning
    if isinstance(given.get("message"), Warning):
        category = type(given["message"])
    refuse(domain, category)
    level = given.get("stacklevel", 1)
    if level != 1:
        pickles.refuse_frames(domain.machine)
    plain = given.keys() <= {"message", "category", "stacklevel"} and "message" in given
    if type(level) is not int or not plain or not issubclass(category, Warning):
        raise broken("unknown-call", "warnings.warn")  # an error, or of what has a source
    frame = visible_frame(domain.machine, max(level, 1) - 1)
    effect: Callable[..., None] = (
        functools.partial(warn_outside, beyond=max(level, 1) - 1 - count_visible(domain.machine))
        if frame is None
        else functools.partial(warn_at, line_of(frame))
    )
    domain.defer(effect, (given["message"], category), {})
    return None


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, without a source that is None."""
    given = dict(zip(("message", "category", "stacklevel", "source"), args)) | kwargs
    if given.get("source", NULL) is None:
        del given["source"]
    if type(given.get("stacklevel")) is bool:
        given["stacklevel"] = int(given["stacklevel"])
    return given


def warn_of_a_caller(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Between segments: warns of a caller of the compiled function. False, and nothing is done,
    where the warning is about another line, or not one that can be given."""
    given = _given(args, kwargs)
    level = given.pop("stacklevel", 1)
    if type(level) is not int or not given.keys() <= {"message", "category"}:
        return False
    beyond = level - 1 - count_visible(machine)
    if beyond < 0 or level == 1 or "message" not in given:
        return False
    warn = functools.partial(warn_outside, beyond=beyond)
    calls_of_the_program.while_handling(machine.frame, warn, (), given)
    return True


def _warn_here(domain: RecordingDomain, given: dict[str, Any]) -> Call:
    """The program has written filters: it may be shown the warning now."""
    level = given.get("stacklevel", 1)
    plain = given.keys() <= {"message", "category", "stacklevel", "source"}
    if not plain or type(level) is not int:
        raise broken("unknown-call", "warnings.warn")
    if level != 1:
        pickles.refuse_frames(domain.machine)
    frame = visible_frame(domain.machine, max(level, 1) - 1)
    return filtered_warnings.warn(domain, frame, given)


def refuse(domain: RecordingDomain, category: type[Warning]) -> None:
    """Breaks where a warning is more than an effect: an error, or what the program hears."""
    if domain.relied.asked(are_raised, (category,)):
        raise broken("unknown-call", "a warning that a filter turns into an error,")
    listeners.refuse_warned(domain)


def are_raised(category: Any) -> bool:
    """Whether a filter turns warnings of this class into errors, be it in one module alone."""
    return vars(warnings)["defaultaction"] == "error" or any(
        action == "error" and issubclass(category, kind)
        for action, _, kind, _, _ in warnings.filters
    )


Line = tuple[str, int, dict[str, Any]]
"""A file, a line, and the globals in which it runs."""


def line_of(frame: Frame) -> Line:
    """Where a frame is."""
    line = frame.code.lines[max(frame.index - 1, 0)] or frame.code.code.co_firstlineno
    return frame.code.code.co_filename, line, frame.globals


def warn_at(at: Line, message: Any, category: Any) -> None:
    """Warns of a line as `warnings.warn` there would: once, where the filters say so."""
    file, line, names = at
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__", "<string>")
    warnings.warn_explicit(message, category, file, line, module, registry)


HANDLERS: Mapping[Any, Callable[..., Any]] = {
    warnings.warn: warn,
    **filtered_warnings.HANDLERS,
}
FUNCTIONS: Mapping[Any, Callable[..., Any]] = (
    {warnings.warn: warn} if isinstance(warnings.warn, types.FunctionType) else {}
)
"""The same, where a package has replaced C by Python."""
