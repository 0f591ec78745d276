"""The stages in order: captured graph -> passes -> schedule -> code -> running function.

The driver is the only one that knows all stages; it hands ``compile_graph`` to the runtime, which knows
none of them. Every intermediate is kept, for ``explain``, for ``fast.graphs()`` and for ``verify``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape import reference
from anyshape.codegen import c as c_code
from anyshape.codegen.host import emit_host
from anyshape.errors import AnyshapeError
from anyshape.ir.graph import Graph
from anyshape.ir.loops import Kernel
from anyshape.ir.program import Call, Launch, Program
from anyshape.ops import OPS
from anyshape.options import Options
from anyshape.passes.pipeline import stages
from anyshape.runtime.build import Builder
from anyshape.runtime.cache import digest
from anyshape.runtime.launch import Linked, link
from anyshape.schedule import schedule


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGraph:
    """A segment's graph, compiled, with every intermediate.

    ``run`` takes the graph's argument inputs in order and returns its outputs, flat. ``stages`` are
    (pass name, graph after it).
    """

    run: Callable[..., tuple[Any, ...]]
    graph: Graph
    stages: tuple[tuple[str, Graph], ...]
    program: Program
    linked: Linked

    def count(self, kind: str) -> int:
        """How many steps are ``extern``, ``eager`` or ``launch``."""
        if kind == "launch":
            return sum(isinstance(step, Launch) for step in self.program.steps)
        return sum(isinstance(s, Call) and s.kind == kind for s in self.program.steps)


@dataclass(slots=True, eq=False)
class Driver:
    """Compiles graphs for one compiled function. ``kernels`` is shared: each text is compiled once."""

    options: Options
    kernels: Builder
    names: dict[Kernel, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def create(cls, options: Options) -> Driver:
        """Raises AnyshapeError E601 where there is no C compiler."""
        return cls(options, _shared_builder(options))

    def compile_graph(self, graph: Graph, constants: Mapping[str, torch.Tensor]) -> CompiledGraph:
        """``constants`` are the tensors of the inputs that are no arguments, by the value's name."""
        passed = tuple(stages(graph, OPS))
        program = schedule(passed[-1][1], self.options)
        self._refuse_eager(program)
        linked = link(program, constants, self.kernels, self._name, self._text, emit_host)
        run = linked.run
        if self.options.verify:
            run = _verified(run, graph, passed, constants)
        return CompiledGraph(run, graph, passed, program, linked)

    def _name(self, kernel: Kernel) -> str:
        """A content address: equal kernels have one name, and one compiled function, everywhere."""
        name = self.names.get(kernel)
        if name is None:
            text = c_code.emit_c(kernel, "KERNEL_NAME")
            name = self.names[kernel] = f"k_{digest(text)[:16]}"
            self.texts[name] = text.replace("KERNEL_NAME", name)
        return name

    def _text(self, kernel: Kernel, name: str) -> str:
        return self.texts[name]

    def _refuse_eager(self, program: Program) -> None:
        if self.options.fallback != "error":
            return
        for step in program.steps:
            if isinstance(step, Call) and step.kind == "eager":
                why = "it has neither a kernel nor a library function of its own"
                raise AnyshapeError("E401", op=step.function, why=why, location=step.location)


@dataclass(slots=True)
class _Builders:
    """The loaded kernels of this process, by compiler and cache directory."""

    found: dict[tuple[str, str, bool], Builder] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_BUILDERS = _Builders()


def _shared_builder(options: Options) -> Builder:
    key = (options.cc, options.cache_dir, options.cache)
    with _BUILDERS.lock:
        if key not in _BUILDERS.found:
            _BUILDERS.found[key] = Builder.create(options, c_code.c_prelude())
        return _BUILDERS.found[key]


def _verified(
    run: Callable[..., tuple[Any, ...]],
    graph: Graph,
    passed: tuple[tuple[str, Graph], ...],
    constants: Mapping[str, torch.Tensor],
) -> Callable[..., tuple[Any, ...]]:
    """``run``, compared with the reference interpreter after every pass; names the one that differs."""

    def checked(*arguments: Any) -> tuple[Any, ...]:
        expected = reference.run(graph, _inputs(graph, constants, arguments))
        for name, stage in passed:
            _compare(name, expected, reference.run(stage, _inputs(stage, constants, arguments)))
        results = run(*arguments)
        _compare("schedule and code generation", expected, results)
        return results

    return checked


def _inputs(
    graph: Graph, constants: Mapping[str, torch.Tensor], arguments: tuple[Any, ...]
) -> list[Any]:
    """Inputs in the graph's order; tensors are copied, since a graph may write to them."""
    given = iter(arguments)
    values = (
        next(given) if entry.kind == "argument" else constants[entry.value.name]
        for entry in graph.inputs
    )
    return [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]


def _compare(name: str, expected: tuple[Any, ...], found: tuple[Any, ...]) -> None:
    for index, (wanted, got) in enumerate(zip(expected, found, strict=True)):
        if isinstance(wanted, torch.Tensor):
            try:
                torch.testing.assert_close(got, wanted, equal_nan=True, check_stride=True)
            except AssertionError as error:
                why = f"output {index}: {error}"
                raise AnyshapeError("E501", name=name, why=why) from error
        elif wanted != got and wanted == wanted:  # noqa: PLR0124 - NaN is itself
            raise AnyshapeError("E501", name=name, why=f"output {index}: {got}, not {wanted}")
