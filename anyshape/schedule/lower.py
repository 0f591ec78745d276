"""What one element of each core operator is, in terms of elements of its operands.

In: a node and the index of one of its result's elements. Out: a ``Cell``. ``Lowering.read`` says
where an operand's element comes from (inlined, or loaded from memory), so that the very same rules
tell the fuser what is read where, and then build the kernel. A node with no rule here is left to a
library or to eager torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from anyshape.ir import loops
from anyshape.ir.dtypes import DType, bool_, int64, result_type
from anyshape.ir.graph import Arg, Node, ScalarType, TensorType, Value, row_major
from anyshape.ir.loops import Element, Op, index_names
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.nouns import mutable
from anyshape.ops.context import TypeContext
from anyshape.ops.rules import dim_of, dims_of, has_complex_number, number_category
from anyshape.ops.table import REQUIRED, Form, OpDef, Pointwise, Reduce, Scan, Structural, View
from anyshape.schedule.draft import Cell, Draft, computed, rounded_number, scalar_dtype
from anyshape.schedule.indices import (
    Extents,
    Index,
    Sizes,
    broadcast_index,
    dot,
    reshape_index,
)
from anyshape.symbolic import AllOf, AnyOf, Dim, Expr, Relation

GREATEST = (1 << 63) - 1


class Read(Protocol):
    """``whole``: the operand must lie in memory, because the index depends on data."""

    def __call__(self, value: Value, index: Index, *, whole: bool = False) -> Cell: ...


@mutable
class Lowering:
    """Everything a rule may ask. ``reduction_axes`` are loop variables, outermost first.

    ``mask`` is the condition under which the element is needed at all; loads outside are not done.
    """

    ops: Mapping[str, OpDef]
    cx: TypeContext
    sizes: Sizes
    draft: Draft
    extents: Extents
    read: Read
    reduction_axes: tuple[Expr, ...] = ()
    mask: Cell | None = None

    def under(self, condition: Cell, value: Value, index: Index) -> Cell:
        """The operand's element, needed only where ``condition`` holds."""
        outer = self.mask
        self.mask = condition if outer is None else self.draft.op("logical_and", outer, condition)
        cell = self.read(value, index)
        self.mask = outer
        return cell

    def along_reduction(self, value: Value, index: Index) -> Cell:
        """The operand of a reduction or scan: all of it counts, so conditions on where along the
        reduction whoever reads the result is do not."""
        outer = self.mask
        self.mask = None if outer is None else self._without_reduced(outer)
        cell = self.read(value, index)
        self.mask = outer
        return cell

    def _without_reduced(self, mask: Cell) -> Cell | None:
        """The parts of a conjunction that do not depend on the reduction axes."""
        element = self.draft.elements[mask.number]
        if isinstance(element, Op) and element.op == "logical_and":
            parts = [self._without_reduced(Cell(self.draft, n, bool_)) for n in element.args]
            kept = [part for part in parts if part is not None]
            return self.draft.op("logical_and", *kept) if len(kept) == 2 else next(iter(kept), None)
        names = {axis.symbol.name for axis in self.reduction_axes if axis.symbol is not None}
        return None if self._depends(mask.number, names) else mask

    def _depends(self, number: int, names: set[str]) -> bool:
        element = self.draft.elements[number]
        if isinstance(element, (loops.Reduce, loops.Moment)):
            return False
        if names & index_names(element):
            return True
        return any(self._depends(operand, names) for operand in self._operands(element))

    def _operands(self, element: Element) -> Iterator[int]:
        """The elements that this one reads; in a draft, loaded integers are symbols of the
        space.
        """
        yield from (*getattr(element, "args", ()), *getattr(element, "given", ()))
        for name in ("arg", "mask"):
            if getattr(element, name, None) is not None:
                yield getattr(element, name)
        index = getattr(element, "index", None)
        if isinstance(index, Expr):
            yield from (self.draft.integers[s] for s in index.symbols if s in self.draft.integers)

    def integer(self, value: Arg, index: Index) -> Dim:
        """An operand's integer as an atom of index expressions."""
        if not isinstance(value, Value):
            raise TypeError(f"an index must be a tensor, not {value!r}")
        return self.draft.integer(self.read(value, index))


Rule = Callable[[Lowering, Node, Index], Cell]


def rule_of(row: OpDef | None) -> Rule | None:
    """How the row's elements are computed in a kernel; None for externs and rows without a
    lowering.
    """
    if row is None:
        return None
    match row.lower:
        case Pointwise():
            return pointwise
        case View():
            return view
        case Reduce():
            return reduction
        case Structural(form):
            return STRUCTURAL[form]
        case Scan():
            return scan
    return None


