"""docs/operators.md: a line for each operator of the database, with the reason where it is no
generated kernel.

In: outcomes by entry. Out: text. An entry is what the worst of its structures is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

import torch

from anyshape.ops import OPS, SPELLINGS
from anyshape.ops.table import OpDef
from conformance import cases

KINDS = ("generated", "extern", "eager", "break", "error", "wrong")
MEANING = {
    "generated": "one graph, generated kernels only",
    "extern": "one graph, some of it by a library on purpose",
    "eager": "one graph, some of it by eager torch",
    "break": "a graph break at some structure",
    "error": "raises where eager does not, or took too long",
    "wrong": "another result than eager's",
}

HEAD = "| operator | kind | structures | calls | gradient | why it is no generated kernel |"

SAID = {
    "extern": "a library does: ",
    "eager": "no kernel of ours yet, eager torch does: ",
}
"""What stands before the functions that a structure calls."""

Outcomes = list[dict[str, Any]]

Gradient = Literal["rule", "expansion", "view", "parts", "none", "eager", "-"]
GRADIENTS: Mapping[Gradient, str] = {
    "rule": "by a rule of its own (`ops/gradients/`)",
    "expansion": "as that of what it expands to",
    "view": "the cotangent, written back into zeros",
    "parts": "as that of its parts, which graphs hold in its place",
    "none": "it has none: its result requires no gradients",
    "eager": "eager torch runs a graph in which it is differentiated",
    "-": "no row of ours: eager torch does it",
}
"""How the gradient of an operator is made."""
SPELLED = ("torch", "torch.Tensor", "operator")
DIFFERENTIABLE = frozenset(cases.name_of(e) for e in cases.ENTRIES if e.supports_autograd)


def gradient_of(name: str) -> Gradient:
    """How the gradient is made of the operator of an entry: `linalg.norm.subgradients_at_zero`."""
    row = _row_of(name)
    if name not in DIFFERENTIABLE or (row is not None and not row.differentiable):
        return "none"
    if row is None or row.guessed:  # a guess is made where the operator is first met
        return "-"
    if row.vjp is not None:
        return "expansion" if row.vjp == "expansion" else "rule"
    if row.inline and row.expand is not None:
        return "parts"
    return "view" if row.alias != "none" and row.write_back is not None else "eager"


def _row_of(name: str) -> OpDef | None:
    """The row of an entry's name, which may end with the name of a variant."""
    while name:
        found = next((SPELLINGS[s] for o in SPELLED if (s := f"{o}.{name}") in SPELLINGS), None)
        if found is not None:
            return OPS[found]
        name = name.rpartition(".")[0]
    return None


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


def page(results: Mapping[str, Outcomes], version: str = torch.__version__) -> str:
    """The text of docs/operators.md; ``version``: of the torch that was compared with."""
    lines = [
        "# The operators of torch's database",
        "",
        "Written by `make conformance`: each call structure of each entry of `op_db` is compiled",
        "once with every dimension unbacked, and compared with eager on the database's calls and",
        "on calls at other sizes (0, 1 and 2 among them). An entry is what its worst structure is.",
        f"With torch {version}.",
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
        "How its gradient is made (docs/training.md):",
        "",
        *(f"- *{kind}*: {meaning}" for kind, meaning in GRADIENTS.items()),
        "",
        HEAD,
        "|---|---|---|---|---|---|",
    ]
    for name in sorted(results, key=str.lower):
        outcomes = results[name]
        kind = kind_of(outcomes)
        detail = f"{SAID.get(kind, '')}{detail_of(outcomes)}" if kind != "generated" else ""
        text = detail.replace("|", "\\|").replace("\n", " ").partition(" in (")[0][:160]
        calls = sum(o["calls"] for o in outcomes)
        gradient = gradient_of(name)
        lines.append(f"| {name} | {kind} | {len(outcomes)} | {calls} | {gradient} | {text} |")
    return "\n".join([*lines, ""])
