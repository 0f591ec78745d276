"""Copy or view, where that depends on a size: decided only if anybody could tell the difference.

In: the nodes of a capture, what was written and what is returned. `x.t().contiguous()` is `x`
itself at one row and a copy otherwise; that matters where one of the two is written, or both
are visible outside. Then the question is decided by a guard; nearly always nobody asks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial

from anyshape.capture.guards.no_alias import Fixed, NoAlias
from anyshape.capture.heap.breaks import broken
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.indexing import is_number
from anyshape.ir.graph import Arg, Node, TensorType, Value, values_in
from anyshape.nouns import frozen
from anyshape.ops import OPS
from anyshape.ops.context import OpError, TypeContext, Undecided
from anyshape.ops.gradients.backward import is_recorded, requires
from anyshape.ops.layout import dense_order, is_contiguous
from anyshape.ops.row_major_results import LED, makes_rows
from anyshape.ops.rules import is_empty
from anyshape.ops.shared_memory import lies_in_argument
from anyshape.ops.table import OpDef
from anyshape.symbolic import Condition, Dim, all_of, any_of, eq, ge, lt, ne


class PicksAreSeen(BaseException):
    """A copy instead of ``x[i]``, with a number in a tensor, would be uses from the view."""


class GradientsAreSeen(BaseException):
    """How what ``torch.autograd.grad`` gives lies in memory would be seen."""


def refuse_seen_gradients(recorder: Recorder, outputs: Sequence[Arg]) -> None:
    """Eager lays a gradient out as it likes, and in memory that others may share. Nobody sees how
    where it is only read, and what may lie as it does is not handed out."""
    if recorder.layouts_read:
        raise GradientsAreSeen
    if not recorder.taken:
        return
    handed_out = [*values_in(tuple(outputs))]
    if _lie_as_gradients(recorder, lambda node: False).isdisjoint(handed_out):
        return
    if not _lie_as_gradients(recorder, partial(_is_led, recorder)).isdisjoint(handed_out):
        raise GradientsAreSeen


def _lie_as_gradients(recorder: Recorder, is_led: Callable[[Node], bool]) -> set[Value]:
    """What may lie as a gradient does. Raises `GradientsAreSeen` where an operator shows it."""
    seen = set(recorder.taken)
    for node in recorder.builder.nodes:
        if seen.isdisjoint(node.inputs()):
            continue
        row = OPS.get(node.op)
        writes = row is not None and bool(row.mutates)
        if row is None or row.guessed or row.by_layout:
            raise GradientsAreSeen
        if writes and next(node.inputs()) in seen:
            raise GradientsAreSeen
        if node.op in LED and node.read[0] not in seen and is_led(node):
            continue
        made = () if writes else node.outputs
        seen.update(v for v in made if isinstance(v.type, TensorType) and _shows_order(v, row))
    return seen


def _shows_order(made: Value, row: OpDef) -> bool:
    """Whether a result may lie as an argument does."""
    return made.tensor.rank > 1 or row.alias != "none"


def _is_led(recorder: Recorder, node: Node) -> bool:
    """Whether the first argument tells how the result lies: no size of it is 0 or 1, as in the
    example, which is guarded."""
    kind, made = node.read[0].tensor, node.output
    sizes = [ge(size, 2) for size in kind.shape]
    same = all_of(*map(eq, kind.shape, made.shape)) if kind.rank == made.tensor.rank else False
    conditions = (same, is_row_major(kind), *sizes)
    if not all(condition is True or recorder.cx.hint(condition) for condition in conditions):
        return False
    try:
        return all(map(recorder.cx.decide, conditions))
    except Undecided:
        return False


class Classes:
    """Tensors that share memory for sure (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}

    def of(self, value: Value) -> Value:
        while value in self._parent:
            value = self._parent[value]
        return value

    def join(self, a: Value, b: Value) -> None:
        a, b = self.of(a), self.of(b)
        if a is not b:
            self._parent[b] = a


def is_row_major(kind: TensorType) -> Condition | bool:
    """The condition on sizes under which a tensor of this type lies in memory row by row."""
    parts: list[Condition | bool] = []
    expected: Dim = 1
    for size, stride in zip(reversed(kind.shape), reversed(kind.strides)):
        parts.append(any_of(eq(size, 1), eq(stride, expected)))
        expected = expected * size
    return all_of(*parts)


