"""Gradients that a segment sets to None before it computes anything, and of which it reads nothing.

    optimizer.zero_grad(); model(x).backward(); optimizer.step()

Eager lets go of them there, and their memory is what the step computes in. So they are set to None
before the graph runs, and it is not handed them. Where the graph fails and the program runs
natively from its start on, it finds gradients of the same types there: none of it depends on their
numbers, but it may ask whether there are any.

In: the log of effects, and the graph of the segment. Out: the tensors whose ``.grad`` is set to
None first, and the graph without inputs that it does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.heap.effects import Effect
from anyshape.capture.heap.sources import Source
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import Graph, TensorType, values_in
from anyshape.ir.nesting import nodes_in
from anyshape.nouns import frozen, replace
from anyshape.symbolic.polynomial import constant_of
from anyshape.torch_names import torch_dtype

_set_attribute = object.__setattr__


@frozen
class Cleared:
    """A tensor whose gradient is set to None first, and the type of that; None: it has none."""

    tensor: torch.Tensor
    gradient: TensorType | None

    def put_back(self) -> None:
        """A gradient of the type that it had."""
        kind = self.gradient
        if kind is not None and self.tensor.grad is None:
            shape, strides = (tuple(map(constant_of, dims)) for dims in (kind.shape, kind.strides))
            dtype = torch_dtype(kind.dtype)
            made = torch.empty_strided(shape, strides, dtype=dtype, device=kind.device)
            self.tensor.grad = made.zero_()


def clears_gradient(fn: Callable[..., Any], target: Any, args: tuple[Any, ...]) -> bool:
    """Is the write ``target.grad = None`` of a tensor?"""
    named = fn is _set_attribute and type(target) is TensorValue and type(args[0]) is str
    return named and args[0] == "grad" and args[1] is None


def without_cleared(
    recorder: Recorder, effects: Sequence[Effect], before: Mapping[int, int], graph: Graph
) -> tuple[Graph, tuple[Source, ...], tuple[Cleared, ...]]:
    """The graph and the sources of its arguments, both without gradients that are cleared first,
    and whose they are; none where the graph reads one, or what is made at the end. ``before``: how
    much was computed when a target was cleared last, by its id."""
    inputs = recorder.input_sources
    tensors = tuple(_cleared_first(recorder, effects, before))
    owners = {id(tensor) for tensor in tensors}
    found = {
        id(source.base.pinned): value
        for source, value in inputs
        if source.base is not None and _is_gradient(source, owners)
    }
    gradients = set(found.values())
    read = set(values_in(graph.outputs))
    read.update(value for node in nodes_in(graph) for value in node.inputs())
    used = not read.isdisjoint(gradients) or any(
        _is_gradient(part, owners)
        for source in recorder.sources.read_at_end
        for part in _parts(source)
    )
    if used or not all(map(_is_fixed, gradients)):
        return graph, tuple(source for source, _ in inputs), ()
    kept = tuple(entry for entry in graph.inputs if entry.value not in gradients)
    sources = tuple(source for source, value in inputs if value not in gradients)
    kinds = {owner: value.type for owner, value in found.items()}
    types = {owner: kind for owner, kind in kinds.items() if isinstance(kind, TensorType)}
    cleared = (Cleared(tensor, types.get(id(tensor))) for tensor in tensors)
    return replace(graph, inputs=kept), sources, tuple(cleared)


def _cleared_first(
    recorder: Recorder, effects: Sequence[Effect], before: Mapping[int, int]
) -> Iterator[torch.Tensor]:
    """The tensors whose gradients are cleared before anything else is done."""
    for effect in effects:
        if not clears_gradient(effect.fn, effect.target, effect.args):
            return
        if before.get(id(effect.target)) != 0:
            return
        source = recorder.source_of(effect.target.value)
        if source is None or not source.is_constant:
            return
        yield source.pinned


def _is_gradient(source: Source, owners: set[int]) -> bool:
    base = source.base
    is_one = source.kind == "attr" and source.key == "grad" and base is not None
    return is_one and base is not None and base.is_constant and id(base.pinned) in owners


def _parts(source: Source) -> Iterator[Source]:
    """The source, and what it is read from."""
    part: Source | None = source
    while part is not None:
        yield part
        part = part.base


def _is_fixed(value: Any) -> bool:
    """No size is learned from it, and it is made by its type."""
    kind = value.type
    if not isinstance(kind, TensorType) or kind.requires_grad:
        return False
    return all(isinstance(size, int) for size in (*kind.shape, *kind.strides))


def let_go(cleared: Sequence[Cleared], run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, before which these gradients are set to None."""
    if not cleared:
        return run

    def running(*inputs: Any) -> Any:
        for one in cleared:
            one.tensor.grad = None
        return run(*inputs)

    return running
