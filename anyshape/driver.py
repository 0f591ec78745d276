"""The stages in order: captured graph -> passes -> schedule -> code -> running function.

The driver is the only one that knows all stages; it hands ``compile_graph`` to the runtime, which
knows none of them. Every intermediate is kept, for ``explain``, for ``fast.graphs()`` and for
``verify``.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from anyshape.autograd.outline import NotDifferentiable, calls_backward, records_gradients
from anyshape.eager_results import results_as_eager
from anyshape.errors import AnyshapeError, stage_of
from anyshape.ir.buffers import BufferRef, SizeInMemory
from anyshape.ir.code import (
    Code,
    DeviceFunction,
    Function,
    HostCode,
    NativeFunction,
    PrintedRegion,
    Reference,
)
from anyshape.ir.graph import HOST, Graph, Node, TensorType, Value
from anyshape.ir.loops import Kernel, SizeParam, fused_words
from anyshape.ir.native_regions import native_regions
from anyshape.ir.nesting import nodes_in
from anyshape.ir.program import (
    EagerCall,
    Launch,
    NativeRegion,
    Program,
)
from anyshape.ir.scalars import evaluate_scalar
from anyshape.ir.step_labels import kernel_uses, segment_label, step_labels
from anyshape.ir.verify_program import verify_memory
from anyshape.kept_translations import KeptTranslations
from anyshape.nouns import frozen, mutable, replace
from anyshape.on_use import OnUse
from anyshape.ops import OPS
from anyshape.ops.write_back import WrittenThrough
from anyshape.options import Options
from anyshape.passes.pipeline import INFERENCE
from anyshape.passes.versions import Moves, moves
from anyshape.runtime.cache import digest
from anyshape.runtime.eager_graph import EagerGraph
from anyshape.runtime.expected import entry_sizes, expecting
from anyshape.runtime.host import emit_host
from anyshape.runtime.launch import (
    Linked,
    Loaded,
    link,
)
from anyshape.runtime.profile import Launched, Times, recorded
from anyshape.schedule import schedule
from anyshape.schedule.causal_masks import without_causal_masks
from anyshape.schedule.placement import assign_placements
from anyshape.symbolic import Symbol
from anyshape.targets.table import TARGETS, Targets, on_device
from anyshape.targets.target import Target
from anyshape.translation import Intermediates, Structure, Summary, Translation
from anyshape.verification import refuse_malformed, refuse_overwriting, verified
from anyshape.wrapped import moving_versions, without_gradients, writing_last

if TYPE_CHECKING:
    from anyshape import training
    from anyshape.runtime import spent_results
else:
    training = OnUse("anyshape.training")
    spent_results = OnUse("anyshape.runtime.spent_results")

PLACEHOLDER = "ANYSHAPE_FUNCTION"


@frozen(eq=False)
class CompiledGraph:
    """A segment's graph, compiled, with every intermediate.

    ``run`` takes the graph's argument inputs in order and returns its outputs, flat. ``stages`` are
    (pass name, graph after it); ``before``, those that led to the graph that was translated."""

    run: Callable[..., tuple[Any, ...]]
    graph: Graph
    translation: Translation
    linked: Linked
    launched: Launched
    schedules: Callable[[Function, Mapping[str, int] | None], Iterable[str]]
    tuned: Callable[[Function], Iterable[str]]
    why_not_replayed: Callable[[], str] = str
    before: tuple[tuple[str, Graph], ...] = ()
    differentiated: bool = False

    @property
    def stages(self) -> tuple[tuple[str, Graph], ...]:
        return (*self.before, *self.translation.stages)

    @property
    def program(self) -> Program:
        """The steps that it runs."""
        return self.translation.intermediates.program

    @property
    def names(self) -> Mapping[Kernel, str]:
        """The function that each kernel is."""
        return self.translation.intermediates.names

    @property
    def kernel_names(self) -> frozenset[str]:
        """Of the functions that its launches call."""
        return self.translation.summary.kernel_names

    def kernels(self, times: Times = MappingProxyType({})) -> list[str]:
        """A line for each kernel. Where that was measured it ends with its time and the schedule
        that ran; else a line follows for each that it ran with, where the target chooses them at
        the launch."""
        why = self.why_not_replayed()
        lines = [f"not replayed as a whole by its device: {why}"] if why else []
        for use in kernel_uses(self.program, self.stages[-1][1], self.names):
            last = self.launched.sizes.get(use.name) if use.name in times else None
            schedules = self.schedules(self.linked.code.functions[use.name], last)
            if use.name in times:
                lines.append(self.launched.line(use, times, schedules))
            else:
                lines += [str(use), *(f"    {each}" for each in schedules)]
        return lines

    def measured(self) -> str:
        """The schedules that were chosen by measuring them, and what they were faster than."""
        functions = (self.linked.code.functions[name] for name in sorted(self.kernel_names))
        return "\n".join(line for function in functions for line in self.tuned(function))

    def count(self, kind: str) -> int:
        """How many steps are of a kind of ``COUNTED``, or what `Linked.count` counts."""
        counts = self.translation.summary.counts
        return counts[kind] if kind in counts else self.linked.count(kind)


def why_eager(graph: Graph, targets: Targets = TARGETS) -> tuple[Node | None, str] | None:
    """Why eager torch runs all of the graph, and the node it is about; None where kernels can."""
    values: list[tuple[Node | None, Value]] = [(None, entry.value) for entry in graph.inputs]
    values += [(node, value) for node in nodes_in(graph) for value in node.outputs]
    missing: dict[str, str | None] = {}
    for maker, value in values:
        if isinstance(value.type, TensorType):
            device = value.type.device
            if device not in missing:
                missing[device] = _missing(targets.of(device))
            if (why := missing[device]) is not None:
                return maker, f"a tensor lies on {device}, for which there are no kernels: {why}"
    return None


def _missing(target: Target | None) -> str | None:
    return "no target serves it" if target is None else target.missing()


def _reads_what_requires_grad(node: Node) -> bool:
    return any(isinstance(v.type, TensorType) and v.type.requires_grad for v in node.inputs())


@mutable(eq=False)
class Driver:
    """Compiles graphs for one function; each text is built once in a process."""

    options: Options
    name: str = "a graph"  # what profiles call what it compiles
    names: dict[tuple[Kernel, str], str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    targets: Targets = TARGETS
    translations: tuple[weakref.ref[Translation], ...] = ()  # those in use; never in place
    kept: KeptTranslations = field(init=False)

    def __post_init__(self) -> None:
        self.kept = KeptTranslations(self.options)

    @classmethod
    def create(cls, options: Options, name: str = "a graph") -> Driver:
        """Raises AnyshapeError E601 where there is no C compiler."""
        TARGETS.prepare(options)
        return cls(options, name)

    def compile_graph(
        self, graph: Graph, constants: Mapping[str, torch.Tensor], recorded: str = ""
    ) -> CompiledGraph | training.CompiledTraining | EagerGraph:
        """``constants``: the tensors of the inputs that are no arguments, by the value's name.
        ``recorded``: why autograd is to see each operator, where gradients are recorded."""
        refusal = why_eager(graph, self.targets)
        if refusal is not None:
            return self._eager_graph(graph, constants, *refusal)
        if recorded and records_gradients(graph, OPS):
            return self._eager_graph(graph, constants, None, recorded)
        self.targets.awaken(_devices_of(graph), self.options)
        if calls_backward(graph):
            return self._whole_step(graph, constants)
        if records_gradients(graph, OPS):
            return self._training(graph, constants)
        compiled = self._compiled(graph, constants, replayed=self.options.cuda_graphs)
        return (
            compiled if isinstance(compiled, EagerGraph) else _laid_out(compiled, graph, constants)
        )

    def _whole_step(
        self, graph: Graph, constants: Mapping[str, torch.Tensor]
    ) -> CompiledGraph | EagerGraph:
        """A program that calls ``backward()`` itself: gradients are values like any other."""
        try:
            step = training.whole_step(graph, self.options.activation_memory_budget)
            half = self._half(
                *(step.graph, constants, moves(graph, OPS)), replayed=self.options.cuda_graphs
            )
            made = _laid_out(half(), graph, constants)
        except NotDifferentiable as refused:
            return self._records_eagerly(graph, constants, refused)
        run = spent_results.spending(made.run, step.spent) if step.spent else made.run
        return replace(made, run=run, graph=graph, before=step.stages, differentiated=True)

    def _training(
        self, graph: Graph, constants: Mapping[str, torch.Tensor]
    ) -> training.CompiledTraining | EagerGraph:
        """Forward and backward as programs; where that is not covered, eager torch records."""
        written = moves(graph, OPS)

        def forward(
            half: Graph, tensors: Mapping[str, torch.Tensor]
        ) -> Callable[[], CompiledGraph]:
            finish = self._half(half, tensors, written)
            return lambda: _laid_out(finish(), graph, constants)

        try:
            budget = self.options.activation_memory_budget
            return training.compile_training(graph, constants, forward, self._half, budget)
        except NotDifferentiable as refused:
            return self._records_eagerly(graph, constants, refused)

    def _records_eagerly(
        self, graph: Graph, constants: Mapping[str, torch.Tensor], refused: NotDifferentiable
    ) -> EagerGraph:
        node = refused.node or next(filter(_reads_what_requires_grad, graph.nodes), None)
        why = f"gradients are recorded: {refused.reason}"
        return self._eager_graph(graph, constants, node, why)

    def _half(
        self,
        half: Graph,
        constants: Mapping[str, torch.Tensor],
        written: Moves | None = None,
        *,
        replayed: bool = False,
    ) -> Callable[[], CompiledGraph]:
        """Its code is being built; the result links it. Raises ``NotDifferentiable`` where eager
        torch has to run all of it."""
        made = self._translation(half)
        if not isinstance(made, Translation):
            raise NotDifferentiable(self._eager_graph(half, constants, None, made).why)
        self.targets.start(made.code.functions, self.options)
        return functools.partial(self._linked, made, half, constants, written, replayed=replayed)

    def _compiled(
        self, graph: Graph, constants: Mapping[str, torch.Tensor], *, replayed: bool
    ) -> CompiledGraph | EagerGraph:
        """A graph that records no gradients; ``replayed``: the device may replay it as a whole."""
        made = self._translation(graph)
        if not isinstance(made, Translation):
            return self._eager_graph(graph, constants, None, made)
        return self._linked(made, graph, constants, replayed=replayed)

    def _linked(
        self,
        made: Translation,
        graph: Graph,
        constants: Mapping[str, torch.Tensor],
        written: Moves | None = None,
        *,
        replayed: bool = False,
    ) -> CompiledGraph:
        """The running graph. ``written``: how version counters move, where it does not say."""
        line, work = graph.first_line, graph.space.work
        with stage_of("loading", line), work.stage("loading"):
            launched = Launched()
            twin = functools.cache(lambda: self._labelled(made, graph, constants, launched))
            linked = link(made.code, constants, self._load, twin, self.name)
        run, summary = self._expecting(linked, made), made.summary
        why: Callable[[], str] = (
            (lambda: "it records gradients") if self.options.cuda_graphs else str
        )
        if replayed:
            run, why = self.targets.recorded(run, made.intermediates.program, constants)
        run = on_device(run, summary.devices)
        if summary.writes_arguments:
            run = writing_last(run)
        if moved := (moves(graph, OPS) if written is None else written):
            run = moving_versions(run, moved, graph, constants)
        if torch.is_grad_enabled() and any(map(_reads_what_requires_grad, nodes_in(graph))):
            run = without_gradients(run)
        if self.options.verify:
            run = verified(run, graph, made.stages, constants)
        return CompiledGraph(
            run, graph, made, linked, launched, self._schedules, self._measured, why
        )

    def _translation(self, graph: Graph) -> Translation | str:
        """What the graph becomes, or became before; or why eager torch has to run all of it."""
        structure = Structure(graph)
        if (known := self._known(graph, structure)) is not None:
            return known
        key = found = None
        if self.kept.may_hold(graph):
            with graph.space.work.stage("looking on disk"):
                devices = _devices_of(graph)
                said = functools.partial(self.targets.identity, devices, self.options)
                key = self.kept.key(structure, said)
                found = None if key is None else self.kept.load(key)
        if found is not None:
            code, summary = found
            again = functools.partial(self._worked_out_again, graph)
        else:
            translated = self._translated(graph)
            if isinstance(translated, str):
                return translated
            intermediates, code = translated
            summary = Summary.of(intermediates)
            again = functools.partial(_as_it_is, intermediates)
            if key is not None:
                self.kept.store(key, code, summary)
        made = Translation(graph, structure, code, summary, again)
        kept = (ref for ref in self.translations if ref() is not None)
        self.translations = (*kept, weakref.ref(made))
        return made

    def _known(self, graph: Graph, structure: Callable[[], str]) -> Translation | None:
        """What an equal graph became: that of another adapter, or of a module that was replaced."""
        size = len(graph.nodes), len(graph.inputs)
        used = [made for ref in self.translations if (made := ref()) is not None]
        alike = [t for t in used if (len(t.graph.nodes), len(t.graph.inputs)) == size]
        if not alike or self.options.verify:
            return None
        with graph.space.work.stage("comparing"):
            return next((known for known in alike if known.structure() == structure()), None)

    def _worked_out_again(self, graph: Graph) -> Intermediates:
        """What led to code that was found on disk."""
        translated = self._translated(graph)
        assert not isinstance(translated, str), translated
        return translated[0]

    def _translated(self, graph: Graph) -> tuple[Intermediates, Code] | str:
        """A graph becomes code; or why eager torch has to run all of it."""
        line, work = graph.first_line, graph.space.work
        try:
            with work.stage("passes"):
                passed = tuple(INFERENCE.stages(graph, OPS))
                passed += (("causal-masks", without_causal_masks(passed[-1][1], OPS)),)
        except AnyshapeError as error:
            if isinstance(error.__cause__, WrittenThrough):
                return str(error.__cause__)
            raise
        final = passed[-1][1]
        with stage_of("scheduling", line), work.stage("scheduling"):
            targets = self.targets
            program = schedule(final, targets.variants)
            if self.options.sizes == "device":
                libraries = targets.sizes_in_memory
                program = assign_placements(program, final.facts, libraries, targets.variants)
            program = targets.listed(program, self.options)
        if self.options.verify:
            refuse_malformed(graph, passed, program.kernels())
        proven = self.options.verify or self.options.verify_programs
        if proven:
            refuse_overwriting("scheduling", program, final.facts)
        self._refuse_eager(program)
        flat = program
        stage = "forming native regions"
        with stage_of(stage, line), work.stage(stage):
            program = self.targets.group(program, final.facts)
        with stage_of("verification", line), work.stage("verification"):
            if not proven:
                verify_memory(program, final.facts)
            elif program is not flat:
                refuse_overwriting("forming native regions", program, final.facts)
        with stage_of("code generation", line), work.stage("code generation"):
            try:
                names = self._names(program)
                code = self._generate(program, names)
            except NotImplementedError as missing:
                return f"no kernel for {missing}"
        return Intermediates(passed, flat, program, names), code

    def _measured(self, function: Function) -> Iterable[str]:
        return self.targets.measured(function, self.options)

    def _schedules(self, function: Function, sizes: Mapping[str, int] | None) -> Iterable[str]:
        return self.targets.schedules(function, sizes, self.options)

    def _expecting(self, linked: Linked, made: Translation) -> Callable[..., tuple[Any, ...]]:
        """The running program; where kernels are built when they are launched, it says at the first
        call of each combination of sizes what will be launched."""
        if not any(map(self.targets.builds_late, linked.code.functions.values())):
            return linked.run
        program = made.intermediates.program
        launches = [
            (launch, self.functions[self._name(launch, _device_of(launch, inside))])
            for inside in program.nested()
            for step in inside.own_steps()
            for launch in step.launched()
        ]
        late = [(s, f) for s, f in launches if self.targets.builds_late(f)]
        readers = entry_sizes(linked.parameters, program.buffers)

        def expect(sizes: Mapping[Symbol, int]) -> None:
            for step, function in late:
                if (example := _example(step, sizes)) is not None:
                    self.targets.expect(function, example, self.options)

        return expecting(linked.run, readers, expect)

    def _labelled(
        self,
        made: Translation,
        graph: Graph,
        constants: Mapping[str, torch.Tensor],
        launched: Launched,
    ) -> Callable[..., Any]:
        """What runs while a profiler records: each kernel and each call of a library by itself,
        under its name and the user's lines."""
        program, final = made.intermediates.flat, made.stages[-1][1]
        kernel_names = self._names(program)
        labels = step_labels(program, final, kernel_names)
        functions = {name: self.functions[name] for name in kernel_names.values()}
        short = self.targets.allocators(_devices(program))
        host = emit_host(program, kernel_names, {}, short, labels=labels, launched=launched)
        run = link(Code(functions, {}, host), constants, self._load).run
        return recorded(run, segment_label(self.name, graph), launched)

    def generate(self, program: Program) -> Code:
        """The program as text; equal kernels have one name and one compiled function."""
        return self._generate(program, self._names(program))

    def _generate(self, program: Program, kernel_names: Mapping[Kernel, str]) -> Code:
        functions = {name: self.functions[name] for name in kernel_names.values()}
        tables: dict[str, tuple[Reference, ...]] = {}
        region_names = {}
        for step, inside in native_regions(program):
            target = self._target(_device_in(step, inside))
            printed = target.print_region(step, inside, kernel_names, PLACEHOLDER, self.options)
            name, functions[name] = _named(printed.entry, "region")
            named = [_named(part, "step") for part in printed.parts]
            functions |= named
            table = f"table_{len(tables)}"
            tables[table] = tuple(_entry(entry, printed, name, named) for entry in printed.table)
            region_names[step] = name, table, printed.replayable
        short = self.targets.allocators(_devices(program))
        host = emit_host(program, kernel_names, region_names, short, profiled=True)
        return Code(_as_called(functions, host), tables, host)

    def _names(self, program: Program) -> dict[Kernel, str]:
        """Kernels by the device that they run on."""
        return {
            launch.kernel: self._name(launch, _device_of(launch, inside))
            for inside in program.nested()
            for step in inside.own_steps()
            for launch in step.launched()
        }

    def _name(self, launch: Launch, device: str) -> str:
        kernel = launch.kernel
        name = self.names.get((kernel, device))
        if name is None:
            printed = self._target(device).print_kernel(launch, PLACEHOLDER, device)
            name, function = _named(printed, "kernel")
            self.names[kernel, device] = name
            self.functions[name] = function
        return name

    def _target(self, device: str) -> Target:
        target = self.targets.of(device)
        assert target is not None
        return target

    def _load(self, wanted: Mapping[str, Function]) -> Mapping[str, Loaded]:
        return self.targets.load(wanted, self.options)

    def _eager_graph(
        self, graph: Graph, constants: Mapping[str, torch.Tensor], node: Node | None, why: str
    ) -> EagerGraph:
        """Eager torch runs the whole graph, unless that is an error."""
        if self.options.fallback == "error" and graph.nodes:
            first = graph.nodes[0] if node is None else node
            raise AnyshapeError("E401", op=first.op, why=why, location=first.location)
        location = graph.first_line() if node is None else node.location
        return EagerGraph(graph, constants, why, location, segment_label(self.name, graph))

    def _refuse_eager(self, program: Program) -> None:
        if self.options.fallback != "error":
            return
        for step in program.flat_steps():
            if isinstance(step, EagerCall):
                why = "it has neither a kernel nor a library function of its own"
                raise AnyshapeError("E401", op=step.function, why=why, location=step.location)