def is_contiguous_where(kind: TensorType) -> Condition | bool:
    """The condition under which eager calls a tensor of this type contiguous: so is what is
    empty."""
    return any_of(is_row_major(kind), *(eq(size, 0) for size in kind.shape))


def writes_older(recorder: Recorder, start: int) -> bool:
    """Do the nodes from this one on write what was there before them?"""
    nodes, classes = recorder.builder.nodes, memory_classes(recorder)
    mutating = [n for n in nodes[start:] if n.op in OPS and OPS[n.op].mutates and n.read]
    written = {classes.of(node.read[0]) for node in mutating}
    if not written:
        return False
    made = {value for node in nodes[start:] for value in node.outputs}
    values = (value for node in nodes for value in (*node.inputs(), *node.outputs))
    return any(classes.of(value) in written for value in values if value not in made)


def memory_classes(recorder: Recorder, *, but: Set[str] = frozenset()) -> Classes:
    """Which values may share memory: views, and what is written in place. ``but``: operators
    whose results count as new memory."""
    classes = Classes()
    for node in recorder.builder.nodes:
        if node.op in but:
            continue
        row = OPS.get(node.op)
        first = next(node.inputs(), None)
        if row is not None and first is not None and (row.alias != "none" or row.mutates):
            for output in node.outputs:
                classes.join(first, output)
    return classes


def writes_arguments(recorder: Recorder) -> bool:
    """Is anything written that the graph does not make itself?"""
    classes = memory_classes(recorder)
    inputs = {classes.of(entry.value) for entry in recorder.builder.inputs}
    return any(classes.of(value) in inputs for value in recorder.written)


def is_any_written(recorder: Recorder, values: Sequence[Value]) -> bool:
    """Does a node write the memory that one of these lies in?"""
    classes = memory_classes(recorder)
    owners = set(map(classes.of, values))
    nodes = [node for node in recorder.builder.nodes if node.op in OPS and OPS[node.op].mutates]
    return any(classes.of(node.read[0]) in owners for node in nodes if node.read)


def no_alias_of(recorder: Recorder) -> NoAlias | None:
    """What must be asked where the graph writes an input; None where it writes none, or is
    handed a single tensor without holes."""
    classes = memory_classes(recorder)
    touched = {classes.of(value) for value in recorder.written}
    inputs = [entry.value for entry in recorder.builder.inputs]
    written = {value for value in inputs if classes.of(value) in touched}
    given = [(source, v) for source, v in recorder.input_sources if isinstance(v.type, TensorType)]
    if not written:
        return None
    constants = {v: recorder.constants[v.name] for v in inputs if v.name in recorder.constants}
    of_written = {id(t): t for value, t in constants.items() if value in written}
    left = {id(t): t for t in constants.values() if id(t) not in of_written}
    known = {classes.of(value) for value in _known_to_autograd(recorder)}
    recorded = [t for value, t in constants.items() if classes.of(value) in known]
    fixed = Fixed.of([*of_written.values()], [*left.values()], recorded)
    alone = len(given) == 1 and not (constants if given[0][1] in written else of_written)
    if fixed.disjoint and (not given or (alone and _is_dense(given[0][1]))):
        return None
    given.sort(key=lambda pair: pair[1] not in written)
    return NoAlias(
        tuple(source for source, value in given if value in written),
        tuple(source for source, value in given if value not in written),
        frozenset(n for n, (_, value) in enumerate(given) if classes.of(value) in known),
        fixed,
    )


def _is_dense(value: Value) -> bool:
    return dense_order(value.shape, value.tensor.strides) is not None


def _known_to_autograd(recorder: Recorder) -> Iterator[Value]:
    """What formulas of recorded operators may keep, and what is written by such."""
    for node in recorder.builder.nodes:
        if is_recorded(node) and any(map(requires, node.outputs)):
            yield from node.inputs()
            yield from node.outputs


@frozen
class _Maybe:
    """A node that copies or not, and the classes of what it reads and of what it gives."""

    node: Node
    source: Value
    copy: Value


def settled(recorder: Recorder, outputs: Sequence[Arg]) -> tuple[Arg, ...]:
    """Guards whether a copy is a view, for each copy of which that can be seen; the outputs, as the
    objects that they are: of a tensor that lies row by row, ``contiguous`` is that tensor."""
    _settle(recorder, outputs)
    same = {n.output: n.read[0] for n in recorder.builder.nodes if _gives_itself(recorder, n)}

    def object_of(value: Arg) -> Arg:
        while isinstance(value, Value) and value in same:
            value = same[value]
        return value

    return tuple(map(object_of, outputs))


