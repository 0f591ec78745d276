"""The page of the exam, docs/python.md: a row a module, the first reasons, and what is not right.

In: the methods with their outcomes. Out: text.
"""

from __future__ import annotations

import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from conformance.python.results import Method

COLUMNS = ("right", "break", "E901", "wrong", "hang")
NOT_RIGHT = ("wrong", "hang", "E901")

HEAD = """# Python as Python has it

CPython's own tests (`Lib/test` of Python {version}), each method called by a compiled function
between two tensor operations: natively first, then under `fullgraph=True` and `False`, each in a
process of its own. `make exam` runs them all and writes this page; `make test` runs a sample.
Methods that do not pass natively, or take longer than five seconds there, are not counted.
{part}

- **one graph**: right, under `fullgraph=True` too
- **breaks**: right, with graph breaks; `fullgraph=True` says where
- **E901**: a mistake of ours is met, and said; the function runs natively
- **wrong**: another result than CPython's, under either
- **peer's terms**: one graph where `unittest`'s `clear_frames` and `subTest` are left out, as in
  Dynamo's port of these tests
- **interpreted**: no part of the function was left to CPython as a whole
"""


def page(methods: Sequence[Method], every: int = 1) -> str:
    """The whole page, of every n-th method of each module."""
    counted = [m for m in methods if m.counted]
    rows = defaultdict(list)
    for method in counted:
        rows[method.module].append(method)
    parts = [
        HEAD.format(version=platform.python_version(), part=_part(every)),
        _table(rows, counted),
    ]
    parts += [_reasons(counted), _bad(counted)]
    return "\n".join(parts)


def _part(every: int) -> str:
    return "" if every == 1 else f"\nThis page was made of one method in {every} of each module.\n"


def summary(methods: Iterable[Method]) -> str:
    """One line."""
    counted = [m for m in methods if m.counted]
    kinds = Counter(m.kind for m in counted)
    peers = sum(m.for_peers == "right" for m in counted)
    told = ", ".join(f"{kind} {kinds[kind]} ({_share(kinds[kind], counted)})" for kind in COLUMNS)
    return (
        f"{len(counted)} methods: {told}; one graph on the peer's terms {_share(peers, counted)}; "
        f"interpreted {_share(sum(map(_interpreted, counted)), counted)}"
    )


def _share(part: int, whole: Sequence[object]) -> str:
    return f"{100 * part / max(len(whole), 1):.1f} %"


def _interpreted(method: Method) -> bool:
    return method.outcomes["pieces"].interpreted


def _table(rows: dict[str, list[Method]], counted: Sequence[Method]) -> str:
    titles = ("module", "methods", "one graph", "breaks", "E901", "wrong", "hangs",
              "peer's terms", "interpreted")  # fmt: skip
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += [_row(name, rows[name]) for name in sorted(rows)]
    lines.append(_row("**all**", counted))
    return "\n".join([*lines, ""])


def _row(name: str, methods: Sequence[Method]) -> str:
    kinds = Counter(m.kind for m in methods)
    peers = sum(m.for_peers == "right" for m in methods)
    cells = [name, len(methods), *(kinds[kind] for kind in COLUMNS)]
    cells += [peers, _share(sum(map(_interpreted, methods)), methods)]
    return "| " + " | ".join(map(str, cells)) + " |"


def _reasons(counted: Sequence[Method]) -> str:
    """The first reasons for breaks on the peer's terms, the most frequent ones."""
    found = Counter(
        family(m.outcomes.get("peers", m.outcomes["whole"]).why)
        for m in counted
        if m.for_peers == "break"
    )
    lines = [f"| {count} | {text} |" for text, count in found.most_common(40)]
    head = ["## First reasons for breaks (peer's terms)", "", "| methods | reason |", "|---|---|"]
    return "\n".join([*head, *lines, ""])


def family(why: str) -> str:
    """A reason without names of one program's objects."""
    what = why.split(" | ")[0]
    return re.sub(r"0x[0-9a-f]+", "0x", what).replace("|", "/")[:120]


def _bad(counted: Sequence[Method]) -> str:
    lines = ["## Not right", ""]
    for kind in NOT_RIGHT:
        bad = sorted((m.module, m.name, m.why) for m in counted if m.kind == kind)
        if bad:
            lines += [f"### {kind} ({len(bad)})", ""]
            lines += [f"- `{module}:{name}` {_quoted(why)}" for module, name, why in bad]
            lines.append("")
    return "\n".join(lines) if len(lines) > 2 else "## Not right\n\nNothing.\n"


def _quoted(why: str) -> str:
    text = why.replace("`", "'").replace("<", "&lt;").replace("\n", " ")
    return re.sub(r"0x[0-9a-f]+|\d{9,}", "...", text)[:140]


KNOWN = re.compile(r"^- `(\S+):(\S+)`", re.MULTILINE)


def known_bad(text: str) -> set[tuple[str, str]]:
    """The methods that a page says are not right."""
    return {(module, name) for module, name in KNOWN.findall(text)}
