"""`python -m conformance.python [MODULE ...]`: runs CPython's tests and writes docs/python.md once
each module has been run. Modules that are already in build/python.jsonl are left out unless they
are named; `--fresh` forgets earlier results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.python import modules, report, results

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.python", description=__doc__)
    parser.add_argument("names", nargs="*", help="modules, as test_abc; all if none is named")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--every", type=int, default=1, help="only every n-th method")
    parser.add_argument("--only", default="", help="only methods with this in their name")
    parser.add_argument("--report", action="store_true", help="only write docs/python.md")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "python.jsonl")
    options = parser.parse_args()
    absent = modules.missing()
    if absent:
        print(absent)
        return 0
    path: Path = options.results.resolve()
    path.parent.mkdir(exist_ok=True)
    if options.fresh:
        path.unlink(missing_ok=True)
    if not options.report:
        known = {method.module for method in results.load(path)}
        wanted = options.names or [name for name in modules.MODULES if name not in known]
        results.run(wanted, path, options.every, options.only)
    found = results.load(path)
    named = [m for m in found if not options.names or m.module in options.names]
    print(report.summary(named))
    if {m.module for m in found} >= set(modules.MODULES):
        PAGE.write_text(report.page(found, options.every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
