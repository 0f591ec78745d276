"""Gradients that a segment sets to None before it computes anything, and of which it reads nothing.

    optimizer.zero_grad(); model(x).backward(); optimizer.step()

Eager lets go of them there, and their memory is what the step computes in. So they are set to None
before the graph runs, and it is not handed them. Where the graph fails and the program runs
natively, it finds them as eager's failing step leaves them.

In: the log of effects, and the graph of the segment. Out: the tensors whose ``.grad`` is set to
None first, and the graph without inputs that it does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape.capture.heap.effects import Effect
from anyshape.capture.heap.sources import Source
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import Graph, TensorType, values_in
from anyshape.ir.nesting import nodes_in

_set_attribute = object.__setattr__


def clears_gradient(fn: Callable[..., Any], target: Any, args: tuple[Any, ...]) -> bool:
    """Is the write ``target.grad = None`` of a tensor?"""
    named = fn is _set_attribute and type(target) is TensorValue and type(args[0]) is str
    return named and args[0] == "grad" and args[1] is None


def without_cleared(
    recorder: Recorder, effects: Sequence[Effect], before: Mapping[int, int], graph: Graph
) -> tuple[Graph, tuple[Source, ...], tuple[torch.Tensor, ...]]:
    """The graph and the sources of its arguments, both without gradients that are cleared first,
    and the tensors whose they are; none where the graph reads one. ``before``: how much was
    computed when a target was cleared last, by its id."""
    inputs = recorder.input_sources
    cleared = tuple(_cleared_first(recorder, effects, before))
    owners = {id(tensor) for tensor in cleared}
    gradients = {value for source, value in inputs if _is_gradient(source, owners)}
    read = set(values_in(graph.outputs))
    read.update(value for node in nodes_in(graph) for value in node.inputs())
    if not read.isdisjoint(gradients) or not all(map(_is_fixed, gradients)):
        return graph, tuple(source for source, _ in inputs), ()
    kept = tuple(entry for entry in graph.inputs if entry.value not in gradients)
    sources = tuple(source for source, value in inputs if value not in gradients)
    return replace(graph, inputs=kept), sources, cleared


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


def _is_fixed(value: Any) -> bool:
    """No size is learned from it."""
    kind = value.type
    sizes = (*kind.shape, *kind.strides) if isinstance(kind, TensorType) else (None,)
    return all(isinstance(size, int) for size in sizes)


def let_go(cleared: Sequence[torch.Tensor], run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, before which these gradients are set to None."""
    if not cleared:
        return run

    def running(*inputs: Any) -> Any:
        for tensor in cleared:
            tensor.grad = None
        return run(*inputs)

    return running