def _gives_itself(recorder: Recorder, node: Node) -> bool:
    if node.op != "contiguous" or node.kwargs.get("memory_format") is not None:
        return False
    return recorder.cx.known(is_contiguous_where(node.read[0].tensor)) is True


def is_given_back(recorder: Recorder, made: Value, source: Value) -> bool:
    """Guards whether ``made`` is ``source``, the very object, as ``contiguous`` gives back what is
    row-major or empty."""
    node = recorder.builder.makers.get(made)
    if node is None or node.op != "contiguous" or node.kwargs.get("memory_format") is not None:
        return False
    if node.read[0] is not source and not is_given_back(recorder, node.read[0], source):
        return False
    return _shares(recorder, node)


def _settle(recorder: Recorder, outputs: Iterable[Arg]) -> None:
    nodes = recorder.builder.nodes
    unsure = [node for node in nodes if _may_copy(node) and _is_unsure(recorder, node)]
    picked = [node for node in nodes if is_pick(node)]
    if any(node.output in recorder.asked for node in picked) and not recorder.picks_are_views:
        raise PicksAreSeen
    if not unsure and not picked:
        return
    classes = Classes()
    for node in nodes:
        row = OPS.get(node.op)
        sure = row is not None and (row.alias == "view" or row.mutates)
        if sure or (_may_copy(node) and node not in unsure):
            for first, output in itertools.product(node.read[:1], node.outputs):
                classes.join(first, output)
    maybe = [_Maybe(n, classes.of(n.read[0]), classes.of(n.output)) for n in unsure]
    inputs = {classes.of(entry.value) for entry in recorder.builder.inputs}
    returned = {classes.of(value): None for value in values_in(tuple(outputs))}
    if picked and not recorder.picks_are_views:
        picks = [_Maybe(n, classes.of(n.read[0]), classes.of(n.output)) for n in picked]
        written = {classes.of(value) for value in recorder.written}
        _ask_for_views(picks, maybe, written, inputs, set(returned))
    left = _settle_written(recorder, maybe, {classes.of(value) for value in recorder.written})
    _settle_seen(recorder, {m.copy: m for m in left}, inputs, tuple(returned))
    unsettled = [m.node for m in left]
    drawn = [value for node in nodes if OPS[node.op].random for value in node.outputs]
    _settle_followed(recorder, unsettled, drawn, _decide_drawn)
    shown = (*values_in(tuple(outputs)), *recorder.laid)
    _settle_followed(recorder, unsettled, shown, _decide_order)


def _settle_followed(
    recorder: Recorder,
    unsure: Sequence[Node],
    shown: Sequence[Value],
    decide: Callable[[Recorder, Node], object],
) -> None:
    """Decides the reshapes whose layout another tensor has whose layout is seen, ``x.clone()``, or
    into which numbers are drawn one after the other in memory."""
    open_nodes = {node for node in unsure if node.op not in COPIERS}
    wanted = set(shown)
    for node in reversed(recorder.builder.nodes if open_nodes else ()):
        if wanted.isdisjoint(node.outputs):
            continue
        if node in open_nodes:
            decide(recorder, node)
        elif lies_as_read(recorder, node):
            wanted.update(node.inputs())


def lies_as_read(recorder: Recorder, node: Node) -> bool:
    """May a result lie as an argument does?"""
    row = OPS.get(node.op)
    if row is None or row.alias != "none" or row.mutates:
        return True
    kinds = [value.type for value in node.outputs]
    several = any(isinstance(kind, TensorType) and kind.rank > 1 for kind in kinds)
    return several and not makes_rows(recorder.builder, row, node)


def _decide_order(recorder: Recorder, node: Node) -> None:
    """Guards that a reshape copies, or is row-major, where its sizes are two at least: at others
    the strides are worked out in each call (``passes/ambiguous_layouts.py``)."""
    kind, shape = node.read[0].tensor, node.output.tensor.shape
    several = recorder.cx.facts
    for size in (*kind.shape, *shape):
        if several.known(ne(size, 1)) is not False:
            larger = several.under(ge(size, 2))
            if larger is None:  # there are no such sizes
                return
            several = larger

    def holds(condition: Condition | bool) -> bool:
        known = condition if isinstance(condition, bool) else several.known(condition)
        return _rely(recorder, condition) if known is None else known

    kept = [d for d, size in enumerate(kind.shape) if several.known(eq(size, 1)) is not True]
    merged = [kind.shape[d] for d in kept[:1]]
    for outer, inner in itertools.pairwise(kept):
        if holds(eq(kind.strides[outer], kind.strides[inner] * kind.shape[inner])):
            merged[-1] = merged[-1] * kind.shape[inner]
        else:
            merged.append(kind.shape[inner])
    if len(merged) > 1 and _is_cut(merged, shape, holds):
        raise broken("undecided-size", condition=f"{node.op} is no copy at these sizes")


