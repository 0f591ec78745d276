"""`backward()` while capturing, and the attribute `.grad`.

In: the tensors that are differentiated. Out: one node `gradients`, whose results are added to the
`.grad` of the leaves that were reached, by autograd's own rules: a new object where there was none,
else a write into the one that there is. Leaves are tensors handed in, without a `grad_fn` or hooks;
whatever else autograd would call or walk through ends the segment, and is native then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors import aliases
from anyshape.capture.tensors.tensor_ops import call_row
from anyshape.ir.graph import Node, TensorType, Value, values_in
from anyshape.ops.gradients.backward import GRADIENTS
from anyshape.ops.layout import numel
from anyshape.ops.table import OPS
from anyshape.symbolic import all_of, eq

HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


# ---- the attribute -------------------------------------------------------------------------------
def grad(domain: RecordingDomain, x: TensorValue, name: str = "grad") -> TensorValue | None:
    """`x.grad`, as it is now."""
    heap, recorder = domain.machine.heap, domain.recorder
    known = heap.slots.get((id(x.value), "grad"))
    if known is not None:
        return known[1]
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    if source is None or real is None:
        if x.value.tensor.requires_grad:  # what was retained of a result
            raise broken("tensor-attribute", "grad")
        return None
    if x.value.tensor.requires_grad:
        _leaf(domain, x)
    found = real.grad
    grad_source = recorder.sources.child(source, "attr", "grad")
    if found is None:
        recorder.guard(grad_source, "equals", None)
        return None
    if found.requires_grad:
        raise broken("tensor-attribute", "grad")
    return recorder.tensor(found, grad_source, x.value.shape)


def set_grad(domain: RecordingDomain, x: TensorValue, name: str, new: Any) -> None:
    """`x.grad = new`, for what autograd takes."""
    if domain.recorder.source_of(x.value) is None or not _is_taken(domain, x, new):
        raise broken("python-effect", "setting grad of a tensor")
    _store(domain, x, new)


def _store(domain: RecordingDomain, x: TensorValue, new: TensorValue | None) -> None:
    domain.identify(x)
    domain.machine.heap.set_tensor_slot(x, x.value, "grad", new)


def _is_taken(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    if new is None:
        return True
    if type(new) is not TensorValue or new.value is x.value:
        return False
    ours, given = x.value.tensor, new.value.tensor
    if (ours.dtype, ours.device, ours.rank) != (given.dtype, given.device, given.rank):
        return False
    return domain.recorder.decide(all_of(*map(eq, ours.shape, given.shape)))


# ---- the call ------------------------------------------------------------------------------------
def tensor_backward(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`loss.backward(gradient, retain_graph, create_graph, inputs)`."""
    names = ("self", "gradient", "retain_graph", "create_graph", "inputs")
    given = dict(zip(names, args, strict=False)) | kwargs
    seeds = (given.pop("gradient", None),)
    _backward(domain, (given.pop("self"),), seeds, given)


