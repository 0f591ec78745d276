"""The stages in order: captured graph -> passes -> schedule -> code -> running function.

The driver is the only one that knows all stages; it hands ``compile_graph`` to the runtime, which
knows none of them. Every intermediate is kept, for ``explain``, for ``fast.graphs()`` and for
``verify``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from anyshape.autograd.outline import NotDifferentiable, records_gradients
from anyshape.eager import CheckFailed
from anyshape.errors import AnyshapeError, stage_of
from anyshape.ir.buffers import BufferRef
from anyshape.ir.code import Code, DeviceFunction, Function, Reference
from anyshape.ir.graph import Graph, Node, TensorType, Value
from anyshape.ir.loops import Kernel
from anyshape.ir.nesting import nodes_in
from anyshape.ir.program import (
    Assign,
    BindItem,
    BumpVersion,
    EagerCall,
    ExternCall,
    Launch,
    NativeRegion,
    Program,
    Step,
)
from anyshape.ir.step_labels import segment_label, step_labels
from anyshape.ops import OPS
from anyshape.ops.write_back import WrittenThrough
from anyshape.options import Options
from anyshape.passes.pipeline import INFERENCE
from anyshape.passes.versions import Moves, moves
from anyshape.runtime.cache import digest
from anyshape.runtime.eager_graph import EagerGraph
from anyshape.runtime.host import emit_host
from anyshape.runtime.launch import (
    Linked,
    WriteFailed,
    has_blas,
    has_library,
    link,
    move_version,
    set_version,
)
from anyshape.runtime.profile import recorded
from anyshape.schedule import schedule
from anyshape.targets.cpu import c as c_code
from anyshape.targets.cpu.build import Builder
from anyshape.targets.cpu.native import emit_native_region
from anyshape.targets.cpu.native_prelude import NATIVE_PRELUDE
from anyshape.targets.cpu.native_regions import form_native_regions
from anyshape.targets.table import Loaders, allocators, on_device, target_of
from anyshape.targets.triton.launch import TritonLoader
from anyshape.training import CompiledTraining, compile_training
from anyshape.verification import refuse_malformed, refuse_overwriting, verified

PLACEHOLDER = "ANYSHAPE_FUNCTION"
COUNTED: Mapping[str, type[Step]] = {
    "extern": ExternCall,
    "eager": EagerCall,
    "launch": Launch,
    "sync": BindItem,
}
"""What ``CompiledGraph.count`` can count."""


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
    kernel_names: frozenset[str]

    def count(self, kind: str) -> int:
        """How many steps are ``extern``, ``eager`` or ``launch``; or ``sync``, which wait for a
        device."""
        found = (step for step in self.program.flat_steps() if isinstance(step, COUNTED[kind]))
        return sum(kind != "sync" or self._waits(step) for step in found)

    def _waits(self, step: Step) -> bool:
        return any(self.program.buffers[name].device != "cpu" for name in step.reads())


def why_eager(graph: Graph) -> tuple[Node | None, str] | None:
    """Why eager torch runs all of the graph, and the node it is about; None where kernels can."""
    values: list[tuple[Node | None, Value]] = [(None, entry.value) for entry in graph.inputs]
    values += [(node, value) for node in nodes_in(graph) for value in node.outputs]
    missing: dict[str, str | None] = {}
    for maker, value in values:
        if isinstance(value.type, TensorType):
            device = value.type.device
            if device not in missing:
                missing[device] = _missing(device)
            if (why := missing[device]) is not None:
                return maker, f"a tensor lies on {device}, for which there are no kernels: {why}"
    return None


def _missing(device: str) -> str | None:
    target = target_of(device)
    return "no target serves it" if target is None else target.missing()


def _reads_what_requires_grad(node: Node) -> bool:
    return any(isinstance(v.type, TensorType) and v.type.requires_grad for v in node.inputs())


@dataclass(slots=True, eq=False)
class Driver:
    """Compiles graphs for one function. ``kernels`` is shared: each text is compiled once."""

    options: Options
    kernels: Builder
    name: str = "a graph"  # what profiles call what it compiles
    names: dict[tuple[Kernel, str], str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    @classmethod
    def create(cls, options: Options, name: str = "a graph") -> Driver:
        """Raises AnyshapeError E601 where there is no C compiler."""
        return cls(options, _shared_builder(options), name)

    def compile_graph(
        self, graph: Graph, constants: Mapping[str, torch.Tensor]
    ) -> CompiledGraph | CompiledTraining | EagerGraph:
        """``constants``: the tensors of the inputs that are no arguments, by the value's name."""
        refusal = why_eager(graph)
        if refusal is not None:
            return self._eager_graph(graph, constants, *refusal)
        if records_gradients(graph, OPS):
            return self._training(graph, constants)
        return self._compiled(graph, constants)

    def _training(
        self, graph: Graph, constants: Mapping[str, torch.Tensor]
    ) -> CompiledTraining | EagerGraph:
        """Forward and backward as programs; where that is not covered, eager torch records."""
        written = moves(graph, OPS)

        def forward(half: Graph, tensors: Mapping[str, torch.Tensor]) -> CompiledGraph:
            return self._half(half, tensors, written)

        try:
            return compile_training(graph, constants, forward, self._half)
        except NotDifferentiable as refused:
            node = refused.node or next(filter(_reads_what_requires_grad, graph.nodes), None)
            why = f"gradients are recorded: {refused.reason}"
            return self._eager_graph(graph, constants, node, why)

    def _half(
        self, half: Graph, constants: Mapping[str, torch.Tensor], written: Moves | None = None
    ) -> CompiledGraph:
        """Raises ``NotDifferentiable`` where eager torch has to run all of it."""
        compiled = self._compiled(half, constants, written)
        if isinstance(compiled, EagerGraph):
            raise NotDifferentiable(compiled.why)
        return compiled

    def _compiled(
        self,
        graph: Graph,
        constants: Mapping[str, torch.Tensor],
        written: Moves | None = None,
    ) -> CompiledGraph | EagerGraph:
        """A graph that records no gradients. ``written``: how version counters move, where the
        graph does not say."""
        place, work = graph.first_line, graph.space.work
        try:
            with work.stage("passes"):
                passed = tuple(INFERENCE.stages(graph, OPS))
        except AnyshapeError as error:
            if isinstance(error.__cause__, WrittenThrough):
                return self._eager_graph(graph, constants, None, str(error.__cause__))
            raise
        final = passed[-1][1]
        with stage_of("scheduling", place), work.stage("scheduling"):
            program = schedule(final, self.options)
        if self.options.verify:
            refuse_malformed(graph, passed, program.kernels())
        proven = self.options.verify or self.options.verify_programs
        if proven:
            refuse_overwriting("scheduling", program, final.facts)
        self._refuse_eager(program)
        flat = program
        if has_blas():
            stage = "forming native regions"
            with stage_of(stage, place), work.stage(stage):
                program = form_native_regions(program, final.facts, library=has_library())
            if proven:
                refuse_overwriting("forming native regions", program, final.facts)
        with stage_of("code generation", place), work.stage("code generation"):
            try:
                code = self.generate(program)
            except NotImplementedError as missing:
                return self._eager_graph(graph, constants, None, f"no kernel for {missing}")
            kernel_names = frozenset(self._names(program).values())
        with stage_of("loading", place), work.stage("loading"):
            loaders = Loaders(self.kernels, _BUILDERS.triton)
            twin = functools.cache(lambda: self._labelled(flat, graph, final, constants))
            linked = link(code, constants, loaders, twin, self.name)
        run = on_device(linked.run, _devices(program))
        if any(map(_writes_an_argument, program.steps)):
            run = _writing_last(run)
        if moved := (moves(graph, OPS) if written is None else written):
            run = _moving_versions(run, moved, graph, constants)
        if torch.is_grad_enabled() and any(map(_reads_what_requires_grad, nodes_in(graph))):
            run = _without_gradients(run)
        if self.options.verify:
            run = verified(run, graph, passed, constants)
        return CompiledGraph(run, graph, passed, program, linked, kernel_names)

    def _labelled(
        self, program: Program, graph: Graph, final: Graph, constants: Mapping[str, torch.Tensor]
    ) -> Callable[..., Any]:
        """What runs while a profiler records: each kernel and each call of a library by itself,
        under its name and the user's lines."""
        kernel_names = self._names(program)
        labels = step_labels(program, final, kernel_names)
        functions = {name: self.functions[name] for name in kernel_names.values()}
        short = allocators(_devices(program))
        host = emit_host(program, kernel_names, {}, short, labels=labels)
        loaders = Loaders(self.kernels, _BUILDERS.triton)
        run = link(Code(functions, {}, host), constants, loaders).run
        return recorded(run, segment_label(self.name, graph))

    def generate(self, program: Program) -> Code:
        """The program as text; equal kernels have one name and one compiled function."""
        kernel_names = self._names(program)
        functions = {name: self.functions[name] for name in kernel_names.values()}
        tables: dict[str, tuple[Reference, ...]] = {}
        region_names = {}
        regions = ((s, p) for p in program.nested() for s in p.steps if isinstance(s, NativeRegion))
        for step, inside in regions:
            anonymous, entries = emit_native_region(
                step, inside, kernel_names, PLACEHOLDER, apart=self.options.sanitize
            )
            name, functions[name] = _named(anonymous, "region")
            table = f"table_{len(tables)}"
            tables[table] = entries
            region_names[step] = name, table
        short = allocators(_devices(program))
        host = emit_host(program, kernel_names, region_names, short, profiled=True)
        return Code(functions, tables, host)

    def _names(self, program: Program) -> dict[Kernel, str]:
        """Kernels by the device that they run on."""
        return {
            step.kernel: self._name(step.kernel, _device_of(step, inside))
            for inside in program.nested()
            for step in inside.own_steps()
            if isinstance(step, Launch)
        }

    def _name(self, kernel: Kernel, device: str) -> str:
        name = self.names.get((kernel, device))
        if name is None:
            target = target_of(device)
            assert target is not None
            name, function = _named(target.print_kernel(kernel, PLACEHOLDER, device), "kernel")
            self.names[kernel, device] = name
            self.functions[name] = function
        return name

    def _eager_graph(
        self, graph: Graph, constants: Mapping[str, torch.Tensor], node: Node | None, why: str
    ) -> EagerGraph:
        """Eager torch runs the whole graph, unless that is an error."""
        if self.options.fallback == "error" and graph.nodes:
            first = graph.nodes[0] if node is None else node
            raise AnyshapeError("E401", op=first.op, why=why, location=first.location)
        place = graph.first_line() if node is None else node.location
        return EagerGraph(graph, constants, why, place)

    def _refuse_eager(self, program: Program) -> None:
        if self.options.fallback != "error":
            return
        for step in program.flat_steps():
            if isinstance(step, EagerCall):
                why = "it has neither a kernel nor a library function of its own"
                raise AnyshapeError("E401", op=step.function, why=why, location=step.location)


