"""`python -m tests.capture.plain.run`: run all programs on this Python; a JSON report on stdout."""

from __future__ import annotations

import dis
import json
import signal
import sys
import traceback
from typing import NoReturn

from tests.capture.plain import harness

SECONDS_A_CASE = 5
"""Of the processor: a machine that is busy may take longer."""


class TookTooLong(BaseException):
    """A case did not end."""


def _stop(*_: object) -> NoReturn:
    raise TookTooLong


def opnames() -> list[str]:
    """The opcodes that may be in a code object of this Python."""
    real = [name for name, number in dis.opmap.items() if number < 256]
    return [name for name in real if not name.startswith("INSTRUMENTED_")]


def main() -> int:
    signal.signal(signal.SIGPROF, _stop)
    executed: set[str] = set()
    failures: dict[str, str] = {}
    names = []
    for name, case in harness.cases():
        names.append(name)
        signal.setitimer(signal.ITIMER_PROF, SECONDS_A_CASE)
        try:
            failure = harness.check(case, executed)
        except BaseException:
            failure = traceback.format_exc()
        signal.setitimer(signal.ITIMER_PROF, 0)
        if failure is not None:
            failures[name] = failure
    report = {
        "cases": names,
        "failures": failures,
        "executed": sorted(executed),
        "opnames": opnames(),
    }
    json.dump(report, sys.stdout)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
