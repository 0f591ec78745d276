"""Per compiled function: look up the program point, test guards, run the compiled segment, replay effects; capture on a miss.

In: calls. Out: results. A point has variants, tried in order, the last one used first; each variant is one guard function, one
compiled graph and one function that rebuilds Python objects. What runs between segments is in `trampoline.py`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape.capture import world
from anyshape.capture.breaks import GraphBreak, record_of
from anyshape.capture.guards import Failure, GuardSet, compile_entry, explain_failure
from anyshape.capture.machine import Machine
from anyshape.capture.recorder import Recorder, locate
from anyshape.capture.segments import finish_return
from anyshape.capture.symbolic_domain import SymbolicDomain
from anyshape.capture.tensors import parameter_state
from anyshape.capture.values import Break, InterpreterBug
from anyshape.errors import AnyshapeError, AnyshapeWarning
from anyshape.ir.graph import Graph
from anyshape.options import Options

CompileGraph = Callable[[Graph, Mapping[str, torch.Tensor]], Any]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of one compiled function so far. `joined` and `guarded` count branches on sizes."""

    specializations: int = 0
    segments: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    host_syncs: int = 0
    calls: int = 0
    compile_seconds: float = 0.0
    capture_seconds: float = 0.0
    kernels: int = 0
    externs: int = 0
    eager_ops: int = 0
    joined: int = 0
    guarded: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` found: the breaks, and the counts."""

    breaks: tuple[GraphBreak, ...]
    stats: Stats

    def __str__(self) -> str:
        head = f"{self.stats.segments} segments, {len(self.breaks)} graph breaks"
        return "\n\n".join([head, *map(str, self.breaks)])


@dataclass(slots=True, eq=False)
class Variant:
    """One specialization: guards, the compiled graph, and how its results become Python objects."""

    guards: GuardSet
    entry: Callable[[Sequence[Any]], list[Any] | None]
    run: Callable[..., tuple[Any, ...]]
    rebuild: Callable[[Sequence[Any], Sequence[Any]], Any]
    graph: Graph
    compiled: Any
    joined: int = 0
    guarded: int = 0
    refusals: tuple[Any, ...] = ()


@dataclass(slots=True, eq=False)
class Point:
    """A program point and its variants; `seen` are the numbers that a slot has had, for widening."""

    variants: tuple[Variant, ...] = ()
    seen: dict[str, Any] = field(default_factory=dict)
    widen: frozenset[str] = frozenset()
    native: bool = False


class Compiled:
    """The machinery behind one compiled function; see the module.

    `compile_graph(graph, constants)` gives an object with `run(*argument_inputs) -> tuple of outputs`; `constants` are the tensors of
    the inputs that are no arguments, by the name of their value. Whatever else it holds is kept for `code()`.
    """

    def __init__(self, fn: Callable[..., Any], options: Options, compile_graph: CompileGraph) -> None:
        self.fn = fn
        self.options = options
        self.compile_graph = compile_graph
        self.codes: dict[Any, Any] = {}
        self.points: dict[Any, Point] = {}
        self.lock = threading.Lock()
        self.breaks: list[GraphBreak] = []
        self.failures: list[str] = []
        self.calls = 0
        self.compile_seconds = 0.0
        self.capture_seconds = 0.0
        self.warned = False
        self.names = parameter_names(fn)

    # ---- calling ----------------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function on these arguments, compiling what was not seen before."""
        self.calls += 1
        slots = [*args, *kwargs.values()] if kwargs else list(args)
        point = self.points.get((len(args), *kwargs))
        if point is not None:
            for variant in point.variants:
                inputs = variant.entry(slots)
                if inputs is not None:
                    return variant.rebuild(variant.run(*inputs), slots)
            if point.native:
                return self.fn(*args, **kwargs)
        return self._miss(args, kwargs, slots)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any], slots: list[Any]) -> Any:
        stance = current_stance()
        if stance == "force_eager":
            return self.fn(*args, **kwargs)
        key = (len(args), *kwargs)
        point = self.points.get(key) or Point()
        if stance == "fail_on_recompile" and self.points:
            failure = self._explain_miss(point, slots)
            raise AnyshapeError("E221", guard=str(failure) if failure else "this call was never compiled")
        if len(point.variants) >= self.options.max_variants:
            self._go_native(key, point, f"more than {self.options.max_variants} specializations")
            return self.fn(*args, **kwargs)
        try:
            variant = self._compile(point, args, kwargs, slots)
        except AnyshapeError:
            raise
        except Break as signal:
            self._go_native(key, point, str(signal), warn=False)
            return self.fn(*args, **kwargs)
        except (Exception, InterpreterBug) as error:  # noqa: BLE001 - a mistake of ours must not stop the user
            if self.options.fullgraph:
                raise
            self._go_native(key, point, f"{type(error).__name__}: {error}")
            return self.fn(*args, **kwargs)
        self._publish(key, point, variant, slots)
        inputs = variant.entry(slots)
        if inputs is None:
            failure = explain_failure(variant.guards, world.snapshot(), slots)
            raise InterpreterBug(f"the guards of a new specialization do not hold for its own arguments: {failure}")
        return variant.rebuild(variant.run(*inputs), slots)

    # ---- compiling --------------------------------------------------------------------------------------------------------
    def _compile(self, point: Point, args: tuple[Any, ...], kwargs: dict[str, Any], slots: list[Any]) -> Variant:
        started = time.perf_counter()
        recorder = Recorder(dynamic=self.options.dynamic is not False)
        domain = SymbolicDomain(recorder, widen=point.widen, forks=self.options.fork_budget)
        machine = Machine(domain, self.codes)
        virtual = self._place(domain, slots, len(args), tuple(kwargs))
        named = dict(zip(kwargs, virtual[len(args) :]))
        try:
            result = machine.run(self.fn, *virtual[: len(args)], **named)
            outputs, rebuild = finish_return(domain, result)
        except Break as signal:
            self._break(signal, machine)
            raise
        graph = recorder.builder.finish(outputs)
        guards = guard_set(recorder)
        captured = time.perf_counter()
        compiled = self.compile_graph(graph, recorder.constants)
        entry = compile_entry(guards, world.snapshot, parameters_check(guards.parameters))
        self.capture_seconds += captured - started
        self.compile_seconds += time.perf_counter() - started
        return Variant(guards, entry, compiled.run, rebuild, graph, compiled, domain.joined, domain.guarded, tuple(domain.refusals))

    def _place(self, domain: SymbolicDomain, slots: list[Any], count: int, names: tuple[str, ...]) -> list[Any]:
        sources = domain.recorder.sources
        owner = getattr(self.fn, "__self__", self.fn)
        sources.const(owner, getattr(owner, "__name__", type(owner).__name__.lower()))
        texts = [self.names[i] if i < len(self.names) else f"args[{i}]" for i in range(count)] + list(names)
        return [domain.see(sources.slot(i, text), slot) for i, (text, slot) in enumerate(zip(texts, slots))]

    def _break(self, signal: Break, machine: Machine) -> None:
        location = None
        frame = machine.frame
        while frame is not None and frame.code.hidden:
            frame = frame.back
        if frame is not None:
            location = locate(frame.code, frame.index)
        found = record_of(signal, location)
        self.breaks.append(found)
        if self.options.fullgraph:
            raise found.error()

    def _publish(self, key: Any, point: Point, variant: Variant, slots: list[Any]) -> None:
        with self.lock:
            now = self.points.get(key, point)
            if now.variants:
                failure = self._explain_miss(now, slots)
                self.failures.append(str(failure))
            updated = Point((variant, *now.variants), now.seen, now.widen, now.native)
            self.points = {**self.points, key: updated}

    def _explain_miss(self, point: Point, slots: list[Any]) -> Failure | None:
        snapshot = world.snapshot()
        for variant in point.variants:
            failure = explain_failure(variant.guards, snapshot, slots)
            if failure is not None:
                return failure
        return Failure("parameters are as they were", "a parameter's data, dtype or shape changed") if point.variants else None

    def _go_native(self, key: Any, point: Point, why: str, *, warn: bool = True) -> None:
        with self.lock:
            self.points = {**self.points, key: Point(point.variants, point.seen, point.widen, True)}
        if warn and not self.warned:
            self.warned = True
            error = AnyshapeError("E901", stage="compiler", why=why)
            warnings.warn(AnyshapeWarning(str(error)), stacklevel=4)

    # ---- seeing inside ----------------------------------------------------------------------------------------------------
    def _variants(self) -> list[Variant]:
        return [variant for point in self.points.values() for variant in reversed(point.variants)]

    def stats(self) -> Stats:
        """The counts so far."""
        variants = self._variants()

        def total(kind: str) -> int:
            return sum(v.compiled.count(kind) for v in variants if hasattr(v.compiled, "count"))

        return Stats(
            specializations=len(variants),
            segments=len(variants),
            graph_breaks=len(self.breaks),
            recompiles=len(self.failures),
            calls=self.calls,
            compile_seconds=self.compile_seconds,
            capture_seconds=self.capture_seconds,
            kernels=total("launch"),
            externs=total("extern"),
            eager_ops=total("eager"),
            joined=sum(v.joined for v in variants),
            guarded=sum(v.guarded for v in variants),
        )

    def guards(self) -> str:
        """What is relied on, each with the user's line that made it."""
        parts = []
        for number, variant in enumerate(self._variants()):
            parts.append(f"specialization {number}")
            parts += [f"  {text}" + (f"  # {place}" if place else "") for text, place in variant.guards.lines()]
        return "\n".join(parts)

    def graphs(self) -> list[str]:
        """The captured graphs as Python."""
        return [str(variant.graph) for variant in self._variants()]

    def code(self) -> str:
        """The generated code."""
        return "\n\n".join(str(getattr(v.compiled, "linked", "")) for v in self._variants())

    def recompiles(self) -> list[str]:
        """Which guard failed each time that a specialization was made after the first."""
        return list(self.failures)

    def explain(self) -> Explanation:
        """Every break, and the counts."""
        return Explanation(tuple(self.breaks), self.stats())

    def reset(self) -> None:
        """Forgets every specialization."""
        with self.lock:
            self.points = {}
            self.breaks = []
            self.failures = []


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """The names of positional parameters, for guards to be read."""
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def guard_set(recorder: Recorder) -> GuardSet:
    """All that a capture has relied on, in order."""
    return GuardSet(
        recorder.entry_world,
        tuple(recorder.guards.values()),
        tuple(recorder.sizes),
        tuple(recorder.bindings),
        tuple(source for source, _ in recorder.input_sources),
        tuple(hook for hook in recorder.hooks if hook is not None),
        tuple(recorder.parameters),
    )


def parameters_check(parameters: tuple[torch.Tensor, ...]) -> Callable[[], bool] | None:
    """A function that says whether these tensors are still where and what they were."""
    if not parameters:
        return None
    expected = [parameter_state(parameter) for parameter in parameters]
    return functools.partial(_unchanged, parameters, expected)


def _unchanged(parameters: tuple[torch.Tensor, ...], expected: list[tuple[Any, ...]]) -> bool:
    return [parameter_state(parameter) for parameter in parameters] == expected


def current_stance() -> str:
    """`torch.compiler.set_stance`, read without importing torch._dynamo."""
    module = sys.modules.get("torch._dynamo.eval_frame")
    stance = getattr(module, "_stance", None)
    return getattr(stance, "stance", "default")