def _devices(program: Program) -> frozenset[str]:
    return frozenset(b.device for inside in program.nested() for b in inside.buffers.values())


def _device_of(step: Launch, program: Program) -> str:
    """The device that all buffers of a launch lie on."""
    buffers = (program.buffers[arg.name] for arg in step.args if isinstance(arg, BufferRef))
    return next((buffer.device for buffer in buffers), "cpu")


def _named(function: Function, stem: str) -> tuple[str, Function]:
    """The function under its content address."""
    if isinstance(function, DeviceFunction):
        # the kernel's own print: the text in Triton says nothing of the dtypes of addresses
        name = f"{stem}_{digest(function.kernel.text, str(function.device))[:16]}"
        return name, replace(function, name=name, text=function.text.replace(PLACEHOLDER, name))
    name = f"{stem}_{digest(function.text)[:16]}"
    return name, replace(function, text=function.text.replace(PLACEHOLDER, name))


@dataclass(slots=True)
class _Builders:
    """The loaded kernels of this process, by compiler and cache directory."""

    found: dict[tuple[str, str, bool, bool], Builder] = field(default_factory=dict)
    triton: TritonLoader = field(default_factory=TritonLoader)
    lock: threading.Lock = field(default_factory=threading.Lock)


_BUILDERS = _Builders()