def backward(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.autograd.backward(tensors, grad_tensors, retain_graph, create_graph, _, inputs)`."""
    names = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    given = dict(zip(names, args, strict=False)) | kwargs
    tensors, seeds = _several(domain, given.pop("tensors")), given.pop("grad_tensors", None)
    if type(seeds) is TensorValue or seeds is None:
        seeds = (seeds,) * len(tensors)
    _backward(domain, tensors, tuple(domain.seen(seeds)), given)


def autograd_grad(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.autograd.grad(outputs, inputs, ...)` of leaves, whose `.grad` is left alone."""
    names = (
        *("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs"),
        *("allow_unused", "is_grads_batched", "materialize_grads"),
    )
    given = dict(zip(names, args, strict=False)) | kwargs
    if not domain.recorder.takes_gradients:
        return NotImplemented
    tensors = _several(domain, given.pop("outputs"))
    wanted = _several(domain, given.pop("inputs"))
    seeds = given.pop("grad_outputs", None)
    seeds = (None,) * len(tensors) if seeds is None else _several(domain, seeds)
    given.pop("only_inputs", None)
    zeros, unused = given.pop("materialize_grads", False), given.pop("allow_unused", None)
    found, retain = _walked(domain, tensors, seeds, given)
    if not all(type(x) is TensorValue and x.value.tensor.requires_grad for x in wanted):
        raise not_captured("for what requires no gradients")
    for leaf in wanted:
        _leaf(domain, leaf)
        _without_hooks(domain, leaf)
    reached = [x for x in wanted if x.value in found.leaves]
    if len(reached) < len(wanted) and not (unused or zeros):
        raise not_captured("for what it does not reach")
    made = _taken(domain, tensors, seeds, reached, found, retain) if reached else ()
    domain.recorder.taken.update(made)
    gradients: dict[Value, Any]
    gradients = {x.value: TensorValue(value) for x, value in zip(reached, made, strict=True)}
    for x in wanted:
        if x.value not in gradients:
            gradients[x.value] = call_row(domain, "zeros_like", x) if zeros else None
    return tuple([gradients[x.value] for x in wanted])


def _several(domain: RecordingDomain, tensors: Any) -> tuple[Any, ...]:
    return (tensors,) if type(tensors) is TensorValue else tuple(domain.seen(tensors))


def _backward(
    domain: RecordingDomain, tensors: tuple[Any, ...], seeds: tuple[Any, ...], options: Any
) -> None:
    found, retain = _walked(domain, tensors, seeds, options)
    leaves = [leaf for leaf in map(domain.recorder.proxy_of, found.leaves) if leaf is not None]
    if not leaves or len(leaves) != len(found.leaves):
        raise not_captured("of what the program made a leaf")
    for leaf in leaves:
        _leaf(domain, leaf)
        _without_hooks(domain, leaf)
    made = _taken(domain, tensors, seeds, leaves, found, retain)
    for leaf, gradient in zip(leaves, made, strict=True):
        _accumulate(domain, leaf, TensorValue(gradient))


def _walked(
    domain: RecordingDomain, tensors: tuple[Any, ...], seeds: tuple[Any, ...], options: Any
) -> tuple[_Reached, bool]:
    """What is gone through, and whether it may be again."""
    recorder = domain.recorder
    retain = options.pop("retain_graph", None)
    if recorder.depth or any(options.values()) or retain not in (None, False, True):
        raise not_captured("with these arguments")
    if len(seeds) != len(tensors):
        raise not_captured("with these arguments")
    for x, seed in zip(tensors, seeds):
        _refuse_unfit(domain, x, seed)
    found = _Reached.of(domain, [x.value for x in tensors])
    found.refuse_spent(recorder.spent)
    return found, bool(retain)


def _taken(
    domain: RecordingDomain,
    tensors: tuple[Any, ...],
    seeds: tuple[Any, ...],
    leaves: list[TensorValue],
    found: _Reached,
    retain: bool,
) -> tuple[Value, ...]:
    """The node."""
    recorder = domain.recorder
    made: tuple[Value, ...] = recorder.call(
        GRADIENTS,
        tuple(x.value for x in tensors),
        tuple(None if seed is None else seed.value for seed in seeds),
        tuple(leaf.value for leaf in leaves),
        retain,
    )
    if not retain:
        recorder.spent.update(found.values)
    return made


def not_captured(why: str) -> Any:
    return broken("disabled", f"Tensor.backward {why}")


def _refuse_unfit(domain: RecordingDomain, x: Any, seed: Any) -> None:
    """What eager raises for, natively."""
    recorder = domain.recorder
    if type(x) is not TensorValue or not x.value.tensor.requires_grad:
        raise not_captured("of what requires no gradients")
    if seed is None:
        if not recorder.decide(eq(numel(x.value.shape), 1)):
            raise not_captured("of what is no single number")
        return
    fits = type(seed) is TensorValue and seed.value.dtype is x.value.dtype
    if not fits or seed.value.tensor.requires_grad or seed.value.tensor.rank != x.value.tensor.rank:
        raise not_captured("with this gradient")
    if not recorder.decide(all_of(*map(eq, x.value.shape, seed.value.shape))):
        raise not_captured("with this gradient")


def _accumulate(domain: RecordingDomain, leaf: TensorValue, gradient: TensorValue) -> None:
    """What autograd does with a gradient at a leaf."""
    recorder = domain.recorder
    before = grad(domain, leaf)
    if before is None:
        _store(domain, leaf, gradient)
        return
    modes = recorder.modes
    recorder.modes = dataclasses.replace(modes, grad=False)
    try:
        call_row(domain, "add_", before, gradient)
    finally:
        recorder.modes = modes


def _leaf(domain: RecordingDomain, x: TensorValue) -> None:
    """Relies on a tensor that was handed in being no result."""
    recorder = domain.recorder
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    if source is None or real is None or real.grad_fn is not None:
        raise not_captured("through what was made before")
    recorder.guard(recorder.sources.child(source, "attr", "grad_fn"), "equals", None)


def _without_hooks(domain: RecordingDomain, x: TensorValue) -> None:
    recorder = domain.recorder
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    assert source is not None
    for name in HOOKS:
        if getattr(real, name) is not None:
            raise not_captured("through a tensor with hooks")
        recorder.guard(recorder.sources.child(source, "attr", name), "equals", None)


# ---- what it reaches -----------------------------------------------------------------------------
@dataclasses.dataclass(slots=True)
class _Reached:
    """What autograd would walk through from some tensors on: results, and leaves in the order of
    the graph's inputs."""

    values: set[Value]
    leaves: list[Value]

    @classmethod
    def of(cls, domain: RecordingDomain, roots: list[Value]) -> _Reached:
        recorder = domain.recorder
        nodes = recorder.builder.nodes
        memory = aliases.memory_classes(recorder)
        values = set(roots)
        written = {memory.of(value) for value in roots}
        for position in reversed(range(len(nodes))):
            node = nodes[position]
            outputs = _results(node)
            reaches = any(v in values for v in outputs)
            reaches |= any(memory.of(value) in written for value in _targets(node))
            if reaches and not _is_cut(node):
                _refuse_options(node)
                for value in filter(_requires, node.inputs()):
                    values.add(value)
                    written.add(memory.of(value))
        inputs = [entry.value for entry in recorder.builder.inputs]
        leaves = [value for value in inputs if value in values]
        _refuse_written(nodes, leaves, values, memory)
        return cls(values.difference(leaves), leaves)

    def refuse_spent(self, spent: set[Value]) -> None:
        """A graph is walked through once, unless it is retained."""
        if not spent.isdisjoint(self.values):
            raise not_captured("a second time")


def _results(node: Node) -> Iterator[Value]:
    return filter(_requires, node.outputs)


def _requires(value: Value) -> bool:
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
    if given.get("sparse") is True:
        raise not_captured("with sparse gradients")


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


HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.backward: tensor_backward,
    torch.autograd.backward: backward,
    torch.autograd.grad: autograd_grad,
}
