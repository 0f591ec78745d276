"""What depends on where a tensor lies in its storage: strides read as numbers, ``as_strided``, and
copies that keep the offset in the storage (``select_scatter`` and its relatives).

In: calls as they lie on the virtual stack. Out: proxies. What is made here has a storage of its own
elements, one after the other; of what is handed in, the tensor itself is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import TensorSpec
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.sources import Source
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.choices import Choice
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.recording.retyping import Retyped
from anyshape.capture.tensors.aliases import is_pick, shares
from anyshape.capture.tensors.tensor_ops import Handler, call_row, getitem, read_index
from anyshape.ir.graph import Node, TensorType, Value, row_major
from anyshape.nouns import replace
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext, Undecided
from anyshape.ops.layout import (
    Shape,
    contiguous_strides,
    dense_order,
    dot,
    numel,
    strides_in_order,
)
from anyshape.ops.parts import begins_at
from anyshape.ops.row_major_results import LIKE_WHERE_SMALL, makes_rows
from anyshape.ops.rules import dim_of, is_empty
from anyshape.ops.shared_memory import OWN_COUNTERS
from anyshape.ops.table import OpDef, Pointwise
from anyshape.symbolic import Condition, Dim, all_of, any_of, eq, ge, gt, le, maximum, mod

View = tuple[Node, int]
"""A node that makes views, and which of its results it is."""


def way_of(recorder: Recorder, value: Value) -> tuple[Value, list[View]]:
    """What a tensor is a view of at last, and the views on the way to it, the first one first;
    guarded is whether a copy is a view at these sizes."""
    steps: list[View] = []
    while (node := recorder.builder.makers.get(value)) is not None and node.op in OPS:
        row = OPS[node.op]
        if row.alias == "none" or not node.read:
            break
        if row.alias == "maybe" and not shares(recorder, node):
            break
        steps.append((node, node.outputs.index(value)))
        value = node.read[0]
    recorder.choices.refuse_root(value)
    return value, steps[::-1]


# ---- strides as numbers --------------------------------------------------------------------------
def strides_as_eager(domain: RecordingDomain, x: TensorValue) -> Shape:
    """Those of its type for what is made row by row, and where every size is two at least, which is
    guarded; else what its layout rule says of these very sizes, and of the strides of what is
    handed in."""
    recorder, kind = domain.recorder, x.value.tensor
    recorder.layouts_read |= bool(recorder.taken)
    recorder.laid[x.value] = None
    source, cx = recorder.source_of(x.value), recorder.cx
    if source is not None and x.value.name not in recorder.constants:
        return _strides_handed_in(recorder, x.value, source)
    root, _ = way_of(recorder, x.value)
    maker = recorder.builder.makers.get(root)
    if maker is not None and maker.op in OPS and _lies_in_rows(recorder, maker):
        return _strides_in_rows(recorder, kind)
    several = [ge(size, 2) for size in kind.shape]
    if any(map(cx.is_open, (*several, *(eq(size, 0) for size in kind.shape)))):
        return _strides_of_some(recorder, kind)
    if all(cx.known(c) or cx.hint(c) for c in several):
        assert all(map(recorder.decide, several))
        return kind.strides
    try:
        return _AsEager(recorder).type_of(x.value).strides
    except (OpError, Undecided) as error:
        raise broken("tensor-attribute", f"stride(), since {error}") from None


def _strides_in_rows(recorder: Recorder, kind: TensorType) -> Shape:
    """Of a view of what is new and row-major: eager counts a size of 0 as 1."""
    order = dense_order(kind.shape, kind.strides)
    if order is None or not is_empty(recorder.cx, kind):
        return kind.strides
    return _none_as_one(recorder.cx, kind, order)


def _none_as_one(cx: TypeContext, kind: TensorType, order: Sequence[int]) -> Shape:
    sizes = tuple([maximum(size, 1) for size in kind.shape])
    if kind.strides == contiguous_strides(cx, kind.shape):
        return row_major(sizes)
    return strides_in_order(sizes, order)


def _strides_of_some(recorder: Recorder, kind: TensorType) -> Shape:
    """Where data decides a size: as of several elements, which is checked where it tells: of none,
    an index lies row by row only if no other size is 1."""
    cx = recorder.cx
    empty = any_of(*(eq(size, 0) for size in kind.shape))
    if cx.known(empty) is False:
        return kind.strides
    others = [several for size in kind.shape if cx.hint(several := ge(size, 2)) is not None]
    order = dense_order(kind.shape, kind.strides)
    rows = order is not None and kind.strides == contiguous_strides(cx, kind.shape)
    if order is not None and rows and all(map(recorder.decide, others)):
        return _none_as_one(cx, kind, order)
    if isinstance(empty, bool) or cx.known(empty):
        raise broken("tensor-attribute", "stride(), of nothing, since data decides a size")
    cx.require(~empty, "strides of what is not empty")
    return kind.strides


class _AsEager(Retyped):
    """Types where sizes of 0 and 1 are guarded and known."""

    __slots__ = ("recorder",)

    def __init__(self, recorder: Recorder) -> None:
        Retyped.__init__(self, recorder.cx, recorder.builder.makers)
        self.recorder = recorder

    def settled(self, value: Value, node: Node | None, row: OpDef | None) -> TensorType | None:
        kind = self._sized(value)  # first: the rule of the row may rely on what is guarded here
        if node is None:
            return self._handed_in(value, kind)
        if row is not None and row.mutates:
            return self.type_of(node.read[0])
        if (choice := self.recorder.choices.made.get(value)) is not None:
            return self._chosen(value, choice)
        if is_pick(node):  # a copy instead of a view lies as a copy
            self.recorder.asked[node.output] = None
        if row is not None and row.guessed:
            raise OpError(f"nobody says how the result of {row.name} lies")
        has_rule = row is not None and (row.type is not None or row.expand is not None)
        if has_rule and not _lies_in_rows(self.recorder, node):
            return None
        rows = value.tensor.strides == contiguous_strides(self.cx, value.shape)
        return replace(kind, strides=row_major(kind.shape)) if rows else kind

    def kept(self, value: Value, made: TensorType) -> TensorType:
        return replace(self._sized(value), strides=tuple(map(self.simplified, made.strides)))

    def _handed_in(self, value: Value, kind: TensorType) -> TensorType:
        source, strides = self.recorder.source_of(value), kind.strides
        if source is not None and value.name not in self.recorder.constants:
            strides = _strides_handed_in(self.recorder, value, source)
            read_off = _are_read_off(self.recorder, value) and not {0, 1}.isdisjoint(kind.shape)
            if read_off or strides != kind.strides:
                return self._specialized(replace(kind, strides=strides))
        return replace(kind, strides=tuple(map(self.simplified, strides)))

    def _chosen(self, value: Value, choice: Choice) -> TensorType:
        """Of what stands for one of two tensors: as both lie; else the program sees which it is."""
        yes, no = (self.type_of(part.value) for part in (choice.yes, choice.no))
        if yes.strides != no.strides:
            self.recorder.choices.refuse_root(value)
        return yes

    def _specialized(self, kind: TensorType) -> TensorType:
        """With the very sizes and strides, guarded: those that no size gives tie with any other."""
        value = self.recorder.specialize
        shape = tuple([value(size, "a size") for size in kind.shape])
        strides = tuple([value(stride, "a stride") for stride in kind.strides])
        return replace(kind, shape=shape, strides=strides)

    def _sized(self, value: Value) -> TensorType:
        return replace(value.tensor, shape=tuple(map(self._decided, value.shape)))

    def _decided(self, size: Dim) -> Dim:
        """A size of 0 or 1 is guarded to be so, one of two or more not to be."""
        recorder = self.recorder
        few = next((n for n in (0, 1) if recorder.cx.hint(eq(size, n))), None)
        if few is not None and recorder.decide(eq(size, few)):
            return few
        recorder.decide_or_check(ge(size, 2), "a size of two or more")
        return self.simplified(size)


def _lies_in_rows(recorder: Recorder, node: Node) -> bool:
    """Is the result new and row-major whatever the strides of the operands?"""
    row = OPS[node.op]
    if row.alias != "none" or node.op in LIKE_WHERE_SMALL or is_pick(node):
        return False
    made = [v.tensor for v in node.outputs if isinstance(v.type, TensorType)]
    read = [v.tensor for v in node.read if isinstance(v.type, TensorType)]
    elementwise = row.lower is None or isinstance(row.lower, Pointwise)
    if elementwise and not _are_of_shape(node.args, made[0].shape):
        return False
    kinds = (*made, *read) if elementwise else made
    if any(t.strides != contiguous_strides(recorder.cx, t.shape) for t in kinds):
        return False
    cx = TypeContext(recorder.cx.space, recorder.cx.facts.fork(), recorder.cx.hints)
    return elementwise or makes_rows(Builder(cx, OPS), row, node, images=False)


def _are_of_shape(operands: Sequence[Any], shape: Shape) -> bool:
    """Are they several tensors of this shape? A number among them has another one."""
    return len(operands) > 1 and all(
        isinstance(x, Value) and isinstance(x.type, TensorType) and x.shape == shape
        for x in operands
    )


def _are_read_off(recorder: Recorder, value: Value) -> bool:
    """Are the strides of an argument numbers, as its sizes do not give them?"""
    real = recorder.real_tensor(TensorValue(value))
    return real is not None and TensorSpec.of(real).layout == "strided"


def _strides_handed_in(recorder: Recorder, value: Value, source: Source) -> Shape:
    """The strides of an argument: as its type says, which is guarded, or numbers read off it."""
    real = recorder.real_tensor(TensorValue(value))
    assert real is not None
    if _are_read_off(recorder, value):
        return value.tensor.strides
    return tuple(
        _stride_handed_in(recorder, recorder.sources.child(source, "stride", d), *strides)
        for d, strides in enumerate(zip(real.stride(), value.tensor.strides, strict=True))
    )


def _stride_handed_in(recorder: Recorder, source: Source, stride: int, wanted: Dim) -> Dim:
    read = recorder.measured(stride, source).expr
    alike = eq(read, wanted)
    if isinstance(alike, bool):
        return wanted if alike else read
    return wanted if recorder.cx.hint(alike) and recorder.decide(alike) else read


def view(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.view(dtype)``: eager refuses rows that are not dense where elements are of another size,
    and strides that are no multiples of a larger one: of dimensions without elements or with one,
    too, where types do not say how eager lays out what is handed in, or made of it."""
    x, *rest = args
    dtype = kwargs.get("dtype", rest[0] if rest else None)
    kind = x.value.tensor
    if not isinstance(dtype, torch.dtype) or dtype.itemsize == kind.dtype.size_bytes:
        return NotImplemented
    recorder, each = domain.recorder, dtype.itemsize // kind.dtype.size_bytes
    if not kind.rank or (each == 0 and _has_dense_rows(recorder, x.value)):
        return NotImplemented
    *outer, inner = strides_as_eager(domain, x)
    wanted = [eq(mod(stride, each), 0) for stride in outer if each]
    for condition in (eq(inner, 1), *wanted):
        if not recorder.decide(condition):
            why = "of its strides, the last must be 1 and the others multiples of the new element"
            raise broken("operator-raises", what="view", why=why)
    return NotImplemented


