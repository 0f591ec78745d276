"""A cat of many parts becomes a tree of cats of a few: code does not grow with their number.

    cat(x0, ..., x99)   ->   cat(cat(x0, ..., x14), ..., cat(x90, ..., x99))

A kernel has a loop for each part that it reads; the many small joins share one kernel, the few of
the next level another. The fuser does not join them (``schedule/fuse.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyshape.costs import COSTS
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import mutable, replace
from anyshape.ops.build import Builder
from anyshape.ops.layout import contiguous_strides
from anyshape.ops.table import OpDef
from anyshape.passes.rebuild import Reader, Rebuilding, rebuild
from anyshape.symbolic import total


def _joins_many(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    return any(map(_is_long, graph.nodes))


@only_where(_joins_many)
def split_long_cats(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """No cat of the result has more parts than one kernel joins."""
    reader = Reader.of(graph)
    builder = Builder(reader.cx, ops)
    builder.reserve(graph)

    def split(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        if _is_long(node):
            builder.location, builder.modes = node.location, node.modes
            out.nodes.extend(_Tree(node, builder).nodes())
            return node.outputs
        return out.emit(node)

    return rebuild(graph, split, reader=reader)


def _is_long(node: Node) -> bool:
    return node.op == "cat" and len(_parts(node)) > COSTS.kernel_parts


def _parts(node: Node) -> tuple[Value, ...]:
    """What torch joins: it skips empty vectors among tensors of more dimensions."""
    parts, *_ = node.args
    assert isinstance(parts, tuple)
    rank = len(node.output.shape)
    return tuple(p for p in parts if isinstance(p, Value) and len(p.shape) == rank)


@mutable(eq=False)
class _Tree:
    node: Node
    builder: Builder

    def nodes(self) -> list[Node]:
        """The levels from the parts up; the last node is the given one over the highest level."""
        level = self._alike(_parts(self.node))
        while len(level) > COSTS.kernel_parts:
            level = tuple(map(self._cat, _slices(level)))
        made = list(self.builder.nodes)
        self.builder.nodes.clear()
        _, *rest = self.node.args
        return [*made, replace(self.node, args=(level, *rest))]

    def _alike(self, parts: tuple[Value, ...]) -> tuple[Value, ...]:
        """Each part in the dtype of the whole, so that it is rounded once."""
        dtype = self.node.output.dtype
        return tuple(
            part if part.dtype is dtype else self.builder.call("to_dtype", part, dtype)
            for part in parts
        )

    def _cat(self, parts: Sequence[Value]) -> Value:
        if len(parts) == 1:
            return parts[0]
        whole, cx = self.node.output.tensor, self.builder.cx
        axis = self._axis()
        size = total([part.shape[axis] for part in parts])
        shape = (*whole.shape[:axis], size, *whole.shape[axis + 1 :])
        made = TensorType(whole.dtype, whole.device, shape, contiguous_strides(cx, shape))
        _, *rest = self.node.args
        value: Value = self.builder.append("cat", (tuple(parts), *rest), self.node.kwargs, (made,))
        return value

    def _axis(self) -> int:
        given = self.node.args[1] if len(self.node.args) > 1 else self.node.kwargs.get("dim", 0)
        assert isinstance(given, int)
        return given % len(self.node.output.shape)


def _slices(parts: tuple[Value, ...]) -> list[tuple[Value, ...]]:
    """Neighbours together, as evenly as can be: equal numbers of parts share a kernel."""
    count = -(-len(parts) // COSTS.kernel_parts)
    short, longer = divmod(len(parts), count)
    ends = [0]
    for n in range(count):
        ends.append(ends[-1] + short + (n < longer))
    return [parts[a:b] for a, b in zip(ends, ends[1:])]
