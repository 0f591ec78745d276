"""Pipelines: passes in an order that is checked when the pipeline is made.

In: the torch-level graph of capture. Out: a graph of core rows and externs for the scheduler, and
every graph on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal, TypeAlias

from anyshape.errors import stage_of
from anyshape.ir.graph import Graph
from anyshape.ir.nesting import is_flat, map_regions
from anyshape.nouns import frozen
from anyshape.ops.table import OpDef
from anyshape.passes.bounds_checks import check_bounds
from anyshape.passes.convolution_gradients import join_convolution_gradients
from anyshape.passes.decompose import decompose, expand_for_gradients
from anyshape.passes.functionalize import functionalize
from anyshape.passes.integers import check_integers
from anyshape.passes.layouts import keep_channels_innermost
from anyshape.passes.long_cats import split_long_cats
from anyshape.passes.one_device import read_one_device
from anyshape.passes.outputs import separate_outputs
from anyshape.passes.patches import multiply_patches
from anyshape.passes.simplify import (
    merge_equal_nodes,
    remove_dead_core_nodes,
    remove_dead_nodes,
    remove_identities,
)

Property: TypeAlias = Literal[
    "captured",  # torch-level rows, every node that the program asked for
    "fits",  # integers are known or checked to fit where they are used
    "pure",  # no node writes; `assign` nodes at the end do
    "core",  # rows with a kernel or a library function only
    "checked",  # indices that data decides are checked
    "separate",  # outputs that eager makes anew are objects of their own
    "laid-out",  # layouts are chosen
]
"""What may hold of a graph."""

Run: TypeAlias = Callable[[Graph, Mapping[str, OpDef], Graph], Graph]
"""(graph, rows, the graph of capture) -> graph."""


@frozen
class Pass:
    """A named step. It ``needs`` properties of its graph, ``gives`` some and ``ends`` others; it
    must not come where one of ``before`` holds.
    """

    name: str
    run: Run
    needs: frozenset[Property] = frozenset()
    gives: frozenset[Property] = frozenset()
    ends: frozenset[Property] = frozenset()
    before: frozenset[Property] = frozenset()

    def nested(self, ops: Mapping[str, OpDef], region: Graph) -> Graph:
        """The pass on a graph inside a graph: nobody sees whose memory its results lie in."""
        return self.run(region, ops, region)


class PipelineError(ValueError):
    """The passes of a pipeline are in an order in which one of them would be wrong."""


@frozen
class Pipeline:
    """Passes in order. Raises ``PipelineError`` unless each finds what it needs where the first
    graph has what ``begins`` says, and the last graph has all of ``goal``.
    """

    name: str
    passes: tuple[Pass, ...]
    goal: frozenset[Property]
    begins: frozenset[Property] = frozenset({"captured"})

    def __post_init__(self) -> None:
        holds: set[Property] = set(self.begins)
        for step in self.passes:
            missing, early = step.needs - holds, step.before & holds
            if missing or early:
                why = f"needs {sorted(missing)}" if missing else f"must come before {sorted(early)}"
                raise PipelineError(f"{self.name}: {step.name} {why}; there is {sorted(holds)}")
            holds = (holds - step.ends) | step.gives
        if self.goal - holds:
            raise PipelineError(f"{self.name} does not end with {sorted(self.goal - holds)}")

    def stages(self, graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[tuple[str, Graph]]:
        """Each pass's name with its graph, in order."""
        captured, line, flat = graph, graph.first_line, is_flat(graph)
        for step in self.passes:
            with stage_of(f"the pass {step.name}", line):
                given = graph if flat else map_regions(graph, partial(step.nested, ops))
                made = step.run(given, ops, captured)
            if made is not graph:
                graph, flat = made, is_flat(made)
            yield step.name, graph


def _alone(run: Callable[[Graph, Mapping[str, OpDef]], Graph]) -> Run:
    """A pass that looks at no other graph."""
    return lambda graph, ops, captured: run(graph, ops)


def _properties(*names: Property) -> frozenset[Property]:
    return frozenset(names)


_CHECK_INTEGERS = Pass(
    "check-integers",
    _alone(check_integers),
    needs=_properties("captured"),
    gives=_properties("fits"),
)
_FUNCTIONALIZE = Pass(
    "functionalize",
    _alone(functionalize),
    needs=_properties("captured"),
    gives=_properties("pure"),
    before=_properties("core", "separate"),
)
_DECOMPOSE = Pass(
    "decompose",
    _alone(decompose),
    needs=_properties("pure", "fits"),
    gives=_properties("core"),
    ends=_properties("captured"),
    before=_properties("core"),
)
_MERGE_EQUAL = Pass(
    "merge-equal",
    _alone(merge_equal_nodes),
    needs=_properties("core"),
    before=_properties("separate"),
)
_CHANNELS_INNERMOST = Pass(
    "channels-innermost",
    _alone(keep_channels_innermost),
    needs=_properties("core"),
    gives=_properties("laid-out"),
    before=_properties("separate", "laid-out"),
)

INFERENCE = Pipeline(
    "inference",
    (
        _CHECK_INTEGERS,
        _FUNCTIONALIZE,
        # Removes nodes whose integers nobody has checked, unless it comes after the check.
        Pass(
            "remove-dead-early",
            _alone(remove_dead_core_nodes),
            needs=_properties("pure", "fits"),
            ends=_properties("captured"),
            before=_properties("separate"),
        ),
        _DECOMPOSE,
        Pass(
            "remove-identities",
            _alone(remove_identities),
            needs=_properties("core"),
            before=_properties("separate", "laid-out"),
        ),
        _MERGE_EQUAL,
        Pass(
            "read-one-device",
            _alone(read_one_device),
            needs=_properties("core"),
            before=_properties("separate"),
        ),
        Pass(
            "check-bounds",
            _alone(check_bounds),
            needs=_properties("core"),
            gives=_properties("checked"),
            before=_properties("checked"),
        ),
        Pass(
            "remove-dead",
            _alone(remove_dead_nodes),
            needs=_properties("core", "checked"),
            before=_properties("separate"),
        ),
        Pass(
            "split-long-cats",
            _alone(split_long_cats),
            needs=_properties("core"),
            before=_properties("separate"),
        ),
        Pass(
            "multiply-patches",
            _alone(multiply_patches),
            needs=_properties("core"),
            before=_properties("separate"),
        ),
        _CHANNELS_INNERMOST,
        Pass(
            "join-convolution-gradients",
            _alone(join_convolution_gradients),
            needs=_properties("core"),
            before=_properties("separate"),
        ),
        Pass(
            "separate-outputs",
            lambda graph, ops, captured: separate_outputs(captured, graph, ops),
            needs=_properties("core"),
            gives=_properties("separate"),
            before=_properties("separate"),
        ),
    ),
    goal=_properties("fits", "pure", "core", "checked", "separate"),
)

DIFFERENTIABLE = Pipeline(
    "before differentiation",
    (
        _CHECK_INTEGERS,
        _FUNCTIONALIZE,
        Pass(
            "expand-for-gradients",
            _alone(expand_for_gradients),
            needs=_properties("pure", "fits"),
            before=_properties("core"),
        ),
    ),
    goal=_properties("fits", "pure"),
)
"""What a graph is when gradients are taken of it (``autograd/differentiate.py``)."""

JOINT = Pipeline(
    "joint",
    (_DECOMPOSE, _MERGE_EQUAL, _CHANNELS_INNERMOST),
    goal=_properties("core"),
    begins=_properties("fits", "pure"),
)
"""What forward and backward are together, before they are cut (``autograd/partition.py``)."""
