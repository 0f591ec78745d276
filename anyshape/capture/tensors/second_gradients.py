"""Gradients that are differentiated again (``create_graph=True``): which of them require gradients,
and which leaves get some through them.

In: what capture has recorded. Out: eager's own answers. They follow from what each formula of
eager's reads, which no table here says, so the nodes in front run once more on tensors without
memory ("meta"), at the example sizes. Where these do not run (data decides something), the segment
ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from anyshape.capture.recording.meta_run import MetaRun
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.meta import number_at, value_at
from anyshape.capture.tensors.reached import not_captured, requires
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Arg, Node, TensorType, Value
from anyshape.ops import OPS
from anyshape.ops.gradients.backward import GRADIENTS
from anyshape.ops.shared_memory import base_of
from anyshape.symbolic import Dim
from anyshape.torch_names import resolve

UNKNOWN_SIZE = 2


def is_differentiated_again(node: Node) -> bool:
    """Whether it computes gradients that are recorded."""
    return node.op == GRADIENTS and node.args[5] is True


def lie_behind_gradients(recorder: Recorder, values: Iterable[Value]) -> bool:
    """Whether such a node makes one of these values."""
    found = frozenset(values)
    nodes = filter(is_differentiated_again, recorder.builder.nodes)
    return any(not found.isdisjoint(node.outputs) for node in nodes)


def that_require(recorder: Recorder, made: Sequence[Value]) -> list[Value]:
    """Those of the gradients that eager records, of a node just made."""
    found = _run_again(recorder, made)
    return [value for value in made if found[value].requires_grad]


def that_get_one(
    recorder: Recorder,
    of: Sequence[Value],
    cotangents: Sequence[Value | None],
    leaves: Sequence[Value],
) -> list[Value]:
    """Those of the leaves that eager's `backward()` comes to."""
    seeds = [seed for seed in cotangents if seed is not None]
    found = _run_again(recorder, (*of, *seeds, *leaves))
    try:
        made = torch.autograd.grad(
            [found[value] for value in of],
            [found[value] for value in leaves],
            [None if seed is None else found[seed] for seed in cotangents],
            retain_graph=True,  # later gradients go through it, too
            allow_unused=True,
        )
    except Exception as error:
        if is_interrupt(error):
            raise
        raise not_captured("through gradients that eager refuses") from None
    return [leaf for leaf, gradient in zip(leaves, made, strict=True) if gradient is not None]


# ---- once more, without memory -------------------------------------------------------------------
def _run_again(recorder: Recorder, wanted: Sequence[Value]) -> dict[Value, Any]:
    """What stands for each value that leads to those that are wanted. What has run for gradients
    in front of these is not run again."""
    if not recorder.meta.goes_on(recorder.builder.nodes):
        recorder.meta = MetaRun()
    tries = (recorder.meta, MetaRun()) if recorder.meta.nodes else (recorder.meta,)
    for run in tries:  # anew where sizes are known by now to be others than they were taken for
        recorder.meta = run
        try:
            with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
                _run_on(recorder, run, wanted)
            return run.found
        except Exception as error:
            recorder.meta = MetaRun()
            if is_interrupt(error):
                raise
    raise not_captured("of gradients behind what needs data")


def _run_on(recorder: Recorder, run: MetaRun, wanted: Sequence[Value]) -> None:
    sizes = defaultdict(lambda: UNKNOWN_SIZE, recorder.cx.hints)

    def number(dim: Dim) -> int:
        return number_at(recorder.cx.facts.simplify(dim), sizes)

    for entry in recorder.builder.inputs:
        value = entry.value
        if isinstance(value.type, TensorType) and value not in run.found:
            leaf = value_at(value, number, _empty)
            run.found[value] = leaf.requires_grad_(requires(value))
    for node in _in_front_of(recorder, run, wanted):
        run_node(node, run.found, lambda arg: value_at(arg, number, _empty))
        run.nodes[id(node)] = node
    run.seen = tuple(recorder.builder.nodes)


def _in_front_of(recorder: Recorder, run: MetaRun, wanted: Sequence[Value]) -> list[Node]:
    """The nodes that make these values, and write the memory that they lie in, but for those that
    have run. In front of what was seen then none is missing once all that is read stands there."""
    makers, nodes, seen = recorder.builder.makers, recorder.builder.nodes, len(run.seen)
    needed, bases = set(wanted), {base_of(value, makers, OPS) for value in wanted}
    missing = {value for value in wanted if value in makers and value not in run.found}
    found: list[Node] = []
    for position in reversed(range(len(nodes))):
        if position < seen and not missing:
            break
        node = nodes[position]
        missing.difference_update(node.outputs)
        if id(node) in run.nodes:
            continue
        row = OPS.get(node.op)
        writes = row is not None and row.mutates and base_of(node.read[0], makers, OPS) in bases
        if writes or not needed.isdisjoint(node.outputs):
            read = [*node.inputs()]
            needed.update(read)
            missing.update(v for v in read if v in makers and v not in run.found)
            bases.update(base_of(value, makers, OPS) for value in read)
            found.append(node)
    return found[::-1]


def _empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def run_node(node: Node, found: dict[Value, Any], example: Any) -> None:
    """Runs the node in its grad mode; as ``runtime/eager_function.py`` writes it."""

    def argument(arg: Arg) -> Any:
        if isinstance(arg, Value) and isinstance(arg.type, TensorType):
            return found[arg]
        if isinstance(arg, tuple):
            return tuple(map(argument, arg))
        return example(arg)

    named = {name: argument(arg) for name, arg in node.kwargs.items() if arg is not None}
    if "device" in named:
        named["device"] = "meta"
    with torch.set_grad_enabled(node.modes is None or node.modes.grad):
        made = resolve(OPS[node.op].torch)(*map(argument, node.args), **named)
    results = made if isinstance(made, (tuple, list)) else (made,)
    found.update(zip(node.outputs, results, strict=True))
