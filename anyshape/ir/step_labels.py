"""What profiles call the steps of a program: the kernel or library function, the operators that it
computes, and the lines of the user's that they come from.

In: a program without native regions, and the graph that it was scheduled from. Out: a text for each
step that takes time, by the step's identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from anyshape.ir.graph import Graph, Location, Node
from anyshape.ir.loops import Kernel
from anyshape.ir.nesting import nodes_in
from anyshape.ir.program import Call, Launch, Program

SHOWN = 8
"""Operators and lines of one step that are named; of more, how many there are."""


def step_labels(
    program: Program, graph: Graph, kernel_names: Mapping[Kernel, str]
) -> Mapping[int, str]:
    """``kernel_1f3a add+relu model.py:12`` for a launch, ``torch.mm model.py:11`` for a call."""
    makers = {value.name: node for node in nodes_in(graph) for value in node.outputs}
    labels = {}
    for step in program.flat_steps():
        if isinstance(step, Launch):
            nodes = tuple(computed_by(step, makers))
            parts = kernel_names[step.kernel], _several(node.op for node in nodes)
            labels[id(step)] = _label(*parts, places=[node.location for node in nodes])
        elif isinstance(step, Call):
            labels[id(step)] = _label(step.function, places=[step.location])
    return labels


def computed_by(step: Launch, makers: Mapping[str, Node]) -> Iterator[Node]:
    """The nodes that are fused in a kernel, what is computed last first: from what it writes back
    to what it reads."""
    read, seen = {*step.reads()}, set[str]()
    pending = list(step.writes())
    while pending:
        name = pending.pop()
        node = makers.get(name)
        if name in seen or node is None:
            continue
        seen.update(value.name for value in node.outputs)
        yield node
        pending += [value.name for value in node.inputs() if value.name not in read]


def segment_label(name: str, graph: Graph) -> str:
    """``anyshape: Model.forward model.py:3``."""
    return _label("anyshape:", name, places=[graph.first_line()])


def _label(*parts: str, places: Iterable[Location | None]) -> str:
    lines = sorted({(PurePath(p.file).name, p.line) for p in places if p is not None})
    return " ".join(filter(None, [*parts, _several(f"{file}:{line}" for file, line in lines)]))


def _several(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(texts))
    rest = len(found) - SHOWN
    return "+".join(found[:SHOWN]) + (f"+{rest} more" if rest > 0 else "")
