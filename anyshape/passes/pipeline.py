"""The passes in order, each with what it needs and what it gives; the order is data.

In: the torch-level graph of capture. Out: a graph of core rows and externs for the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from anyshape.errors import stage_of
from anyshape.ir.graph import Graph
from anyshape.ops.table import OpDef
from anyshape.passes.bounds_checks import check_places
from anyshape.passes.decompose import decompose
from anyshape.passes.functionalize import functionalize
from anyshape.passes.integers import check_integers
from anyshape.passes.layouts import keep_channels_innermost
from anyshape.passes.long_cats import split_long_cats
from anyshape.passes.outputs import keep_outputs_apart
from anyshape.passes.simplify import (
    merge_equal_nodes,
    remove_dead_core_nodes,
    remove_dead_nodes,
    remove_identities,
)


@dataclass(frozen=True, slots=True)
class Pass:
    """A named graph -> graph function. ``needs`` and ``gives`` are properties of graphs."""

    name: str
    run: Callable[[Graph, Mapping[str, OpDef]], Graph]
    needs: frozenset[str] = frozenset()
    gives: frozenset[str] = frozenset()


PASSES: tuple[Pass, ...] = (
    Pass("check-integers", check_integers),
    Pass("functionalize", functionalize, gives=frozenset({"pure"})),
    Pass("remove-dead-early", remove_dead_core_nodes, needs=frozenset({"pure"})),
    Pass("decompose", decompose, needs=frozenset({"pure"}), gives=frozenset({"core"})),
    Pass("remove-identities", remove_identities, needs=frozenset({"core"})),
    Pass("merge-equal", merge_equal_nodes, needs=frozenset({"core"})),
    Pass("check-places", check_places, needs=frozenset({"core"}), gives=frozenset({"checked"})),
    Pass("remove-dead", remove_dead_nodes, needs=frozenset({"pure", "checked"})),
    Pass("split-long-cats", split_long_cats, needs=frozenset({"core"})),
    Pass("channels-innermost", keep_channels_innermost, needs=frozenset({"core"})),
)


def stages(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[tuple[str, Graph]]:
    """Each pass's name with its graph, in order; the last one looks at the first graph too."""
    captured = graph
    place = captured.first_line
    for step in PASSES:
        with stage_of(f"the pass {step.name}", place):
            graph = step.run(graph, ops)
        yield step.name, graph
    with stage_of("the pass keep-outputs-apart", place):
        graph = keep_outputs_apart(captured, graph, ops)
    yield "keep-outputs-apart", graph
