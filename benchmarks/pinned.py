"""Jobs side by side, each a process of its own that is pinned to some cores.

Comes in: command lines, how many cores each has, how long each may take and when all must be over.
Goes out: what they print, a line at a time, as it comes; a job that is stopped has lost nothing
that it printed. Cores that are threads of one physical core go to the same job, so that jobs do not
slow each other.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CPU = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Job:
    """What Python is given, and how long it may take."""

    name: str
    arguments: Sequence[str]
    seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)


def cores_by_sibling() -> list[int]:
    """The cores of this process, threads of one physical core side by side."""

    def siblings(core: int) -> str:
        path = CPU / f"cpu{core}/topology/thread_siblings_list"
        return path.read_text() if path.exists() else str(core)

    def order(core: int) -> tuple[int, int]:
        first = re.match(r"\d+", siblings(core))
        return int(first[0]) if first else core, core

    return sorted(os.sched_getaffinity(0), key=order)


def slots(each: int) -> list[list[int]]:
    """Cores for each of the jobs that run at once."""
    cores = cores_by_sibling()
    whole = len(cores) - len(cores) % each
    return [cores[at : at + each] for at in range(0, whole, each)] or [cores]


def run(
    jobs: Iterable[Job], each: int, until: float, on_line: Callable[[Job, str], None]
) -> list[str]:
    """Run all, the first ones first, until ``time.monotonic()`` is ``until``; how each ended.

    ``on_line`` is called with each line, by one thread at a time.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    ended: list[str] = []
    lock = threading.Lock()

    def serve(cores: Sequence[int]) -> None:
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            how = _run(job, cores, until, lock, on_line)
            with lock:
                ended.append(how)

    threads = [threading.Thread(target=serve, args=(cores,)) for cores in slots(each)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def _run(
    job: Job,
    cores: Sequence[int],
    until: float,
    lock: threading.Lock,
    on_line: Callable[[Job, str], None],
) -> str:
    start = time.monotonic()
    seconds = min(job.seconds, until - start)
    if seconds <= 0:
        return f"{job.name}: not begun, no time was left"
    pinned = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, *job.arguments]
    process = subprocess.Popen(
        pinned,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **job.environment},
        start_new_session=True,
    )
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        os.killpg(process.pid, signal.SIGKILL)  # its compilers too: they are of its session

    timer = threading.Timer(seconds, stop)
    timer.start()
    assert process.stdout is not None
    for line in process.stdout:
        with lock:
            on_line(job, line)
    status = process.wait()
    timer.cancel()
    how = "stopped" if stopped.is_set() else "done" if status == 0 else f"failed ({status})"
    return f"{job.name}: {how} after {time.monotonic() - start:.0f} s"
