"""`python -m benchmarks.zoo [NAME ...]`: run the zoo and write docs/models.md.

Each entry runs in a forked process of its own, so that one that crashes or hangs costs a row.
With names only those that contain one of them run, and nothing is written.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from anyshape.optional import require
from benchmarks.zoo import page
from benchmarks.zoo.catalogue import ENTRIES
from benchmarks.zoo.entry import Entry
from benchmarks.zoo.judge import Finding, examine

PATIENCE_SECONDS = 240


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="entries whose names contain one of these")
    parser.add_argument("--family", help="only this family")
    parser.add_argument("--untimed", action="store_true", help="compare only")
    parser.add_argument("--json", type=Path, help="keep the findings here, and go on from them")
    given = parser.parse_args()
    chosen = [e for e in ENTRIES if is_wanted(e, given.names, given.family)]
    require("transformers")
    gc.freeze()
    findings = stored(given.json)
    for number, entry in enumerate(chosen, 1):
        if any(finding.name == entry.name for finding in findings):
            continue
        start = time.perf_counter()
        finding = isolated(entry, not given.untimed)
        findings.append(finding)
        seconds = time.perf_counter() - start
        print(f"{number}/{len(chosen)} {page.line(finding)} [{seconds:.0f} s]", flush=True)
        if given.json:
            given.json.write_text(json.dumps([asdict(each) for each in findings], indent=1))
    if not given.names and not given.family:
        page.write(findings)
    wrong = [finding.name for finding in findings if not finding.right]
    print(f"{len(findings) - len(wrong)} of {len(findings)} right")
    return bool(wrong)


def stored(path: Path | None) -> list[Finding]:
    """What an earlier run has found."""
    if path is None or not path.exists():
        return []
    return [Finding(**each) for each in json.loads(path.read_text())]


def is_wanted(entry: Entry, names: list[str], family: str | None) -> bool:
    named = not names or any(name.lower() in entry.name.lower() for name in names)
    return named and family in (None, entry.family)


def isolated(entry: Entry, timed: bool) -> Finding:
    """`examine` in a forked process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=send_finding, args=(entry, timed, theirs))
    process.start()
    theirs.close()
    finding = Finding(entry.name, entry.family)
    try:
        finding = ours.recv() if ours.poll(PATIENCE_SECONDS) else finding
        done = ours.closed or finding.failure or finding.shapes
        if not done:
            finding.failure = f"took more than {PATIENCE_SECONDS} s"
    except EOFError:
        process.join()
        finding.failure = f"the process died with status {process.exitcode}"
    process.kill()
    process.join()
    return finding


def send_finding(entry: Entry, timed: bool, pipe: Connection) -> None:
    torch.set_num_threads(1)
    try:
        finding = examine(entry, timed)
    except Exception as error:
        finding = Finding(entry.name, entry.family, f"{type(error).__name__}: {error}"[:300])
    pipe.send(finding)
    pipe.close()


if __name__ == "__main__":
    sys.exit(main())
