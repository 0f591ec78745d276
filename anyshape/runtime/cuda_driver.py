"""CUDA's driver, called from Python: whatever torch's library has no function for.

In: addresses, as numbers. Out: the driver's status, 0 where it did what was asked.
"""

from __future__ import annotations

import ctypes
import functools

OF_THIS_THREAD = 1
"""The driver's CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads go on as they would."""
WAITS_FOR_NONE = 1
"""The driver's CU_STREAM_NON_BLOCKING: the stream does not wait for the legacy one."""
_ADDRESS = ctypes.c_void_p


@functools.cache
def driver() -> ctypes.CDLL:
    """The driver's library; OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


def new_stream() -> int | None:
    """A stream of the current device's that nobody else uses; None where the driver refuses."""
    stream = _ADDRESS()
    status = driver().cuStreamCreate(ctypes.byref(stream), WAITS_FOR_NONE)
    return None if status else stream.value


def begin_recording(stream: int) -> int:
    """What this thread gives the stream from here on is recorded and not run."""
    status: int = driver().cuStreamBeginCapture_v2(_ADDRESS(stream), OF_THIS_THREAD)
    return status


def end_recording(stream: int) -> int | None:
    """What was recorded, as a graph that can be launched; None where the driver refuses."""
    graph, runnable = _ADDRESS(), _ADDRESS()
    status = driver().cuStreamEndCapture(_ADDRESS(stream), ctypes.byref(graph))
    if graph.value is None:
        return None
    if not status:
        made = ctypes.byref(runnable)
        status = driver().cuGraphInstantiateWithFlags(made, graph, ctypes.c_ulonglong(0))
    driver().cuGraphDestroy(graph)
    return None if status else runnable.value


def launch_graph(graph: int, stream: int) -> int:
    """The driver's status."""
    status: int = driver().cuGraphLaunch(_ADDRESS(graph), _ADDRESS(stream))
    return status


def forget_graph(graph: int) -> None:
    """One that is at work ends before it is forgotten."""
    driver().cuGraphExecDestroy(_ADDRESS(graph))
