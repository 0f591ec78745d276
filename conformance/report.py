"""docs/operators.md: a line for each operator of the database, with the reason where it is no
generated kernel.

In: outcomes by entry. Out: text. An entry is what the worst of its structures is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

KINDS = ("generated", "extern", "eager", "break", "error", "wrong")
MEANING = {
    "generated": "one graph, generated kernels only",
    "extern": "one graph, some of it by a library on purpose",
    "eager": "one graph, some of it by eager torch",
    "break": "a graph break at some structure",
    "error": "raises where eager does not, or took too long",
    "wrong": "another result than eager's",
}

SAID = {
    "extern": "a library does: ",
    "eager": "no kernel of ours yet, eager torch does: ",
}
"""What stands before the functions that a structure calls."""

Outcomes = list[dict[str, Any]]


def kind_of(outcomes: Outcomes) -> str:
    """The worst kind of an entry's structures; "none" where it has no dtype of ours."""
    return max((o["kind"] for o in outcomes), key=KINDS.index, default="none")


def detail_of(outcomes: Outcomes) -> str:
    """What the worst structure's outcome says."""
    kind = kind_of(outcomes)
    if kind == "none":
        return "no dtype that is compared, or eager refuses every call on this device"
    return str(next((o["detail"] for o in outcomes if o["kind"] == kind), ""))


def counts(results: Mapping[str, Outcomes]) -> Counter[str]:
    """Entries by kind."""
    return Counter(kind_of(outcomes) for outcomes in results.values())


def own_rows(results: Mapping[str, Outcomes]) -> int:
    """Entries all of whose structures are typed by rows of ours."""
    return sum(
        kind_of(outcomes) in KINDS[:3] and all(o["own_rows"] for o in outcomes)
        for outcomes in results.values()
    )


def summary(results: Mapping[str, Outcomes]) -> str:
    """The counts in a few lines."""
    found = counts(results)
    total = max(sum(found[k] for k in KINDS), 1)
    graphs = sum(found[k] for k in KINDS[:3])
    structures = [o for outcomes in results.values() for o in outcomes]
    by_structure = Counter(o["kind"] for o in structures)
    lines = [
        f"{total} entries, {len(structures)} structures, "
        f"{sum(o['calls'] for o in structures)} calls"
    ]
    for kind in KINDS:
        lines.append(
            f"{kind:10} {found[kind]:4} entries {found[kind] / total:6.1%}, "
            f"{by_structure[kind]:5} structures {by_structure[kind] / max(len(structures), 1):6.1%}"
        )
    lines.append(f"one graph  {graphs:4} entries {graphs / total:6.1%}")
    lines.append(f"own rows   {own_rows(results):4} entries {own_rows(results) / total:6.1%}")
    return "\n".join(lines)


def page(results: Mapping[str, Outcomes]) -> str:
    """The text of docs/operators.md."""
    lines = [
        "# The operators of torch's database",
        "",
        "Written by `make conformance`: each call structure of each entry of `op_db` is compiled",
        "once with every dimension unbacked, and compared with eager on the database's calls and",
        "on calls at other sizes (0, 1 and 2 among them). An entry is what its worst structure is.",
        "",
        "```",
        summary(results),
        "```",
        "",
        *(f"- *{kind}*: {MEANING[kind]}" for kind in KINDS),
        f"- *none*: not counted above ({counts(results)['none']} entries): none of its dtypes is",
        "  compared, or eager itself refuses every call on this device "
        "(`jiterator`, which compiles",
        "  for CUDA, and variants for it)",
        "",
        "| operator | kind | structures | calls | why it is no generated kernel |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(results, key=str.lower):
        outcomes = results[name]
        kind = kind_of(outcomes)
        detail = f"{SAID.get(kind, '')}{detail_of(outcomes)}" if kind != "generated" else ""
        text = detail.replace("|", "\\|").replace("\n", " ").partition(" in (")[0][:160]
        calls = sum(o["calls"] for o in outcomes)
        lines.append(f"| {name} | {kind} | {len(outcomes)} | {calls} | {text} |")
    return "\n".join([*lines, ""])