def _shared_builder(options: Options) -> Builder:
    key = (options.cc, options.cache_dir, options.cache, options.sanitize)
    with _BUILDERS.lock:
        if key not in _BUILDERS.found:
            _BUILDERS.found[key] = Builder.create(options, c_code.c_prelude() + NATIVE_PRELUDE)
        return _BUILDERS.found[key]


def _writes_an_argument(step: Step) -> bool:
    return isinstance(step, (BumpVersion, Assign))


def _writing_last(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """What cannot be done twice is done last (``ir/verify_program.py``): where anything before it
    raises, the segment has not happened."""

    def writing(*arguments: Any) -> tuple[Any, ...]:
        try:
            return run(*arguments)
        except CheckFailed:
            raise
        except WriteFailed as failed:
            raise failed.__cause__ or failed from None
        except Exception as error:
            raise CheckFailed(str(error)) from error

    return writing


def _moving_versions(
    run: Callable[..., tuple[Any, ...]],
    moved: Moves,
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
) -> Callable[..., tuple[Any, ...]]:
    """Counts the writes that eager would have done one by one."""
    arguments = [entry.value for entry in graph.inputs if entry.value.name not in constants]
    places = {value: place for place, value in enumerate(arguments)}
    written = [(graph.inputs[place].value, times) for place, times in moved.inputs.items()]
    fixed = [(constants[v.name], times) for v, times in written if v not in places]
    given = [(places[v], times) for v, times in written if v in places]

    def moving(*arguments: Any) -> tuple[Any, ...]:
        results = run(*arguments)
        for tensor, times in fixed:
            move_version(tensor, times)
        for place, times in given:
            move_version(arguments[place], times)
        for place, version in moved.outputs.items():
            set_version(results[place], version)
        return results

    return moving


def _without_gradients(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A segment entered in grad mode that reads what requires grad only where that is off."""

    def ungraded(*arguments: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            return run(*arguments)

    return ungraded
