"""`compile` of text that is known: its code is the same in each call.

In: the arguments of `compile`. Out: the code, or None where compiling it says something to the
user, which each call does anew.
"""

from __future__ import annotations

import threading
import warnings
from types import CodeType
from typing import Any

SHOW = "_showwarnmsg"  # what C calls for a warning that is to be shown
PLAIN = {
    **dict.fromkeys(("source", "filename"), (str, bytes)),
    "mode": (str,),
    **dict.fromkeys(("flags", "optimize"), (int,)),
    "dont_inherit": (bool, int),
}


def compiled(given: dict[str, Any]) -> CodeType | None:
    """What it raises, the program raises."""
    if any(type(value) not in PLAIN.get(name, ()) for name, value in given.items()):
        return None
    if any(action == "once" for action, *_ in warnings.filters):  # what is said now is not again
        return None
    said: list[Any] = []
    names, thread = vars(warnings), threading.get_ident()
    show = names[SHOW]

    def note(message: Any) -> None:
        said.append(message) if threading.get_ident() == thread else show(message)

    names[SHOW] = note
    try:
        code = compile(**given)
    finally:
        names[SHOW] = show
    return code if type(code) is CodeType and not said else None
