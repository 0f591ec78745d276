"""Where compiled gradients meet autograd: one ``autograd.Function`` whose halves are programs.

In: the two halves of a graph (``autograd/partition.py``), as functions that run. Out: a function of
the graph's arguments that gives its outputs, those that require gradients with a ``grad_fn``.
Residuals go through ``save_for_backward``, so that a later write to one raises as in eager; numbers
lie beside them. Where a gradient is itself to be differentiated or asked for of many cotangents at
once, or its program cannot be made, eager torch runs the captured graph again from the inputs that
were kept.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from anyshape.errors import AnyshapeError
from anyshape.ir.graph import Arg, Graph, TensorType, Value, values_in
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops import OPS
from anyshape.runtime.eager_function import eager_function
from anyshape.runtime.gradient_layouts import Form, deciding, described, form_of, laid_out
from anyshape.runtime.gradient_layouts import Layout as Laid
from anyshape.runtime.halves import Half, Layout, Part, Run, made_by
from anyshape.runtime.random_state import RandomState
from anyshape.runtime.replayed_gradients import StandIns, Way
from anyshape.runtime.rollback import written_inputs
from anyshape.runtime.saved_values import (
    MODIFIED,
    REPLACED,
    VIEW_MODIFIED,
    SavedTensors,
    SavedValue,
)
from anyshape.symbolic import symbols_of
from anyshape.version_counters import version_of

_C = torch._C


@mutable(eq=False)
class Boundary:
    """``run`` takes the graph's argument inputs in order and returns its outputs, flat.

    ``make_backward(absent)`` gives the backward half where these of ``differentiable`` get no
    cotangent. It may raise ``AnyshapeError``.
    ``writes``: what has gradients, or a formula of eager's keeps, is written in place.
    ``drawn_on``: devices whose generators the graph draws from.
    ``replayed``: the graph without what nobody reads, whose checks of data no kernel made; eager's
    backward does not know it.
    ``cuts``: the graph for a part that is handed results of which one lies in front of another.
    ``cut_at``: a graph in which some of its outputs are handed to what is made of them.
    """

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    layout: Layout
    forward: Run
    make_backward: Callable[[tuple[int, ...]], Half]
    drawn_on: tuple[str, ...] = ()
    writes: bool = False
    replayed: Graph | None = None
    cuts: Mapping[Part, Graph] = field(default_factory=dict)
    cut_at: Callable[[Graph, Sequence[int]], Graph] = field(default=lambda graph, _: graph)
    halves: dict[tuple[int, ...], Half | None] = field(default_factory=dict)
    reruns: int = 0
    laid: dict[Form, tuple[Laid, ...] | None] = field(default_factory=dict)
    _written: tuple[int, ...] = ()
    _saved_outputs: tuple[int, ...] = ()
    _sized: tuple[int, ...] = ()  # inputs of which a size is a symbol
    _fixed_shapes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # of the others
    _owns: dict[Part, tuple[SavedValue, ...]] = field(default_factory=dict)
    _tensors: tuple[int, ...] = ()  # inputs that are
    _constant_inputs: tuple[tuple[int, torch.Tensor], ...] = ()
    _leaves: tuple[int, ...] = ()  # inputs that gradients are wanted of
    _shown: tuple[int, ...] = ()  # results that require gradients
    _read_earlier: dict[Part, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """For each part, (number, position) of what it saves that is such a result."""
    _own_kept: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    """For each part, those of its results that eager's formulas keep."""
    _earlier: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    """For each part, the results on the way that the program was handed before its own."""
    _eager: dict[tuple[Part | None, tuple[int, ...]], Run] = field(default_factory=dict)
    _decide: Run | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        writes = written_inputs(self.graph)
        self._written = tuple(sorted({*writes.before, *writes.behind}))
        saved = (*self.layout.residuals, *self.layout.watched)
        outputs = {s.position for s in saved if not s.of_inputs}
        self._leaves = tuple(sorted({i for i in self.layout.wanted if i >= 0}))
        self._saved_outputs = tuple(sorted(p for p in outputs if p < self.layout.outputs))
        residuals = self.layout.residuals
        self._owns = {
            part: tuple(residuals[i] for i in part.residuals) for part in self.layout.parts
        }
        shown = self.layout.outputs - self.layout.hidden
        self._shown = tuple([p for part in self.layout.parts for p in part.outputs if p < shown])
        self._own_kept = {
            part: tuple(p for p in part.outputs if p in self._saved_outputs and p < shown)
            for part in self.layout.parts
        }
        self._earlier = self.layout.earlier_results()
        self._read_earlier = {
            part: tuple(
                (i, one.position)
                for i, one in enumerate(own)
                if not one.of_inputs and one.position in self._earlier[part]
            )
            for part, own in self._owns.items()
        }
        kinds = [entry.value.type for entry in self.graph.inputs]
        shapes = [(p, kind.shape) for p, kind in enumerate(kinds) if isinstance(kind, TensorType)]
        self._tensors = tuple([position for position, _ in shapes])
        sized = {p for p, shape in shapes if any(map(symbols_of, shape))}
        self._sized = tuple(sorted(sized))
        self._fixed_shapes = tuple(
            (p, tuple(d for d in shape if isinstance(d, int)))
            for p, shape in shapes
            if p not in sized
        )
        self._constant_inputs = tuple(
            (position, self.constants[entry.value.name])
            for position, entry in enumerate(self.graph.inputs)
            if entry.kind != "argument"
        )

    def run(self, *arguments: Any) -> tuple[Any, ...]:
        """Raises ``CheckFailed``; then nothing has been written."""
        call = Call(arguments, self.inputs(arguments))
        outs: dict[int, torch.Tensor] = {}
        if not self.layout.parts:  # nothing that comes out requires gradients
            with torch.no_grad():
                call.run(self)
        elif torch.is_grad_enabled():
            self._record(call, outs)
        else:  # the program turns gradients on by itself
            with torch.enable_grad():
                self._record(call, outs)
        made = call.outs[: self.layout.outputs]
        call.outs = []
        for position, tensor in outs.items():
            made[position] = tensor
        call.saved = [(p, _counter(made[p]), _version(made[p])) for p in self._saved_outputs]
        for position in self._shown:
            call.results[position] = Result.of(made[position])
        return tuple(made[: self.layout.outputs - self.layout.hidden])

    def _record(self, call: Call, outs: dict[int, torch.Tensor]) -> None:
        if not self.layout.parts:  # gradients are recorded of what nobody is handed
            with torch.no_grad():
                return call.run(self)
        for part in self.layout.parts:
            wanted = [call.inputs[i] if i >= 0 else outs[made_by(i)] for i in part.wanted]
            made = Differentiated.apply(self, call, part, _MARKER, *wanted)
            outs.update(zip(part.outputs, made if isinstance(made, tuple) else (made,)))

    def inputs(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """All inputs of the graph, parameters and constants included."""
        found = list(arguments)
        for position, tensor in self._constant_inputs:
            found.insert(position, tensor)
        return tuple(found)

    def backward(self, absent: tuple[int, ...]) -> Half | None:
        """The half for these absent cotangents; None where there can be none."""
        found = self.halves.get(absent, _UNKNOWN)
        if found is _UNKNOWN:
            with self._lock:
                if absent not in self.halves:
                    try:
                        self.halves[absent] = self.make_backward(absent)
                    except AnyshapeError:
                        self.halves[absent] = None
                found = self.halves[absent]
        return found

    def again(self, call: Call, part: Part, cotangents: Sequence[Any]) -> list[Any]:
        """What a part wants, by eager torch from the inputs that were kept: where their data were
        replaced since, from those that they had."""
        self.reruns += 1
        if call.is_modified():
            raise RuntimeError(MODIFIED)
        return self._eagerly(call, part, cotangents, create=torch.is_grad_enabled())

    def though_written(
        self,
        call: Call,
        part: Part,
        cotangents: Sequence[Any],
        saved: SavedTensors,
    ) -> list[Any]:
        """What a part wants, where something that was saved has been written since. Raises the
        refusal unless eager has not saved it for these cotangents."""
        outputs = [self.graph.outputs[p] for p, g in zip(part.outputs, cotangents) if g is not None]
        behind = values_behind(self.graph, outputs)
        written = {self.graph.inputs[position].value for position in call.modified()}
        again = [p for p, counter, version in call.saved if _version(counter) != version]
        left = (
            number
            for number, one in enumerate(self.layout.watched, len(self._owns[part]))
            if one.of_inputs and one.position in call.copies
            if self.graph.inputs[one.position].value in behind
        )
        if any(map(saved.is_written, left)):
            raise saved.refusal
        if behind.isdisjoint(written):
            self.reruns += 1
            return self._eagerly(call, part, cotangents, torch.is_grad_enabled(), again)
        half, own = self.half_for(part, cotangents), self._owns[part]
        read, stale = saved.one_by_one(len(own))
        if (
            half is None
            or not stale.isdisjoint(half.read)
            or call.is_replaced(self.layout.kept)
            or self._is_refused(call, part, cotangents, again)
        ):
            raise saved.refusal
        return self.gradients(half, call, part, cotangents, read)

    def half_for(self, part: Part, cotangents: Sequence[Any]) -> Half | None:
        """The half for these cotangents of a part; None where eager torch is to do it."""
        handed = {p: g for p, g in zip(part.outputs, cotangents) if g is not None}
        if torch.is_grad_enabled() or any(map(_is_transformed, handed.values())):
            return None
        return self.backward(tuple([p for p in self.layout.differentiable if p not in handed]))

    def gradients(
        self, half: Half, call: Call, part: Part, cotangents: Sequence[Any], saved: Sequence[Any]
    ) -> list[Any]:
        rows = [g.contiguous() for g in cotangents if g is not None]
        made = _without_autocast(half.run, (*saved, *call.numbers, *rows))
        found = dict(zip([self.layout.wanted[position] for position in half.given], made))
        return list(map(found.get, part.wanted))

    def _is_refused(
        self, call: Call, part: Part, cotangents: Sequence[Any], outputs: Sequence[int]
    ) -> bool:
        """Does one of eager's formulas for these cotangents keep what has been written since? Eager
        is asked with what the inputs hold now, as their values say nothing of it."""
        self.reruns += 1
        try:
            self._eagerly(call, part, cotangents, False, outputs, (*call.modified(),))
        except (RuntimeError, LookupError, TypeError, ValueError):
            return True  # or there is nothing to be asked with these values
        return False

    def as_eager(
        self, call: Call, part: Part, cotangents: Sequence[Any], found: list[Any]
    ) -> list[Any]:
        """The gradients laid out as eager's; where these share memory with what is not theirs,
        eager's. Raises what eager's backward raises."""
        key = self._learn(call, part, cotangents)
        layouts = self.laid.get(key, ())
        if layouts:
            return laid_out(found, layouts, cotangents)
        if layouts is not None or self._has_changed(call, part, cotangents):
            return found
        return self._eagerly(call, part, cotangents, create=False)

    def refuse_as_eager(self, call: Call, part: Part, cotangents: Sequence[Any]) -> None:
        """Raises what eager's backward raises: of what a formula reads, and the graph has written
        since. Eager is asked once for each pattern of sizes."""
        try:
            self._learn(call, part, cotangents)
        except torch.OutOfMemoryError:
            pass  # nothing is known then, and what is compiled needs less

    def _inputs_as_given(self, call: Call) -> list[Any]:
        """The inputs with the sizes that the graph has read of them. In the place of one that has
        been written since is its copy, or, where it has been given other sizes (``t_``, ``out=``),
        zeros: only what is made of other inputs' elements is asked for then."""
        inputs = list(call.inputs)
        for position, shape in chain(self._fixed_shapes, zip(self._sized, call.shapes)):
            if inputs[position].shape != shape:
                inputs[position] = inputs[position].new_zeros(shape)
        for position, copy in call.copies.items():
            inputs[position] = copy
        return inputs

    def _learn(self, call: Call, part: Part, cotangents: Sequence[Any]) -> Form:
        """How the gradients of this pattern lie is known behind it, unless an input was written."""
        if self._decide is None:
            self._decide = eager_function(
                replace(self.graph, nodes=(), outputs=deciding(self.graph))
            )
        inputs = self._inputs_as_given(call)
        key = (part, form_of(cotangents), form_of(inputs), self._decide(*inputs))
        if key not in self.laid and not self._has_changed(call, part, cotangents):
            gradients = self._eagerly(call, part, cotangents, create=False)
            self.laid[key] = described(gradients, cotangents, call.inputs)
        return key

    def _has_changed(self, call: Call, part: Part, cotangents: Sequence[Any]) -> bool:
        """Has an input been written since, that these outputs are made of, or by which what is made
        of it could be refused?"""
        if not call.is_modified():
            return False
        written = {self.graph.inputs[position].value for position in call.modified()}
        outputs = [self.graph.outputs[p] for p, g in zip(part.outputs, cotangents) if g is not None]
        if not values_behind(self.graph, outputs).isdisjoint(written):
            return True
        for node in self.graph.nodes:
            row = OPS.get(node.op)
            if not written.isdisjoint(node.inputs()):
                if row is None or row.raises or row.guessed or row.mutates:
                    return True
                written.update(node.outputs)
        return False

    def _eagerly(
        self,
        call: Call,
        part: Part,
        cotangents: Sequence[Any],
        create: bool,
        written: Sequence[int] = (),
        written_inputs: Sequence[int] = (),
    ) -> list[Any]:
        """By eager torch; these outputs and inputs count as written before its backward."""
        with torch.enable_grad():
            inputs = self._inputs_as_given(call)
            for position in call.copies:
                inputs[position] = inputs[position].clone()
            replaced = call.replaced()
            for position, memory in replaced.items():
                given_now = call.inputs[position]
                if not (create and given_now.requires_grad):
                    inputs[position] = memory
                elif not _is_alike(memory, given_now):
                    raise RuntimeError(REPLACED)
            for position in written_inputs:  # with version counters of their own
                inputs[position] = inputs[position].data
            own = call.living(self._own_kept[part]) if create else {}
            stand_ins = StandIns(alone=bool(own))
            is_behind_others = any(position < 0 for position in part.wanted)
            for position in self._leaves if is_behind_others else part.wanted:
                x = inputs[position]
                new = stand_ins.of(x, replaced.get(position)) if create else x.detach()
                inputs[position] = new.requires_grad_()
            results = call.living(self._earlier[part]) if create else {}
            given = {p: stand_ins.of(tensor) for p, tensor in results.items()}
            eager = self._eager_of(part, tuple(given))
            outs = self._replayed(call, [*inputs, *given.values()], eager)
            handed = {p: g for p, g in zip(part.outputs, cotangents) if g is not None}
            if own:
                handed = {p: stand_ins.of(g) for p, g in handed.items()}
            way = Way.of(
                {outs[p]: g for p, g in handed.items()},
                [inputs[i] for i in part.wanted if i >= 0],
                [given.get(made_by(i), outs[made_by(i)]) for i in part.wanted if i < 0],
            )
            ends = [(get_gradient_edge(outs[p]), result) for p, result in own.items()]
            for position in replaced:  # as the program has done it
                inputs[position].data = call.inputs[position].data
            changed = [outs[p] for p in written] + [inputs[p] for p in written_inputs]
            for tensor in changed:
                torch.autograd.graph.increment_version(tensor.detach())
            of_inputs, of_results = map(iter, way.gradients(create))
            for edge, result in ends:
                stand_ins.ends_at(edge, result)
            return stand_ins.tied([next(of_inputs if i >= 0 else of_results) for i in part.wanted])

    def _eager_of(self, part: Part, given: tuple[int, ...]) -> Run:
        """The function of the graph's inputs and of these results on the way."""
        key = (part if part in self.cuts else None, given)
        if key not in self._eager:
            graph = self.cuts.get(part) or self.replayed or self.graph
            self._eager[key] = eager_function(self.cut_at(graph, given) if given else graph)
        return self._eager[key]

    def _replayed(self, call: Call, inputs: Sequence[Any], eager: Run) -> tuple[Any, ...]:
        if call.random_state is None:
            return eager(*inputs)
        with call.random_state.drawn_again():
            return eager(*inputs)


_UNKNOWN: Any = object()
_MARKER = torch.zeros((), requires_grad=True)
"""A leaf of which nobody wants a gradient."""
_EMPTY = torch.empty(0)


@frozen(eq=False)
class Result:
    """One that requires gradients, as the program was handed it. Nobody holds it here."""

    handed: Callable[[], torch.Tensor | None]
    version: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Result:
        return cls(weakref.ref(tensor), _version(tensor))

    def now(self) -> torch.Tensor | None:
        """None where it is gone, or another one by a write in place."""
        tensor = self.handed()
        is_same = tensor is not None and _version(tensor) == self.version
        return tensor if is_same else None


@mutable(eq=False)
class Call:
    """One call: what it was given, and what its backward may need again."""

    arguments: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outs: list[Any] = field(default_factory=list)
    numbers: tuple[Any, ...] = ()
    versions: tuple[int, ...] = ()
    shapes: tuple[torch.Size, ...] = ()
    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    memory: dict[int, torch.Tensor] = field(default_factory=dict)  # that the inputs lie in
    saved: list[tuple[int, torch.Tensor, int]] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)
    random_state: RandomState | None = None

    def living(self, positions: Sequence[int]) -> dict[int, torch.Tensor]:
        """Those results that somebody has still, as they were handed out."""
        found = {position: self.results[position].now() for position in positions}
        return {position: tensor for position, tensor in found.items() if tensor is not None}

    def refuse_replaced_results(
        self, read: Sequence[tuple[int, int]], saved: Sequence[torch.Tensor]
    ) -> None:
        """Raises where the program has put other data into one of the results that are read."""
        for number, position in read:
            tensor = self.results[position].now()
            if tensor is not None and not saved[number].is_set_to(tensor):
                raise RuntimeError(REPLACED)

    def is_modified(self) -> bool:
        """Has an input been written since, of which there is no copy?"""
        return next(self.modified(), None) is not None

    def modified(self) -> Iterator[int]:
        """The positions of those inputs."""
        for position, (tensor, version) in enumerate(zip(self.inputs, self.versions)):
            if position not in self.copies and _version(tensor) != version:
                yield position

    def kept(self, one: SavedValue, part: Part, layout: Layout) -> torch.Tensor:
        """What a part saves: of another one's outputs not the tensor itself, which would hold that
        part's node, and be held by it."""
        found = one.read(self.inputs, self.outs, self.memory)
        is_result = not one.of_inputs and one.position in layout.differentiable
        return found.detach() if is_result and one.position not in part.outputs else found

    def is_replaced(self, positions: Sequence[int]) -> bool:
        """Has the program put other data into one of these inputs since (``x.data = new``)?"""
        memory, inputs = self.memory, self.inputs
        return not all([memory[i].is_set_to(inputs[i]) for i in positions])

    def replaced(self) -> dict[int, torch.Tensor]:
        """All such inputs, each as it was: what lies in the memory that it had."""
        return {
            position: memory.detach()
            for position, memory in self.memory.items()
            if position not in self.copies and not memory.is_set_to(self.inputs[position])
        }

    def run(self, boundary: Boundary) -> None:
        """The forward half."""
        layout = boundary.layout
        self.copies = {i: self.inputs[i].detach().clone() for i in boundary._written}
        if boundary.drawn_on:
            self.random_state = RandomState.of(boundary.drawn_on)
        self.versions = tuple([_version(tensor) for tensor in self.inputs])
        self.shapes = tuple([self.inputs[i].shape for i in boundary._sized])
        self.memory = {i: self.inputs[i].detach() for i in boundary._tensors}
        outs = self.outs = list(boundary.forward(*self.arguments))
        self.numbers = tuple(outs[layout.numbers :])
        for position in layout.differentiable:
            is_hidden = position >= layout.outputs - layout.hidden
            if is_hidden or outs[position]._is_view():
                outs[position] = outs[position].detach()