def _has_dense_rows(recorder: Recorder, value: Value) -> bool:
    """Whether the last stride is 1 by its type, and rows have several elements, which is guarded:
    the dimension that eager takes for the innermost one is then theirs."""
    kind, cx = value.tensor, recorder.cx
    several = [ge(size, 1) for size in kind.shape[:-1]] + [ge(kind.shape[-1], 2)]
    if cx.known(eq(kind.strides[-1], 1)) is not True:
        return False
    return all(cx.known(c) or cx.hint(c) for c in several) and all(map(recorder.decide, several))


# ---- as_strided ----------------------------------------------------------------------------------
def as_strided(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view by offsets in the storage, which must hold them."""
    given = _named("input size stride storage_offset", args, kwargs)
    x = _tensor(domain, given, "input")
    root, steps = way_of(domain.recorder, x.value)
    domain.recorder.asked[root] = None
    if domain.recorder.source_of(root) is not None or root.name in domain.recorder.constants:
        return NotImplemented  # torch knows their storage
    if _is_in_copied_storage(domain.recorder, root):
        why = "it shows what lies around in a storage that is copied"
        raise broken("operator-unknown", what="as_strided", why=why)
    size, stride = (
        domain.arguments(read_index(domain, part) for part in given[name])
        for name in ("size", "stride")
    )
    offset = domain.argument(read_index(domain, given.get("storage_offset")))
    offset = offset_of(domain.recorder, steps) if offset is None else offset
    if steps and domain.recorder.modes.grad and x.value.tensor.requires_grad:
        why = "gradients pass what lies inside of the view alone"
        raise broken("operator-unknown", what="as_strided", why=why)
    order = dense_order(root.shape, root.tensor.strides)
    if offset is None or order is None or len(size) != len(stride):
        raise broken("operator-unknown", what="as_strided", why="nobody knows its storage")
    _require_inside(domain, size, stride, offset, numel(root.shape))
    call = domain.recorder.call
    if any(node.op in OWN_COUNTERS for node, _ in steps):
        root = call("data", root)  # whose writes are not counted
    flat = call("view", call("permute", root, order[::-1]), (numel(root.shape),))
    return TensorValue(call("strided_part", flat, size, stride, offset))


def offset_of(recorder: Recorder, steps: Sequence[View]) -> Dim | None:
    """How many elements after its base a view begins; None where nobody says."""
    offsets = [begins_at(recorder.cx, OPS[step[0].op], *step) for step in steps]
    return None if None in offsets else sum(offsets, 0)  # type: ignore[arg-type] # no None


def _require_inside(
    domain: RecordingDomain, size: Shape, stride: Shape, offset: Dim, count: Dim
) -> None:
    """Eager refuses negative strides and offsets, and what ends past the storage."""
    for number in (*stride, offset):
        _require(domain, "as_strided", ge(number, 0))
    last = dot([n - 1 for n in size], stride) + offset
    inside = le(last + 1, count)
    cx = domain.recorder.cx
    for condition in (inside, *(eq(n, 0) for n in size)):
        if cx.known(condition) or cx.hint(condition):
            return _require(domain, "as_strided", condition)
    return _require(domain, "as_strided", any_of(inside, *(eq(n, 0) for n in size)))


def _require(domain: RecordingDomain, name: str, condition: Condition | bool) -> None:
    try:
        domain.recorder.here()
        domain.recorder.cx.require(condition, f"{name}: out of bounds for the storage")
    except OpError as error:
        raise broken("operator-raises", what=name, why=str(error)) from None
    except Undecided as undecided:
        text = domain.recorder.condition_text(undecided.condition)
        raise broken("undecided-size", what=name, condition=text) from None


# ---- copies that keep the offset in the storage --------------------------------------------------
def scatter(name: str, parameters: str, view: Callable[..., Any]) -> Handler:
    """``x.select_scatter(source, ...)``: a copy of the storage, and ``source`` written to a part of
    the view of it that ``x`` is of its own."""

    def handle(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _named(parameters, args, kwargs)
        x, source = _tensor(domain, given, "input"), _tensor(domain, given, "src")
        recorded = (x.value.tensor.requires_grad, source.value.tensor.requires_grad)
        if domain.recorder.modes.grad and any(recorded):
            return NotImplemented  # eager torch runs it, storages included
        given = {key: value for key, value in given.items() if key not in ("input", "src")}
        made = copy_as_it_lies(domain, x)
        if made is NotImplemented:
            return made
        part = view(domain, call_row(domain, "data", made), **given)  # which counts no write
        sizes = part.value.shape, source.value.shape
        alike = len(sizes[0]) == len(sizes[1]) and all_of(*map(eq, *sizes))
        _require(domain, name, alike)
        call_row(domain, "copy_", part, source)
        return call_row(domain, "detach", made)  # no view of its storage, with one counter

    return handle


def copy_as_it_lies(domain: RecordingDomain, x: TensorValue) -> Any:
    """A copy of the whole storage, and the view of that which ``x`` is of its own; not implemented
    where others lie in the storage, too."""
    recorder, kind = domain.recorder, x.value.tensor
    repeated = any_of(
        *(gt(n, 1) for n, stride in zip(kind.shape, kind.strides, strict=True) if stride == 0)
    )
    if recorder.decide(all_of(repeated, *(gt(n, 0) for n in kind.shape))):
        return call_row(domain, "clone", x)
    root, steps = way_of(recorder, x.value)
    recorder.asked[root] = None
    if not _begins_its_storage(recorder, root):
        return NotImplemented
    made: Value = recorder.call("clone", root)
    for node, position in steps:
        if not OPS[node.op].mutates:
            again = recorder.call(node.op, made, *node.args[1:], **node.kwargs)
            made = again[position] if isinstance(again, tuple) else again
    return TensorValue(made)


def _is_in_copied_storage(recorder: Recorder, root: Value) -> bool:
    maker = recorder.builder.makers.get(root)
    return maker is not None and maker.op in OPS and OPS[maker.op].copies_storage


def _begins_its_storage(recorder: Recorder, root: Value) -> bool:
    """Whether it has a storage of its own elements; of what is handed in, that is guarded."""
    if dense_order(root.shape, root.tensor.strides) is None or _is_in_copied_storage(
        recorder, root
    ):
        return False
    source, real = recorder.source_of(root), recorder.real_tensor(TensorValue(root))
    real = recorder.constants.get(root.name, real)
    if real is None:
        return True
    if source is not None and root.name not in recorder.constants:
        method = recorder.sources.child(source, "attr", "storage_offset")
        offset = recorder.sources.child(method, "call", ())
        recorder.guard(offset, "truth", real.storage_offset() != 0)
    return real.storage_offset() == 0


def _select(domain: RecordingDomain, x: Any, dim: Any, index: Any) -> Any:
    return call_row(domain, "select", x, dim, index)


def _slice(
    domain: RecordingDomain, x: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    key = (slice(None),) * dim_of(dim, len(x.value.shape))
    return getitem(domain, x, (*key, slice(start, end, step)))


def _diagonal(domain: RecordingDomain, x: Any, *dims: Any, **named: Any) -> Any:
    return call_row(domain, "diagonal", x, *dims, **named)


def _as_strided(
    domain: RecordingDomain, x: Any, size: Any, stride: Any, storage_offset: Any = None
) -> Any:
    return as_strided(domain, (x, size, stride, storage_offset), {})


SCATTERS: Mapping[str, Handler] = {
    "select_scatter": scatter("select_scatter", "input src dim index", _select),
    "slice_scatter": scatter("slice_scatter", "input src dim start end step", _slice),
    "diagonal_scatter": scatter("diagonal_scatter", "input src offset dim1 dim2", _diagonal),
    "as_strided_scatter": scatter(
        "as_strided_scatter", "input src size stride storage_offset", _as_strided
    ),
}
"""By the name that the function and the method have."""


def _named(parameters: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    given = dict(zip(parameters.split(), args)) | kwargs
    return given if "self" not in given else {"input": given.pop("self"), **given}


def _tensor(domain: RecordingDomain, given: Mapping[str, Any], name: str) -> TensorValue:
    x = given[name]
    found: TensorValue = domain.lift(x) if isinstance(x, torch.Tensor) else x
    return found
