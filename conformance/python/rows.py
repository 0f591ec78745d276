"""What is kept of the exam in the repository, a row a module: docs/python.md and its like are made
of it, so that one module can be run again alone.

In: `Method`s, and rows as JSON. Out: `Row`s.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from conformance.python.results import Method

NOT_RIGHT = ("wrong", "hang", "E901", "unjudged")


@dataclass(frozen=True, slots=True)
class Bad:
    """A method that is not right."""

    kind: str
    why: str
    for_peers: bool  # one graph on the peer's terms
    interpreted: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One module; `counts` by kind, `reasons` the first ones for breaks on the peer's terms."""

    counts: Mapping[str, int]
    for_peers: int
    interpreted: int
    reasons: Mapping[str, int]
    bad: Mapping[str, Bad]

    @property
    def methods(self) -> int:
        return sum(self.counts.values())


def row_of(methods: Iterable[Method]) -> Row:
    """The row of all methods of a module."""
    counted = [m for m in methods if m.counted]
    reasons = Counter(
        family(m.outcomes.get("peers", m.outcomes["whole"]).why)
        for m in counted
        if m.for_peers == "break"
    )
    bad = {m.name: _bad(m) for m in counted if m.kind in NOT_RIGHT}
    return Row(
        dict(Counter(m.kind for m in counted)),
        sum(m.for_peers == "right" for m in counted),
        sum(_is_interpreted(m) for m in counted),
        dict(reasons.most_common()),
        dict(sorted(bad.items())),
    )


def again(row: Row, methods: Sequence[Method]) -> Row:
    """The row after some of its methods that were not right have been run again."""
    for method in methods:
        known = row.bad.get(method.name)
        if known is None:
            continue
        now = _bad(method) if method.counted else None
        counts = Counter(row.counts)
        counts[known.kind] -= 1
        bad = {name: found for name, found in row.bad.items() if name != method.name}
        if now is not None:
            counts[now.kind] += 1
            if now.kind in NOT_RIGHT:
                bad[method.name] = now
        row = replace(
            row,
            counts={kind: count for kind, count in counts.items() if count},
            for_peers=row.for_peers - known.for_peers + (now is not None and now.for_peers),
            interpreted=row.interpreted - known.interpreted + (now is not None and now.interpreted),
            bad=dict(sorted(bad.items())),
        )
    return row


def _bad(method: Method) -> Bad:
    right = method.for_peers == "right"
    return Bad(method.kind, quoted(method.why), right, _is_interpreted(method))


def _is_interpreted(method: Method) -> bool:
    return "pieces" in method.outcomes and method.outcomes["pieces"].interpreted


def family(why: str) -> str:
    """A reason without names of one program's objects."""
    what = why.split(" | ")[0]
    return re.sub(r"0x[0-9a-f]+", "0x", what).replace("|", "/")[:120]


FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
"""Where a file lies on the machine of the exam."""


def quoted(why: str) -> str:
    """What is said of a method that is not right, for the page."""
    text = FOLDERS.sub("", why).replace("`", "'").replace("<", "&lt;").replace("\n", " ")
    return re.sub(r"0x[0-9a-f]+|\d{9,}", "...", text)[:140]


def load(path: Path) -> dict[str, Row]:
    """The rows in the file, by module; none if there is no file."""
    if not path.exists():
        return {}
    return {name: _row(data) for name, data in json.loads(path.read_text()).items()}


def _row(data: dict[str, object]) -> Row:
    bad = {name: Bad(**found) for name, found in data.pop("bad").items()}  # type: ignore[attr-defined]
    return Row(**data, bad=bad)  # type: ignore[arg-type]


def save(path: Path, rows: Mapping[str, Row]) -> None:
    """A line a module."""
    lines = [f"{json.dumps(name)}: {json.dumps(asdict(rows[name]))}" for name in sorted(rows)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
