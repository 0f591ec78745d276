"""Ends the process when another rank never answers: a thread watches how far the GPU got.

In: points in a stream, behind work that waits for other ranks. Out: nothing, or E154 on stderr and
the end of the process, since whoever waits for the GPU cannot be woken. NCCL has a watchdog of its
own, but it does not see the collectives inside a CUDA graph, and writes a report for longer than a
minute before it ends a process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch

from anyshape.errors import AnyshapeError

POLL_SECONDS = 0.05
LINGER_SECONDS = 2.0
RELAXED_CAPTURES = 2


class Point(Protocol):
    """A point in a stream, such as a CUDA event."""

    def query(self) -> bool:
        """Whether the GPU got there."""


def end_process(seconds: float) -> None:
    """Says that another rank did not answer, and exits with status 1."""
    sys.stderr.write(f"{AnyshapeError('E154', seconds=seconds)}\n")
    sys.stderr.flush()
    os._exit(1)


class Watch:
    """Calls `late(seconds)` if the GPU does not reach a point within as many seconds after the
    point was set and the one before it was reached.
    """

    def __init__(self, late: Callable[[float], None] = end_process) -> None:
        self._late = late
        self._points: deque[tuple[Point, float, float]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def mark(self, point: Point, seconds: float) -> None:
        """Begins to watch for `point`."""
        with self._lock:
            self._points.append((point, seconds, time.monotonic()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        _permit_captures()
        moved = time.monotonic()
        while self._goes_on(moved):
            if not self._points:
                time.sleep(POLL_SECONDS)
                continue
            point, seconds, since = self._points[0]
            if point.query():
                self._points.popleft()
                moved = time.monotonic()
            elif time.monotonic() - max(moved, since) > seconds:
                self._late(seconds)
                return
            else:
                time.sleep(POLL_SECONDS)

    def _goes_on(self, moved: float) -> bool:
        """False, once, when there has been nothing to watch for some time."""
        with self._lock:
            if self._points or time.monotonic() - moved < LINGER_SECONDS:
                return True
            self._thread = None
            return False


def _permit_captures() -> None:
    """Lets other threads record CUDA graphs while this one asks for events."""
    if torch.cuda.is_available():
        mode = ctypes.c_int(RELAXED_CAPTURES)
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
