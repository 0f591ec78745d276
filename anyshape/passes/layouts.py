"""Where convolutions follow one another, what lies between them keeps its channels innermost.

    %a = conv2d(%x, %w); %b = relu(%a); %c = conv2d(%b, %v)          all row-major, as in eager
    ->
    %x1 = clone(%x, channels_last); %w1 = clone(%w, channels_last); %v1 = clone(%v, channels_last)
    %a = conv2d(%x1, %w1); %b = relu(%a); %c1 = conv2d(%b, %v1)      all channels-last
    %c = clone(%c1, contiguous_format)                               for who is no part of it

The library convolves channels-last images without putting them in an order of its own and back.
Only strides change, and only of values that nobody sees: outputs, views, libraries and writes get
a copy laid out as eager's; generated kernels read any layout. Weights are put in order in each
call, since nothing tells when a parameter's data is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from anyshape.ir.dtypes import DType, bfloat16, float16, float32
from anyshape.ir.graph import HOST, Arg, Graph, Node, TensorType, Value, map_values, values_in
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import mutable, replace
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import channels_last_strides, contiguous_strides
from anyshape.ops.table import OpDef, Pointwise, Reduce
from anyshape.passes.rebuild import Reader, Rebuilding, rebuild

DTYPES: frozenset[DType] = frozenset({float32, bfloat16, float16})
CONVOLUTIONS: Mapping[str, int] = {
    "conv2d": 1,
    "conv2d_input_gradient": 1,
    "conv2d_weight_gradient": 2,
}
"""How many of its first operands are images; of the two gradients the first is a cotangent."""
WEIGHTS = frozenset({"conv2d_weight_gradient"})  # what they give is no image
POOLS = frozenset({"max_pool2d", "torch_max_pool2d", "max_pool2d_with_indices", "avg_pool2d"})
"""Library functions whose result has its channels innermost where its image has."""
JOINS = frozenset({"cat", "pad"})


def _convolves_twice(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    return sum(node.op in CONVOLUTIONS for node in graph.nodes) > 1


@only_where(_convolves_twice)
def keep_channels_innermost(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph with channels-last strides wherever a convolution's image is another's result."""
    images = _Images(graph, ops, Reader.of(graph).cx)  # as before the first node: for all of them
    images.find()
    layouts = _Layouts(images)
    return rebuild(graph, layouts.visit, layouts.finish)


@mutable(eq=False)
class _Images:
    """Which nodes hand images on, and which convolutions see another's result."""

    graph: Graph
    ops: Mapping[str, OpDef]
    cx: TypeContext
    origins: dict[Value, frozenset[Value]] = field(default_factory=dict)
    convolutions: set[Value] = field(default_factory=set)
    wanted: set[Value] = field(default_factory=set)

    def find(self) -> None:
        """Forward: whose results reach a convolution; backward: what lies on the way."""
        for node in self.graph.nodes:
            if self.is_convolution(node):
                above = self._above(node)
                if above:
                    self.convolutions |= {node.output, *above}
                if node.op not in WEIGHTS:
                    self.origins[node.output] = frozenset((node.output,))
            elif self.hands_on(node):
                above = self._above(node)
                self.origins.update(dict.fromkeys(node.outputs, above) if above else ())
        for node in reversed(self.graph.nodes):
            is_end = not self.convolutions.isdisjoint(node.outputs)
            if is_end or (self.hands_on(node) and not self.wanted.isdisjoint(node.outputs)):
                self.wanted.update(self.images(node))

    def _above(self, node: Node) -> frozenset[Value]:
        found = (self.origins.get(value, frozenset()) for value in self.images(node))
        return frozenset[Value]().union(*found)

    def images(self, node: Node) -> Iterator[Value]:
        """The operands that are images as its result is one."""
        if node.op in CONVOLUTIONS or node.op in POOLS:
            yield from values_in(node.args[: CONVOLUTIONS.get(node.op, 1)])
            return
        shape = None if node.op in JOINS else node.outputs[0].shape
        for value in node.inputs():
            if isinstance(value.type, TensorType) and (shape is None or value.shape == shape):
                yield value

    def is_convolution(self, node: Node) -> bool:
        """Would the library rather have this convolution's operands channels-last?"""
        if node.op not in CONVOLUTIONS:
            return False
        return node.output.dtype in DTYPES and self.is_row_major_image(node.output)

    def hands_on(self, node: Node) -> bool:
        """Is it elementwise, a join or a pool whose row-major results may have another layout?"""
        row = self.ops.get(node.op)
        elementwise = row is not None and isinstance(row.lower, Pointwise)
        if not elementwise and node.op not in POOLS and node.op not in JOINS:
            return False
        return all(map(self.is_row_major_image, node.outputs))

    def is_row_major_image(self, value: Value) -> bool:
        """Has it four dimensions, row-major, on the host?"""
        t = value.type
        if not isinstance(t, TensorType) or t.rank != 4 or t.device != HOST:
            return False
        return t.strides == contiguous_strides(self.cx, t.shape)

    def reads_any_layout(self, node: Node) -> bool:
        """Is the node done by a generated kernel that reads elements by their index?"""
        row = self.ops.get(node.op)
        return row is not None and (isinstance(row.lower, Pointwise | Reduce) or node.op in JOINS)


