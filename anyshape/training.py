"""A graph that records gradients, compiled: its forward and backward halves, and their boundary.

In: a captured graph and a function that compiles a graph of no gradients. Out:
``CompiledTraining``, which runs as a compiled graph does; or ``NotDifferentiable`` with the reason
for which eager torch runs the graph. The stages lie in ``autograd/``, ``passes/`` and
``runtime/boundary.py``, which know none of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import combinations
from types import MappingProxyType
from typing import Any

import torch

from anyshape.autograd.copied import with_copies
from anyshape.autograd.differentiate import Activity, Joint, differentiate
from anyshape.autograd.inlined import differentiates_again, inline_gradients, refuse_uncovered
from anyshape.autograd.kept import (
    Formulas,
    kept_as_left,
    kept_as_they_are,
    kept_by_each,
    kept_by_eager,
    reads_unchecked,
    unchecked_by_eager,
)
from anyshape.autograd.memory import are_disjoint, pieces, roots
from anyshape.autograd.outline import (
    Group,
    NotDifferentiable,
    Outline,
    independent,
    outline,
    without_marks,
)
from anyshape.autograd.partition import (
    BackwardHalf,
    Halves,
    Residual,
    StageHalves,
    backward_over,
    partition,
    residuals_read,
    sources_of_residuals,
)
from anyshape.autograd.recompute import recompute_cheap
from anyshape.autograd.replayable import with_marks, writes_on_the_way
from anyshape.autograd.shared_heads import without_repeated_heads
from anyshape.autograd.stages import Stage, cut_at, cut_in, named_in, staged
from anyshape.autograd.written_since import written_by_the_end, written_since
from anyshape.errors import AnyshapeError, stage_of
from anyshape.ir.graph import Graph, Node, TensorType, Value, values_in
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops import OPS
from anyshape.ops.gradients.backward import GRADIENTS
from anyshape.ops.write_back import WrittenThrough
from anyshape.passes.outputs import separate_outputs
from anyshape.passes.pipeline import DIFFERENTIABLE, JOINT, Pipeline
from anyshape.passes.simplify import without_dead_reads
from anyshape.runtime.boundary import Boundary
from anyshape.runtime.halves import Half, Layout, Part, made_by
from anyshape.runtime.profile import Times
from anyshape.runtime.random_state import devices_drawn_on
from anyshape.runtime.rollback import written_inputs
from anyshape.runtime.saved_by_eager import (
    keeps_nothing,
    kept_by_formula,
    reads_what_is_written,
    requires_as_marked,
)
from anyshape.runtime.saved_values import SavedValue
from anyshape.schedule.causal_masks import without_causal_masks

CompileHalf = Callable[[Graph, Mapping[str, torch.Tensor]], Callable[[], Any]]
"""Begins to compile a graph that records nothing, and gives what ends it; both raise
``NotDifferentiable`` where eager torch has to run all of it."""
READS_WRITTEN = "what its gradient reads may have been written since"


@mutable(eq=False)
class CompiledTraining:
    """Both halves, with every intermediate; a backward half is made when it is first needed.
    ``stages`` are (name, graph after it)."""

    graph: Graph
    stages: tuple[tuple[str, Graph], ...]
    boundary: Boundary
    halves: list[Any] = field(default_factory=list)  # compiled, the forward one first
    saved: str = ""  # what is kept for the backward half, and what that computes again
    differentiated: bool = True

    @property
    def run(self) -> Callable[..., tuple[Any, ...]]:
        return self.boundary.run

    @property
    def translation(self) -> Any:
        """What its forward half became."""
        return getattr(self.halves[0], "translation", None) if self.halves else None

    @property
    def linked(self) -> str:
        """The code of the halves."""
        return "\n\n".join(str(half.linked) for half in self.halves)

    @property
    def kernel_names(self) -> frozenset[str]:
        return frozenset().union(*(half.kernel_names for half in self.halves))

    def why_not_replayed(self) -> str:
        """Why its device replays no half of it as a whole; "" where that was not asked for."""
        return self.halves[0].why_not_replayed() if self.halves else ""

    def measured(self) -> str:
        """The schedules that were chosen by measuring them, of both halves."""
        return "\n".join(filter(None, (half.measured() for half in self.halves)))

    def kernels(self, times: Times = MappingProxyType({})) -> list[str]:
        """A line for each kernel of each half."""
        return [line for half in self.halves for line in half.kernels(times)]

    def count(self, kind: str) -> int:
        """The sum of both halves."""
        return sum(half.count(kind) for half in self.halves)


@mutable(eq=False)
class _Backwards:
    """The backward halves of one graph: the one of all gradients, and those where some cotangents
    are absent, each made when it is first wanted. ``compiled``: the forward half and them, in the
    order in which they were made."""

    graph: Graph
    outlined: Outline
    formulas: Formulas
    chained: _Chained
    whole: Joint
    halves: Halves
    of_stages: Mapping[tuple[int, ...], BackwardHalf]
    compile: CompileHalf
    compiled: list[Any] = field(default_factory=list)
    known: dict[tuple[int, ...], Half] = field(default_factory=dict)

    def keep(self, compiled: Any, made: BackwardHalf) -> Half:
        self.compiled.append(compiled)
        read = residuals_read(made.graph, len(made.residuals))
        return Half(compiled.run, made.given, read)

    def make(self, absent: tuple[int, ...]) -> Half:
        """The one without these cotangents."""
        if absent in self.known:
            return self.known[absent]
        try:
            made = self._made(absent)
            compiled = self.compile(made.graph, {})()
        except NotDifferentiable as refused:
            raise AnyshapeError("E401", op="backward", why=refused.reason) from refused
        return self.keep(compiled, made)

    def _made(self, absent: tuple[int, ...]) -> BackwardHalf:
        if not absent:
            return self.halves.whole()
        handed = tuple([p for p in self.chained.differentiable if p not in absent])
        if handed in self.of_stages:
            return self.of_stages[handed]
        with _refusals(), stage_of("differentiation", self.graph.first_line):
            part = _joint(self.chained, self.outlined, self.formulas, absent)
            backward = backward_over(part, self.whole, OPS, self.halves)
        given = tuple(i for i, g in enumerate(part.gradients) if g is not None)
        return replace(self.halves.whole(), graph=backward, given=given)


def compile_training(
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
    compile_forward: CompileHalf,
    compile_backward: CompileHalf,
    budget: float,
) -> CompiledTraining:
    """``budget``: the share of what would be saved that may be (``autograd/budget.py``). Raises
    ``NotDifferentiable``."""
    for node, written in written_by_the_end(graph, OPS):
        if reads_unchecked(node, written, OPS):
            raise NotDifferentiable(READS_WRITTEN, node)
    outlined = outline(with_copies(graph, OPS, reads_what_is_written), OPS)
    formulas = Formulas(outlined.marked, OPS, kept_by_formula)
    shared = _refuse_shared(outlined)
    with _refusals(), stage_of("differentiation", graph.first_line):
        functional, expanded = _functional(outlined.graph)
        pure = without_repeated_heads(expanded, OPS)
        groups = independent(graph, OPS, outlined.differentiable)
        chained = _staged(pure, outlined, groups)
        whole = _joint(chained, outlined, formulas)
        halves = partition(whole, OPS, budget)
        of_stages = StageHalves(whole, OPS, halves, chained.stages).made if chained.stages else {}
    forward = compile_forward(halves.forward, constants)
    backwards = _Backwards(
        graph, outlined, formulas, chained, whole, halves, of_stages, compile_backward
    )
    ahead = len(chained.differentiable) == 1  # the half is known, and refused now or never
    backward = compile_backward(halves.backward, {}) if ahead else None
    backwards.compiled.append(forward())
    if backward is not None:
        backwards.known[()] = backwards.keep(backward(), halves.whole())
    unwritten = _unwritten(outlined.marked, functional) if chained.stages else None
    again = unwritten or graph
    seen = replace(again, outputs=(*again.outputs, *named_in(again, chained.hidden, OPS)))
    replayed = without_dead_reads(seen, OPS)
    layout = replace(
        _layout(outlined, formulas, unwritten, halves, groups, chained, of_stages), shared=shared
    )
    cuts = (cut_in(replayed, chained.graph, stage, OPS) for stage in chained.stages)
    boundary = Boundary(
        seen,
        constants,
        layout,
        backwards.compiled[0].run,
        backwards.make,
        drawn_on=devices_drawn_on(graph),
        writes=any(map(_writes, graph.nodes)) or _is_refused(graph),
        replayed=replayed,
        cuts={part: cut for part, cut in zip(layout.parts, cuts) if cut is not None},
        cut_at=_cut_at,
    )
    stages = (("joint", whole.graph), ("forward", halves.forward), ("backward", halves.backward))
    return CompiledTraining(graph, stages, boundary, backwards.compiled, saved_in_words(halves))


def saved_in_words(halves: Halves) -> str:
    """What the forward half keeps for the backward one, and what that computes again instead."""
    makers = {value.name: node for node in halves.forward.nodes for value in node.outputs}
    lines = []
    for residual, entry in zip(halves.residuals, halves.backward.inputs):
        maker = makers.get(entry.value.name)
        kind = entry.value.tensor
        what = residual.kind if maker is None else f"{residual.kind}, {maker.op}"
        line = "" if maker is None or maker.location is None else f"  # {maker.location}"
        sizes = ", ".join(map(str, kind.shape))
        lines.append(f"  {entry.value.name}: {kind.dtype.name}[{sizes}] ({what}){line}")
    again = Counter(
        node.op
        for node in halves.backward.nodes
        if any(value.name in makers for value in node.outputs)
    )
    counted = ", ".join(f"{op} x {count}" for op, count in again.most_common())
    head = f"saved for the backward half: {len(lines)} tensors"
    return "\n".join([head, *lines, f"computed again: {counted or 'nothing'}"])


@frozen(eq=False)
class Step:
    """A program that calls ``backward()`` itself, as one graph that records nothing. ``spent``:
    the outputs that required gradients, of which there are none to be had any more."""

    graph: Graph
    stages: tuple[tuple[str, Graph], ...]
    spent: tuple[int, ...]


def whole_step(graph: Graph, budget: float) -> Step:
    """Raises ``NotDifferentiable``."""
    spent = refuse_uncovered(graph, OPS)
    for node, written in written_since(graph, OPS):
        if reads_unchecked(node, written, OPS) or reads_what_is_written(graph, node, written):
            raise NotDifferentiable(READS_WRITTEN, node)
    with _refusals(), stage_of("differentiation", graph.first_line):
        outlined = without_marks(graph)
        pure = without_repeated_heads(_last(DIFFERENTIABLE, outlined), OPS)
        while differentiates_again(pure):
            pure = _last(DIFFERENTIABLE, inline_gradients(pure, OPS, first=True))
        plain = inline_gradients(pure, OPS)
        core = _last(JOINT, plain)
        if sum(node.op == GRADIENTS and not node.args[4] for node in graph.nodes) == 1:
            core = recompute_cheap(core, OPS, budget)
        own = separate_outputs(outlined, core, OPS)
    return Step(own, (("differentiated", core),), spent)


@contextmanager
def _refusals() -> Iterator[None]:
    """What is not covered is no mistake: it comes as ``NotDifferentiable`` out of a stage."""
    try:
        yield
    except AnyshapeError as error:
        cause = error.__cause__
        while isinstance(cause, AnyshapeError):
            cause = cause.__cause__
        if isinstance(cause, NotDifferentiable):
            raise cause from None
        if isinstance(cause, WrittenThrough):
            raise NotDifferentiable(str(cause)) from error
        raise


@frozen(eq=False)
class _Chained:
    """The functional graph, whose last outputs are ``hidden`` where there are ``stages``."""

    graph: Graph
    differentiable: tuple[int, ...]
    hidden: tuple[Value, ...]
    stages: tuple[Stage, ...]


def _staged(pure: Graph, outlined: Outline, groups: Sequence[Group]) -> _Chained:
    active = Activity(pure, OPS, [pure.inputs[i].value for i in outlined.wanted])
    active.agree_on(outlined.differentiable)
    nodes = [*filter(active.differentiates, pure.nodes)]
    made = staged(pure, OPS, active.values, nodes, groups)
    if made is None:
        return _Chained(pure, outlined.differentiable, (), ())
    count = len(pure.outputs)
    differentiable = (*outlined.differentiable, *range(count, len(made.graph.outputs)))
    hidden = tuple(values_in(made.graph.outputs[count:]))
    return _Chained(made.graph, differentiable, hidden, made.stages)


def _joint(
    chained: _Chained, outlined: Outline, formulas: Formulas, absent: tuple[int, ...] = ()
) -> Joint:
    joint = differentiate(
        chained.graph, OPS, outlined.wanted, chained.differentiable, absent, chained.stages
    )
    core = without_causal_masks(_last(JOINT, joint.graph), OPS)
    count = len(outlined.graph.outputs)
    own = separate_outputs(outlined.graph, _cut_to(core, count), OPS)
    outputs = (*own.outputs, *core.outputs[count:])
    (kept_inputs, kept_outputs), (left_inputs, left_outputs) = kept_by_eager(formulas)
    unchecked_inputs, unchecked_outputs = unchecked_by_eager(outlined.marked, OPS)
    return replace(
        joint,
        graph=replace(own, outputs=outputs),
        saved_inputs=joint.saved_inputs | kept_inputs,
        saved_outputs=(joint.saved_outputs - unchecked_outputs) | kept_outputs,
        unchecked_inputs=unchecked_inputs,
        left_inputs=kept_as_left(formulas) | left_inputs,
        left_outputs=left_outputs - unchecked_outputs,
    )


def _cut_at(graph: Graph, values: Sequence[Value]) -> Graph:
    """Raises ``AnyshapeError``."""
    try:
        return cut_at(graph, values, OPS)
    except NotDifferentiable as refused:
        raise AnyshapeError("E401", op="backward", why=refused.reason) from refused


def _cut_to(graph: Graph, count: int) -> Graph:
    return replace(graph, outputs=graph.outputs[:count])


def _functional(graph: Graph) -> tuple[Graph, Graph]:
    """The graph without writes, and as gradients are taken of it."""
    stages = dict(DIFFERENTIABLE.stages(graph, OPS))
    return stages["functionalize"], [*stages.values()][-1]


def _unwritten(graph: Graph, functional: Graph) -> Graph | None:
    """The graph with pure operators for writes, for eager torch to run again, where no input is
    written, surely none of eager's formulas keeps what is (else it would refuse what is refused no
    more), and what these operators make requires gradients as what is written does: zeros do
    not."""
    if not writes_on_the_way(graph, OPS) or _is_refused(graph):
        return None
    writes = written_inputs(graph)
    if writes.before or writes.behind:
        return None
    made = with_marks(functional, graph, OPS)
    if made is None:
        return None
    known = {value.name for node in graph.nodes for value in node.outputs}
    for node in made.nodes:
        is_new = any(value.name not in known for value in node.outputs)
        if is_new and not requires_as_marked(made, node):
            return None
    return made


def _last(pipeline: Pipeline, graph: Graph) -> Graph:
    for _, made in pipeline.stages(graph, OPS):
        graph = made
    return graph


def _refuse_shared(outlined: Outline) -> tuple[int, ...]:
    """Outputs that require gradients own their memory, each alone: eager's views know a base. But
    pieces of splits that do not overlap may share it, to which eager lets nobody write. Given are
    these."""
    owner = roots(outlined.graph, OPS)
    inputs = {entry.value for entry in outlined.graph.inputs}
    taken: dict[Value, list[int]] = {}
    for position in outlined.differentiable:
        output = outlined.graph.outputs[position]
        assert isinstance(output, Value)
        root = owner.get(output, output)
        if root in inputs:
            raise NotDifferentiable("an output that requires gradients is an input, or views one")
        taken.setdefault(root, []).append(position)
    shared = [positions for positions in taken.values() if len(positions) > 1]
    of_splits = [p for positions in shared for p in _refuse_overlaps(outlined, positions)]
    return tuple(sorted(of_splits))


def _refuse_overlaps(outlined: Outline, positions: Sequence[int]) -> Sequence[int]:
    """Of outputs in one memory; those that are pieces of splits."""
    graph = outlined.graph
    found = pieces(graph, OPS)
    of_outputs = {p: found.get(v, {}) for p in positions for v in values_in(graph.outputs[p])}
    of_splits = (any(isinstance(cut, Node) for cut in cuts) for cuts in of_outputs.values())
    disjoint = (are_disjoint(graph.facts, *pair) for pair in combinations(of_outputs.values(), 2))
    if not all(of_splits) or not all(disjoint):
        raise NotDifferentiable("outputs that require gradients share memory")
    return positions


def _layout(
    outlined: Outline,
    formulas: Formulas,
    unwritten: Graph | None,
    halves: Halves,
    groups: Sequence[Group],
    chained: _Chained,
    of_stages: Mapping[tuple[int, ...], BackwardHalf],
) -> Layout:
    outputs = len(chained.graph.outputs)
    every = tuple(range(len(halves.residuals)))
    parts = [Part(group.outputs, group.wanted, every) for group in groups]
    if chained.stages:
        parts = [
            Part(
                stage.outputs,
                (*stage.wanted, *map(made_by, stage.before)),
                of_stages[stage.outputs].residuals,
                tuple(sorted(kept)),
            )
            for stage, kept in zip(chained.stages, _results_kept(outlined, unwritten, chained))
        ]
    read = [one.position for one in halves.residuals if one.kind == "input"]
    tensors = (
        e for e in enumerate(outlined.marked.inputs) if isinstance(e[1].value.type, TensorType)
    )
    inputs = {entry.value: position for position, entry in tensors}
    kept = kept_as_they_are(formulas, inputs)
    as_views = frozenset(read) - kept
    return Layout(
        outputs,
        tuple(key for part in parts for key in part.wanted) if chained.stages else outlined.wanted,
        chained.differentiable,
        tuple(_saved_value(one, as_views) for one in halves.residuals),
        tuple(map(_saved_value, halves.watched)),
        outputs + halves.extra,
        tuple(parts),
        len(chained.hidden),
        tuple(sorted(kept)),
        not (halves.residuals or halves.watched) and keeps_nothing(outlined.marked),
        sources=sources_of_residuals(halves),
    )


def _results_kept(
    outlined: Outline, unwritten: Graph | None, chained: _Chained
) -> list[frozenset[int]]:
    """Of each stage, the results that its formulas of eager's keep themselves."""
    marked = unwritten or outlined.marked
    results = {v: p for p in outlined.differentiable for v in values_in(marked.outputs[p])}
    outputs = (*marked.outputs, *named_in(marked, chained.hidden, OPS))
    ways = (
        [[*values_in(tuple(outputs[p] for p in ps))] for ps in (stage.outputs, stage.before)]
        for stage in chained.stages
    )
    stages = [(made, frozenset(before)) for made, before in ways]
    return kept_by_each(Formulas(marked, OPS, kept_by_formula), results, stages)


def _writes(node: Node) -> bool:
    """Does it write in place what has gradients?"""
    tensors = (v.type for v in node.outputs if isinstance(v.type, TensorType))
    return node.op in OPS and bool(OPS[node.op].mutates) and any(t.requires_grad for t in tensors)


def _is_refused(graph: Graph) -> bool:
    """Does it write what one of eager's formulas keeps, though that has no gradients?"""
    if not any(node.op in OPS and OPS[node.op].mutates for node in graph.nodes):
        return False
    behind = written_by_the_end(graph, OPS)
    return any(reads_what_is_written(graph, node, written) for node, written in behind)


def _saved_value(
    residual: Residual,
    as_views: frozenset[int] = frozenset(),
) -> SavedValue:
    if residual.kind != "input":
        return SavedValue(False, residual.position, residual.checked)
    return SavedValue(True, residual.position, residual.checked, residual.position in as_views)