def _decide_drawn(recorder: Recorder, node: Node) -> None:
    """Guards that a reshape into which numbers are drawn is a copy wherever two dimensions of more
    than one element lie in another order than in rows; a copy lies in rows."""
    kind = node.read[0].tensor
    for outer, inner in itertools.combinations(range(kind.rank), 2):
        others = [size for dim, size in enumerate(kind.shape) if dim not in (outer, inner)]
        while not _is_copied(recorder, node, outer, inner):
            if not others:
                _shares(recorder, node)
                return
            _rely(recorder, eq(others.pop(), 1))


def _is_copied(recorder: Recorder, node: Node, outer: int, inner: int) -> bool:
    """Is a reshape a copy where two dimensions of its argument lie in another order?"""
    kind, facts = node.read[0].tensor, recorder.cx.facts
    strides, sizes = kind.strides, kind.shape
    large = (ge(sizes[outer], 2), ge(sizes[inner], 2), lt(strides[outer], strides[inner]))
    for condition in (*(ge(size, 1) for size in sizes), *large):
        under = facts.under(condition)
        if under is None:  # there are no such sizes
            return True
        facts = under
    copies_where = OPS[node.op].copies_where
    cx = TypeContext(recorder.cx.space, facts, recorder.cx.hints)
    return copies_where is not None and copies_where(cx, node) is True


def _may_copy(node: Node) -> bool:
    """A view, or a copy, by the argument's layout."""
    row = OPS.get(node.op)
    return row is not None and row.views_where is not None


def is_pick(node: Node) -> bool:
    """Is it ``x[i]`` with numbers in tensors, of which eager makes a view of ``x``?"""
    if node.op != "index":
        return False
    assert isinstance(node.args[1], tuple)
    return all(map(is_number, filter(None, node.args[1])))


def _ask_for_views(
    picks: Sequence[_Maybe],
    others: Sequence[_Maybe],
    written: set[Value],
    inputs: set[Value],
    returned: set[Value],
) -> None:
    """A copy stands for the view that ``x[i]`` is, unless one of the two is written, both are
    visible outside, or the view is: it lies in the middle of its base."""
    together, seen = Classes(), Classes()
    for maybe in (*picks, *others):
        together.join(maybe.source, maybe.copy)
    for maybe in others:
        seen.join(maybe.source, maybe.copy)
    uses = Counter(map(together.of, inputs | returned))
    uses.update(together.of(value) for value in (*written, *written))
    outside = set(map(seen.of, returned))
    if any(uses[together.of(p.copy)] > 1 or seen.of(p.copy) in outside for p in picks):
        raise PicksAreSeen


def _settle_written(
    recorder: Recorder, maybe: Sequence[_Maybe], written: set[Value]
) -> Sequence[_Maybe]:
    """Decides each copy of what is written, and of what shares memory with that; the others."""
    left, together = list(maybe), set(written)

    def next_touched() -> _Maybe | None:
        return next((m for m in left if m.source in together or m.copy in together), None)

    while (found := next_touched()) is not None:
        left.remove(found)
        if is_empty(recorder.cx, found.node.read[0].tensor) or _shares(recorder, found.node):
            together |= {found.source, found.copy}
    return left


def _settle_seen(
    recorder: Recorder,
    parents: Mapping[Value, _Maybe],
    inputs: set[Value],
    returned: Sequence[Value],
) -> None:
    """Decides the copies on the way between two that are visible outside."""
    passed: dict[Value, list[_Maybe]] = {}
    for at in returned:
        way: list[_Maybe] = []
        while at in parents and len(way) < len(parents):
            way.append(parents[at])
            at = parents[at].source
            if at in inputs or at in returned or at in passed:
                all(_shares(recorder, m.node) for m in (*way, *passed.get(at, ())))
                break
            passed[at] = list(way)


