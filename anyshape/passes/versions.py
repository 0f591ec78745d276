"""How far version counters move: eager counts each write, a segment writes inputs once.

x.add_(1); x.mul_(2); y = x * 2; y.relu_(); return y   ->   inputs: {%x: 1}, outputs: {0: 1}

A view counts with what it is a view of; what is seen through ``.data``, or a piece of
``unsafe_split``, has a counter of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import field

from anyshape.ir.graph import Arg, Graph, Value
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import frozen, mutable
from anyshape.ops.context import TypeContext
from anyshape.ops.shared_memory import OWN_COUNTERS, lies_in_argument
from anyshape.ops.table import OpDef


@frozen
class Moves:
    """By how much the counters of inputs move besides the one write that is done, and where those
    of written results, which are made anew, end; by position. ``own_counters`` are the results that
    have another counter than an input, or a result before them, in whose memory they lie: those of
    one counter together, what is no view first."""

    inputs: Mapping[int, int]
    outputs: Mapping[int, int]
    own_counters: tuple[tuple[int, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs or self.own_counters)


def _moves_any(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    known = (node for node in graph.nodes if node.op in ops)
    return any(node.op in OWN_COUNTERS or ops[node.op].mutates for node in known)


@only_where(_moves_any, nothing=lambda graph, ops: Moves({}, {}))
def moves(graph: Graph, ops: Mapping[str, OpDef]) -> Moves:
    """What the writes of a graph, as it was captured, do to version counters."""
    found = _Counters()
    found.read(graph, ops)
    written, given = found.written, {entry.value for entry in graph.inputs}
    inputs = {
        position: written[entry.value] - 1
        for position, entry in enumerate(graph.inputs)
        if written[entry.value] > 1
    }
    outputs: dict[int, int] = {}
    counted = set(given)
    for position, output in enumerate(graph.outputs):
        if isinstance(output, Value) and found.memory.get(output, output) in found.touched:
            counter = found.counters.get(output, output)
            if counter not in counted:
                outputs[position] = written[counter]
            counted.add(counter)
    return Moves(inputs, outputs, found.own_counters(graph.outputs, given))


@mutable
class _Counters:
    """Whose counter each value has, and in whose memory it lies, where not its own; how often each
    counter was moved, and which memory was written."""

    counters: dict[Value, Value] = field(default_factory=dict)
    memory: dict[Value, Value] = field(default_factory=dict)
    written: Counter[Value] = field(default_factory=Counter)
    touched: set[Value] = field(default_factory=set)

    def read(self, graph: Graph, ops: Mapping[str, OpDef]) -> None:
        cx = TypeContext(
            graph.space, graph.facts.fork(), graph.hints
        )  # all that is tested anywhere
        for node in graph.nodes:
            row, first = ops.get(node.op), next(node.inputs(), None)
            if row is None or first is None:
                continue
            counter, base = self.counters.get(first, first), self.memory.get(first, first)
            if row.mutates:
                self.written[counter] += node.modes is None or node.modes.counted
                self.touched.add(base)
            if row.mutates or lies_in_argument(cx, node, row):
                self.memory.update(dict.fromkeys(node.outputs, base))
                if node.op not in OWN_COUNTERS:
                    self.counters.update(dict.fromkeys(node.outputs, counter))

    def own_counters(
        self, outputs: Sequence[Arg], given: Set[Value]
    ) -> tuple[tuple[int, ...], ...]:
        """See ``Moves``."""
        shown = [
            (position, self.memory.get(output, output), self.counters.get(output, output))
            for position, output in enumerate(outputs)
            if isinstance(output, Value)
        ]
        usual = {base: base for _, base, counter in shown if base in given or counter is base}
        found: dict[Value, list[int]] = {}
        for position, base, counter in shown:
            if counter is not usual.setdefault(base, counter):
                found.setdefault(counter, []).append(position)
        return tuple(
            tuple(sorted(group, key=lambda position: outputs[position] is not counter))
            for counter, group in found.items()
        )
