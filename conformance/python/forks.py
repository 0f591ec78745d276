"""Runs in processes of their own: what a test does to the process, or to itself, ends with it.

In: a function without arguments whose result is JSON. Out: its result, or what became of the
process.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

IDLE_SECONDS = 60.0
"""A process that has used no processor time for so long waits for something that never comes."""
LOOKS_SECONDS = 1.0
"""How often that is looked at."""


class Died(Exception):
    """The process ended without a result."""


def forked(work: Callable[[], Any], seconds: float) -> Any:
    """The result of `work` in a fork; TimeoutError past the limit of processor time (other
    processes may have the processor) or where it only waits, `Died` if there is none.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(work, writing, seconds)
    os.close(writing)
    try:
        text = _read(reading, child)
    except TimeoutError:
        _end(child)
        raise
    finally:
        os.close(reading)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        raise TimeoutError
    if not text:
        raise Died(f"the process died of {_cause(status)}")
    return json.loads(text)


def _child(work: Callable[[], Any], writing: int, seconds: float) -> None:
    """Never returns."""
    limit = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    try:
        text = json.dumps(work())
    except BaseException:
        text = json.dumps({"crash": traceback.format_exc()})
    os.write(writing, text.encode())
    os._exit(0)


def _read(reading: int, child: int) -> bytes:
    """All that is written until the other end is closed or a whole text has come."""
    text, used, since = b"", -1, time.monotonic()
    while True:
        if select.select([reading], [], [], LOOKS_SECONDS)[0]:
            part = os.read(reading, 65536)
            text += part
            if not part or _is_whole(text):
                return text
        now = _ticks(child)
        if now != used:
            used, since = now, time.monotonic()
        elif time.monotonic() - since > IDLE_SECONDS:
            raise TimeoutError


def _ticks(process: int) -> int:
    """The processor time that it has used, with that of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _is_whole(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _end(child: int) -> None:
    for kill, number in ((os.killpg, child), (os.kill, child)):
        try:
            kill(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    os.waitpid(child, 0)


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit status {os.WEXITSTATUS(status)}"
