"""What profiles call the steps of a program: the kernel or library function, the operators that it
computes, and the lines of the user's that they come from.

In: a program without native regions, and the graph that it was scheduled from. Out: a text for each
step that takes time, by the step's identity.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from anyshape.ir.buffers import Buffer
from anyshape.ir.graph import HOST, Graph, Location, Node
from anyshape.ir.loops import Kernel
from anyshape.ir.nesting import nodes_in
from anyshape.ir.program import Call, Launch, Program
from anyshape.nouns import frozen
from anyshape.symbolic import Dim

SHOWN = 8
"""Operators and lines of one step that are named; of more, how many there are."""


def step_labels(
    program: Program, graph: Graph, kernel_names: Mapping[Kernel, str]
) -> Mapping[int, str]:
    """``kernel_1f3a add+relu model.py:12`` for a launch, ``torch.mm model.py:11`` for a call."""
    makers = {value.name: node for node in nodes_in(graph) for value in node.outputs}
    labels = {}
    for step in program.flat_steps():
        for launch in step.launched():
            nodes = tuple(computed_by(launch, makers))
            parts = kernel_names[launch.kernel], _several(node.op for node in nodes)
            labels[id(launch)] = _label(*parts, locations=[node.location for node in nodes])
        if isinstance(step, Call):
            labels[id(step)] = call_label(step.function, step.location)
    return labels


@frozen
class KernelUse:
    """A kernel of a program: how often it is launched, the operators and lines that it computes (of
    all launches), and the bytes of the tensors that its first launch reads and writes, on a
    device."""

    name: str
    launches: int
    operators: str
    lines: str
    bytes: Dim
    device: str

    def __str__(self) -> str:
        times = f"{self.launches} launches" if self.launches > 1 else "1 launch"
        parts = self.name, times, self.operators, self.lines, f"{self.bytes} bytes"
        return ", ".join(filter(None, parts))


def kernel_uses(
    program: Program, graph: Graph, kernel_names: Mapping[Kernel, str]
) -> list[KernelUse]:
    """The program's kernels in order of their first launch."""
    makers = {value.name: node for node in nodes_in(graph) for value in node.outputs}
    launches: dict[str, list[Launch]] = {}
    for step in program.flat_steps():
        for launch in step.launched():
            launches.setdefault(kernel_names[launch.kernel], []).append(launch)
    found = []
    for name, steps in launches.items():
        nodes = [node for step in steps for node in computed_by(step, makers)]
        operators, lines = _several(node.op for node in nodes), _lines(n.location for n in nodes)
        moved, device = bytes_moved(steps[0], program), _device(steps[0], program)
        found.append(KernelUse(name, len(steps), operators, _several(lines), moved, device))
    return found


def bytes_moved(step: Launch, program: Program) -> Dim:
    """Of the tensors that a launch reads and writes, each once."""
    return sum((numel(b.shape) * b.dtype.size_bytes for b in _buffers(step, program)), start=0)


def _buffers(step: Launch, program: Program) -> list[Buffer]:
    names = dict.fromkeys((*step.reads(), *step.writes()))
    return [program.buffers[name] for name in names if name in program.buffers]


def _device(step: Launch, program: Program) -> str:
    return next((buffer.device for buffer in _buffers(step, program)), HOST)


def numel(shape: Iterable[Dim]) -> Dim:
    """How many elements there are."""
    return functools.reduce(operator.mul, shape, 1)


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
    return _label("anyshape:", name, locations=[graph.first_line()])


def call_label(function: str, location: Location | None) -> str:
    """``torch.mm model.py:11``."""
    return _label(function, locations=[location])


def _label(*parts: str, locations: Iterable[Location | None]) -> str:
    return " ".join(filter(None, [*parts, _several(_lines(locations))]))


def _lines(locations: Iterable[Location | None]) -> list[str]:
    found = sorted({(PurePath(p.file).name, p.line) for p in locations if p is not None})
    return [f"{file}:{line}" for file, line in found]


def _several(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(texts))
    rest = len(found) - SHOWN
    return "+".join(found[:SHOWN]) + (f"+{rest} more" if rest > 0 else "")
