"""docs/models.md: the findings as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.zoo.judge import Finding

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def line(finding: Finding) -> str:
    """One finding for the terminal, with what is wrong below it."""
    head = (
        f"{finding.name:<42} {'right' if finding.right else 'WRONG'} spec {finding.specializations}"
        f" seg {finding.segments} breaks {len(finding.breaks)} eager {finding.eager_ops}"
        f" {finding.compile_seconds:.2f} s {finding.over_eager:.2f}x"
    )
    details = [finding.failure, *finding.wrong[:4], *finding.warned[:3], *finding.breaks[:6]]
    if finding.specializations > finding.segments or finding.specializations > 2:
        details += finding.recompiles[:4]
    return "\n".join([head, *(f"      {each[:400]}" for each in details if each)])


def write(findings: Sequence[Finding]) -> None:
    pass
