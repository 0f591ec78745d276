"""Tensors in whose place something else is read: those whose data was replaced, and leaves that
are frozen, of which what lies there is recorded without gradients.

In: a call that capture records. Out: its arguments with what is read instead; breaks where the
tensor itself matters, and where autograd would ask for a flag of another time than now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Break
from anyshape.ir.graph import Node, Value, values_in
from anyshape.nouns import mutable
from anyshape.ops.build import Builder
from anyshape.ops.rules import is_tensor
from anyshape.ops.shared_memory import DETACHED, base_of
from anyshape.ops.table import OPS


@mutable(eq=False)
class Replaced:
    """Tensors whose `data` was replaced: ``by`` maps each to what lies there now. ``frozen`` maps
    each leaf that required gradients before to `detach()` of it, which is read while it does not;
    ``thawed`` has these of leaves that do again, with their views by then and how many nodes had
    read each. ``leaves`` maps each leaf of both kinds to all these. ``is_seen``: autograd
    asks for a flag of another time than now, and eager torch is to run all that was captured.

    Recorded nodes are looked through once, however many tensors are replaced: an average of a
    model's parameters replaces them all."""

    by: dict[Value, Value] = field(default_factory=dict)
    frozen: dict[Value, Value] = field(default_factory=dict)
    thawed: dict[Value, Mapping[Value, int]] = field(default_factory=dict)
    leaves: dict[Value, list[Value]] = field(default_factory=dict)
    is_seen: bool = False
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

    def seen(self) -> Break:
        """The break where it is so: behind it nothing is captured either, as segments that are
        differentiated know no flags of other times."""
        self.is_seen = True
        return broken("left-to-autograd", "what read a leaf under another flag")

    def views(self, nodes: list[Node], value: Value) -> set[Value]:
        """The value, and what views it; not what is detached of it."""
        found: set[Value] = set()
        waiting = [value]
        while waiting:
            found.add(view := waiting.pop())
            for node in self.readers(nodes, view):
                if node.op not in DETACHED and (node.op not in OPS or OPS[node.op].alias != "none"):
                    waiting += [made for made in node.outputs if made not in found]
        return found

    def leads(self, nodes: list[Node], value: Value) -> Iterator[Value]:
        """What gradients come from to the value, and may have saved it."""
        views = self.views(nodes, value)
        for node in (reader for view in views for reader in self.readers(nodes, view)):
            if node.modes is None or not node.modes.grad or node.op in DETACHED:
                continue
            row = OPS.get(node.op)
            written = values_in(node.args[:1]) if row is not None and row.mutates else ()
            for made in (*node.outputs, *written):
                if is_tensor(made) and made.tensor.requires_grad and made not in views:
                    yield made

    def meets_other_flags(
        self, nodes: list[Node], spent: Collection[Value], among: Collection[Value] | None = None
    ) -> bool:
        """Whether gradients are to come of what has read a leaf under another flag than it has now;
        ``among``: where they go through these."""
        return any(
            made not in spent and (among is None or made in among)
            for read in (*self.frozen, *self.thawed)
            for made in self.leads(nodes, read)
        )

    def refuse_write(
        self, builder: Builder, target: Value, records: bool, spent: Collection[Value]
    ) -> None:
        """Breaks where a write into memory of a leaf whose flag has changed makes it a result, or
        meets what has saved it."""
        leaf = base_of(target, builder.makers, OPS)
        if leaf not in self.leaves:
            return
        stand_ins = self.leaves[leaf]
        reads = (made for v in (leaf, *stand_ins) for made in self.leads(builder.nodes, v))
        if records or any(made not in spent for made in reads):
            raise self.seen()


def with_replaced(
    replaced: Replaced,
    builder: Builder,
    spent: Collection[Value],
    name: str,
    args: Any,
    kwargs: Any,
    records: bool,
) -> tuple[Any, Any]:
    """The arguments of a call, where the data of some of them is another tensor's, or where they
    are frozen. ``records``: whether gradients are recorded; ``spent``: what they were taken of."""
    if replaced.by:
        args, kwargs = _with_data(replaced.by, name, args, kwargs, records)
    if replaced.leaves and name in OPS and OPS[name].mutates:
        given = values_in(_in_tuples((args, [*kwargs.values()])))
        saves = _saves(given, records)
        for target in values_in(_in_tuples(args[:1])):
            replaced.refuse_write(builder, target, saves, spent)
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
