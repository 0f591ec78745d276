"""Loops and branches, built from functions that make their regions.

    total, = loop(b, n, (x,), (w,), lambda b, turn, x, w: (b.relu(b.mm(x, w)),))

A region's facts begin with those around it. The types of what a loop carries are its invariant
(``carried.py``): it is found by making the body until nothing changes, each size that a turn
changes being a new symbol at the head of the region. Where there is none ``RegionRefused`` is
raised, with the reason. Results have symbols of their own: none of a region's leaves it.

A body may write to what it captures; the writes become values that the loop carries, and one write
behind it (``passes/nested_writes.py``), so that where a turn fails nothing was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import (
    Arg,
    Graph,
    Input,
    ScalarType,
    TensorType,
    Type,
    Value,
    row_major,
    values_in,
)
from anyshape.ir.nesting import made_in
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.regions.carried import (
    Carried,
    Head,
    RegionRefused,
    alike,
    kind_of_number,
    new_number,
)
from anyshape.ops.shared_memory import base_of, written_in
from anyshape.symbolic import Dim, Expr, Symbol, ge, le, lt

Body = Callable[..., tuple[Arg, ...]]


def loop(
    b: Builder, trips: Arg, carried: Sequence[Arg], captured: Sequence[Value], body: Body
) -> tuple[Arg, ...]:
    """``body(builder, turn, *carried, *captured)`` gives what is carried to the next turn: tensors,
    and numbers of the host (integers and floats).

    ``trips``: a size, a number, or a tensor without dimensions; none are run where it is not
    positive. Or a vector of integers: the number of a turn is an element of it, in order.
    """
    _refuse_trips(trips)
    captured = tuple(captured)
    given = tuple(_dense(b, arg) if isinstance(arg, Value) else arg for arg in carried)
    order = _tensors_first(given)
    ordered = tuple(given[position] for position in order)
    invariant = Carried.of(b, ordered)

    def turned(inner: Builder, turn: Any, *inside: Any) -> tuple[Arg, ...]:
        heads, rest = inside[: len(order)], inside[len(order) :]
        made = body(inner, turn, *_unordered(order, heads), *rest)
        if len(made) != len(order):
            raise RegionRefused(f"{len(order)} values are carried, and {len(made)} returned")
        return tuple(made[position] for position in order)

    while True:
        region = _loop_region(b, trips, invariant, captured, turned)
        wider = invariant.widened(b, region)
        if wider is invariant:
            break
        invariant = wider
    _refuse_shared(b, region, ordered, captured)
    if not ordered and not _written(b, region):
        raise RegionRefused("a loop that carries nothing and writes nothing does nothing")
    made = _append(b, "loop", (trips, ordered, captured), invariant.results(b), (region,))
    return _unordered(order, tuple(map(_as_argument, made)))


def _unordered(order: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value for _, value in sorted(zip(order, values, strict=True), key=itemgetter(0)))


def _as_argument(value: Value) -> Arg:
    return value.type.expr if isinstance(value.type, ScalarType) else value


def branch(
    b: Builder, predicate: Arg, captured: Sequence[Value], then: Body, otherwise: Body
) -> tuple[Arg, ...]:
    """``then(builder, *captured)`` where the predicate is true, else ``otherwise``: tensors, and
    numbers of the host."""
    captured = tuple(captured)
    regions = tuple(_region(b, (), captured, side) for side in (then, otherwise))
    for region in regions:
        _refuse_shared(b, region, (), captured)
    one, other = (region.outputs for region in regions)
    if len(one) != len(other):
        raise RegionRefused(f"one side returns {len(one)} values, the other {len(other)}")
    types = tuple(_joined(b, regions, *pair) for pair in zip(one, other, strict=True))
    order = _tensors_first(types)
    regions = tuple(
        replace(region, outputs=tuple(region.outputs[position] for position in order))
        for region in regions
    )
    ordered = tuple(types[position] for position in order)
    made = _append(b, "branch", (predicate, captured), ordered, regions)
    return _unordered(order, tuple(map(_as_argument, made)))


def _tensors_first(carried: Sequence[Arg | Type]) -> list[int]:
    """The order that the rows want: the positions of tensors, then those of numbers."""
    is_number = [not isinstance(value, Value | TensorType) for value in carried]
    return sorted(range(len(carried)), key=is_number.__getitem__)


def _append(
    b: Builder, name: str, args: tuple[Arg, ...], types: tuple[Type, ...], regions: Any
) -> tuple[Value, ...]:
    made: tuple[Value, ...] = b.append(name, args, {}, types, single=False)
    b.nodes[-1] = node = replace(b.nodes[-1], regions=regions)
    b.makers.update(dict.fromkeys(made, node))
    return made


# --- a region ---


def _loop_region(
    b: Builder, trips: Arg, invariant: Carried, captured: tuple[Value, ...], body: Body
) -> Graph:
    listed = _is_list(trips)
    turn = b.cx.space.fresh("turn", policy="unbacked", signed=listed)
    assert turn.symbol is not None
    limits = [lt(turn, trips)] if isinstance(trips, Expr | int) else []
    if isinstance(trips, Value) and listed:
        dtype = trips.dtype
        high = (1 << (8 * dtype.size_bytes - dtype.signed)) - 1
        limits = [le(turn, high), ge(turn, -high - 1 if dtype.signed else 0)]
    number = Value(turn.symbol.name, ScalarType("int", turn))
    return _region(
        b, (number,), captured, body, invariant.heads, (*limits, *invariant.conditions())
    )


def _is_list(trips: Arg) -> bool:
    return isinstance(trips, Value) and trips.tensor.rank > 0


def _refuse_trips(trips: Arg) -> None:
    if not _is_list(trips):
        return
    assert isinstance(trips, Value)
    dtype = trips.dtype
    if trips.tensor.rank > 1 or dtype.is_floating or dtype.is_complex or dtype is bool_:
        raise RegionRefused(f"turns of {trips.dtype} with {trips.tensor.rank} dimensions")


def _region(
    b: Builder,
    numbers: tuple[Value, ...],
    captured: tuple[Value, ...],
    body: Body,
    heads: Sequence[Head] = (),
    limits: Sequence[Any] = (),
) -> Graph:
    """The graph that the body makes, over inputs of its own."""
    cx = TypeContext(
        b.cx.space, b.cx.facts.supposing(limits), b.cx.hints, default_dtype=b.cx.default_dtype
    )
    inner = Builder(cx, b.ops, location=b.location, modes=b.modes)
    cx.on_check = inner.check
    inner.inputs += [Input(value, "argument", "turn") for value in numbers]
    given: list[Arg] = [head.enter(inner) for head in heads]
    given += [inner.input(value.tensor, "argument", "captured") for value in captured]
    made = body(inner, *(value.type.expr for value in numbers), *given)  # type: ignore[union-attr]
    for node in inner.nodes:
        row = b.ops.get(node.op)
        unknown = row is None or row.resource in ("arguments", "unknown")
        if unknown or (row is not None and row.mutates and row.functional is None):
            raise RegionRefused(f"{node.op} may write to what is outside of the region")
    return inner.finish(tuple(_dense(inner, v) if isinstance(v, Value) else v for v in made))


# --- writes ---


def _written(b: Builder, region: Graph) -> set[Value]:
    """The inputs of the region that it writes to, through views or not."""
    return written_in(region.nodes, b.ops) & {entry.value for entry in region.inputs}


def _refuse_shared(
    b: Builder, region: Graph, carried: Sequence[Arg], captured: Sequence[Value]
) -> None:
    """What is written is captured, and nothing else that is handed in or given back lies in its
    memory."""
    written = _written(b, region)
    if not written:
        return
    inputs = [entry.value for entry in region.inputs][len(region.inputs) - len(captured) :]
    if not written.issubset(inputs):
        raise RegionRefused("the body writes to what is carried, another tensor in each turn")
    owners = [_owner(b, value) for value in captured]
    others = [_owner(b, value) for value in carried if isinstance(value, Value)]
    for value in written:
        owner = owners[inputs.index(value)]
        if (owners + others).count(owner) > 1:
            raise RegionRefused("what the body writes to is handed in twice, or a view of it is")
    makers = {output: node for node in region.nodes for output in node.outputs}
    for output in values_in(region.outputs):
        if base_of(output, makers, b.ops) in written:
            raise RegionRefused("the body gives back a view of what it writes to")


def _owner(b: Builder, value: Value) -> Value:
    return base_of(value, b.makers, b.ops)


def _dense(b: Builder, value: Value) -> Value:
    """The value in row-major order, as what is carried or returned lies."""
    t = value.tensor
    if t.strides == row_major(t.shape):
        return value
    dense = replace(t, strides=row_major(t.shape))
    made: Value = b.append("clone", (value,), {"memory_format": "contiguous_format"}, (dense,))
    return made


# --- types ---


def _joined(b: Builder, regions: tuple[Graph, ...], one: Arg, other: Arg) -> Type:
    """The type of a branch's result: a size that differs by side is one that data decides."""
    if not isinstance(one, Value) or not isinstance(other, Value):
        return _joined_number(b, one, other)
    kind = one.tensor
    alike(kind, other.tensor, "what the two sides return")
    inner = frozenset().union(*map(made_in, regions))
    shape = tuple(
        x if b.cx.same(x, y) and inner.isdisjoint(_symbols(x)) else b.cx.fresh_size()
        for x, y in zip(one.shape, other.shape, strict=True)
    )
    return replace(kind, shape=shape, strides=row_major(shape), requires_grad=False)


def _joined_number(b: Builder, one: Arg, other: Arg) -> ScalarType:
    kinds = {"tensor" if isinstance(x, Value) else kind_of_number(x) for x in (one, other)}
    if len(kinds) > 1:
        raise RegionRefused(f"what the two sides return has two types: {sorted(kinds)}")
    return new_number(b, one, "midrun")


def _symbols(dim: Dim) -> tuple[Symbol, ...]:
    return tuple(dim.symbols) if isinstance(dim, Expr) else ()
