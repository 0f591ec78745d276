"""One line on stderr that says what is being done, once it has taken a second.

On a terminal the line is redrawn with the seconds and wiped at the end; elsewhere it is printed
once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from anyshape.options import tells_progress

PATIENCE_SECONDS = 1.0


@contextmanager
def doing(what: str, stream: TextIO = sys.stderr) -> Iterator[None]:
    """Say `what` on `stream` while the body runs, if it takes longer than a second and the user
    wants to be told."""
    if not tells_progress():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_tell, args=(what, stream, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tell(what: str, stream: TextIO, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(PATIENCE_SECONDS):
        return
    if not stream.isatty():
        stream.write(f"{what} ...\n")
        stream.flush()
        return
    while True:
        stream.write(f"\r\x1b[K{what} ... {time.monotonic() - start:.0f} s")
        stream.flush()
        if done.wait(0.5):
            stream.write("\r\x1b[K")
            stream.flush()
            return
