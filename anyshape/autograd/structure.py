"""Values of two graphs over the same inputs, found to be the same by how they are computed.

In: nodes. Out: a number for each value, equal for equal computations of equal inputs. Two nodes
that draw, or read the host, are the same where each is the n-th of its kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field

from anyshape.ir.graph import Arg, Node, ScalarType, Value
from anyshape.nouns import mutable
from anyshape.ops.table import OpDef


@mutable(eq=False)
class Structure:
    """Numbers computations; shared by the graphs that are compared."""

    ops: Mapping[str, OpDef]
    numbers: dict[Hashable, int] = field(default_factory=dict)

    def of(self, inputs: Iterable[Value], nodes: Iterable[Node]) -> dict[Value, int]:
        """The number of each value that these nodes make; all nodes in front of them included."""
        found = {value: self._number(("input", i)) for i, value in enumerate(inputs)}
        seen: dict[Hashable, int] = {}
        for node in nodes:
            kwargs = tuple(sorted((name, self._key(a, found)) for name, a in node.kwargs.items()))
            key: Hashable = (node.op, self._key(node.args, found), kwargs)
            if self._is_counted(node):
                seen[key] = seen.get(key, 0) + 1
                key = (key, seen[key])
            for position, value in enumerate(node.outputs):
                found[value] = self._number((key, position, value.type))
        return found

    def _number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def _is_counted(self, node: Node) -> bool:
        row = self.ops.get(node.op)
        makes_number = any(isinstance(value.type, ScalarType) for value in node.outputs)
        return row is None or row.resource is not None or makes_number

    def _key(self, arg: Arg, found: Mapping[Value, int]) -> Hashable:
        if isinstance(arg, Value):
            return ("value", found[arg])
        if isinstance(arg, tuple):
            return tuple(self._key(item, found) for item in arg)
        if isinstance(arg, slice):
            return ("slice", *(self._key(a, found) for a in (arg.start, arg.stop, arg.step)))
        if isinstance(arg, (bool, int, float, complex, str)):
            return (type(arg).__name__, repr(arg))
        return ("other", id(arg)) if arg.__hash__ is None else arg
