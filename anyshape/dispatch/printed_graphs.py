"""The graphs of one specialization as Python that runs: `fast.graphs()`."""

from __future__ import annotations

from collections.abc import Iterator

from anyshape.dispatch.specializations import Specialization
from anyshape.ir.text import print_graph
from anyshape.ops import OPS

DIFFERENTIATED = ("forward", "backward", "differentiated")
"""Stages of a compiled graph that are shown beside what was captured (`training.py`)."""


def printed_graphs(specialization: Specialization) -> Iterator[str]:
    """What was captured, and the halves of it that gradients made."""
    graph = specialization.graph
    if graph is None:
        return
    yield print_graph(graph, _spelled)
    for name, made in getattr(specialization.compiled, "stages", ()):
        if name in DIFFERENTIATED:
            yield print_graph(made, _spelled, name)


def _spelled(op: str) -> str:
    """The dotted torch function of a row, or of an operator that has none."""
    return OPS[op].torch or op if op in OPS else op
