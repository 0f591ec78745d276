"""What code says in warnings while capture runs it for a call of the program.

    with recorded() as said:
        function(*args)

In: code that may warn. Out: its warnings, whatever the filters say and whoever listens; none of
them is shown, and none counts as shown. Filters are put back without being declared changed, so
that what the program was told once it is not told again. They are the process's: one thread records
at a time.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHOW = "_showwarnmsg"  # what C calls for a warning that is to be shown
EVERY = [("always", None, Warning, None, 0)]
_RECORDING = threading.RLock()


@contextmanager
def recorded() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of this thread, in order."""
    said: list[Any] = []
    names, thread = vars(warnings), threading.get_ident()

    def note(message: Any) -> None:
        said.append(message) if threading.get_ident() == thread else show(message)

    with _RECORDING:
        show, filters = names[SHOW], names["filters"]
        names[SHOW], names["filters"] = note, EVERY
        try:
            yield said
        finally:
            names[SHOW], names["filters"] = show, filters
