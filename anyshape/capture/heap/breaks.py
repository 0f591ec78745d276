"""The catalogue of graph breaks: a stable id, the reason, and what the user can do about it.

In: an id and what is known of where. Out: the `Break` that ends the segment, and later its
`GraphBreak` record with the user's line, which `explain` lists and `fullgraph=True` turns into
one error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from anyshape.capture.heap.values import Break
from anyshape.errors import GraphBreakError, render_location, underlined
from anyshape.ir.graph import Location
from anyshape.nouns import frozen


@frozen
class BreakKind:
    """One row of the catalogue; texts may name `{what}`, `{why}`, `{condition}`."""

    code: str
    reason: str
    hint: str
    asked: bool = False  # by the program itself, or of eager torch, which raises there as well
    allowed: str = ""  # what happens with fullgraph=True, where that is no error


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
        "operators on whole tensors instead of a loop, a list's index or a key",
    ),
    "size-changes": BreakKind(
        "E212",
        "{what} needs the value of a number that has been another one in too many calls",
        "keep it symbolic: operators on whole tensors in place of a loop or a key",
    ),
    "unknown-call": BreakKind(
        "E211",
        "{what} is not known to capture",
        "call it outside",
    ),
    "opcode": BreakKind(
        "E211",
        "{what} is run natively as a whole, because capture does not interpret {why}",
        "call it outside",
    ),
    "changing-value": BreakKind(
        "E201",
        "{what} looks into a value that native code makes anew in each call",
        "hand it on unread",
    ),
    "disabled": BreakKind(
        "E201", "{what} is disabled for compilation", "remove the disable", asked=True
    ),
    "left-to-autograd": BreakKind(
        "E201",
        "{what} is left to torch's autograd",
        "do without what the reason names, or take the gradients in the same compiled function",
        asked=True,
    ),
    "tensor-subclass": BreakKind(
        "E201",
        "a {what} is not understood",
        "hand in plain strided tensors",
    ),
    "operator-raises": BreakKind(
        "E402",
        "{what}: {why}",
        "eager torch rejects these arguments as well",
        asked=True,
        allowed="eager torch's own error comes as well",
    ),
    "operator-unknown": BreakKind(
        "E401",
        "the type of {what} cannot be worked out: {why}",
        "",
    ),
    "tensor-attribute": BreakKind(
        "E201",
        "the attribute {what} of a tensor is known only at run time",
        "read it outside the compiled function",
    ),
    "tensor-data": BreakKind(
        "E214",
        "{what} needs the values of a tensor",
        "keep the values in tensors",
    ),
    "python-effect": BreakKind("E201", "{what} has an effect outside", "do it outside"),
    "proxy-leak": BreakKind(
        "E201",
        "native code asked for what is known only at run time: {what}",
        "hand sizes and tensors to Python code and torch, not to other functions of C",
    ),
    "fork": BreakKind("E201", "inside a branch on sizes: {what}", ""),
    "budget": BreakKind(
        "E220",
        "capture took more than {what}",
        "raise unroll_budget in options={...}, or keep the loop or the recursion outside",
    ),
    "outside-iterator": BreakKind(
        "E201",
        "a {what} from outside is advanced",
        "iterate over the container itself; in a loop that was broken before, mend that break",
    ),
    "stress": BreakKind(
        "E201", "the option break_every ends the segment here", "leave the option out", asked=True
    ),
    "escape": BreakKind(
        "E201",
        "{what} would leave the compiled function",
        "consume it inside",
    ),
    "shared-memory": BreakKind(
        "E201",
        "{what}, which is written, lies in memory that another argument lies in, too",
        "hand in tensors with memory of their own, or write all of them through one name",
        allowed="it runs natively as well, with a warning",
    ),
}
WITHOUT = "leave out fullgraph=True, so that it runs natively"


def broken(
    reason: str, what: str = "", *, first: str = "", where: str = "", **context: Any
) -> Break:
    """The break of this id, with the hint of the catalogue; in front of it what is better, and
    behind it where what breaks it was made."""
    kind = BREAKS[reason]
    values = {"what": what, "condition": "size == ...", **context}
    return Break(reason, what, first + _fill(kind.hint, values) + where, **context)


def _fill(template: str, values: Mapping[str, Any]) -> str:
    try:
        return template.format(**values)
    except (KeyError, IndexError):
        return template


@frozen
class GraphBreak:
    """Where a segment ended."""

    id: str
    reason: str
    hint: str
    location: Location | None
    module: str = ""  # the qualified name of the module whose code it is, where there is one

    def error(self) -> GraphBreakError:
        """What `fullgraph=True` raises."""
        kind = BREAKS[self.id]
        why = "fullgraph=True allows no graph break"
        hint = f"{self.hint}, or {WITHOUT}" if self.hint else WITHOUT
        return GraphBreakError(kind.code, self.reason, why, hint, self.location)

    def __str__(self) -> str:
        where = f" (in {self.module})" if self.module else ""
        lines = [f"{self.id}: {self.reason}{where}"]
        if self.location is not None:
            lines += [f"  --> {self.location}", *render_location(self.location)[1:]]
        lines += [f"hint: {self.hint}"] if self.hint else []
        return "\n".join(lines)


def record_of(signal: Break, location: Location | None, module: str = "") -> GraphBreak:
    """The record of a break that happened at `location`, in code of `module`."""
    kind = BREAKS[signal.reason]
    values = {
        "reason": signal.reason,
        "what": signal.what,
        "why": "",
        "condition": "",
        **signal.context,
    }
    reason = _fill(kind.reason, values).strip()
    hint = signal.hint
    if signal.reason == "undecided-size" and UNNAMED.search(str(values["condition"])):
        hint = _decisions(location) or hint
    return GraphBreak(signal.reason, reason, hint, location, module)


UNNAMED = re.compile(r"\bu\d+\b")
"""Sizes that data decides have no name in the program."""


NEGATED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt},
}


def _decisions(location: Location | None) -> str:
    """What decides a comparison, in the words of the program; empty where it is none."""
    try:
        found = ast.parse(underlined(location).strip(), mode="eval").body if location else None
    except (SyntaxError, ValueError):
        return ""
    if not isinstance(found, ast.Compare) or len(found.ops) != 1:
        return ""
    other = NEGATED.get(type(found.ops[0]))
    if other is None:
        return ""
    holds = ast.unparse(found)
    found.ops = [other()]
    never = ast.unparse(found)
    return f"anyshape.check({holds}) before it, where it always holds, or anyshape.check({never})"
