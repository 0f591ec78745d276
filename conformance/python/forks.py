"""Runs in processes of their own: what a test does to the process, or to itself, ends with it.

In: a function without arguments whose result is JSON. Out: its result, or what became of the
process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any


class Died(Exception):
    """The process ended without a result."""


def forked(work: Callable[[], Any], seconds: float) -> Any:
    """The result of `work` in a fork; TimeoutError past the limit, `Died` if there is none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(work, writing)
    os.close(writing)
    try:
        text = _read(reading, time.monotonic() + seconds)
    except TimeoutError:
        _end(child)
        raise
    finally:
        os.close(reading)
    status = os.waitpid(child, 0)[1]
    if not text:
        raise Died(f"the process died of {_cause(status)}")
    return json.loads(text)


def _child(work: Callable[[], Any], writing: int) -> None:
    """Never returns."""
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


def _read(reading: int, deadline: float) -> bytes:
    """All that is written until the other end is closed or a whole text has come."""
    text = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            raise TimeoutError
        part = os.read(reading, 65536)
        text += part
        if not part or _is_whole(text):
            return text


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