def _laid_out(
    compiled: CompiledGraph, graph: Graph, constants: Mapping[str, torch.Tensor]
) -> CompiledGraph:
    """The same with results that lie as eager's do."""
    lent = compiled.translation.summary.lent
    run = results_as_eager(compiled.run, graph, lent, constants)
    return compiled if run is compiled.run else replace(compiled, run=run)


def _devices_of(graph: Graph) -> frozenset[str]:
    values = [entry.value for entry in graph.inputs]
    values += [value for node in nodes_in(graph) for value in node.outputs]
    return frozenset(v.type.device for v in values if isinstance(v.type, TensorType))


def _devices(program: Program) -> frozenset[str]:
    return frozenset(b.device for inside in program.nested() for b in inside.buffers.values())


def _device_of(step: Launch, program: Program) -> str:
    """The device that all buffers of a launch lie on. No kernel reads the memory of two."""
    named = (arg.name for arg in step.args if isinstance(arg, BufferRef | SizeInMemory))
    devices = sorted({program.buffers[name].device for name in named})
    if len(devices) > 1:
        raise NotImplementedError(f"buffers on {' and '.join(devices)}")
    return devices[0] if devices else HOST


def _example(step: Launch, sizes: Mapping[Symbol, int]) -> tuple[Any, ...] | None:
    """What the launch is handed at these sizes, 0 for addresses and for numbers that are no sizes;
    None where data decides a size."""
    addresses = BufferRef, SizeInMemory
    try:
        return tuple(
            evaluate_scalar(arg, sizes, {})
            if isinstance(param, SizeParam) and not isinstance(arg, addresses)
            else 0
            for param, arg in zip(step.kernel.params, step.args, strict=True)
        )
    except (KeyError, ArithmeticError, ValueError):
        return None


