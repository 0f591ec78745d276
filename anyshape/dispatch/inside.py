"""What is seen of a compiled function from outside: counts, guards, generated code and kernels.

In: its specializations. Out: numbers and texts, for `stats()`, `guards()`, `code()`, `kernels()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anyshape.dispatch.guard_report import describe_guards
from anyshape.dispatch.specializations import Specialization

TOTALS = {
    "host_syncs": "sync",
    "launches": "launch",
    "externs": "extern",
    "eager_ops": "eager",
    "recorded": "recorded",
    "graphs": "graph",
    "replays": "replay",
}
"""Fields of `Stats`, and what each counts: steps of a kind, or what a device replays."""


def counts(specializations: Sequence[Specialization]) -> dict[str, Any]:
    """The fields of `Stats` that are counted in what was compiled."""
    compiled = [each.compiled for each in specializations]
    captured = [each.captured for each in specializations]
    counting = [each for each in compiled if hasattr(each, "count")]
    kernels = {name for each in compiled for name in getattr(each, "kernel_names", ())}
    return {
        **{field: sum(each.count(kind) for each in counting) for field, kind in TOTALS.items()},
        "specializations": len(specializations),
        "kernels": len(kernels),
        "joined": sum(each.joined for each in captured),
        "guarded": sum(each.guarded for each in captured),
        "gradients": sum(getattr(each, "differentiated", False) for each in compiled),
        "eager_graphs": tuple(why for each in compiled if (why := getattr(each, "why", ""))),
    }


def guards_text(specializations: Sequence[Specialization]) -> str:
    """What each specialization relies on, with the user's line that made it."""
    parts = []
    for number, each in enumerate(specializations):
        assert each.graph is not None
        names = each.captured.names
        parts.append(f"specialization {number}")
        parts += describe_guards(each.guards, each.graph, names, each.declared)
    return "\n".join(parts)


def code_text(specializations: Sequence[Specialization]) -> str:
    """The generated code."""
    return "\n\n".join(str(getattr(each.compiled, "linked", "")) for each in specializations)


def noted(specializations: Sequence[Specialization]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is kept for gradients, and which schedules were chosen by measuring them; of each
    segment that has some."""
    graphs = [each.compiled for each in specializations]
    saved = (getattr(graph, "saved", "") for graph in graphs)
    measured = (graph.measured() for graph in graphs if hasattr(graph, "measured"))
    return tuple(filter(None, saved)), tuple(filter(None, measured))


def kernels_text(specializations: Sequence[Specialization], times: Mapping[str, float]) -> str:
    """The kernels, each with what it computes, and its time where that is known."""
    lines: dict[str, None] = {}
    for each in specializations:
        if hasattr(each.compiled, "kernels"):
            lines |= dict.fromkeys(each.compiled.kernels(times))
    return "\n".join(lines)
