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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from anyshape.errors import AnyshapeError
from anyshape.ir.graph import Graph, TensorType, Value, values_in
from anyshape.nouns import mutable, replace
from anyshape.runtime.eager_function import eager_function, without_autocast
from anyshape.runtime.gradient_layouts import Form, deciding, described, form_of, laid_out
from anyshape.runtime.gradient_layouts import Layout as Laid
from anyshape.runtime.halves import Half, Layout, Part, Run, made_by
from anyshape.runtime.order_of_leaves import Ordered, have_hooks
from anyshape.runtime.random_state import RandomState
from anyshape.runtime.recorded_calls import Call, Result, counter_of, version_now
from anyshape.runtime.replayed_gradients import StandIns, Way, shaped_as
from anyshape.runtime.rollback import written_inputs
from anyshape.runtime.saved_values import (
    MODIFIED,
    REPLACED,
    VIEW_MODIFIED,
    SavedTensors,
    SavedValue,
    refuse_detached,
    versions_as_saved,
)
from anyshape.runtime.values_behind import may_refuse, values_behind
from anyshape.symbolic import symbols_of

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
    ``cut_at``: a graph in which some of its values are handed to what is made of them.
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
    cut_at: Callable[[Graph, Sequence[Value]], Graph] = field(default=lambda graph, _: graph)
    halves: dict[tuple[int, ...], Half | None] = field(default_factory=dict)
    reruns: int = 0
    laid: dict[Form, tuple[Laid, ...] | None] = field(default_factory=dict)
    _written: tuple[int, ...] = ()
    _saved_outputs: tuple[int, ...] = ()
    _sized: tuple[int, ...] = ()  # inputs of which a size is a symbol
    _fixed_shapes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # of the others
    _owns: dict[Part, tuple[SavedValue, ...]] = field(default_factory=dict)
    _watched: dict[Part, tuple[SavedValue, ...]] = field(default_factory=dict)
    """For each part, what else the program can see and eager's formulas of some part keep."""
    _tensors: tuple[int, ...] = ()  # inputs that are
    _constant_inputs: tuple[tuple[int, torch.Tensor], ...] = ()
    _leaves: tuple[int, ...] = ()  # inputs that gradients are wanted of
    _shown: tuple[int, ...] = ()  # results that require gradients
    _read_earlier: dict[Part, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """For each part, (number, position) of what it saves that is such a result."""
    _own_saved: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    """For each part, those of its results that are saved."""
    _earlier: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    """For each part, the results on the way that the program was handed before its own."""
    _referenced: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    """Of those, what this part's formulas of eager's keep themselves."""
    _kept_results: frozenset[int] = frozenset()
    """Those of all parts."""
    _eager: dict[tuple[Part | None, tuple[int, ...]], Run] = field(default_factory=dict)
    _decide: Run | None = None
    _ordered: Ordered | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        writes = written_inputs(self.graph)
        self._written = tuple(sorted({*writes.before, *writes.behind}))
        saved = (*self.layout.residuals, *self.layout.watched)
        outputs = {s.position for s in saved if not s.of_inputs}
        self._leaves = tuple(sorted({i for i in self.layout.wanted if i >= 0}))
        self._saved_outputs = tuple(sorted(p for p in outputs if p < self.layout.outputs))
        residuals = self.layout.residuals
        parts = self.layout.parts
        self._owns = {part: tuple(residuals[i] for i in part.residuals) for part in parts}
        shown = self.layout.outputs - self.layout.hidden
        seen = [s for s in saved if s.checked and (s.of_inputs or s.position < shown)]
        self._watched = {
            part: tuple(s for s in seen if s not in own) for part, own in self._owns.items()
        }
        self._shown = tuple([p for part in self.layout.parts for p in part.outputs if p < shown])
        saved_here = {p for p in self._saved_outputs if p < shown}
        self._own_saved = {
            part: tuple(filter(saved_here.__contains__, part.outputs)) for part in self._owns
        }
        self._earlier = self.layout.earlier_results()
        self._referenced = {
            part: tuple(p for p in earlier if p in part.kept_results)
            for part, earlier in self._earlier.items()
        }
        self._kept_results = frozenset(chain.from_iterable(self._referenced.values()))
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
        if len(self._leaves) > 1 and have_hooks([call.inputs[i] for i in self._leaves]):
            if self._ordered is None:
                self._ordered = Ordered.of(self.graph, self.constants, self._leaves)
            if self._ordered.eager is not None:
                return self._ordered.eager(*arguments)[: self.layout.outputs - self.layout.hidden]
            call.aliases = self._ordered.aliases(call.inputs)
        if not self.layout.parts:  # nothing that comes out requires gradients
            with torch.no_grad():
                self._run_forward(call)
        elif torch.is_grad_enabled():
            self._record(call, outs)
        else:  # the program turns gradients on by itself
            with torch.enable_grad():
                self._record(call, outs)
        made = call.outs[: self.layout.outputs]
        call.outs = []
        for position, tensor in outs.items():
            made[position] = tensor
        call.saved = [(p, counter_of(made[p]), version_now(made[p])) for p in self._saved_outputs]
        for position in self._shown:
            is_kept = position in self._kept_results
            call.results[position] = Result.of(made[position], call.mark, is_kept=is_kept)
        return tuple(made[: self.layout.outputs - self.layout.hidden])

    def _run_forward(self, call: Call) -> None:
        layout = self.layout
        call.copies = {i: call.inputs[i].detach().clone() for i in self._written}
        if self.drawn_on:
            call.random_state = RandomState.of(self.drawn_on)
        call.versions = tuple([version_now(tensor) for tensor in call.inputs])
        call.shapes = tuple([call.inputs[i].shape for i in self._sized])
        call.memory = {i: call.inputs[i].detach() for i in self._tensors}
        outs = call.outs = list(self.forward(*call.arguments))
        call.arguments = ()
        call.numbers = tuple(outs[layout.numbers :])
        for position in layout.differentiable:
            is_hidden = position >= layout.outputs - layout.hidden
            is_own = outs[position]._is_view() and position not in layout.shared
            if is_hidden or is_own:
                outs[position] = outs[position].detach()

    def _record(self, call: Call, outs: dict[int, torch.Tensor]) -> None:
        if not self.layout.parts:  # gradients are recorded of what nobody is handed
            with torch.no_grad():
                return self._run_forward(call)
        inputs = {**dict(enumerate(call.inputs)), **call.aliases} if call.aliases else call.inputs
        call.aliases = {}
        for part in self.layout.parts:
            wanted = [inputs[i] if i >= 0 else outs[made_by(i)] for i in part.wanted]
            made = Differentiated.apply(self, call, part, _MARKER, *wanted)
            outs.update(zip(part.outputs, made if isinstance(made, tuple) else (made,)))

    def results_referenced(self, part: Part, wanted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The very results that eager's formulas of this part keep, so that it is known of those
        that the program has dropped, too, what it has done to them."""
        kept = self._referenced[part]
        return [t for i, t in zip(part.wanted, wanted) if i < 0 and made_by(i) in kept]

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
        create = torch.is_grad_enabled()
        if self._may_differ(call, part, cotangents):
            raise RuntimeError(MODIFIED)
        if call.is_replaced([p for p in self.layout.kept_inputs if p in call.copies]):
            raise RuntimeError(REPLACED)
        return self._eagerly(call, part, cotangents, create)

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
        again = call.written_since()
        left = (
            number
            for number, one in enumerate(self._watched[part], len(self._owns[part]))
            if one.of_inputs and one.position in call.copies
            if self.graph.inputs[one.position].value in behind
        )
        if any(map(saved.is_written, left)):
            self._is_refused(call, part, cotangents, again)
            raise saved.refusal
        create = torch.is_grad_enabled()
        if not self._has_changed(call, part, cotangents) or (
            create and not self._may_differ(call, part, cotangents)
        ):
            self.reruns += 1
            return self._eagerly(call, part, cotangents, create, again)
        half, own = self.half_for(part, cotangents), self._owns[part]
        read, stale = saved.one_by_one(len(own))
        if (
            self._is_refused(call, part, cotangents, again)
            or half is None
            or not stale.isdisjoint(half.read)
            or call.is_replaced(self.layout.kept_inputs)
        ):
            raise saved.refusal
        return self.gradients(half, call, part, cotangents, read)

    def _may_differ(self, call: Call, part: Part, cotangents: Sequence[Any]) -> bool:
        """Would gradients that the graph makes again be refused in eager torch, or others, as an
        input was written since? Where they are made of nothing that is made of it, they are not."""
        results = [*call.living(self._earlier[part])] if torch.is_grad_enabled() else []
        begun_at = [] if call.written(results) else results
        if not self._has_changed(call, part, cotangents, begun_at):
            return False
        if self._is_refused(call, part, cotangents, call.written_since()):
            return True
        handed = {p for p, g in zip(part.outputs, cotangents) if g is not None}
        half = self.backward(tuple([p for p in self.layout.differentiable if p not in handed]))
        if half is None or self.layout.sources is None:
            return True
        sources = [self.layout.sources[part.residuals[number]] for number in half.read]
        return any(map(frozenset(call.modified()).intersection, sources))

    def half_for(self, part: Part, cotangents: Sequence[Any]) -> Half | None:
        """The half for these cotangents of a part; None where eager torch is to do it."""
        handed = {p: g for p, g in zip(part.outputs, cotangents) if g is not None}
        if torch.is_grad_enabled() or any(map(_is_transformed, handed.values())):
            return None
        return self.backward(tuple([p for p in self.layout.differentiable if p not in handed]))

    def gradients(
        self, half: Half, call: Call, part: Part, cotangents: Sequence[Any], saved: Sequence[Any]
    ) -> list[Any]:
        rows = [_with_memory(g).contiguous() for g in cotangents if g is not None]
        made = without_autocast(half.run, (*saved, *call.numbers, *rows))
        found = dict(zip([self.layout.wanted[position] for position in half.given], made))
        return list(map(found.get, part.wanted))

    def _is_refused(
        self, call: Call, part: Part, cotangents: Sequence[Any], outputs: Sequence[int]
    ) -> bool:
        """Does one of eager's formulas for these cotangents keep what has been written since? Eager
        is asked with what the inputs hold now, as their values say nothing of it. Raises what eager
        does where it comes first to an operator without a derivative."""
        try:
            self._ask_as_written(call, part, cotangents, outputs)
        except NotImplementedError:
            raise
        except (RuntimeError, LookupError, TypeError, ValueError):
            return True  # or there is nothing to be asked with these values
        return False

    def _ask_as_written(
        self, call: Call, part: Part, cotangents: Sequence[Any], outputs: Sequence[int]
    ) -> None:
        self.reruns += 1
        self._eagerly(call, part, cotangents, False, outputs, (*call.modified(),))

    def _refuse_as_written(self, call: Call, part: Part, cotangents: Sequence[Any]) -> None:
        """Raises where a formula of eager's keeps what the graph itself has written since, though
        an input has other values by now."""
        try:
            self._ask_as_written(call, part, cotangents, ())
        except (RuntimeError, LookupError, TypeError, ValueError) as error:
            if MODIFIED in str(error):
                raise

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

    def _inputs_to_write(self, call: Call) -> list[Any]:
        """The same; the graph may write to them."""
        inputs = self._inputs_as_given(call)
        for position in call.copies:
            inputs[position] = inputs[position].clone()
        return inputs

    def _learn(self, call: Call, part: Part, cotangents: Sequence[Any]) -> Form:
        """How the gradients of this pattern lie is known behind it, unless an input was written."""
        if self._decide is None:
            self._decide = eager_function(
                replace(self.graph, nodes=(), outputs=deciding(self.graph))
            )
        inputs = self._inputs_as_given(call)
        key = (part, form_of(cotangents), form_of(inputs), self._decide(*inputs))
        if key in self.laid:
            return key
        if not self._has_changed(call, part, cotangents):
            gradients = self._eagerly(call, part, cotangents, create=False)
            self.laid[key] = described(gradients, cotangents, call.inputs)
        elif self.writes:
            self._refuse_as_written(call, part, cotangents)
        return key

    def _has_changed(
        self, call: Call, part: Part, cotangents: Sequence[Any], begun_at: Sequence[int] = ()
    ) -> bool:
        """Has an input been written since, that these outputs are made of, or by which what is made
        of it could be refused? ``begun_at``: results that the program has still, from which they
        are made again."""
        if not call.is_modified():
            return False
        graph = (self.replayed or self.graph) if begun_at else self.graph
        written = {graph.inputs[position].value for position in call.modified()}
        outputs = [graph.outputs[p] for p, g in zip(part.outputs, cotangents) if g is not None]
        given = {*values_in(tuple([graph.outputs[p] for p in begun_at]))}
        behind = values_behind(graph, outputs, given)
        return not behind.isdisjoint(written) or may_refuse(graph, written)

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
            inputs = self._inputs_to_write(call)
            replaced = call.replaced()
            for position, memory in replaced.items():
                given_now = call.inputs[position]
                if not (create and given_now.requires_grad):
                    inputs[position] = memory
                elif not _is_alike(memory, given_now):
                    raise RuntimeError(REPLACED)
            for position in written_inputs:  # with version counters of their own
                inputs[position] = inputs[position].data
            own = call.living(self._own_saved[part]) if create else {}
            stand_ins = StandIns(alone=bool(own))
            is_behind_others = any(position < 0 for position in part.wanted)
            for position in self._leaves if is_behind_others else part.wanted:
                x = inputs[position]
                new = stand_ins.of(x, replaced.get(position)) if create else x.detach()
                inputs[position] = new.requires_grad_()
            results = call.living(self._earlier[part]) if create else {}
            contents = self._results_as_made(call, call.written([*results]))
            given = {
                p: stand_ins.holding(contents[p], tensor) if p in contents else stand_ins.of(tensor)
                for p, tensor in results.items()
            }
            here = {} if part in self.cuts else given  # there, the part reads views of them
            eager = self._eager_of(part, tuple(given))
            outs = self._replayed(call, [*inputs, *given.values()], eager)
            handed = {p: g for p, g in zip(part.outputs, cotangents) if g is not None}
            if written_inputs:  # only errors are asked for, and data may decide how many there are
                handed = {p: shaped_as(g, outs[p]) for p, g in handed.items()}
            if own:
                handed = {p: stand_ins.of(g) for p, g in handed.items()}
            way = Way.of(
                {outs[p]: g for p, g in handed.items()},
                [inputs[i] for i in part.wanted if i >= 0],
                [here.get(made_by(i), outs[made_by(i)]) for i in part.wanted if i < 0],
            )
            ends = [(get_gradient_edge(outs[p]), result) for p, result in own.items()]
            for position in replaced:  # as the program has done it
                inputs[position].data = call.inputs[position].data
            changed = [outs[p] for p in written] + [inputs[p] for p in written_inputs]
            changed += [given[p] for p in written if p in contents]
            for tensor in changed:
                torch.autograd.graph.increment_version(tensor.detach())
            of_inputs, of_results = map(iter, way.gradients(create))
            for edge, result in ends:
                stand_ins.ends_at(edge, result)
            found = [next(of_inputs if i >= 0 else of_results) for i in part.wanted]
            if not create:
                return found
            kept = [
                p for p in self.layout.kept_inputs if p not in replaced and p not in call.copies
            ]
            made = stand_ins.tied(found)
            results = {p: tensor for p, tensor in results.items() if p in self._referenced[part]}
            new = [g for g in made if not any(g is c for c in cotangents)]
            call.watch_data(kept, results, new, found)
            return made

    def _results_as_made(self, call: Call, positions: Sequence[int]) -> dict[int, torch.Tensor]:
        """What results contents that were written since: of which no formula has kept it."""
        if not positions:
            return {}
        inputs = self._inputs_to_write(call)
        for position, memory in call.replaced().items():
            inputs[position] = memory
        with torch.no_grad():
            made = self._replayed(call, inputs, self._eager_of(None, ()))
        return {position: made[position] for position in positions}

    def _eager_of(self, part: Part | None, given: tuple[int, ...]) -> Run:
        """The function of the graph's inputs and of these results on the way. Results that the
        program has dropped, and what is hidden from it, are made of these again, as what they add
        to gradients of gradients goes through these."""
        whole = self.replayed or self.graph
        graph = whole if part is None else self.cuts.get(part, whole)
        key = (None if graph is whole else part, given)
        if key not in self._eager:
            values = [*values_in(tuple([whole.outputs[position] for position in given]))]
            self._eager[key] = eager_function(self.cut_at(graph, values) if given else graph)
        return self._eager[key]

    def _replayed(self, call: Call, inputs: Sequence[Any], eager: Run) -> tuple[Any, ...]:
        if call.random_state is None:
            return eager(*inputs)
        with call.random_state.drawn_again():
            return eager(*inputs)


_UNKNOWN: Any = object()
_MARKER = torch.zeros((), requires_grad=True)
"""A leaf of which nobody wants a gradient."""


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
            boundary._run_forward(call)
        own = boundary._owns[part]
        saved = [call.as_saved(one, part, layout) for one in (*own, *boundary._watched[part])]
        ctx.save_for_backward(*saved)
        ctx.versions = versions_as_saved(saved)
        ctx.boundary, ctx.call, ctx.part, ctx.own = boundary, call, part, own
        ctx.mark = call.mark
        ctx.referenced = boundary.results_referenced(part, wanted)
        made = tuple([call.outs[position] for position in part.outputs])
        return made if len(made) != 1 else made[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        call = ctx.call
        # a function behind it may have given none at all
        given = any([g is not None for g in cotangents])
        found = _gradients(ctx, call, cotangents) if given else [None] * len(ctx.part.wanted)
        is_done = not _C._autograd._get_current_graph_task_keep_graph()
        if is_done and not ctx.boundary.layout.is_repeatable:
            ctx.call = ctx.referenced = None  # as autograd lets go of what was saved
        return None, None, None, None, *found


def _gradients(ctx: Any, call: Call, cotangents: Sequence[Any]) -> list[Any]:
    """Raises what autograd raises of tensors that were saved."""
    boundary, part, own = ctx.boundary, ctx.part, ctx.own
    written = None
    try:
        saved = () if boundary.layout.is_repeatable else ctx.saved_tensors[: len(own)]
    except RuntimeError as refusal:  # kernels make views where no gradients are recorded
        if not str(refusal).startswith((MODIFIED, VIEW_MODIFIED)):
            raise
        written = SavedTensors(ctx, refusal, ctx.versions)
    refuse_detached(ctx.referenced)
    if written is not None:
        return boundary.though_written(call, part, cotangents, written)
    is_replaced = call.is_replaced(boundary.layout.kept_inputs)
    call.refuse_replaced_results(boundary._read_earlier[part], saved, boundary._referenced[part])
    half = None if is_replaced else boundary.half_for(part, cotangents)
    # of `torch.autograd.grad`, and not of `backward()`, how gradients lie is seen
    asks_eager = not _C._will_engine_execute_node(ctx.next_functions[0][0])
    if half is None:
        return boundary.again(call, part, cotangents)
    found = boundary.gradients(half, call, part, cotangents, saved)
    if asks_eager:
        found = boundary.as_eager(call, part, cotangents, found)
    elif boundary.writes:
        boundary.refuse_as_eager(call, part, cotangents)
    return found


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape


def _is_transformed(cotangent: torch.Tensor) -> bool:
    """Whether it is no plain tensor, or stands for many, of ``is_grads_batched=True``."""
    return (
        type(cotangent) is not torch.Tensor
        or _C._functorch.is_functorch_wrapped_tensor(cotangent)
        or _C._functorch.is_legacy_batchedtensor(cotangent)
    )


def _with_memory(cotangent: torch.Tensor) -> torch.Tensor:
    """Zeros that autograd has made without memory (of a sign, say) get some."""
    return cotangent.clone() if cotangent._is_zerotensor() else cotangent
