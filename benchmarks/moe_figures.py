"""Tables of the MoE benchmarks as text, and into docs/moe.md between their marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "moe.md"


def markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its title."""
    lines = [f"**{title}**", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def write(name: str, parts: Sequence[str]) -> None:
    """Replaces what stands between the marks of benchmark `name` on the page."""
    begin, end = f"<!-- figures of benchmarks/{name}.py -->", f"<!-- end of {name} -->"
    before, rest = PAGE.read_text().split(begin, 1)
    after = rest.split(end, 1)[1]
    PAGE.write_text(before + begin + "\n" + "\n\n".join(parts) + "\n" + end + after)
