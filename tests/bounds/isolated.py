"""Work in a process of its own, whose crash is an answer and not the end."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable


def isolated(work: Callable[[], str]) -> str:
    """What the work says is wrong, all that it printed with it; also that it crashed, or what a sanitizer
    said when it ended it. Empty where nothing was wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(writer, 2)
        try:
            said = work()
        except BaseException:
            said = traceback.format_exc()
        print(said, file=sys.stderr, flush=True)
        os._exit(bool(said))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended = signal.Signals(-code).name if code < 0 else f"status {code}"
    return f"{said[-8000:]}\nended by {ended}" if code else ""
