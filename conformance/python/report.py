"""The page of the exam, docs/python.md: a row a module, the first reasons, and what is not right.

In: the rows of modules. Out: text.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from conformance.python.rows import NOT_RIGHT, Row

COLUMNS = ("right", "break", "E901", "wrong", "hang", "unjudged")

HEAD = """# Python as Python has it

CPython's own tests (`Lib/test` of Python {version}), each method called by a compiled function
between two tensor operations: natively first, then under `fullgraph=True` and `False`, each in a
process of its own. `make exam` runs them all; `python -m conformance.python MODULE` runs one, and
`--again` what was not right. Either brings this page up to date (that of another version:
[3.11](python.md), [3.12](python-3.12.md), [3.13](python-3.13.md)). `make test` runs a sample.
Methods that do not pass natively, or take longer than five seconds there, are not counted.
{part}

- **one graph**: right, under `fullgraph=True` too
- **breaks**: right, with graph breaks; `fullgraph=True` says where
- **E901**: a mistake of ours is met, and said; the function runs natively
- **wrong**: another result than CPython's, under either
- **unjudged**: the exam's own code fails after the method, whose result is not known
- **peer's terms**: one graph where `unittest`'s `clear_frames` and `subTest` are left out, as in
  Dynamo's port of these tests
- **interpreted**: no part of the function was left to CPython as a whole
"""


BEGIN, END = "<!-- exam -->", "<!-- end of exam -->"
"""What lies behind them in a page is written by hand."""


def page(rows: Mapping[str, Row], absent: Iterable[str], before: str = "") -> str:
    """The page of these rows, without the modules that are `absent`; what was written by hand is
    kept from the page as it was `before`."""
    missing = f"\nNot run here: {', '.join(sorted(absent))}.\n" if absent else ""
    head = HEAD.format(version=platform.python_version(), part=missing)
    text = "\n".join([head, _table(rows), _reasons(rows), _bad(rows)])
    return f"{BEGIN}\n{text}\n{END}{before.partition(END)[2] or chr(10)}"


def summary(rows: Iterable[Row]) -> str:
    """One line."""
    whole = _sum(rows)
    counts = ", ".join(
        f"{kind} {whole.counts.get(kind, 0)} ({_share(whole.counts.get(kind, 0), whole)})"
        for kind in COLUMNS
    )
    return (
        f"{whole.methods} methods: {counts}; one graph on the peer's terms "
        f"{_share(whole.for_peers, whole)}; interpreted {_share(whole.interpreted, whole)}"
    )


def _sum(rows: Iterable[Row]) -> Row:
    rows = list(rows)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in rows:
        counts.update(row.counts)
        reasons.update(row.reasons)
    peers, interpreted = sum(r.for_peers for r in rows), sum(r.interpreted for r in rows)
    return Row(counts, peers, interpreted, reasons, {})


def _share(part: int, whole: Row) -> str:
    return f"{100 * part / max(whole.methods, 1):.1f} %"


def _table(rows: Mapping[str, Row]) -> str:
    titles = ("module", "methods", "one graph", "breaks", "E901", "wrong", "hangs", "unjudged",
              "peer's terms", "interpreted")  # fmt: skip
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += [_line(name, rows[name]) for name in sorted(rows)]
    lines.append(_line("**all**", _sum(rows.values())))
    return "\n".join([*lines, ""])


def _line(name: str, row: Row) -> str:
    cells = [name, row.methods, *(row.counts.get(kind, 0) for kind in COLUMNS)]
    cells += [row.for_peers, _share(row.interpreted, row)]
    return "| " + " | ".join(map(str, cells)) + " |"


def _reasons(rows: Mapping[str, Row]) -> str:
    """The first reasons for breaks on the peer's terms, the most frequent ones."""
    unknown = [n for n, r in rows.items() if r.counts.get("break") and not r.reasons]
    found = Counter(_sum(rows.values()).reasons)
    lines = [f"| {count} | {text} |" for text, count in found.most_common(40)]
    head = ["## First reasons for breaks (peer's terms)", ""]
    if unknown:
        head += [f"Of {len(rows) - len(unknown)} modules; those of the others were not kept.", ""]
    return "\n".join([*head, "| methods | reason |", "|---|---|", *lines, ""])


def _bad(rows: Mapping[str, Row]) -> str:
    lines = ["## Not right", ""]
    for kind in NOT_RIGHT:
        bad = sorted(
            (module, name, found.why)
            for module, row in rows.items()
            for name, found in row.bad.items()
            if found.kind == kind
        )
        if bad:
            lines += [f"### {kind} ({len(bad)})", ""]
            lines += [f"- `{module}:{name}` {why}" for module, name, why in bad]
            lines.append("")
    return "\n".join(lines) if len(lines) > 2 else "## Not right\n\nNothing.\n"


KNOWN = re.compile(r"^- `(\S+):(\S+)`", re.MULTILINE)


def known_bad(text: str) -> set[tuple[str, str]]:
    """The methods that a page says are not right."""
    return {(module, name) for module, name in KNOWN.findall(text)}
