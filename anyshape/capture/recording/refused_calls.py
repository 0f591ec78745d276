"""Calls that are not recorded: on a side of a branch that may not be taken, and of a tensor whose
data has been replaced. Of a leaf that is frozen, what lies there is recorded without gradients.

Autocast's lists of what a lower precision pays for are those of products, convolutions and
attention: what takes longer than to go through the elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.ir.graph import Node, Value, values_in
from anyshape.ir.scalars import Operand
from anyshape.nouns import mutable
from anyshape.ops.autocast import ON_ACCELERATOR, ON_HOST
from anyshape.ops.build import Builder
from anyshape.ops.rules import is_tensor
from anyshape.ops.shared_memory import DETACHED
from anyshape.ops.table import OPS, OpDef

COSTLY = frozenset(
    name for lists in (ON_HOST, ON_ACCELERATOR) for name, kind in lists.items() if kind == "lower"
)


@mutable(eq=False)
class Replaced:
    """Tensors whose `data` was replaced: ``by`` maps each to what lies there now. ``frozen`` maps
    each leaf that required gradients before to `detach()` of it, which is read while it does not;
    ``thawed`` has these of leaves that do again, with their views by then and how many nodes had
    read each.

    Recorded nodes are looked through once, however many tensors are replaced: an average of a
    model's parameters replaces them all."""

    by: dict[Value, Value] = field(default_factory=dict)
    frozen: dict[Value, Value] = field(default_factory=dict)
    thawed: dict[Value, Mapping[Value, int]] = field(default_factory=dict)
    _readers: dict[Value, list[Node]] = field(default_factory=dict)
    _seen: list[Node] = field(default_factory=list)

    def readers(self, nodes: list[Node], value: Value) -> Sequence[Node]:
        """Those of the nodes, all that were recorded so far, that read the value."""
        if nodes[: len(self._seen)] != self._seen:  # some were taken back, or put in between
            self._readers.clear()
            self._seen.clear()
        for node in nodes[len(self._seen) :]:
            self._seen.append(node)
            for read in dict.fromkeys(node.inputs()):
                self._readers.setdefault(read, []).append(node)
        return self._readers.get(value, ())


def with_replaced(
    replaced: Replaced, name: str, args: Any, kwargs: Any, records: bool
) -> tuple[Any, Any]:
    """The arguments of a call, where the data of some of them is another tensor's, or where they
    are frozen. ``records``: whether gradients are recorded."""
    if replaced.by:
        args, kwargs = _with_data(replaced.by, name, args, kwargs, records)
    if replaced.frozen and name not in DETACHED:
        args, kwargs = _with_frozen(replaced.frozen, name, args, kwargs, records)
    return args, kwargs


def _with_frozen(
    frozen: Mapping[Value, Value], name: str, args: Any, kwargs: Any, records: bool
) -> tuple[Any, Any]:
    """Breaks at a write in place that autograd sees; what it does not see writes the leaf."""
    given = values_in(_in_tuples((args, [*kwargs.values()])))
    if not any(value in frozen for value in given):
        return args, kwargs
    row = OPS.get(name)
    if row is None or row.mutates:
        if records:
            raise broken("python-effect", "a write beside what no longer requires gradients")
        return args, kwargs
    return _exchanged(args, frozen), {k: _exchanged(v, frozen) for k, v in kwargs.items()}


def _with_data(
    replaced: Mapping[Value, Value], name: str, args: Any, kwargs: Any, records: bool
) -> tuple[Any, Any]:
    """Breaks where the tensor itself matters: where it is viewed, written, or saved by autograd."""
    given = [*values_in(_in_tuples((args, [*kwargs.values()])))]
    if not any(value in replaced for value in given):
        return args, kwargs
    row = OPS.get(name)
    own = row is None or row.alias != "none" or row.mutates or row.inline
    if (own and name != "data") or _saves(given, records):
        raise broken("python-effect", "setting data of a tensor that is used afterwards")
    return _exchanged(args, replaced), {k: _exchanged(v, replaced) for k, v in kwargs.items()}


def _saves(given: Iterable[Value], records: bool) -> bool:
    return records and any(is_tensor(value) and value.tensor.requires_grad for value in given)


def _in_tuples(arg: Any) -> Any:
    return tuple(map(_in_tuples, arg)) if isinstance(arg, (tuple, list)) else arg


def _exchanged(arg: Any, replaced: Mapping[Value, Value]) -> Any:
    if not isinstance(arg, (tuple, list)):
        return replaced.get(arg, arg) if isinstance(arg, Value) else arg
    items = [_exchanged(item, replaced) for item in arg]
    if all(one is other for one, other in zip(items, arg, strict=True)):
        return arg
    return items if isinstance(arg, list) else tuple(items)


def refuse_in_vain(name: str, premise: Operand | None) -> None:
    """Breaks at a row that costs much, or that cannot be taken back, on a side of what data decides
    (``premise``)."""
    if premise is None:
        return
    row = OPS.get(name)
    if row is None or _is_final(row) or len(row.mutates) > 1:
        raise broken("fork", f"{name} on a side of what data decides")


def _is_final(row: OpDef) -> bool:
    return row.name in COSTLY or row.random or row.guessed


def is_in_vain(builder: Builder, node: Node) -> bool:
    """Whether the node, or what it is made of, is such a row, or raises for some data."""
    row = OPS[node.op]
    divides = row.divisor is not None
    if row.expand is not None and row.lower is None:
        scratch = Builder(builder.cx, modes=node.modes)
        if row.expand(scratch, *node.args, **node.kwargs) is not NotImplemented:
            return any(is_in_vain(builder, part) for part in scratch.nodes)
    if divides and any(v.dtype.is_floating for v in node.inputs() if is_tensor(v)):
        return False
    raises = row.raises or row.refuses is not None or row.data_indices is not None
    return raises or _is_final(row)
