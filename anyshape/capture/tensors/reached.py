"""What `backward()` reaches, and the node that differentiates.

In: the tensors that it begins at. Out: the leaves, and the results of functions of the program's
own (``autograd_functions.py``), behind which it goes on elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors import aliases
from anyshape.ir.graph import Node, TensorType, Value, values_in
from anyshape.nouns import mutable
from anyshape.ops.gradients.backward import (
    AS_LEAF,
    FUNCTION_RESULT,
    GRADIENTS,
    LEAVES,
    gives_sparse,
)
from anyshape.ops.gradients.indexing import source_and_index
from anyshape.ops.table import OPS
from anyshape.symbolic import any_of, eq

HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def not_captured(why: str) -> Any:
    return broken("left-to-autograd", f"Tensor.backward {why}")


def rely_on_leaf(domain: RecordingDomain, x: TensorValue) -> None:
    """Relies on a tensor that was handed in being no result, without hooks."""
    if x.value in domain.functions.leaves:
        return
    rely_on_no_result(domain, x)
    rely_on_no_hooks(domain, x)


def rely_on_no_result(domain: RecordingDomain, x: TensorValue) -> None:
    recorder = domain.recorder
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    if source is None or real is None or real.grad_fn is not None:
        raise not_captured("through what was made before")
    recorder.guard(recorder.sources.child(source, "attr", "grad_fn"), "equals", None)


def rely_on_no_hooks(domain: RecordingDomain, x: TensorValue) -> None:
    recorder = domain.recorder
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    assert source is not None
    if x.value in domain.functions.hooked:
        raise not_captured("through a tensor with hooks")
    for name in HOOKS:
        if getattr(real, name) is not None:
            raise not_captured("through a tensor with hooks")
        recorder.guard(recorder.sources.child(source, "attr", name), "equals", None)


def taken_leaves(
    domain: RecordingDomain, found: Reached, hooks: dict[int, Any] | None = None
) -> list[TensorValue]:
    """The leaves, of which all are relied on that autograd would ask. ``hooks`` gets those of the
    leaves that have some, by their number; None where there may be none."""
    made, known = domain.functions.leaves, domain.recorder.proxy_of
    proxies = [made[v] if v in made else known(v) for v in found.leaves]
    leaves = [leaf for leaf in proxies if leaf is not None]
    if len(leaves) != len(found.leaves):
        raise not_captured("of what the program made a leaf")
    for number, leaf in enumerate(leaves):
        own = None if hooks is None else _hooks_of(domain, leaf)
        if own is None or hooks is None:
            rely_on_leaf(domain, leaf)
        else:
            hooks[number] = own
    return leaves


def _hooks_of(domain: RecordingDomain, x: TensorValue) -> Any:
    """The dictionary of the hooks that a tensor from outside has had from the start."""
    recorder, functions = domain.recorder, domain.functions
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    own, after = (getattr(real, name, None) for name in HOOKS)
    if source is None or own is None or after is not None:
        return None
    if functions.refused or functions.inside or x.value in functions.hooked:
        return None
    rely_on_no_result(domain, x)
    at, behind = (recorder.sources.child(source, "attr", name) for name in HOOKS)
    recorder.guard(behind, "equals", None)
    return domain.see(at, own)


def differentiated(
    domain: RecordingDomain,
    of: Sequence[Value],
    cotangents: Sequence[Value | None],
    wanted: Sequence[Value],
    retain: bool,
    more: bool = False,
    again: bool = False,
    orders: tuple[tuple[int, ...] | None, ...] | None = None,
) -> tuple[Value, ...]:
    """The node. ``more``: others of the same `backward()` go through what this one has; ``again``:
    what it makes is recorded; ``orders``: how that lies, where it does not as the leaf does."""
    args = tuple(of), tuple(cotangents), tuple(wanted), retain, more, again, orders
    made: tuple[Value, ...] = domain.recorder.call(GRADIENTS, *args)
    return made


@mutable
class Reached:
    """What autograd would walk through from some tensors on: values, leaves in the order of the
    graph's inputs, and results of functions, where it goes on from the function's arguments.
    ``ends_early``: it goes on to some of the leaves alone."""

    values: set[Value]
    leaves: list[Value]
    results: list[Value]
    ends_early: bool = False

    @classmethod
    def of(cls, domain: RecordingDomain, roots: Sequence[Value]) -> Reached:
        recorder = domain.recorder
        nodes = recorder.builder.nodes
        memory = aliases.memory_classes(recorder, but=LEAVES)
        values = set(roots)
        written = {memory.of(value) for value in roots}
        for position in reversed(range(len(nodes))):
            node = nodes[position]
            outputs = _results(node)
            reaches = any(v in values for v in outputs)
            reaches |= any(memory.of(value) in written for value in _targets(node))
            if reaches and not _is_cut(node) and node.op != AS_LEAF:
                _refuse_options(node)
                _refuse_shapes(recorder, node)
                for value in filter(requires, node.inputs()):
                    values.add(value)
                    written.add(memory.of(value))
        possible = [entry.value for entry in recorder.builder.inputs]
        possible += [node.output for node in nodes if node.op == AS_LEAF]
        leaves = [value for value in possible if value in values]
        _refuse_written(nodes, leaves, values, memory)
        made = [v for node in nodes if node.op == FUNCTION_RESULT for v in node.outputs]
        return cls(values.difference(leaves), leaves, [v for v in made if v in values])

    def refuse_spent(self, spent: set[Value]) -> None:
        """A graph is walked through once, unless it is retained."""
        if not spent.isdisjoint(self.values):
            raise not_captured("a second time")


def _results(node: Node) -> Iterator[Value]:
    return filter(requires, node.outputs)


def requires(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.requires_grad


def _targets(node: Node) -> Iterator[Value]:
    """What the node writes."""
    row = OPS.get(node.op)
    return values_in(node.args[:1] if row is not None and row.mutates else ())


def _is_cut(node: Node) -> bool:
    return node.modes is None or not node.modes.grad


def _refuse_options(node: Node) -> None:
    """What a node makes a leaf of, and gradients that are sparse tensors."""
    row = OPS[node.op]
    given = {**dict(zip(row.signature.names, node.args, strict=False)), **node.kwargs}
    if given.get("requires_grad") is True:
        raise not_captured("of what the program made a leaf")
    if gives_sparse(node, row):
        raise not_captured("with sparse gradients")


def _refuse_shapes(recorder: Recorder, node: Node) -> None:
    """A gradient of another shape than what it is of."""
    for size, read in source_and_index(node):
        alike = any_of(eq(size, read), eq(size, 1))
        text = "the gradient of a scatter's source has the shape of the index"
        if not recorder.decide_or_check(alike, text):
            raise broken("operator-raises", what="backward", why=text)


def _refuse_written(
    nodes: list[Node], leaves: list[Value], values: set[Value], memory: Any
) -> None:
    """A leaf that was written after it was read has gradients where it is not saved alone."""
    owners = {memory.of(leaf) for leaf in leaves}
    read: set[Any] = set()
    for node in nodes:
        touched = {memory.of(v) for v in node.inputs() if isinstance(v.type, TensorType)} & owners
        if any(memory.of(value) in read for value in _targets(node)):
            raise not_captured("of what was written since")
        if any(v in values for v in node.outputs):
            read |= touched
