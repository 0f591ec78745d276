"""Writes to memory that the same operator reads through another view: `x[1:] += x[:-1]`.

In: the arguments of a row that writes its first one. Out: nothing, or a break where a part of
what it reads may be written before it is read. Eager refuses most of those, and computes the rest
in an order of its own. Views of different tensors are disjoint, and so are parts that facts show to
be; the very same elements on both sides are read before they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from anyshape.capture.heap.breaks import broken
from anyshape.ir.graph import Arg, Node, TensorType, Value, values_in
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.parts import Part, Span
from anyshape.ops.shared_memory import lies_in_argument
from anyshape.ops.table import OPS, Scatter
from anyshape.ops.write_back import strided, unfolded
from anyshape.symbolic import Expr, eq, ge, le, lt, mod, ne

Step = tuple[Node, int]
"""A view: its node, and which of the node's results it is."""


def refuse_overlaps(
    builder: Builder, name: str, args: Sequence[Arg], kwargs: Mapping[str, Arg]
) -> None:
    """Ends the segment where row ``name`` may read what it has written already."""
    if name not in OPS or not OPS[name].mutates:
        return
    positional, keywords = OPS[name].signature.split(tuple(args), kwargs)  # by name or not
    target = positional[0]
    if isinstance(target, Value):
        if _repeats(builder, target.tensor):
            raise broken("operator-raises", what=name, why="it writes one element more than once")
        read = tuple(values_in((*positional[1:], *keywords.values())))
        pure = OPS[OPS[name].functional or name]
        if isinstance(pure.lower, Scatter) or pure.scatters:
            refuse_out(builder, name, target, read, elementwise=False)
        else:
            refuse_reading(builder, name, target, read)


def _repeats(builder: Builder, kind: TensorType) -> bool:
    """Has the tensor an element that lies at several of its indices? Eager refuses most writes."""
    cx = builder.cx
    sizes = {symbol for size in kind.shape if isinstance(size, Expr) for symbol in size.symbols}
    for size, stride in zip(kind.shape, kind.strides, strict=True):
        if isinstance(stride, Expr) and (stride.symbol is None or stride.symbol in sizes):
            continue  # 0 where the tensor is empty, and nowhere else
        zero = stride == 0 if isinstance(stride, int) else cx.decide(eq(stride, 0))
        if zero and cx.known(le(size, 1)) is not True:
            return True
    return False


def refuse_reading(builder: Builder, name: str, target: Value, read: Iterable[Value]) -> None:
    """Ends the segment where one of the values may lie in what ``name`` writes to, differently."""
    reads_number = name in OPS and OPS[name].reads_number
    for value in read:
        if not isinstance(value.type, TensorType) or (not value.shape and reads_number):
            continue
        if _may_overlap(builder, target, value):
            raise broken("operator-raises", what=name, why="it reads memory that it writes")


def refuse_out(
    builder: Builder, name: str, target: Value, read: Sequence[Value], *, elementwise: bool
) -> None:
    """Ends the segment where a result given as ``out=`` lies in what is read: only an elementwise
    operator may write the very elements that it reads, a library may write before it has read."""
    refuse_reading(builder, name, target, read)
    elementwise = elementwise and not _has_windows(builder, target)
    tensors = (value for value in read if isinstance(value.type, TensorType))
    if not elementwise and any(share_memory(builder, target, value) for value in tensors):
        raise broken("operator-raises", what=name, why="it reads memory that it writes")


def _has_windows(builder: Builder, value: Value) -> bool:
    """May one element lie at several of its indices, as in windows that overlap? Eager reads there
    what it has just written; a result that is made first and copied then is another."""
    backs = {OPS[node.op].write_back for node, _ in _way(builder, value)[1] if node.op in OPS}
    return not backs.isdisjoint((unfolded, strided))


def share_memory(builder: Builder, a: Value, b: Value) -> bool:
    """Are the two views of one tensor, or one a view of the other?"""
    return _way(builder, a)[0] is _way(builder, b)[0]


def _may_overlap(builder: Builder, target: Value, value: Value) -> bool:
    root, steps = _way(builder, target)
    other, others = _way(builder, value)
    if value is target or root is not other:
        return False
    while steps and others and _is_one(steps[0], others[0]):
        root = steps[0][0].outputs[steps[0][1]]
        steps, others = steps[1:], others[1:]
    a, b = _part(root, steps), _part(root, others)
    cx = _of_some_elements(builder.cx, root)
    pairs = list(zip(a.spans, b.spans, strict=True))
    if any(_are_disjoint(cx, *pair) for pair in pairs):
        return False
    alike = _view_key(a) == _view_key(b) and all(
        _are_equal_or_disjoint(cx, *pair) for pair in pairs
    )
    return not alike


def _of_some_elements(cx: TypeContext, value: Value) -> TypeContext:
    """What is known where the tensor is not empty: nothing overlaps in an empty one."""
    return replace(cx, facts=cx.facts.supposing(ge(size, 1) for size in value.shape))


def _view_key(part: Part) -> object:
    return part.dims, part.then


def _way(builder: Builder, value: Value) -> tuple[Value, list[Step]]:
    """What the value is a view of at last, and the views on the way to it."""
    steps: list[Step] = []
    while (node := builder.makers.get(value)) is not None:
        first = node.args[0] if node.args else None
        if not isinstance(first, Value) or not lies_in_argument(builder.cx, node, OPS.get(node.op)):
            break
        steps.append((node, node.outputs.index(value)))
        value = node.read[0]
    return value, steps[::-1]


def _is_one(a: Step, b: Step) -> bool:
    (first, i), (second, j) = a, b
    if first is second or i != j or first.op != second.op:
        return first is second and i == j
    return first.args[1:] == second.args[1:] and first.kwargs == second.kwargs


def _part(root: Value, steps: Sequence[Step]) -> Part:
    part = Part(tuple((0, 1, size) for size in root.shape), tuple(range(len(root.shape))))
    for node, position in steps:
        row, before, after = OPS[node.op], node.read[0].tensor, node.outputs[0].tensor
        alike = before.shape == after.shape and before.strides == after.strides
        if row.mutates or (row.keeps_elements and alike):
            continue
        rule = None if part.then else row.part
        if rule is not None:
            part = rule(part, node, position)
        else:
            view = (node.op, node.args[1:], tuple(node.kwargs.items()), position)
            part = replace(part, then=(*part.then, view))
    return part


def _are_disjoint(cx: TypeContext, a: Span, b: Span) -> bool:
    (start, step, length), (begin, stride, count) = a, b
    if cx.known(lt(start + (length - 1) * step, begin)):
        return True
    if cx.known(lt(begin + (count - 1) * stride, start)):
        return True
    if not isinstance(step, int) or step != stride or step < 2:
        return False
    return cx.known(ne(mod(start - begin, step), 0)) is True


def _are_equal_or_disjoint(cx: TypeContext, a: Span, b: Span) -> bool:
    """Of single elements one of the two holds; eager refuses the same one at another stride."""
    if a[2] == b[2] == 1:
        return cx.same(a[1], b[1])
    return all(cx.same(one, other) for one, other in zip(a, b, strict=True))