def _device_in(region: NativeRegion, program: Program) -> str:
    """The device of a native region's buffers; the host's where there are only numbers."""
    names = (name for step in region.steps for name in step.mentions())
    return next((program.buffers[name].device for name in names), HOST)


def _as_called(functions: Mapping[str, Function], host: HostCode) -> dict[str, Function]:
    """The functions without what calls those for Python that the host code does not call: a kernel
    of a native region is called by its steps."""
    called = {what for kind, what in host.names.values() if kind == "kernel"}

    def as_called(name: str, function: Function) -> Function:
        if isinstance(function, NativeFunction) and name not in called:
            return replace(function, caller="none") if function.caller == "made" else function
        return function

    return {name: as_called(name, function) for name, function in functions.items()}


def _named(function: Function, stem: str) -> tuple[str, Function]:
    """The function under its content address."""
    if isinstance(function, DeviceFunction):
        # the kernel's own print: the text in Triton says nothing of the dtypes of addresses
        words = "_".join(fused_words(function.kernel))
        name = f"{words}_{digest(function.kernel.text, str(function.device))[:16]}"
        return name, replace(function, name=name, text=function.text.replace(PLACEHOLDER, name))
    name = f"{stem}_{digest(function.text)[:16]}"
    return name, replace(function, text=function.text.replace(PLACEHOLDER, name))


def _entry(
    entry: Reference, printed: PrintedRegion, name: str, parts: Sequence[tuple[str, Function]]
) -> Reference:
    """What an entry of a native region's table is, once its functions have names."""
    match entry:
        case "plan", int(number):
            return "plan", printed.plans[number]
        case "kept", int(number):
            return "kept", printed.kept[number]
        case "part", int(number):
            return "kernel", parts[number][0]
        case "entry", _:
            return "kernel", name
    return entry


def _as_it_is(made: Intermediates) -> Intermediates:
    return made
