"""The concrete domain: every operator runs natively, every write is real. The fallback, the
deoptimiser and the oracle of tests.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.interpreter.domain import Domain


class Concrete(Domain):
    """Runs a program as CPython does, frame by virtual frame, from any program point."""

    records = False

    def python_call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return NotImplemented
