"""What a few functions of the standard library mean here; everything else of it is Python code that is interpreted, or C code that is
called.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from anyshape.capture import instances
from anyshape.capture.builtins import BUILTINS, Handler

if TYPE_CHECKING:
    from anyshape.capture.machine import Machine


def _currentframe(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return BUILTINS[sys._getframe](machine, (0,), {})  # noqa: SLF001


STDLIB: dict[Any, Handler] = {
    inspect.currentframe: _currentframe,
    **instances.INSTANCE_HANDLERS,
}
