"""Types of recorded values once more, where more is known of sizes than when they were made.

In: a value, and facts. Out: its type by the rules of the rows that made it, from what is handed in
on. Who asks says where that ends (``settled``), and what of a rule's type is taken (``kept``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field

from anyshape.ir.graph import Arg, Node, TensorType, Value
from anyshape.nouns import mutable
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.table import OPS, OpDef
from anyshape.symbolic import Dim, Expr, eq


@mutable
class Retyped(ABC):
    """``makers`` are the nodes that made the values; rules are asked under ``cx``."""

    cx: TypeContext
    makers: Mapping[Value, Node]
    found: dict[Value, TensorType] = field(default_factory=dict, init=False)

    @abstractmethod
    def settled(self, value: Value, node: Node | None, row: OpDef | None) -> TensorType | None:
        """The type, where no rule is asked; None where the row's is."""

    @abstractmethod
    def kept(self, value: Value, made: TensorType) -> TensorType:
        """The type, where a rule has made one."""

    def type_of(self, value: Value) -> TensorType:
        """Raises what type rules raise."""
        known = self.found.get(value)
        if known is None:
            known = self.found[value] = self._type(value)
        return known

    def _type(self, value: Value) -> TensorType:
        node = self.makers.get(value)
        row = None if node is None else OPS.get(node.op)
        settled = self.settled(value, node, row)
        if settled is not None:
            return settled
        assert node is not None and row is not None
        args = tuple(map(self._again, node.args))
        kwargs = {name: self._again(arg) for name, arg in node.kwargs.items()}
        made = Builder(self.cx, modes=node.modes).type_of(row, args, kwargs)
        return self.kept(
            value, made[node.outputs.index(value)] if isinstance(made, tuple) else made
        )

    def simplified(self, dim: Dim) -> Dim:
        """The size by all that is known; 0 and 1, which rules tell from the others, as numbers."""
        if isinstance(dim, int):
            return dim
        few = next((n for n in (0, 1) if self.cx.known(eq(dim, n))), None)
        return self.cx.facts.simplify(dim) if few is None else few

    def _again(self, arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(map(self._again, arg))
        if isinstance(arg, Expr):
            return self.simplified(arg)
        if isinstance(arg, Value) and isinstance(arg.type, TensorType):
            return Value(arg.name, self.type_of(arg))
        return arg
