"""Convolutions whose windows neither overlap nor leave gaps are products of patches, on a device.

    %y = conv2d(%x, %w, %b, (16, 16))                  %w: [o, c, 16, 16], %x: [n, c, 16 h, 16 w]
    ->
    %p = permute(reshape(%x, (n, c, h, 16, w, 16)), (0, 2, 4, 1, 3, 5))
    %r = linear(reshape(%p, (n h w, c 256)), reshape(%w, (o, c 256)), %b)
    %y = clone(permute(reshape(%r, (n, h, w, o)), (0, 3, 1, 2)))

A picture is cut so at the entry of vision transformers. The library's convolution of three channels
in half precision puts image and weight in an order of its own and pads the channels: 122 us of 8
pictures of 224 x 224 where the copy of patches and the product take 12. The copy at the
end has eager's layout; a kernel that follows reads what the product made, in its own order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyshape.ir.dtypes import DType, bfloat16, float16
from anyshape.ir.graph import HOST, Arg, Graph, Node, TensorType, Value
from anyshape.ir.shortcuts import only_where
from anyshape.ops.build import Builder
from anyshape.ops.conv import spread
from anyshape.ops.layout import contiguous_strides
from anyshape.ops.table import OpDef
from anyshape.passes.rebuild import Reader, Rebuilding, rebuild
from anyshape.symbolic import Dim

DTYPES: frozenset[DType] = frozenset({bfloat16, float16})
"""The library computes float32 in another precision than products, by flags of their own."""
AS_ARGUMENTS = (None, 1, 0, 1, 1)
"""What a convolution is handed behind its image and weight: bias, stride, padding, dilation and
groups, where they are left out."""


def _has_patches(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    return any(map(_is_of_patches, graph.nodes))


@only_where(_has_patches)
def multiply_patches(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph in which convolutions of patches are products."""
    reader = Reader.of(graph)
    builder = Builder(reader.cx, ops)
    builder.reserve(graph)

    def visit(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        if not _is_of_patches(node):
            return out.emit(node)
        builder.location, builder.modes = node.location, node.modes
        made = _product(node, builder)
        out.nodes.extend(builder.nodes)
        builder.nodes.clear()
        return (made,)

    return rebuild(graph, visit, reader=reader)


def _is_of_patches(node: Node) -> bool:
    """Does a window of known size begin where the one before it ends?"""
    if not node.args[1:] or not isinstance(node.args[1], Value):
        return False
    weight = node.args[1].type
    if not isinstance(weight, TensorType) or node.op != f"conv{weight.rank - 2}d":
        return False
    output, dims = node.output.tensor, weight.rank - 2
    if output.device == HOST or output.dtype not in DTYPES:  # whose library is as fast
        return False
    _, stride, padding, dilation, groups = _arguments(node)
    window = weight.shape[2:]
    dense = spread(padding, dims) == (0,) * dims if padding != "valid" else True
    return (
        output.rank == weight.rank
        and all(isinstance(size, int) and size > 0 for size in weight.shape)
        and spread(stride, dims) == window
        and any(size != 1 for size in window)
        and dense
        and spread(dilation, dims) == (1,) * dims
        and groups == 1
        and weight.strides == _row_major(weight)
    )


def _row_major(weight: TensorType) -> tuple[Dim, ...]:
    strides: list[Dim] = [1]
    for size in reversed(weight.shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


def _arguments(node: Node) -> tuple[Any, ...]:
    """Bias, stride, padding, dilation and groups."""
    names = ("bias", "stride", "padding", "dilation", "groups")
    given = dict(zip(names, AS_ARGUMENTS)) | dict(zip(names, node.args[2:])) | dict(node.kwargs)
    return tuple(given[name] for name in names)


def _product(node: Node, b: Builder) -> Value:
    image, weight = node.args[:2]
    assert isinstance(image, Value) and isinstance(weight, Value)
    bias = _arguments(node)[0]
    (count, _, *grid), (kinds, channels, *window) = node.output.shape, weight.shape
    split: list[Dim] = [count, channels]
    for axis, (extent, size) in enumerate(zip(grid, window, strict=True), start=2):
        if image.shape[axis] != extent * size:  # what no window reaches is not read
            image = b.call("slice", image, axis, 0, extent * size, 1)
        split += [extent, size]
    dims = len(grid)
    order = (0, *range(2, 2 + 2 * dims, 2), 1, *range(3, 3 + 2 * dims, 2))
    patches = b.call("permute", b.call("reshape", image, tuple(split)), order)
    rows, columns = count, channels
    for extent, size in zip(grid, window, strict=True):
        rows, columns = rows * extent, columns * size
    of_rows = b.call("reshape", patches, (rows, columns))
    made = b.call("linear", of_rows, b.call("reshape", weight, (kinds, columns)), bias)
    made = b.call("reshape", made, (count, *grid, kinds))
    made = b.call("permute", made, (0, dims + 1, *range(1, dims + 1)))
    wanted = node.output.tensor
    if made.tensor.strides == wanted.strides:
        return made
    row_major = wanted.strides == contiguous_strides(b.cx, wanted.shape)
    named = "contiguous_format" if row_major else "channels_last"
    copy: Value = b.append("clone", (made,), {"memory_format": named}, (wanted,))
    return copy
