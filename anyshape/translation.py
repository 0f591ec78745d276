"""What a graph became: its code, what is told of its program, and the stages between, which are
worked out when they are asked for.

In: what the driver made, or what an earlier process kept (``kept_translations.py``). Out: a
``Translation``, which graphs that are equal but for where their inputs come from share.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from anyshape.ir.code import Code
from anyshape.ir.graph import HOST, Graph
from anyshape.ir.loops import Kernel
from anyshape.ir.program import (
    Assign,
    BindItem,
    BindSize,
    BumpVersion,
    EagerCall,
    ExternCall,
    Launch,
    LaunchList,
    Program,
    Step,
)
from anyshape.ir.text import print_graph
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops.gradients.recorded import RECORDING
from anyshape.passes.outputs import lent_outputs
from anyshape.runtime.cache import digest

COUNTED: Mapping[str, tuple[type[Step], ...]] = MappingProxyType(
    {
        "extern": (ExternCall,),
        "eager": (EagerCall,),
        "launch": (Launch, LaunchList),
        "recorded": (ExternCall,),
        "sync": (BindItem, BindSize),
    }
)
"""What ``Summary.counts`` counts."""
KINDS: Mapping[type[Step], tuple[str, ...]] = MappingProxyType(
    {
        step: tuple(kind for kind, steps in COUNTED.items() if step in steps)
        for step in (ExternCall, EagerCall, Launch, LaunchList, BindItem, BindSize)
    }
)


@frozen(eq=False)
class Intermediates:
    """``stages`` are (pass name, graph after it); ``flat`` is the program before native regions
    were formed; ``names`` are the function that each kernel is."""

    stages: tuple[tuple[str, Graph], ...]
    flat: Program
    program: Program
    names: Mapping[Kernel, str]


@frozen
class Summary:
    """All that the runtime and ``stats()`` need to know of a program besides its code.

    ``lent``: the positions of outputs that are not new memory. ``counts``: how many steps are
    ``extern``, ``eager`` or ``launch``; or ``sync``, which wait for a device; or ``recorded``,
    which torch's autograd records."""

    devices: frozenset[str]
    kernel_names: frozenset[str]
    writes_arguments: bool
    lent: tuple[int, ...]
    counts: Mapping[str, int]

    @classmethod
    def of(cls, made: Intermediates) -> Summary:
        """That of a program that was just made."""
        program = made.program
        return cls(
            frozenset(b.device for inside in program.nested() for b in inside.buffers.values()),
            frozenset(made.names.values()),
            any(isinstance(step, (BumpVersion, Assign)) for step in program.steps),
            lent_outputs(made.flat),
            _counts(program),
        )


def _counts(program: Program) -> dict[str, int]:
    counts = dict.fromkeys(COUNTED, 0)
    programs = tuple(program.nested())
    for step in program.flat_steps():
        for kind in KINDS.get(step.__class__, ()):
            if _is_counted(step, kind, programs):
                counts[kind] += 1
    return counts


def _is_counted(step: Step, kind: str, programs: Sequence[Program]) -> bool:
    if kind == "recorded":
        return isinstance(step, ExternCall) and step.function in RECORDING
    return kind != "sync" or _waits(step, programs)


def _waits(step: Step, programs: Sequence[Program]) -> bool:
    """``programs`` are the one that the step is of and those in its bodies, or around it."""
    in_memory = any(symbol in inside.placements for symbol in step.binds() for inside in programs)
    read = {*step.reads()}
    return in_memory or any(
        inside.buffers[name].device != HOST
        for inside in programs
        for name in read & inside.buffers.keys()
    )


@dataclass(frozen=True, eq=False)
class Translation:
    """What a graph became, whatever its constants are. ``structure`` is what has to be equal;
    ``work_out`` makes the intermediates, again where an earlier process made the code."""

    graph: Graph
    structure: Callable[[], str]
    code: Code
    summary: Summary
    work_out: Callable[[], Intermediates]

    @functools.cached_property
    def intermediates(self) -> Intermediates:
        return self.work_out()

    @property
    def stages(self) -> tuple[tuple[str, Graph], ...]:
        return self.intermediates.stages


@mutable(eq=False)
class Structure:
    """That of a graph, once it is asked for."""

    graph: Graph
    found: str = ""

    def __call__(self) -> str:
        self.found = self.found or structure_of(self.graph)
        return self.found


def structure_of(graph: Graph) -> str:
    """The digest of all of a graph but for example values, and where its inputs come from."""
    inputs = tuple([replace(entry, source="") for entry in graph.inputs])
    return digest(print_graph(replace(graph, inputs=inputs, hints={}), lambda name: name))
