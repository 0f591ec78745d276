"""The catalogue of graph breaks: a stable id, the reason, and what the user can do about it.

In: an id and what is known of the place. Out: the `Break` that ends the segment, and later its
`GraphBreak` record with the user's line, which `explain` lists and `fullgraph=True` turns into
one error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anyshape.capture.heap.values import Break
from anyshape.errors import GraphBreakError, render_place
from anyshape.ir.graph import Location


@dataclass(frozen=True, slots=True)
class BreakKind:
    """One row of the catalogue; texts may name `{what}`, `{why}`, `{condition}`."""

    code: str
    reason: str
    hint: str


BREAKS: Mapping[str, BreakKind] = {
    "tensor-branch": BreakKind(
        "E210",
        "this branch depends on the values of a tensor",
        "use torch.where, or move the branch out of the compiled function",
    ),
    "undecided-size": BreakKind(
        "E212",
        "{condition} is neither known to be true nor known to be false",
        "anyshape.check({condition})",
    ),
    "size-needed": BreakKind(
        "E212",
        "{what} needs the value of a size that only the data decides",
        "anyshape.check({condition}), or keep the size symbolic",
    ),
    "size-changes": BreakKind(
        "E212",
        "{what} needs the value of a number that has been another one in too many calls",
        "keep it symbolic (operators on whole tensors in place of a loop or a key), or leave "
        "fullgraph=False",
    ),
    "unknown-call": BreakKind(
        "E211",
        "{what} is not known to capture",
        "call it outside, or leave fullgraph=False",
    ),
    "opcode": BreakKind(
        "E211",
        "{what} is run natively as a whole, because capture does not interpret {why}",
        "call it outside, or leave fullgraph=False",
    ),
    "changing-value": BreakKind(
        "E201",
        "{what} looks into a value that native code makes anew in each call",
        "hand it on unread, or leave fullgraph=False",
    ),
    "disabled": BreakKind(
        "E201", "{what} is disabled for compilation", "remove the disable, or leave fullgraph=False"
    ),
    "tensor-subclass": BreakKind(
        "E201",
        "a {what} is not understood",
        "hand in plain strided tensors, or leave fullgraph=False",
    ),
    "operator-raises": BreakKind(
        "E402", "{what}: {why}", "eager torch rejects these arguments as well"
    ),
    "operator-unknown": BreakKind(
        "E401",
        "the type of {what} cannot be worked out: {why}",
        "leave fullgraph=False, so that it runs natively",
    ),
    "tensor-attribute": BreakKind(
        "E201",
        "the attribute {what} of a tensor is known only at run time",
        "read it outside the compiled function",
    ),
    "tensor-data": BreakKind(
        "E214",
        "{what} needs the values of a tensor",
        "keep the values in tensors, or leave fullgraph=False",
    ),
    "python-effect": BreakKind(
        "E201", "{what} has an effect outside", "do it outside, or leave fullgraph=False"
    ),
    "proxy-leak": BreakKind(
        "E201", "native code touched a symbolic value: {what}", "leave fullgraph=False"
    ),
    "fork": BreakKind("E201", "inside a branch on sizes: {what}", ""),
    "mode-change": BreakKind(
        "E201", "{what} changes a mode of torch that capture does not follow", "set it outside"
    ),
    "budget": BreakKind(
        "E220",
        "capture took more than {what}",
        "raise unroll_budget in options={...}, or keep the loop outside",
    ),
    "outside-iterator": BreakKind(
        "E201", "a {what} from outside is advanced", "iterate over the container itself"
    ),
    "stress": BreakKind(
        "E201", "the option break_every ends the segment here", "leave the option out"
    ),
    "escape": BreakKind(
        "E201",
        "{what} would leave the compiled function",
        "consume it inside, or leave fullgraph=False",
    ),
}
OTHER = BreakKind("E201", "{reason} {what}", "leave fullgraph=False, so that it runs natively")


def broken(reason: str, what: str = "", **context: Any) -> Break:
    """The break of this id, with the hint of the catalogue."""
    kind = BREAKS.get(reason, OTHER)
    values = {"what": what, "condition": "size == ...", **context}
    return Break(reason, what, _fill(kind.hint, values), **context)


def _fill(template: str, values: Mapping[str, Any]) -> str:
    try:
        return template.format(**values)
    except (KeyError, IndexError):
        return template


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """One place where a segment ended."""

    id: str
    reason: str
    hint: str
    location: Location | None

    def error(self) -> GraphBreakError:
        """What `fullgraph=True` raises."""
        kind = BREAKS.get(self.id, OTHER)
        why = "fullgraph=True allows no graph break"
        return GraphBreakError(kind.code, self.reason, why, self.hint, self.location)

    def __str__(self) -> str:
        lines = [f"{self.id}: {self.reason}"]
        if self.location is not None:
            lines += [f"  --> {self.location}", *render_place(self.location)[1:]]
        lines += [f"hint: {self.hint}"] if self.hint else []
        return "\n".join(lines)


def record_of(signal: Break, location: Location | None) -> GraphBreak:
    """The record of a break that happened at `location`."""
    kind = BREAKS.get(signal.reason, OTHER)
    values = {
        "reason": signal.reason,
        "what": signal.what,
        "why": "",
        "condition": "",
        **signal.context,
    }
    return GraphBreak(signal.reason, _fill(kind.reason, values).strip(), signal.hint, location)
