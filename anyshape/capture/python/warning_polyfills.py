"""`warnings.warn` in Python, interpreted where the program has written filters in the same segment
(`segments/filtered_warnings.py`): what C does between the call and whoever is shown the warning.

Where C says it in a way of its own, or a stream hears it, a stub is called: the domain that records
answers those.
"""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

from anyshape.capture.interpreter.intrinsic_names import native

SHOWS = vars(warnings)["_showwarnmsg_impl"]
SHOWS_EACH = vars(warnings)["_showwarning_orig"]
FORMATS = vars(warnings)["_formatwarning_orig"]


def is_noted(names: dict[str, Any], key: Any) -> bool:
    """Whether this has been told of the module of these names since filters have changed."""
    raise NotImplementedError


def note_key(names: dict[str, Any], key: Any) -> None:
    """From here on it has been."""
    raise NotImplementedError


def show_later(message: Any) -> None:
    """A stream is shown the warning when the segment ends."""
    raise NotImplementedError


def left_to_c(action: Any) -> NoReturn:
    """An action that is C's."""
    raise NotImplementedError


def warn_explicit(
    message: Any,
    category: Any,
    source: Any,
    file: str,
    line: int,
    module: str,
    names: dict[str, Any],
) -> None:
    """`names`: the globals of the module that is warned."""
    if issubclass(type(message), Warning):
        text = str(message)
    else:
        text = message
        message = category(message)
    key = (text, category, line)
    if native(is_noted, names, key):
        return
    action = _action(text, category, module, line)
    if action == "error":
        raise message
    if action == "ignore":
        return
    if action in ("default", "module"):
        native(note_key, names, key)
    elif action != "always":
        native(left_to_c, action)
    if action == "module":
        if native(is_noted, names, (text, category)):
            return
        native(note_key, names, (text, category))
    shown = warnings.WarningMessage(message, category, file, line, None, None, source)
    names = vars(warnings)
    if names["showwarning"] is SHOWS_EACH and names["_showwarnmsg_impl"] is SHOWS:
        if names["formatwarning"] is not FORMATS:
            native(left_to_c, names["formatwarning"])
        native(show_later, shown)
    else:
        names["_showwarnmsg"](shown)


def _action(text: Any, category: Any, module: str, line: int) -> Any:
    for action, message, kind, where, at in warnings.filters:
        fits = _matches(message, text)
        if issubclass(category, kind) and fits and _matches(where, module) and at in (0, line):
            return action
    return warnings.defaultaction  # type: ignore[attr-defined]


def _matches(pattern: Any, text: Any) -> bool:
    if pattern is None:
        return True
    if type(pattern) is str:
        return bool(pattern == text)
    return bool(pattern.match(text))