def is_supported(node: Node) -> bool:
    """Can kernels hold all the dtypes and numbers of the node?"""
    if has_complex_number((*node.args, *node.kwargs.values())):
        return False
    types = [v.type for v in (*node.outputs, *node.inputs())]
    dtypes = {t.dtype for t in types if isinstance(t, TensorType)}
    if node.op in OF_ITS_DTYPE and any(computed(dtype) is not dtype for dtype in dtypes):
        return False
    return all(dtype.name in KERNEL_DTYPES for dtype in dtypes)


OF_ITS_DTYPE = frozenset(("nextafter",))
"""Functions that are not what they would be in a wider dtype, rounded."""


KERNEL_DTYPES = frozenset(
    (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    )
)


def arguments(lowering: Lowering, node: Node) -> list[Arg]:
    """The node's positional arguments (rows are called in normal form), defaults filled in."""
    given = list(node.args)
    for parameter in lowering.ops[node.op].signature.parameters[len(given) :]:
        if not parameter.keyword_only and parameter.default is not REQUIRED:
            given.append(node.kwargs.get(parameter.name, parameter.default))
    return given


# --- pointwise ---


def pointwise(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The body of the row on the operands' elements."""
    row, draft = lowering.ops[node.op].lower, lowering.draft
    assert isinstance(row, Pointwise)
    dtype, low, owned = _compute_dtype(row, node), _low_dtype(row, node), row.own
    wide = lowering.ops[node.op].wide_numbers

    def element(arg: Arg, position: int | str) -> Any:
        own = position in owned
        if isinstance(arg, Value) and isinstance(arg.type, TensorType):
            cell = operand(lowering, arg, index, node.output.shape)
            if low is not None and not own and (arg.shape or position not in wide):
                cell = draft.cast(cell, low)
            return draft.cast(cell, computed(cell.dtype) if own or dtype is None else dtype)
        made = number(lowering, arg, dtype)
        if low is None or position in wide:
            return made
        if isinstance(made, Cell):
            return draft.cast(draft.cast(made, low), made.dtype)
        return rounded_number(float(made), low) if made.__class__ in (int, float) else made

    args = [element(arg, n) for n, arg in enumerate(node.args)]
    kwargs = {name: element(arg, name) for name, arg in node.kwargs.items()}
    return draft.literal(row.body(draft, *args, **kwargs), node.output.dtype)


def _low_dtype(row: Pointwise, node: Node) -> DType | None:
    """The dtype to which all operands are converted first, where that is computed in another."""
    if not _is_low(node) or row.compute == "own":
        return None
    dtype = _promoted(node.args)
    return dtype if dtype.is_floating and computed(dtype) is not dtype else None


def _is_low(node: Node) -> bool:
    """Does the node read tensors of a dtype that is computed in a wider one?"""
    types = (v.type for v in node.inputs())
    return any(isinstance(t, TensorType) and computed(t.dtype) is not t.dtype for t in types)


def operand(lowering: Lowering, value: Value, index: Index, shape: Index) -> Cell:
    """The operand's element at a (broadcast) position of the result."""
    sizes = lowering.sizes
    inner, outer = sizes.shape(value.shape), sizes.shape(shape)
    return lowering.read(value, broadcast_index(sizes, index, outer, inner))


def number(lowering: Lowering, arg: Arg, dtype: DType | None) -> Any:
    """A number that a body may use: Python's own stay as they are."""
    if isinstance(arg, Value):
        assert isinstance(arg.type, ScalarType)
        arg = arg.type.expr
    if isinstance(arg, Expr):
        return lowering.draft.literal(arg, dtype or int64)
    if isinstance(arg, (Scalar, ScalarInput, Relation, AllOf, AnyOf)):
        return lowering.draft.literal(arg, dtype or scalar_dtype(arg))
    return arg


def _compute_dtype(lowering: Pointwise, node: Node) -> DType | None:
    match lowering.compute:
        case "result":
            return computed(node.output.dtype)
        case "promoted":
            return computed(_promoted(node.args))
    return None


def _promoted(args: tuple[Arg, ...]) -> DType:
    types = [a.type for a in args if isinstance(a, Value)]
    tensors = [t for t in types if isinstance(t, TensorType)]
    dims = [t.dtype for t in tensors if t.shape]
    zero_dim = [t.dtype for t in tensors if not t.shape and not t.wrapped_number]
    kinds = [t.dtype.category for t in tensors if t.wrapped_number and not t.shape]
    kinds += [t.kind for t in types if isinstance(t, ScalarType)]
    for arg in args:
        if isinstance(arg, (bool, int, float, Expr, Scalar, ScalarInput)):
            kinds.append(number_category(arg))
    return result_type(dims, zero_dim, kinds)


# --- views ---


def view(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The same element of the operand, at its own index."""
    base, inner = view_index(lowering, node, index)
    return lowering.read(base, inner)


def view_index(lowering: Lowering, node: Node, index: Index) -> tuple[Value, Index]:
    """The operand of a view and where in it the element at ``index`` lies."""
    args = arguments(lowering, node)
    base = args[0]
    assert isinstance(base, Value)
    sizes = lowering.sizes
    inner, outer = sizes.shape(base.shape), sizes.shape(node.output.shape)
    if node.op == "expand":
        return base, broadcast_index(sizes, index, outer, inner)
    if node.op == "reshape":
        return base, reshape_index(sizes, lowering.extents, index, outer, inner)
    row = lowering.ops[node.op]
    assert isinstance(row.lower, View)
    mapped = row.lower.index(lowering.cx, index, base.type, *args[1:])
    return base, tuple(mapped)


# --- reductions ---


def reduced_dims(lowering: Lowering, node: Node) -> tuple[tuple[int, ...], bool]:
    """The dims a reduction runs over, from 0, and whether the result keeps them with size 1."""
    args = arguments(lowering, node)
    base, dims = args[0], args[1]
    keepdim = bool(args[2]) if len(args) > 2 else False
    assert isinstance(base, Value)
    return tuple(sorted(dims_of(dims, len(base.shape), empty_is_all=False))), keepdim


def kept_index(lowering: Lowering, node: Node, index: Index) -> Index:
    """The index of a reduction's result without the dims that it keeps with size 1."""
    dims, keepdim = reduced_dims(lowering, node)
    return tuple(i for d, i in enumerate(index) if d not in dims) if keepdim else index


def reduction_index(lowering: Lowering, node: Node, index: Index) -> tuple[Value, Index]:
    """The operand of a reduction and the index that runs over it as the reduction axes do."""
    dims, _ = reduced_dims(lowering, node)
    base = arguments(lowering, node)[0]
    assert isinstance(base, Value)
    sizes = lowering.sizes
    shape = sizes.shape(base.shape)
    axes = tuple(lowering.reduction_axes)
    extents = tuple(lowering.extents[a.symbol] for a in axes if a.symbol is not None)
    inner = tuple(shape[d] for d in dims)
    reduced = reshape_index(sizes, lowering.extents, axes, extents, inner)
    kept, along = iter(kept_index(lowering, node, index)), iter(reduced)
    return base, tuple(next(along) if d in dims else next(kept) for d in range(len(shape)))


def reduction(lowering: Lowering, node: Node, index: Index) -> Cell:
    """One ``Reduce`` over these axes; argmax and argmin are two, a moment looks at two more."""
    row = lowering.ops[node.op]
    assert isinstance(row.lower, Reduce)
    base, inner = reduction_index(lowering, node, index)
    cell = lowering.along_reduction(base, inner)
    draft, output, combine = lowering.draft, node.output.dtype, row.lower.combine
    if combine in ("argmax", "argmin"):
        return _arg_reduction(lowering, node, cell, inner)
    if combine in ("any", "all"):
        return draft.cast(draft.reduce(combine, draft.cast(cell, bool_)), output)
    if combine == "moment":
        return _moment(lowering, node, index, cell)
    given = draft.cast(draft.cast(cell, output), computed(output))  # ATen converts first
    return draft.cast(draft.reduce(combine, given), output)


def _moment(lowering: Lowering, node: Node, index: Index, cell: Cell) -> Cell:
    """One ``Moment`` of ``cell`` along the reduction, near what the node is handed of it."""
    near = [v for v in arguments(lowering, node)[3:] if isinstance(v, Value)]
    given = [operand(lowering, value, index, node.output.shape) for value in near]
    options: Any = node.kwargs
    return lowering.draft.moment(options["order"], options["part"], cell, *given)


def _arg_reduction(lowering: Lowering, node: Node, cell: Cell, inner: Index) -> Cell:
    """The first position where the extreme is: max, then the least position that equals it (or is
    NaN).
    """
    draft = lowering.draft
    row = lowering.ops[node.op]
    assert isinstance(row.lower, Reduce)
    combine = row.lower.combine.removeprefix("arg")
    dims, _ = reduced_dims(lowering, node)
    base = arguments(lowering, node)[0]
    assert isinstance(base, Value)
    shape = lowering.sizes.shape(base.shape)
    if cell.dtype is bool_:
        cell = draft.cast(cell, int64)
    cell = draft.cast(cell, computed(cell.dtype))
    extreme = draft.reduce(combine, cell)
    hit = draft.op("eq", cell, extreme)
    if cell.dtype.is_floating:
        hit = draft.op("logical_or", hit, draft.op("isnan", cell))
    position = dot([inner[d] for d in dims], row_major([shape[d] for d in dims]))
    return draft.reduce(
        "min", draft.where(hit, draft.position(position), draft.const(GREATEST, int64))
    )


# --- the rest, by name ---


def cat(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The part that holds the position; the others are not read."""
    parts, dim, *_ = arguments(lowering, node)
    assert isinstance(parts, tuple)
    draft, sizes = lowering.draft, lowering.sizes
    values = [p for p in parts if isinstance(p, Value) and len(p.shape) == len(node.output.shape)]
    axis = dim_of(dim, len(index))
    position = draft.position(index[axis])
    offset: Dim = 0
    cells: list[tuple[Cell | None, Cell]] = []
    for n, value in enumerate(values):
        end = sizes.simplify(offset + value.shape[axis])
        below = None if n == len(values) - 1 else draft.op("lt", position, draft.position(end))
        above = None if n == 0 else draft.op("ge", position, draft.position(offset))
        own = (*index[:axis], index[axis] - offset, *index[axis + 1 :])
        cells.append((below, _between(lowering, below, above, value, own, node.output.dtype)))
        offset = end
    result = cells[-1][1]
    for below, cell in reversed(cells[:-1]):
        assert below is not None
        result = draft.where(below, cell, result)
    return result


def _between(
    lowering: Lowering,
    below: Cell | None,
    above: Cell | None,
    value: Value,
    index: Index,
    dtype: DType,
) -> Cell:
    draft = lowering.draft
    limits = [limit for limit in (above, below) if limit is not None]
    if not limits:
        cell = lowering.read(value, index)
    else:
        condition = limits[0] if len(limits) == 1 else draft.op("logical_and", *limits)
        cell = lowering.under(condition, value, index)
    return draft.cast(cell, dtype)


def pad(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The operand's element inside, the constant outside; negative pads cut."""
    value, pads, fill, *_ = (*arguments(lowering, node), 0)
    assert isinstance(value, Value) and isinstance(pads, tuple)
    draft, sizes = lowering.draft, lowering.sizes
    inner = list(index)
    inside: Cell | None = None
    for d, (low, high) in enumerate(_pads_by_dim(pads, len(index))):
        inner[d] = index[d] - low
        position = draft.position(index[d])
        conditions = []
        if not (isinstance(low, int) and low <= 0):
            conditions.append(draft.op("ge", position, draft.position(low)))
        if not (isinstance(high, int) and high <= 0):
            end = sizes.simplify(low + value.shape[d])
            conditions.append(draft.op("lt", position, draft.position(end)))
        for condition in conditions:
            inside = condition if inside is None else draft.op("logical_and", inside, condition)
    dtype = node.output.dtype
    if inside is None:
        return draft.cast(lowering.read(value, tuple(inner)), dtype)
    cell = lowering.under(inside, value, tuple(inner))
    outside = number(lowering, 0 if fill is None else fill, dtype)
    return draft.where(inside, draft.cast(cell, dtype), draft.literal(outside, dtype))


def _pads_by_dim(pads: tuple[Arg, ...], rank: int) -> list[tuple[Any, Any]]:
    """(low, high) of each dim, from ((low, high), ...) by dim, or torch's flat last-dim-first
    order.
    """
    if all(isinstance(p, tuple) for p in pads):
        pairs: list[Any] = list(pads)
        return [(0, 0)] * (rank - len(pairs)) + pairs
    flat = [(pads[2 * n], pads[2 * n + 1]) for n in range(len(pads) // 2)]
    return [(0, 0)] * (rank - len(flat)) + list(reversed(flat))


def full(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The fill value."""
    _, value, *_ = arguments(lowering, node)
    dtype = node.output.dtype
    return lowering.draft.literal(number(lowering, value, dtype), dtype)


def arange(lowering: Lowering, node: Node, index: Index) -> Cell:
    """start + i * step, integers exactly; floats as torch does, in double where start or step
    is.
    """
    _, start, step, *_ = arguments(lowering, node)
    draft, dtype = lowering.draft, node.output.dtype
    if isinstance(start, (int, Expr)) and isinstance(step, (int, Expr)):
        return draft.cast(draft.position(start + index[0] * step), dtype)
    wide = computed(dtype)
    position = draft.cast(draft.position(index[0]), wide)
    scaled = draft.op("mul", position, draft.literal(number(lowering, step, wide), wide))
    made = draft.op("add", draft.literal(number(lowering, start, wide), wide), scaled)
    return draft.cast(made, dtype)


def index_select(lowering: Lowering, node: Node, index: Index) -> Cell:
    """x[..., index[i], ...]"""
    value, dim, positions, *_ = arguments(lowering, node)
    assert isinstance(value, Value) and isinstance(positions, Value)
    if not value.shape:
        return lowering.read(value, ())
    axis = dim_of(dim, len(value.shape))
    rank = len(positions.shape)
    at = lowering.integer(positions, index[axis : axis + rank])
    return lowering.read(value, (*index[:axis], at, *index[axis + rank :]), whole=True)


def gather(lowering: Lowering, node: Node, index: Index) -> Cell:
    """x[i, index[i, j], k] along one dim."""
    value, dim, positions, *_ = arguments(lowering, node)
    assert isinstance(value, Value)
    if not value.shape:
        return lowering.read(value, ())
    at = lowering.integer(positions, index)
    if not index:
        return lowering.read(value, (at,), whole=True)
    axis = dim_of(dim, len(index))
    return lowering.read(value, (*index[:axis], at, *index[axis + 1 :]), whole=True)


def advanced_index(lowering: Lowering, node: Node, index: Index) -> Cell:
    """x[i, None, j]: tensors of integers broadcast together; the others are whole dims."""
    value, positions, *_ = arguments(lowering, node)
    assert isinstance(value, Value) and isinstance(positions, tuple)
    return lowering.read(value, positions_of(lowering, value, positions, index), whole=True)


def positions_of(
    lowering: Lowering, value: Value, positions: tuple[Arg, ...], index: Index
) -> Index:
    sizes = lowering.sizes
    padded = (*positions, *(None,) * (len(value.shape) - len(positions)))
    used = [d for d, at in enumerate(padded) if at is not None]
    adjacent = used == list(range(used[0], used[-1] + 1))
    rank = max(len(p.shape) for p in positions if isinstance(p, Value))
    first = used[0] if adjacent else 0
    shared = index[first : first + rank]
    shapes = [sizes.shape(p.shape) for p in positions if isinstance(p, Value)]
    common = tuple(sizes.simplify(d) for d in lowering.cx.broadcast_shapes(shapes))
    rest = iter((*index[:first], *index[first + rank :]))
    result: list[Dim] = []
    for d, at in enumerate(padded):
        if not isinstance(at, Value):
            result.append(next(rest))
            continue
        own = broadcast_index(sizes, shared, common, sizes.shape(at.shape))
        result.append(_wrapped(lowering, lowering.read(at, own), value.shape[d]))
    return tuple(result)


def _wrapped(lowering: Lowering, cell: Cell, size: Dim) -> Dim:
    """A Python index as a position: negative ones count from the end."""
    draft = lowering.draft
    cell = draft.cast(cell, int64)
    negative = draft.op("lt", cell, 0)
    around = draft.op("add", cell, draft.literal(lowering.sizes.simplify(size), int64))
    return draft.integer(draft.where(negative, around, cell))


def scan(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The running combination along the last reduction axis: the fuser has made it of the scanned
    dim."""
    value = arguments(lowering, node)[0]
    assert isinstance(value, Value)
    draft, dtype = lowering.draft, computed(node.output.dtype)
    if is_short_scan(lowering, node):
        return draft.cast(lowering.read(value, index), node.output.dtype)
    cell = draft.cast(lowering.along_reduction(value, index), dtype)
    row = lowering.ops[node.op].lower
    assert isinstance(row, Scan)
    return draft.cast(draft.scan(row.combine, cell), node.output.dtype)


def scanned_dim(lowering: Lowering, node: Node) -> int:
    """The dimension that a scan runs along, from 0."""
    return dim_of(arguments(lowering, node)[1], len(node.output.shape))


def is_short_scan(lowering: Lowering, node: Node) -> bool:
    """Is the scan known to run over one element?"""
    shape = node.output.shape
    return not shape or lowering.sizes.is_one(shape[scanned_dim(lowering, node)])


STRUCTURAL: Mapping[Form, Rule] = {
    Form.CAT: cat,
    Form.PAD: pad,
    Form.FULL: full,
    Form.ARANGE: arange,
    Form.INDEX_SELECT: index_select,
    Form.GATHER: gather,
    Form.INDEX: advanced_index,
}