@mutable(eq=False)
class _Layouts:
    """Writes the nodes anew. ``last`` are the values whose strides were changed; ``copies`` are
    those made of a value in the other layout."""

    images: _Images
    last: set[Value] = field(default_factory=set)
    copies: dict[Value, Value] = field(default_factory=dict)

    def visit(self, node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        """The node over operands in the layout it wants; its results in the one it gives."""
        images = self.images
        if node.op in CONVOLUTIONS and node.output in images.convolutions:
            image, weight, *rest = node.args
            assert isinstance(image, Value) and isinstance(weight, Value)
            args = (self._innermost(image, out), self._innermost(weight, out), *rest)
            return self._retyped(replace(node, args=args), out)
        if images.hands_on(node) and not self.last.isdisjoint(images.images(node)):
            if node.op in POOLS or not images.wanted.isdisjoint(node.outputs):
                return self._retyped(node, out)
        if images.reads_any_layout(node):
            return out.emit(node)
        return out.emit(self._in_rows(node, out))

    def _retyped(self, node: Node, out: Rebuilding) -> tuple[Value, ...]:
        outputs = tuple(Value(v.name, innermost(v.tensor)) for v in node.outputs)
        self.last.update(outputs)
        return out.emit(replace(node, outputs=outputs))

    def _innermost(self, value: Value, out: Rebuilding) -> Value:
        """The value with its channels innermost: itself, or a copy."""
        wanted = innermost(value.tensor)
        pairs = zip(value.shape, value.tensor.strides, wanted.strides, strict=True)
        if all(a == b or size == 1 for size, a, b in pairs):
            return value
        return self._copy(value, wanted, "channels_last", out)

    def _in_rows(self, node: Node, out: Rebuilding) -> Node:
        if self.last.isdisjoint(node.inputs()):
            return node
        args = tuple(self._restored(arg, out) for arg in node.args)
        kwargs = {name: self._restored(arg, out) for name, arg in node.kwargs.items()}
        return replace(node, args=args, kwargs=kwargs)

    def _restored(self, arg: Arg, out: Rebuilding) -> Arg:
        """The argument, with strides as eager has them."""

        def restore(value: Value) -> Value:
            if value not in self.last:
                return value
            strides = contiguous_strides(self.images.cx, value.shape)
            return self._copy(
                value, replace(value.tensor, strides=strides), "contiguous_format", out
            )

        return map_values(arg, restore)

    def _copy(self, value: Value, wanted: TensorType, format: str, out: Rebuilding) -> Value:
        copy = self.copies.get(value)
        if copy is None:
            copy = self.copies[value] = Value(f"{value.name}_{format.split('_')[0]}", wanted)
            out.emit(Node("clone", (value,), {"memory_format": format}, (copy,)))
        return copy

    def finish(self, out: Rebuilding) -> None:
        """What the caller gets is laid out as eager's."""
        for output in self.images.graph.outputs:
            for value in values_in(output):
                now = out.substitutes.get(value, value)
                out.substitutes[value] = self._restored(now, out)


def innermost(t: TensorType) -> TensorType:
    """The type, with its channels innermost."""
    return replace(t, strides=channels_last_strides(t.shape))
