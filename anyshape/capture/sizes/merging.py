"""Two states of a frame made one, value by value.

In: a value from the side that ran under a condition, and one from the side that ran under its
negation. Out: one value for both, whose numbers say which it is by the condition; or NotJoined
with the reason. Nodes of the kept side must be right without its condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from anyshape.capture.heap.iterators import same_position
from anyshape.capture.heap.values import PROXIES, ScalarValue, TensorValue
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.sizes import beside_numpy, numbers
from anyshape.ir.graph import Node, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar, scalar_inputs
from anyshape.nouns import mutable
from anyshape.ops import OPS
from anyshape.ops.context import OpError, Undecided
from anyshape.symbolic import (
    Condition,
    Contradiction,
    Expr,
    Facts,
    Symbol,
    all_of,
    any_of,
    eq,
    ge,
    indicator,
    maximum,
    minimum,
    symbols_of,
)


class NotJoined(Exception):
    """The sides cannot be one; the text says why."""


class NotMerged(NotJoined):
    """The second side's state is not the general one; perhaps the first side's is."""


@mutable
class Merger:
    """Merges the state under a condition (`yes`) with the one under its negation (`no`), which
    is kept."""

    recorder: Recorder
    condition: Condition
    yes: Facts
    no: Facts
    dropped: dict[Value, tuple[Node, int]]
    kept: dict[Value, tuple[Node, int]]
    by_data: bool  # no hint may choose between the sides
    copied: dict[int, Any]  # see Side
    made_inside: Callable[[Any], bool]  # whether one of the sides made the object
    gone: frozenset[Symbol] = field(init=False)  # numbers that only dropped nodes would read

    def __post_init__(self) -> None:
        self.gone = made_by(self.dropped)

    def value(self, a: Any, b: Any, depth: int = 6) -> Any:
        """One value for both, or NotJoined."""
        if a is b:
            return b
        ka, kb = type(a), type(b)
        if ka in PROXIES or kb in PROXIES or (ka in _NUMBERS and kb in _NUMBERS):
            return self._number(a, b)
        if ka is not kb or depth == 0:
            raise NotMerged(f"{ka.__name__} on one side, {kb.__name__} on the other")
        if ka is tuple:
            if len(a) != len(b):
                raise NotMerged("tuples of different lengths")
            both = tuple(self.value(x, y, depth - 1) for x, y in zip(a, b))
            return b if _are_those(both, b) else both  # of outside, what each call hands in
        if ka in (list, dict):
            first = self.copied.get(id(a), a)
            if first is not b and not (self.made_inside(first) and self.made_inside(b)):
                raise NotMerged("two containers that others may hold")
        if ka is list and len(a) == len(b):
            made = [self.value(x, y, depth - 1) for x, y in zip(list(a), list(b))]
            if not _are_those(made, b):
                b[:] = made
            return b
        if ka is dict and list(a) == list(b):
            merged = {key: self.value(a[key], b[key], depth - 1) for key in list(b)}
            if not _are_those(merged.values(), b.values()):
                b.update(merged)
            return b
        if (ka in _EQUAL and a == b) or same_position(a, b):
            return b
        raise NotMerged(f"two objects of class {ka.__name__}")

    def _number(self, a: Any, b: Any) -> Any:
        if isinstance(a, TensorValue) and isinstance(b, TensorValue):
            if self.same_value(a.value, b.value) and a.python is b.python:
                return b
            raise NotMerged("different tensors")
        if not self.gone.isdisjoint(symbols_read(numbers.operand(a))):
            raise NotMerged("a number that data decides on one side only")
        kind = beside_numpy.class_of(b)
        if beside_numpy.class_of(a) is not kind:
            raise NotMerged("numbers of different classes")
        left, right = numbers.dim(a), numbers.dim(b)
        if type(a) is bool or type(b) is bool or _is_bool(a) or _is_bool(b):
            return self._bool(a, b)
        if left is None or right is None:
            if isinstance(a, ScalarValue) and isinstance(b, ScalarValue) and a.scalar == b.scalar:
                return b
            if type(a) is float and type(b) is float and a.hex() == b.hex():
                return b
            return self._float(a, b, kind)
        return self._int(left, right, kind)

    def _float(self, a: Any, b: Any, kind: type) -> Any:
        """One float or the other, as the condition says when the program runs."""
        x, y = numbers.operand(a), numbers.operand(b)
        if x is None or y is None or numbers.is_int(a) or numbers.is_int(b):
            raise NotMerged("numbers of different kinds")
        if not self._is_there(x):
            raise NotMerged("a number that data decides on one side only")
        chosen = Scalar("float", "select", (self.condition, x, y))
        return ScalarValue(chosen, float, is_wide=kind is not float)

    def _is_there(self, number: Any) -> bool:
        """Whether what the number reads was known before, or is read on the kept side too."""
        read = {n for n in scalar_inputs(number) if n not in self.recorder.scalar_hints}
        kept = self.recorder.builder.nodes if read else ()
        return read <= {
            output.type.expr
            for node in kept
            for output in node.outputs
            if isinstance(output.type, ScalarType)
        }

    def _int(self, a: Any, b: Any, kind: type) -> Any:
        merged = self.dim(a, b)
        if merged is None:
            merged = self._extremum(a, b)
        if merged is None and self.by_data:
            merged = b + (a - b) * indicator(self.condition)
        if merged is None and type(a) is int and type(b) is int and kind is int:
            return numbers.integer_of(
                self.recorder, Scalar("int", "select", (self.condition, a, b))
            )
        if merged is None:
            raise NotMerged(f"{a} on one side, {b} on the other")
        return numbers.size(merged, kind)

    def dim(self, a: Any, b: Any) -> Any:
        """The expression that is `a` under the condition and `b` otherwise, if one of them is;
        else None."""
        if a is b or (type(a) is int and type(b) is int and a == b):
            return b
        if self.yes.known(eq(a, b)):
            return b
        if self.no.known(eq(a, b)):
            return a
        return None

    def _extremum(self, a: Any, b: Any) -> Any:
        """`a if a < b else b` is the minimum."""
        if self.yes.known(ge(b, a)) and self.no.known(ge(a, b)):
            return minimum(a, b)
        if self.yes.known(ge(a, b)) and self.no.known(ge(b, a)):
            return maximum(a, b)
        return None

    def _bool(self, a: Any, b: Any) -> Any:
        if not (_is_bool(a) or type(a) is bool) or not (_is_bool(b) or type(b) is bool):
            raise NotMerged("a bool on one side only")
        left, right = numbers.condition_of(a), numbers.condition_of(b)
        if left is None or right is None:
            raise NotMerged("bools that depend on data")
        if left is right:
            return b
        chosen = any_of(
            all_of(self.condition, left), all_of(numbers.negated(self.condition), right)
        )
        return numbers.truth_value(_simpler(self.condition, left, right, chosen))

    # ---- nodes -----------------------------------------------------------------------------------
    def same_value(self, a: Value, b: Value) -> bool:
        """Whether `a` of the dropped side is `b` of the kept one, under the dropped side's
        condition."""
        if a is b:
            return True
        left, right = self.dropped.get(a), self.kept.get(b)
        if right is not None and self.is_identity(right[0]):
            return self.same_value(a, right[0].read[0])
        if left is not None and self.is_identity(left[0]):
            return self.same_value(left[0].read[0], b)
        if left is None or right is None or left[1] != right[1]:
            return False
        x, y = left[0], right[0]
        if x.op != y.op or len(x.args) != len(y.args) or list(x.kwargs) != list(y.kwargs):
            return False
        if not all(self.argument(p, q) for p, q in zip(x.args, y.args)):
            return False
        return all(
            self.argument(x.kwargs[key], y.kwargs[key]) for key in x.kwargs
        ) and self.same_type(a, b)

    def is_identity(self, node: Node) -> bool:
        """A view that, under the dropped side's condition, shows all of its input in its own
        shape."""
        row = OPS.get(node.op)
        if row is None or not row.keeps_elements or not isinstance(node.args[0], Value):
            return False
        x, y = node.args[0].tensor, node.output.tensor
        return x.rank == y.rank and all(self.yes.known(eq(p, q)) for p, q in zip(x.shape, y.shape))

    def argument(self, a: Any, b: Any) -> bool:
        if isinstance(a, Value):
            return isinstance(b, Value) and self.same_value(a, b)
        if isinstance(a, tuple):
            return (
                isinstance(b, tuple)
                and len(a) == len(b)
                and all(self.argument(x, y) for x, y in zip(a, b))
            )
        if isinstance(a, (int, Expr)) and isinstance(b, (int, Expr)) and not isinstance(a, bool):
            return a is b or self.yes.known(eq(a, b)) is True
        return type(a) is type(b) and (a is b or a == b)

    def same_type(self, a: Value, b: Value) -> bool:
        x, y = a.type, b.type
        if not isinstance(x, TensorType) or not isinstance(y, TensorType):
            return False
        if (x.dtype, x.device, len(x.shape), x.requires_grad) != (
            y.dtype,
            y.device,
            len(y.shape),
            y.requires_grad,
        ):
            return False
        return all(self.argument(p, q) for p, q in zip(x.shape, y.shape))


def made_by(dropped: Mapping[Value, tuple[Node, int]]) -> frozenset[Symbol]:
    """The numbers from data that nodes made: sizes of results, and results that are numbers."""
    made: set[Symbol] = set()
    older: set[Symbol] = set()
    for node, _ in dropped.values():
        older.update(*(_symbols_of_type(value) - made for value in node.read))
        made.update(*(_symbols_of_type(value) - older for value in node.outputs))
    return frozenset(s for s in made if s.knowledge == "midrun")


def _symbols_of_type(value: Value) -> frozenset[Symbol]:
    if isinstance(value.type, ScalarType):
        expr = value.type.expr
        return expr.symbols if isinstance(expr, Expr) else frozenset()
    return frozenset().union(*map(symbols_of, value.shape))


def symbols_read(number: Any) -> frozenset[Symbol]:
    """The sizes that an operand reads, however deep."""
    if isinstance(number, Scalar):
        return frozenset().union(*map(symbols_read, number.args))
    return getattr(number, "symbols", frozenset())


def definitions(nodes: list[Node]) -> dict[Value, tuple[Node, int]]:
    return {
        value: (node, position) for node in nodes for position, value in enumerate(node.outputs)
    }


def hold_in_general(recorder: Recorder, nodes: list[Node], facts: Facts) -> None:
    """The kept nodes must have the same types without the condition under which they were made."""
    cx = recorder.cx
    cx.facts = facts
    for node in nodes:
        row = OPS.get(node.op)
        if row is None:
            raise NotMerged(f"{node.op} has no row")
        try:
            types = recorder.builder.type_of(row, node.args, node.kwargs)
        except (OpError, Undecided, Contradiction) as error:
            raise NotMerged(f"{node.op} is right on one side only: {error}") from None
        types = types if isinstance(types, tuple) else (types,)
        for value, found in zip(node.outputs, types):
            if isinstance(found, TensorType) and found.shape != value.shape:
                raise NotMerged(f"{node.op} has another shape on the other side")
            if isinstance(found, TensorType) and found.strides != value.tensor.strides:
                raise NotMerged(f"{node.op} has other strides on the other side")


_NUMBERS = (int, float, bool)
_EQUAL = (str, bytes, complex, slice)


def _is_bool(value: Any) -> bool:
    return isinstance(value, ScalarValue) and value.kind is bool


def _simpler(condition: Condition, left: Any, right: Any, chosen: Any) -> Any:
    if left is True:
        return any_of(condition, right)
    if left is False:
        return all_of(numbers.negated(condition), right)
    if right is True:
        return any_of(numbers.negated(condition), left)
    if right is False:
        return all_of(condition, left)
    return chosen


def _are_those(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Are they the same objects, one by one?"""
    return all(a is b for a, b in zip(some, others, strict=True))
