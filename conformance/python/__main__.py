"""`python -m conformance.python [MODULE ...]`: runs CPython's tests and writes docs/python.md (of
another version of Python, docs/python-3.12.md and so on) once each module has been run. Methods
that are already in build/python.jsonl are left out unless their modules are named; `--fresh`
forgets them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.python import modules, report, results

ROOT = Path(__file__).parents[2]
MAIN = (3, 11)
VERSION = sys.version_info[:2]
PAGE = ROOT / "docs" / ("python.md" if VERSION == MAIN else "python-{}.{}.md".format(*VERSION))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.python", description=__doc__)
    parser.add_argument("names", nargs="*", help="modules, as test_abc; all if none is named")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--every", type=int, default=1, help="only every n-th method")
    parser.add_argument("--only", default="", help="only methods with this in their name")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--report", action="store_true", help="only write the page, of what was run"
    )
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
        known = () if options.names else results.load(path)
        done = frozenset((method.module, method.name) for method in known)
        selection = results.Selection(options.every, options.only, done)
        results.run(options.names or modules.MODULES, path, selection, options.jobs)
    found = results.load(path)
    named = [m for m in found if not options.names or m.module in options.names]
    print(report.summary(named))
    absent_modules = set(modules.MODULES) - {m.module for m in found}
    if options.report or not absent_modules:
        page = report.page(found, options.every, absent_modules)
        PAGE.write_text(page + (report.RANDOM if VERSION == MAIN else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
