"""`python -m conformance [NAME ...]`: runs the database, resumes where it was cut off, prints
progress, writes docs/operators.md once every entry has a result. `--fresh` forgets earlier results;
`--worker` is what it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from conformance import cases, check, report

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 120


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("names", nargs="*", help="entries; all of them if none is named")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--again", default="", help="also what was of these kinds: wrong,error")
    parser.add_argument("--every", type=int, default=1, help="only every n-th entry")
    parser.add_argument(
        "--structures", type=int, default=cases.STRUCTURES, help="most structures of an entry"
    )
    parser.add_argument(
        "--derived", type=int, default=cases.DERIVED, help="most derived calls of a structure"
    )
    parser.add_argument("--device", default="cpu", help="where arguments lie; docs are the CPU's")
    parser.add_argument("--report", action="store_true", help="only write docs/operators.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(options.structures, options.derived, options.device)
    file = results_of(options.device)
    done = {} if options.fresh else load(file)
    again = {k for k in options.again.split(",") if k}
    wanted = [
        i
        for i, entry in enumerate(cases.ENTRIES)
        if i % options.every == 0 and _asked(entry, options.names, done, again)
    ]
    if not options.report:
        run(
            wanted,
            done,
            file,
            ["--structures", str(options.structures), "--derived", str(options.derived)]
            + ["--device", options.device],
        )
    results = load(file) if not options.fresh else done
    print(report.summary(results))
    missing = {cases.name_of(entry) for entry in cases.ENTRIES} - results.keys()
    if missing and options.device == "cpu":
        print(f"docs/operators.md stays as it is: {len(missing)} entries have no result yet")
    elif options.device == "cpu":
        (ROOT / "docs" / "operators.md").write_text(report.page(results))
    return 1 if report.counts(results)["wrong"] else 0


def _asked(entry: Any, names: list[str], done: dict[str, Any], again: set[str]) -> bool:
    name = cases.name_of(entry)
    if names:
        return name in names or entry.name in names
    return name not in done or report.kind_of(done[name]) in again


def results_of(device: str) -> Path:
    """The file of what was found there."""
    return (
        ROOT / "build" / ("conformance.jsonl" if device == "cpu" else f"conformance-{device}.jsonl")
    )


def load(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Results so far, by entry; the last line of an entry counts."""
    if not file.exists():
        return {}
    lines = (json.loads(line) for line in file.read_text().splitlines())
    return {line["name"]: line["outcomes"] for line in lines}


def run(wanted: list[int], done: dict[str, Any], results: Path, arguments: list[str]) -> None:
    """Checks these entries in a worker, which is started anew when it dies or takes too long."""
    results.parent.mkdir(exist_ok=True)
    worker: subprocess.Popen[str] | None = None
    start = time.monotonic()
    for position, number in enumerate(wanted):
        if worker is None or worker.poll() is not None:
            worker = _worker(arguments)
        name = cases.name_of(cases.ENTRIES[number])
        outcomes = _ask(worker, number)
        if outcomes is None:
            why = "the process died" if _has_ended(worker) else "took too long"
            worker.kill()
            outcomes = [{"structure": "", "dtype": "", "kind": "error", "detail": why, "calls": 0,
                         "own_rows": False, "fresh": 0}]  # fmt: skip
            worker.wait()
            worker = None
        done[name] = outcomes
        with results.open("a") as file:
            file.write(json.dumps({"name": name, "outcomes": outcomes}) + "\n")
        seconds = time.monotonic() - start
        kind = report.kind_of(outcomes)
        detail = "" if kind in ("generated", "extern") else report.detail_of(outcomes)[:150]
        print(f"{position + 1}/{len(wanted)} {seconds:5.0f}s {name}: {kind} {detail}", flush=True)
    if worker is not None:
        worker.kill()
        worker.wait()


def _has_ended(worker: subprocess.Popen[str]) -> bool:
    """Did it die? That it no longer answers is seen a moment before."""
    try:
        worker.wait(1)
    except subprocess.TimeoutExpired:
        return False
    return True


def _worker(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "conformance", "--worker", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def _ask(worker: subprocess.Popen[str], number: int) -> list[dict[str, Any]] | None:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(f"{number}\n")
        worker.stdin.flush()
    except BrokenPipeError:
        return None
    with selectors.DefaultSelector() as selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        if not selector.select(PATIENCE_SECONDS):
            return None
    line = worker.stdout.readline()
    found: list[dict[str, Any]] | None = json.loads(line) if line.strip() else None
    return found


def serve(structures: int, derived: int, device: str) -> int:
    """The worker: an entry's number in, its outcomes as one line of JSON out. It ends after a
    failure on a GPU, which may be of no use to it by then."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an operator prints is not an answer
    for line in sys.stdin:
        entry = cases.ENTRIES[int(line)]
        try:
            outcomes = check.check_entry(entry, structures, derived, device)
            failed = False
        except Exception as error:
            failed = True
            outcomes = [{"structure": "", "dtype": "", "kind": "error", "detail": repr(error)[:300],
                         "calls": 0, "own_rows": False, "fresh": 0}]  # fmt: skip
        out.write(json.dumps(outcomes) + "\n")
        out.flush()
        if failed and device != "cpu":
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
