"""What a loop carries: the types at the head of its body, and what every turn keeps of them.

    x: (s0, s1), n    ->    heads (s0, s1), each0    ->    a turn adds rows: (each1, s1), each0

A tensor's size that a turn changes is a new symbol at the head; a number is one from the beginning.
Of a number that begins as ``n`` it is tried whether each turn keeps it at least 0, at least ``n``
and at most ``n``: what holds on entry and follows on the way back is a fact at the head, and of the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anyshape.ir.graph import Arg, Graph, Input, ScalarType, TensorType, Type, Value, row_major
from anyshape.ir.scalars import Kind, Scalar, ScalarInput
from anyshape.nouns import frozen, replace
from anyshape.ops.build import Builder
from anyshape.symbolic import Condition, Dim, Expr, Facts, eq, ge, le
from anyshape.symbolic.atoms import Knowledge

Bound = Callable[[Dim, Dim], "Condition | bool"]
"""What may hold of a carried integer, and of the one that it begins with."""

BOUNDS: tuple[Bound, ...] = (lambda now, first: ge(now, 0), ge, le)


class RegionRefused(Exception):
    """What a loop carries, or what a branch returns, has no one type; or a body writes to what
    cannot be carried."""


@frozen
class Head:
    """The type of one carried value where a turn begins; of a number, what it begins with and what
    is tried of it."""

    type: Type
    first: Arg = None
    bounds: tuple[Bound, ...] = ()

    def enter(self, inner: Builder) -> Arg:
        """The input of a region, as the body sees it."""
        if isinstance(self.type, TensorType):
            return inner.input(self.type, "argument", "carried")
        return number_input(inner, self.type, "carried")

    def conditions(self) -> tuple[Condition | bool, ...]:
        """What is tried of the number."""
        return self.holds_of(self.type.expr) if isinstance(self.type, ScalarType) else ()

    def holds_of(self, number: Arg) -> tuple[Condition | bool, ...]:
        """The same of another number in its place."""
        if not self.bounds:
            return ()
        assert isinstance(self.first, Expr | int) and isinstance(number, Expr | int)
        return tuple([bound(number, self.first) for bound in self.bounds])


@frozen
class Carried:
    """The heads of a loop, in order. ``differing``: sizes of tensors that differ by turn."""

    heads: tuple[Head, ...]
    differing: frozenset[Dim] = frozenset()

    @classmethod
    def of(cls, b: Builder, values: Sequence[Arg]) -> Carried:
        """The types that the values have on entry, numbers as any of their kind."""
        return cls(tuple(_entry(b, value) for value in values))

    def conditions(self) -> tuple[Condition | bool, ...]:
        return tuple(condition for head in self.heads for condition in head.conditions())

    def widened(self, b: Builder, region: Graph) -> Carried:
        """Itself where the body, made with these heads, keeps them; else wider ones."""
        differing = set(self.differing)
        heads = tuple(
            _wider(b, region, differing, head, made)
            for head, made in zip(self.heads, region.outputs, strict=True)
        )
        return self if heads == self.heads else Carried(heads, frozenset(differing))

    def results(self, b: Builder) -> tuple[Type, ...]:
        """The types of the loop's results: what differs by turn is a size that data decides."""
        return tuple(self._result(b, head) for head in self.heads)

    def _result(self, b: Builder, head: Head) -> Type:
        if isinstance(head.type, ScalarType):
            last = replace(head, type=new_number(b, head.first, "midrun"))
            for condition in last.conditions():
                if not isinstance(condition, bool):
                    b.cx.facts.assume(condition)
            return last.type
        sizes = (b.cx.fresh_size() if d in self.differing else d for d in head.type.shape)
        shape = tuple(sizes)
        return replace(head.type, shape=shape, strides=row_major(shape), requires_grad=False)


def _entry(b: Builder, value: Arg) -> Head:
    if isinstance(value, Value):
        return Head(value.tensor)
    head = Head(new_number(b, value, "entry"), value)
    if kind_of_number(value) == "int":
        head = replace(head, bounds=BOUNDS)
    kept = zip(head.bounds, head.holds_of(value), strict=True)
    return replace(head, bounds=tuple(bound for bound, now in kept if _known(b.cx.facts, now)))


def _wider(b: Builder, region: Graph, differing: set[Dim], head: Head, made: Arg) -> Head:
    """The head, with a new symbol for each size that a turn changes, and without the bounds that a
    turn does not keep."""
    if isinstance(head.type, ScalarType):
        kind = "tensor" if isinstance(made, Value) else kind_of_number(made)
        if kind != head.type.kind:
            raise RegionRefused(f"what is carried has two types: {head.type.kind} and {kind}")
        tried = zip(head.bounds, head.holds_of(made), strict=True)
        kept = tuple(bound for bound, now in tried if _known(region.facts, now))
        return head if kept == head.bounds else replace(head, bounds=kept)
    if not isinstance(made, Value):
        raise RegionRefused(f"what is carried has two types: a tensor and {kind_of_number(made)}")
    alike(head.type, made.tensor, "what is carried")
    shape = tuple(
        old if old in differing or _known(region.facts, eq(old, new)) else _any_size(b, differing)
        for old, new in zip(head.type.shape, made.shape, strict=True)
    )
    if shape == head.type.shape:
        return head
    return Head(replace(head.type, shape=shape, strides=row_major(shape)))


def _known(facts: Facts, condition: Condition | bool) -> bool:
    return condition if isinstance(condition, bool) else facts.known(condition) is True


def _any_size(b: Builder, differing: set[Dim]) -> Expr:
    """A size at the head of a region, of which nothing is known."""
    size = b.cx.space.fresh("each", policy="unbacked")
    differing.add(size)
    return size


def new_number(b: Builder, like: Arg, knowledge: Knowledge) -> ScalarType:
    """A number of the same kind, of which nothing is known."""
    kind = kind_of_number(like)
    if kind == "float":
        return ScalarType(kind, ScalarInput(b.cx.space.free_name("n"), kind))
    number = b.cx.space.fresh("each", policy="unbacked", knowledge=knowledge, signed=True)
    return ScalarType(kind, number)


def number_input(inner: Builder, kind: ScalarType, source: str) -> Arg:
    """An input of a region that is a number, by the name of its symbol."""
    expr = kind.expr
    name = expr.name if isinstance(expr, ScalarInput) else str(expr)
    inner.inputs.append(Input(Value(name, kind), "argument", source))
    return expr


def kind_of_number(arg: Arg) -> Kind:
    """``int`` or ``float``: what the host carries from turn to turn."""
    match arg:
        case bool():
            pass
        case int() | Expr():
            return "int"
        case float():
            return "float"
        case Scalar() | ScalarInput() if arg.kind != "bool":
            return arg.kind
    raise RegionRefused(f"{arg!r} is neither a tensor nor an integer nor a float")


def alike(one: TensorType, other: TensorType, what: str) -> None:
    """Refuses two types that differ by more than their sizes."""
    a, b = ((t.dtype, t.device, t.rank) for t in (one, other))
    if a != b:
        raise RegionRefused(f"{what} has two types: {a} and {b}")