def shares(recorder: Recorder, node: Node) -> bool:
    """Whether a node that copies or not gives a view; guarded where that depends on sizes."""
    if not _may_copy(node):
        return False
    if _is_unsure(recorder, node):
        return is_empty(recorder.cx, node.read[0].tensor) or _shares(recorder, node)
    return lies_in_argument(recorder.cx, node, OPS[node.op])


def _shares(recorder: Recorder, node: Node) -> bool:
    """Guards whether it is a view: one relation for each dimension, as the example sizes have it,
    since facts that are no disjunctions simplify types. What is empty is contiguous."""
    kind = node.read[0].tensor
    if node.op == "contiguous" and is_empty(recorder.cx, kind):
        return True
    whole = is_row_major(kind)
    known = recorder.cx.known(whole)
    if known is False and node.op in COPIERS:
        return False
    if known is False or (known is None and recorder.cx.hint(whole) is not True):
        _rely(recorder, whole)
        if node.op not in COPIERS:
            _decide_view(recorder, node, kind)
        return False
    expected: Dim = 1
    for size, stride in zip(reversed(kind.shape), reversed(kind.strides)):
        parts = (eq(size, 1), eq(stride, expected))
        if not any(recorder.cx.known(part) for part in parts):
            recorder.rely(next((part for part in parts if recorder.cx.hint(part)), parts[0]))
        expected = expected * size
    if not lies_in_argument(recorder.cx, node, OPS[node.op]):
        raise broken("undecided-size", condition=f"{node.op} copies at these sizes")
    return True


def _decide_view(recorder: Recorder, node: Node, kind: TensorType) -> None:
    """A tensor that is not row-major can still be viewed in another shape where sizes are 1."""
    for size in kind.shape:
        _rely(recorder, eq(size, 1))
    kept = [d for d, size in enumerate(kind.shape) if not recorder.cx.known(eq(size, 1))]
    merged: list[Dim] = [kind.shape[d] for d in kept[:1]]  # what lies together is one dimension
    for outer, inner in itertools.pairwise(kept):
        if _rely(recorder, eq(kind.strides[outer], kind.strides[inner] * kind.shape[inner])):
            merged[-1] = merged[-1] * kind.shape[inner]
        else:
            merged.append(kind.shape[inner])
    _is_cut(merged, node.output.tensor.shape, lambda same: _rely(recorder, same))
    copies_where = OPS[node.op].copies_where
    if copies_where is None or not copies_where(recorder.cx, node):
        raise broken("undecided-size", condition=f"{node.op} shares memory at these sizes")


def _is_cut(
    merged: Sequence[Dim], shape: Sequence[Dim], holds: Callable[[Condition | bool], bool]
) -> bool:
    """Is the shape cut wherever dimensions do not lie together? Only then are they viewed in it:
    (n, m) as (m, n) where the two are equal."""
    left = list(shape)
    for size in merged[:-1]:
        whole: Dim = 1
        for count, dim in enumerate(left, 1):
            whole = whole * dim
            if holds(eq(whole, size)):
                del left[:count]
                break
        else:
            return False
    return True


def may_be_reshaped_view(recorder: Recorder, value: Value) -> bool:
    """Whether the value lies in a copy into another shape that is a view where sizes are 1."""
    node = recorder.builder.makers.get(value)
    while node is not None and node.op in OPS and OPS[node.op].alias == "view" and node.read:
        node = recorder.builder.makers.get(node.read[0])
    if node is None or node.op not in OPS or OPS[node.op].alias != "maybe":
        return False
    return node.op not in COPIERS and _is_unsure(recorder, node)


def _rely(recorder: Recorder, condition: Condition | bool) -> bool:
    """Guards the condition or its opposite; where nobody may guard on it, it is checked to be
    false, and the call runs natively where it is not."""
    try:
        return recorder.cx.decide(condition)
    except Undecided:
        assert not isinstance(condition, bool)  # or it were decided
    try:
        recorder.cx.require(~condition, "a copy shares memory here")
    except OpError:  # it follows from the facts
        return True
    return False


def _is_unsure(recorder: Recorder, node: Node) -> bool:
    """Whether the node copies as a rule, and may not where sizes are one."""
    before = node.read[0].tensor
    if lies_in_argument(recorder.cx, node, OPS[node.op]) or is_contiguous(recorder.cx, before):
        return False
    return node.op not in COPIERS or recorder.cx.known(is_contiguous_where(before)) is not False


COPIERS = frozenset({"contiguous", "ravel"})
"""What copies all that is not row-major; others make a view where dimensions of one element are in
the way."""
