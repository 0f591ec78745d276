"""What most calls find in the numbers that a branch asks about: finite numbers, and masks that are
true somewhere.

    if mask.any(): ...                           ->  true
    if not torch.isfinite(loss): return          ->  false
    if not sum(found_inf.item() ...): step()     ->  true (torch.amp.GradScaler)

In: the nodes of a segment, and the number or the tensor of one element. Out: the truth that is
expected of it, or None. ``expected.py`` says what becomes of an expectation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import Arg, Node, ScalarType, Value
from anyshape.ir.scalars import SCALAR_FUNCTIONS, Operand, Scalar
from anyshape.nouns import mutable
from anyshape.ops import OPS
from anyshape.ops.dynamic import (
    BOTH,
    ELEMENTWISE,
    FINITE,
    PASSES_ON,
    REDUCTIONS,
    UNKNOWN,
    Numbers,
)
from anyshape.ops.shared_memory import base_of

MOST = 64


@mutable
class ExpectedNumbers:
    """Those of one capture. A wrong one costs time, and no result: a check is made of it."""

    found: dict[Value, dict[Value, Numbers]] = field(default_factory=dict)
    """By memory, of each tensor in it numbers of which each element is one."""
    makers: dict[Value, Node] = field(default_factory=dict)
    read: dict[Operand, Numbers] = field(default_factory=dict)
    seen: list[Node] = field(default_factory=list)

    def of_tensor(self, nodes: Sequence[Node], value: Value) -> bool | None:
        """The truth of a tensor of one element, behind these nodes."""
        self._see(nodes)
        return _truth(self._given(value))

    def of_number(self, nodes: Sequence[Node], number: Operand) -> bool | None:
        """The truth of a number that is computed from what nodes read of tensors."""
        self._see(nodes)
        return _truth(self._number(number))

    def _see(self, nodes: Sequence[Node]) -> None:
        """Goes through the nodes that are new; through all where some are gone."""
        known = len(self.seen)
        if known and (known > len(nodes) or nodes[known - 1] is not self.seen[-1]):
            self.found, self.makers, self.read, self.seen, known = {}, {}, {}, [], 0
        for node in nodes[known:]:
            self.makers.update(dict.fromkeys(node.outputs, node))
            row = OPS.get(node.op)
            if row is None or row.mutates:
                self._write(node)
                continue
            made = self._made(node)
            if made and isinstance(node.output.type, ScalarType):
                self.read[node.output.type.expr] = made
            elif made:
                self._hold(node.output, made)
        self.seen.extend(nodes[known:])

    def _write(self, node: Node) -> None:
        target = next(node.inputs(), None)
        if target is None:
            return
        base = base_of(target, self.makers, OPS)
        new = self._given(node.args[1]) if node.op == "copy_" and _is_one(base) else UNKNOWN
        self.found.pop(base, None)
        for value in {target, base}:
            self._hold(value, new)

    def _hold(self, value: Value, numbers: Numbers) -> None:
        self.found.setdefault(base_of(value, self.makers, OPS), {})[value] = numbers

    def _given(self, arg: Arg) -> Numbers:
        if isinstance(arg, (bool, int, float)):
            return (arg,)
        if not isinstance(arg, Value):
            return UNKNOWN
        return self.found.get(base_of(arg, self.makers, OPS), {}).get(arg, UNKNOWN)

    def _number(self, operand: Operand) -> Numbers:
        if isinstance(operand, (bool, int, float)):
            return (operand,)
        if not isinstance(operand, Scalar):
            return self.read.get(operand, UNKNOWN)
        if operand.op in FINITE:
            return FINITE[operand.op]
        function, _ = SCALAR_FUNCTIONS[operand.op]
        return _applied(function, [self._number(arg) for arg in operand.args])

    def _made(self, node: Node) -> Numbers:
        if node.op in FINITE:
            return FINITE[node.op]
        if node.op in PASSES_ON:
            return self._given(node.args[node.op == "full"])
        if node.op in REDUCTIONS:
            return self._reduced(node)
        if node.op in BOTH and node.output.dtype is bool_:
            return self._both(node)
        if node.op in ELEMENTWISE and (node.op != "bitwise_not" or node.output.dtype is bool_):
            return _applied(ELEMENTWISE[node.op], [*map(self._given, node.args)])
        return UNKNOWN

    def _reduced(self, node: Node) -> Numbers:
        """Of all elements: something is true, unless nothing is expected to be."""
        (x, *_), made = node.args, node.output
        if not isinstance(x, Value) or x.dtype is not bool_ or made.tensor.rank:
            return UNKNOWN
        each = _truth(self._given(x))
        if node.op == "all":
            return UNKNOWN if each is None else (each,)
        return (False,) if each is False else REDUCTIONS[node.op]

    def _both(self, node: Node) -> Numbers:
        decides = BOTH[node.op]
        given = [_truth(self._given(arg)) for arg in node.args]
        if decides in given:
            return (decides,)
        return UNKNOWN if None in given else (not decides,)


def _truth(found: Numbers) -> bool | None:
    truths = {*map(bool, found)}
    return truths.pop() if len(truths) == 1 else None


def _is_one(value: Value) -> bool:
    return all(size == 1 for size in value.shape)


def _applied(function: Callable[..., Any], given: Sequence[Numbers]) -> Numbers:
    """The function of each choice of arguments; unknown where one of them is, or where there are
    too many."""
    if math.prod(map(len, given)) > MOST:
        return UNKNOWN
    try:
        return tuple(dict.fromkeys(function(*chosen) for chosen in itertools.product(*given)))
    except (ArithmeticError, ValueError):
        return UNKNOWN
