"""What is reported, once each, of a function that is not one compiled whole: its first graph
break, the first graph that eager torch runs, a mode under which it runs natively, that each call
needs a specialization of its own, and that there may be no more of them.

In: what dispatch has met. Out: the texts, as errors that are given as warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.guard_failures import Failure, explain_failure
from anyshape.capture.heap.breaks import BREAKS, GraphBreak
from anyshape.costs import COSTS
from anyshape.dispatch.specializations import Specialization
from anyshape.dispatch.stats import counted
from anyshape.errors import AnyshapeError
from anyshape.ir.graph import HOST


def of_break(found: GraphBreak, specialization: Specialization) -> AnyshapeError | None:
    """None where the program asks for the break itself, or eager torch raises there as well."""
    kind = BREAKS.get(found.id)
    if kind is not None and kind.asked:
        return None
    return AnyshapeError(
        "E230",
        location=found.location,
        where=f" in {found.module}" if found.module else "",
        reason=found.reason,
        before=counted(specialization.node_count(), "operator"),
        cost=round(COSTS.segment_us),
        remedy=found.hint or "move this out of the compiled function",
        id=found.id,
    )


def of_eager_graph(specialization: Specialization) -> AnyshapeError | None:
    """None where the graph has kernels, or nothing to run."""
    why = getattr(specialization.compiled, "why", "")
    if not why or not specialization.node_count():
        return None
    location = getattr(specialization.compiled, "location", None) or specialization.line()
    count = counted(specialization.node_count(), "operator")
    return AnyshapeError("E231", location=location, count=count, reason=why)


def of_unreplayed(specialization: Specialization) -> AnyshapeError | None:
    """None where its device replays it as a whole, or nobody asked for that, or has no GPU."""
    compiled = specialization.compiled
    made = getattr(compiled, "translation", None)
    if made is None or made.summary.devices <= {HOST} or not specialization.node_count():
        return None
    reason = compiled.why_not_replayed()
    if not reason:
        return None
    remedy = "leave that out of what is compiled, or use the default mode"
    return AnyshapeError("E234", location=specialization.line(), reason=reason, remedy=remedy)


def of_miss(made: Sequence[Specialization], slots: list[Any]) -> Failure | None:
    """What keeps a call from the newest of those that do not fit it."""
    snapshot = execution_modes.snapshot()
    for one in made:
        failure = explain_failure(one.guards, snapshot, slots)
        if failure is not None:
            return failure
    unsaid = Failure("parameters are as they were", "a parameter's data, dtype or shape changed")
    return unsaid if made else None


def of_limit(made: Sequence[Specialization], slots: list[Any]) -> AnyshapeError:
    """As many as there may be, none of which fits a call: why, each."""
    snapshot = execution_modes.snapshot()
    found = (explain_failure(one.guards, snapshot, slots) for one in made)
    why = "\n".join(dict.fromkeys(str(failure) for failure in found if failure is not None))
    return AnyshapeError(
        "E222", location=made[0].line() if made else None, count=len(made), why=why
    )


def of_single_use(specialization: Specialization, *, native: bool) -> AnyshapeError:
    """Each call has used up a specialization."""
    then = "calls run natively from here on" if native else "until then each call compiles anew"
    return AnyshapeError("E233", location=specialization.line(), then=then)


def of_mode(fn: Callable[..., Any], mode: str) -> AnyshapeError | None:
    """None under a tracer of torch's own: it runs once."""
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return AnyshapeError("E232", name=name, mode=mode) if mode else None
