"""What torch's profilers see of compiled code.

While one records, a twin of the host function runs in its place, in which each kernel and each call
of a library is an event of its own (``torch.profiler.record_function``) and all of the segment is
one around them. Without a profiler the twin is not even made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import record_function


def recorded(run: Callable[..., Any], label: str) -> Callable[..., Any]:
    """``run`` as one event of this name."""

    def recording(*arguments: Any) -> Any:
        with record_function(label):
            return run(*arguments)

    return recording
