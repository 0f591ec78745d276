"""docs/models.md: the findings as a table."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from benchmarks.zoo.judge import Finding

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
HEAD = """# What was run

`python -m benchmarks.zoo` writes this page: models of transformers built from small configs with
random weights, and programs as users write them, each compiled with the defaults and compared with
eager at several sizes, 1 among them. *Right* means every output at every size: values within the
bound of `anyshape/tools/accuracy.py`, dtypes, strides, and every plain value. A specialization
more than one is a recompile or a graph break; *native* means that nothing was compiled in the end.
Seconds are those of compiling, all sizes together; *x eager* is a later call at the last size
(the models are tiny: it tells of the overhead more than of the kernels), empty where not timed.
"""
COLUMNS = (
    "program",
    "right",
    "specializations",
    "breaks",
    "eager operators",
    "compile s",
    "x eager",
)


def line(finding: Finding) -> str:
    """One finding for the terminal, with what is wrong below it."""
    head = (
        f"{finding.name:<42} {'right' if finding.right else 'WRONG'} spec {finding.specializations}"
        f" seg {finding.segments} breaks {len(finding.breaks)} eager {finding.eager_ops}"
        f" {finding.compile_seconds:.2f} s {finding.over_eager:.2f}x"
    )
    details = [finding.failure, *finding.wrong[:4], *finding.warned[:3], *finding.breaks[:6]]
    details += finding.eager_graphs[:3]
    if finding.specializations > finding.segments or finding.specializations > 2:
        details += finding.recompiles[:4]
    return "\n".join([head, *(f"      {each[:400]}" for each in details if each)])


def write(findings: Sequence[Finding], note: str = "") -> None:
    """The page, family by family, with what is wrong or warned of below each table."""
    families = dict.fromkeys(finding.family for finding in findings)
    right = sum(finding.right for finding in findings)
    whole = sum(f.right and f.specializations == 1 and not f.breaks for f in findings)
    when = f"{datetime.date.today().isoformat()}, torch {torch.__version__}"
    parts = [
        HEAD,
        f"{right} of {len(findings)} right, {whole} of them with one specialization and no break "
        f"({when}).{' ' + note if note else ''}",
    ]
    for family in families:
        parts.append(section(family, [f for f in findings if f.family == family]))
    PAGE.write_text("\n".join(parts).rstrip() + "\n")


def section(family: str, findings: Sequence[Finding]) -> str:
    rows = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    rows += [f"| {' | '.join(cells(finding))} |" for finding in findings]
    notes = [f"- {f.name}: {text}" for f in findings for text in remarks(f)]
    return "\n".join([f"\n## {family}\n", *rows, *([""] if notes else []), *notes])


def cells(finding: Finding) -> tuple[str, ...]:
    nothing = not finding.specializations
    return (
        finding.name,
        "yes" if finding.right else "not run" if finding.failure else "**no**",
        "native" if nothing and not finding.failure else str(finding.specializations or ""),
        str(len(finding.breaks) or ""),
        str(finding.eager_ops or ""),
        f"{finding.compile_seconds:.1f}" if finding.compile_seconds else "",
        f"{finding.over_eager:.2f}" if finding.over_eager else "",
    )


def remarks(finding: Finding) -> Iterable[str]:
    """Why it is not right, and the first break or warning."""
    if finding.failure:
        yield plain(finding.failure)
    yield from map(plain, finding.wrong[:2])
    yield from map(plain, (*finding.warned, *finding.breaks)[:2])


def plain(text: str) -> str:
    """One line of a page: no markup, no addresses, no directories."""
    words = text.replace("\n", " ").replace("|", "/").split()
    return " ".join(word.rsplit("/", 1)[-1] if word[0] in "[/" else word for word in words)[:220]
