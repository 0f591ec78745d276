"""Work in a process of its own, so that a crash is something to compare, too.

In: a function that is handed ``tell``. Out: what it tells, as it comes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from anyshape.targets.cpu.build import has_sanitizer

Work = Callable[[Callable[[Any], None]], None]
SANITIZER = re.compile(r"(ERROR: AddressSanitizer: |runtime error: ).*")


def in_a_process(work: Work, memory_bytes: int) -> Iterator[Any]:
    """What the work tells from a fork, which hears and prints nothing; at last ``["crash", how]``
    if that dies, ``["broken", what]`` if it raises. What is told goes through JSON."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    said = tempfile.TemporaryFile("w+", errors="replace")
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _be_modest(said.fileno(), memory_bytes)
            _tell_of(work, writing)
        finally:
            os._exit(0)  # also where nobody listens any more: the process is not pytest's
    os.close(writing)
    with os.fdopen(reading) as file:
        for line in file:
            yield json.loads(line)
    _, status = os.waitpid(child, 0)
    if status:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        how = signal.Signals(number).name if number else f"status {status}"
        said.seek(0)
        report = SANITIZER.search(said.read())
        yield ["crash", f"{how} {report[0] if report else ''}"]
    said.close()


def _tell_of(work: Work, writing: int) -> None:
    with os.fdopen(writing, "w") as file:

        def tell(what: Any) -> None:
            file.write(json.dumps(what) + "\n")
            file.flush()

        try:
            work(tell)
        except BaseException as error:
            tell(["broken", f"{type(error).__name__}: {error}"])


@contextlib.contextmanager
def little_memory(more_bytes: int) -> Iterator[None]:
    """For a while, nobody gets memory beyond `more_bytes` more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    if not has_sanitizer():  # whose shadow is terabytes
        most = mapped_bytes() + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def mapped_bytes() -> int:
    """What the process has: torch for GPUs maps some gigabytes as it is loaded."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _be_modest(errors: int, memory_bytes: int) -> None:
    """A program that asks for all memory gets none beyond `memory_bytes` more, and leaves no picture
    of it. No hook of who runs the tests is left: a callback of the collector (hypothesis has one)
    swallows what a signal raises in it, and pytest keeps the frames of what was swallowed."""
    faulthandler.disable()
    gc.callbacks.clear()
    sys.unraisablehook = sys.__unraisablehook__
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not has_sanitizer():  # whose shadow is terabytes
        most = mapped_bytes() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    null = os.open(os.devnull, os.O_RDWR)
    for number, file in enumerate((null, null, errors)):
        os.dup2(file, number)
    torch.set_num_threads(1)
