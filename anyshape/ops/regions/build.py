"""Loops and branches, built from functions that make their regions.

    total, = loop(b, n, (x,), (w,), lambda b, turn, x, w: (b.relu(b.mm(x, w)),))

A region's facts begin with those around it. The types of what a loop carries are its invariant: it
is found by making the body until nothing changes, each size that a turn changes being a new symbol
at the head of the region. Where there is none, or where a body writes to a tensor,
``RegionRefused`` is raised, with the reason. Results have symbols of their own: none of a region's
leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anyshape.ir.graph import Arg, Graph, Input, ScalarType, TensorType, Type, Value, row_major
from anyshape.ir.nesting import made_in
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.symbolic import Dim, Expr, Symbol, eq, ge, lt

Body = Callable[..., tuple[Value, ...]]


class RegionRefused(Exception):
    """What a loop carries, or what a branch returns, has no one type; or a body writes."""


def loop(
    b: Builder, trips: Arg, carried: Sequence[Value], captured: Sequence[Value], body: Body
) -> tuple[Value, ...]:
    """``body(builder, turn, *carried, *captured)`` gives what is carried to the next turn.

    ``trips``: a size, a number, or a tensor of one element; none are run where it is not positive.
    """
    carried = tuple(_dense(b, value) for value in carried)
    captured = tuple(captured)
    if not carried:
        raise RegionRefused("a loop that carries nothing has no results")
    heads = tuple(value.tensor for value in carried)
    differing: set[Dim] = set()  # sizes that differ by turn
    while True:
        region = _loop_region(b, trips, heads, captured, body)
        made = tuple(output.tensor for output in region.outputs if isinstance(output, Value))
        if len(made) != len(heads):
            raise RegionRefused(f"{len(heads)} values are carried, and {len(made)} returned")
        wider = tuple(_wider(b, region, differing, *pair) for pair in zip(heads, made, strict=True))
        if wider == heads:
            break
        heads = wider
    types = tuple(_outside(b, differing, head) for head in heads)
    return _append(b, "loop", (trips, carried, captured), types, (region,))


def branch(
    b: Builder, predicate: Arg, captured: Sequence[Value], then: Body, otherwise: Body
) -> tuple[Value, ...]:
    """``then(builder, *captured)`` where the predicate is true, else ``otherwise``."""
    captured = tuple(captured)
    regions = tuple(_region(b, (), captured, side) for side in (then, otherwise))
    one, other = (tuple(v.tensor for v in r.outputs if isinstance(v, Value)) for r in regions)
    if len(one) != len(other):
        raise RegionRefused(f"one side returns {len(one)} values, the other {len(other)}")
    types = tuple(_joined(b, regions, *pair) for pair in zip(one, other, strict=True))
    return _append(b, "branch", (predicate, captured), types, regions)


def _append(
    b: Builder, name: str, args: tuple[Arg, ...], types: tuple[Type, ...], regions: Any
) -> tuple[Value, ...]:
    made: tuple[Value, ...] = b.append(name, args, {}, types, single=False)
    b.nodes[-1] = node = replace(b.nodes[-1], regions=regions)
    b.makers.update(dict.fromkeys(made, node))
    return made


# --- a region ---


def _loop_region(
    b: Builder,
    trips: Arg,
    heads: tuple[TensorType, ...],
    captured: tuple[Value, ...],
    body: Body,
) -> Graph:
    turn = b.cx.space.fresh("turn", policy="unbacked")
    assert turn.symbol is not None
    limits = [ge(turn, 0), *([lt(turn, trips)] if isinstance(trips, Expr | int) else ())]
    number = Value(turn.symbol.name, ScalarType("int", turn))
    return _region(b, (number,), captured, body, heads, limits)


def _region(
    b: Builder,
    numbers: tuple[Value, ...],
    captured: tuple[Value, ...],
    body: Body,
    heads: tuple[TensorType, ...] = (),
    limits: Sequence[Any] = (),
) -> Graph:
    """The graph that the body makes, over inputs of its own."""
    facts = b.cx.facts.fork()
    for limit in limits:
        facts.assume(limit)
    cx = TypeContext(b.cx.space, facts, b.cx.hints, default_dtype=b.cx.default_dtype)
    inner = Builder(cx, b.ops, location=b.location, modes=b.modes)
    cx.on_check = inner.check
    inner.inputs += [Input(value, "argument", "turn") for value in numbers]
    given = [inner.input(head, "argument", "carried") for head in heads]
    given += [inner.input(value.tensor, "argument", "captured") for value in captured]
    made = body(inner, *(value.type.expr for value in numbers), *given)  # type: ignore[union-attr]
    for node in inner.nodes:
        row = b.ops.get(node.op)
        if row is None or row.mutates or row.resource in ("arguments", "unknown"):
            raise RegionRefused(f"{node.op} may write to what is outside of the region")
    return inner.finish(tuple(_dense(inner, value) for value in made))


def _dense(b: Builder, value: Value) -> Value:
    """The value in row-major order, as what is carried or returned lies."""
    t = value.tensor
    if t.strides == row_major(t.shape):
        return value
    dense = replace(t, strides=row_major(t.shape))
    made: Value = b.append("clone", (value,), {"memory_format": "contiguous_format"}, (dense,))
    return made


# --- types ---


def _wider(
    b: Builder, region: Graph, differing: set[Dim], head: TensorType, made: TensorType
) -> TensorType:
    """The head's type, with a new symbol for each size that a turn changes."""
    _alike(head, made, "what is carried")
    pairs = zip(head.shape, made.shape, strict=True)
    shape = tuple(
        old if old in differing or _same(region, old, new) else _any_size(b, differing)
        for old, new in pairs
    )
    return head if shape == head.shape else replace(head, shape=shape, strides=row_major(shape))


def _same(region: Graph, a: Dim, b: Dim) -> bool:
    equal = eq(a, b)
    return equal if isinstance(equal, bool) else region.facts.known(equal) is True


def _any_size(b: Builder, differing: set[Dim]) -> Expr:
    """A size at the head of a region, of which nothing is known."""
    size = b.cx.space.fresh("each", policy="unbacked")
    b.cx.facts.assume(ge(size, 0))
    differing.add(size)
    return size


def _outside(b: Builder, differing: set[Dim], head: TensorType) -> TensorType:
    """The type of a loop's result: what differs by turn is a size that data decides."""
    shape = tuple(b.cx.fresh_size() if dim in differing else dim for dim in head.shape)
    return replace(head, shape=shape, strides=row_major(shape), requires_grad=False)


def _joined(
    b: Builder, regions: tuple[Graph, ...], one: TensorType, other: TensorType
) -> TensorType:
    """The type of a branch's result: a size that differs by side is one that data decides."""
    _alike(one, other, "what the two sides return")
    inner = frozenset().union(*map(made_in, regions))
    shape = tuple(
        x if b.cx.same(x, y) and inner.isdisjoint(_symbols(x)) else b.cx.fresh_size()
        for x, y in zip(one.shape, other.shape, strict=True)
    )
    return replace(one, shape=shape, strides=row_major(shape), requires_grad=False)


def _symbols(dim: Dim) -> tuple[Symbol, ...]:
    return tuple(dim.symbols) if isinstance(dim, Expr) else ()


def _alike(one: TensorType, other: TensorType, what: str) -> None:
    a, b = ((t.dtype, t.device, t.rank) for t in (one, other))
    if a != b:
        raise RegionRefused(f"{what} has two types: {a} and {b}")
