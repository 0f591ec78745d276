"""`python -m conformance.python [MODULE ...]`: runs CPython's tests and brings docs/python.md (of
another version of Python, docs/python-3.12.md and so on) up to date, with the rows of modules that
were run before from conformance/python/rows. Methods that are already in build/python.jsonl are
left out unless their modules are named; `--fresh` forgets them; `--again` runs what the page calls
not right.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.python import modules, report, results, rows

ROOT = Path(__file__).parents[2]
MAIN = (3, 11)
VERSION = sys.version_info[:2]
PAGE = ROOT / "docs" / ("python.md" if VERSION == MAIN else "python-{}.{}.md".format(*VERSION))
ROWS = ROOT / "conformance" / "python" / "rows" / "{}.{}.json".format(*VERSION)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.python", description=__doc__)
    parser.add_argument("names", nargs="*", help="modules, as test_abc; all if none is named")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--every", type=int, default=1, help="only every n-th method")
    parser.add_argument("--first", type=int, default=0, help="begin with this method, of every n")
    parser.add_argument("--only", default="", help="only methods with this in their name")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--report", action="store_true", help="only write the page, of what was run"
    )
    parser.add_argument("--again", action="store_true", help="only methods that were not right")
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
    kept = rows.load(ROWS)
    bad = frozenset((module, name) for module, row in kept.items() for name in row.bad)
    named = options.names or modules.MODULES
    if options.again:
        named = sorted({module for module, _ in bad}.intersection(named))
    if not options.report:
        known = () if options.names or options.again else results.load(path)
        done = frozenset((method.module, method.name) for method in known)
        among = bad if options.again else None
        selection = results.Selection(options.every, options.first, options.only, done, among)
        results.run(named, path, selection, options.jobs)
    found = {name: [m for m in results.load(path) if m.module == name] for name in named}
    made = {name: rows.row_of(methods) for name, methods in found.items() if methods}
    print(report.summary(made.values()))
    if options.again:
        made = {name: rows.again(kept[name], found[name]) for name in named}
    if options.again or (options.every == 1 and not options.first and not options.only):
        kept |= made
        rows.save(ROWS, kept)
        PAGE.write_text(report.page(kept, {*modules.MODULES} - {*kept}, PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