class Differentiated(torch.autograd.Function):
    """A graph as autograd sees it: what requires gradients in, differentiable outputs out."""

    @staticmethod
    def forward(
        ctx: Any,
        boundary: Boundary,
        call: Call,
        part: Part,
        marker: torch.Tensor,
        *wanted: torch.Tensor,
    ) -> Any:
        layout = boundary.layout
        ctx.set_materialize_grads(False)
        if part is layout.parts[0]:  # what the forward half does, autograd does not see
            call.run(boundary)
        own = boundary._owns[part]
        ctx.save_for_backward(*(call.kept(one, part, layout) for one in (*own, *layout.watched)))
        ctx.boundary, ctx.call, ctx.part, ctx.own = boundary, call, part, own
        made = tuple([call.outs[position] for position in part.outputs])
        return made if len(made) != 1 else made[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        boundary, call, part, own = ctx.boundary, ctx.call, ctx.part, ctx.own
        if all([g is None for g in cotangents]):  # a function behind it gave none
            return None, None, None, None, *(None for _ in part.wanted)
        try:
            saved = ctx.saved_tensors[: len(own)]
        except RuntimeError as refusal:  # kernels make views where no gradients are recorded
            if not str(refusal).startswith((MODIFIED, VIEW_MODIFIED)):
                raise
            again = boundary.though_written(call, part, cotangents, SavedTensors(ctx, refusal))
            return None, None, None, None, *again
        is_replaced = call.is_replaced(boundary.layout.kept)
        call.refuse_replaced_results(boundary._read_earlier[part], saved)
        half = None if is_replaced else boundary.half_for(part, cotangents)
        marker, _ = ctx.next_functions[0]
        # of `torch.autograd.grad`, and not of `backward()`, how gradients lie is seen
        asks_eager = not _C._will_engine_execute_node(marker)
        if half is None:
            return None, None, None, None, *boundary.again(call, part, cotangents)
        found = boundary.gradients(half, call, part, cotangents, saved)
        if asks_eager:
            found = boundary.as_eager(call, part, cotangents, found)
        elif boundary.writes:
            boundary.refuse_as_eager(call, part, cotangents)
        return None, None, None, None, *found


def values_behind(graph: Graph, outputs: Sequence[Arg]) -> set[Value]:
    """What these outputs are made of, and what may share memory with that."""
    owner: dict[Value, Value] = {}

    def root(value: Value) -> Value:
        while value in owner:
            value = owner[value]
        return value

    for node in graph.nodes:
        row, first = OPS.get(node.op), next(node.inputs(), None)
        if row is not None and first is not None and (row.alias != "none" or row.mutates):
            owner.update((v, root(first)) for v in node.outputs if root(v) is not root(first))
    found = {root(value) for output in outputs for value in values_in(output)}
    for node in reversed(graph.nodes):
        row = OPS.get(node.op)
        made = (*node.outputs, *(node.read[:1] if row is not None and row.mutates else ()))
        if row is None or not found.isdisjoint(map(root, made)):
            found.update(map(root, node.read))
    return {value for value in (*owner, *found) if root(value) in found}


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape


def _is_transformed(cotangent: torch.Tensor) -> bool:
    """Whether it is no plain tensor, or stands for many, of ``is_grads_batched=True``."""
    return (
        type(cotangent) is not torch.Tensor
        or _C._functorch.is_functorch_wrapped_tensor(cotangent)
        or _C._functorch.is_legacy_batchedtensor(cotangent)
    )


def _version(tensor: Any) -> int:
    return version_of(tensor) if isinstance(tensor, torch.Tensor) else 0


def _counter(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without memory that has the version counter of this one."""
    made = tensor.detach()
    made.data = _EMPTY
    return made


def _without_autocast(run: Run, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Casts are nodes of the graph already."""
    if not _C._is_any_autocast_enabled():
        return run(*given)
    with _C._DisableAutocast():
        return run(*given)
