"""Rows whose results have sizes, or are numbers, that data decides.

Their type rules make fresh symbols with the bounds that the inputs give: ``nonzero(x)`` has at most
as many rows as ``x`` has elements. None of them needs the host by itself; where the size is kept is
the scheduler's choice.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from anyshape.ir.dtypes import DType, bool_, float32, float64, int64
from anyshape.ir.graph import HOST, Arg, ScalarType, TensorType
from anyshape.ir.scalars import Kind, ScalarInput
from anyshape.nouns import replace
from anyshape.ops.context import NoRow, OpError, TypeContext, Undecided
from anyshape.ops.index import index_type, unmasked
from anyshape.ops.layout import contiguous_strides, numel
from anyshape.ops.rules import dim_of, is_tensor, new, tensor
from anyshape.ops.split import decided_count
from anyshape.ops.table import op
from anyshape.symbolic import Dim, Expr, eq, floordiv, ge, le, ne

# --- numbers ---


def _item_type(cx: TypeContext, x: Any) -> ScalarType:
    t = tensor(x)
    count = numel(t.shape)
    if count != 1:
        cx.require(
            eq(count, 1), "a Tensor with other than one element cannot be converted to Scalar"
        )
    if t.dtype.is_integral:
        return ScalarType(
            "int", cx.space.fresh("u", policy="unbacked", knowledge="midrun", signed=True)
        )
    if t.dtype.is_complex:
        raise NoRow("item() of a complex tensor has no row")
    kind: Kind = "bool" if t.dtype is bool_ else "float"
    return ScalarType(kind, ScalarInput(cx.space.free_name("n"), kind))


op("item", "input", torch="torch.Tensor.item", type=_item_type)

WHOLE = frozenset({"int", "round", "floor", "ceil", "trunc"})


def _is_whole(operand: Any) -> bool:
    return (
        type(operand) is int or isinstance(operand, Expr) or getattr(operand, "kind", "") == "int"
    )


def _number_type(cx: TypeContext, function: Any, operands: Any) -> ScalarType:
    chosen = function == "select" and all(map(_is_whole, operands[1:]))
    if function in WHOLE or chosen:
        number = cx.space.fresh("u", policy="unbacked", knowledge="midrun", signed=True)
        if chosen and all(type(operand) is int for operand in operands[1:]):
            cx.facts.assume(ge(number, min(operands[1:])), cx.location)
            cx.facts.assume(le(number, max(operands[1:])), cx.location)
        return ScalarType("int", number)
    return ScalarType("float", ScalarInput(cx.space.free_name("n"), "float"))


# A function of numbers that data decides, where Python may raise: ``1.0 / n0``, ``int(n0)``. When
# it does, the segment has not happened.
op("number", "function, operands", torch="anyshape.eager.number", type=_number_type)

# --- positions and selections ---


def _nonzero_type(cx: TypeContext, x: Any) -> TensorType:
    """ATen lays the positions out dimension by dimension."""
    t = tensor(x)
    rows = cx.fresh_size(high=numel(t.shape))
    return TensorType(int64, t.device, (rows, t.rank), (1, rows))


op(
    "nonzero",
    "input, *, as_tuple=False",
    torch="torch.nonzero",
    spellings=("torch.Tensor.nonzero",),
    overload=lambda x, *, as_tuple=False: "nonzero_tuple" if as_tuple else None,
    type=lambda cx, x, *, as_tuple=False: _nonzero_type(cx, x),
)
op(
    "nonzero_tuple",
    "input, *, as_tuple=True",
    torch="anyshape.eager.nonzero_tuple",
    inline=True,
    expand=lambda b, x, *, as_tuple=True: _columns(
        b, b.nonzero(x if x.shape else b.unsqueeze(x, 0))
    ),
)
op(
    "argwhere",
    "input",
    torch="torch.argwhere",
    spellings=("torch.Tensor.argwhere",),
    inline=True,
    expand=lambda b, x: b.nonzero(x),
)


def _columns(b: Any, positions: Any) -> tuple[Any, ...]:
    return tuple(b.select(positions, 1, d) for d in range(positions.shape[1]))


def _masked_select(b: Any, x: Any, mask: Any) -> Any:
    shape = b.cx.broadcast_shapes((x.shape, mask.shape))
    wide = [v if v.shape == shape else b.expand(v, shape) for v in (x, mask)]
    if not shape:
        wide = [b.unsqueeze(v, 0) for v in wide]
    return b.masked_elements(*wide, unmasked(b, wide[0], (wide[1],)))


# The elements at positions that a mask has given: in eager their gradient lies as the argument, and
# that of an index does not.
op(
    "masked_elements",
    "input, mask, positions",
    torch="anyshape.eager.masked_elements",
    type=lambda cx, x, mask, positions: index_type(cx, x, positions),
    expand=lambda b, x, mask, positions: b.index(x, positions),
    vjp="expansion",
)
op(
    "masked_select",
    "input, mask",
    torch="torch.masked_select",
    spellings=("torch.Tensor.masked_select",),
    inline=True,
    expand=_masked_select,
    vjp="expansion",
)

# --- unique, counts, repeats ---


def _slices(cx: TypeContext, t: TensorType, d: int, count: Dim) -> TensorType:
    """So many slices of ``t`` along ``d``; on the host ATen puts them together along the first
    dimension and moves that back, but of none."""
    rest = (*t.shape[:d], *t.shape[d + 1 :])
    outer, *strides = contiguous_strides(cx, (count, *rest))
    made = new(cx, t, (*t.shape[:d], count, *t.shape[d + 1 :]))
    none = eq(t.shape[d], 0)
    if cx.known(none) or cx.hint(none) is not None and cx.on_guard is not None and cx.decide(none):
        rows = contiguous_strides(cx, (*t.shape[:d], 1, *t.shape[d + 1 :]))
        return replace(made, strides=rows)
    return replace(made, strides=(*strides[:d], outer, *strides[d:])) if t.device == HOST else made


def _unique_type(
    cx: TypeContext,
    x: Any,
    sorted: Arg = True,
    return_inverse: Arg = False,
    return_counts: Arg = False,
    dim: Any = None,
) -> Any:
    t = tensor(x)
    if dim is None:
        found = cx.fresh_size(high=numel(t.shape))
        values = new(cx, t, (found,))
        inverse = new(cx, t, t.shape, int64)
    else:
        d = dim_of(dim, t.rank)
        found = cx.fresh_size(high=t.shape[d])
        values = _slices(cx, t, d, found)
        inverse = new(cx, t, (t.shape[d],), int64)
    counts = new(cx, t, (found,), int64)
    made = (values, *((inverse,) if return_inverse else ()), *((counts,) if return_counts else ()))
    return made if len(made) > 1 else values


op(
    "unique",
    "input, sorted=True, return_inverse=False, return_counts=False, dim=None",
    torch="anyshape.eager.unique_",
    type=_unique_type,
    spellings=("torch.unique", "torch.Tensor.unique", "torch.functional.unique"),
)
op(
    "unique_consecutive",
    "input, return_inverse=False, return_counts=False, dim=None",
    torch="anyshape.eager.unique_consecutive_",
    spellings=(
        "torch.unique_consecutive",
        "torch.Tensor.unique_consecutive",
        "torch.functional.unique_consecutive",
    ),
    type=lambda cx, x, inverse=False, counts=False, dim=None: _unique_type(
        cx, x, True, inverse, counts, dim
    ),
)


def _weight_dtype(dtype: DType) -> DType:
    return dtype if dtype is float32 else float64


def _bincount_type(cx: TypeContext, x: Any, weights: Any = None, minlength: Any = 0) -> TensorType:
    bins = cx.fresh_size(low=minlength)
    counts = weights is None or _is_empty(cx, tensor(x))
    dtype = int64 if counts else _weight_dtype(tensor(weights).dtype)
    return new(cx, tensor(x), (bins,), dtype)


def _is_empty(cx: TypeContext, t: TensorType) -> bool:
    """Of nothing, eager counts and does not weigh. Where nobody may guard on the size it is checked
    not to be 0."""
    count = numel(t.shape)
    try:
        return cx.decide(eq(count, 0))
    except Undecided:
        cx.require(ne(count, 0), "the weights of nothing are counted")
        return False


op(
    "bincount",
    "input, weights=None, minlength=0",
    torch="torch.bincount",
    spellings=("torch.Tensor.bincount",),
    type=_bincount_type,
    raises=True,
)


def _repeat_interleave_type(
    cx: TypeContext, x: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None
) -> TensorType:
    t = tensor(x)
    if repeats is None:  # torch.repeat_interleave(repeats): the position of each repeat
        return new(cx, t, (cx.fresh_size() if output_size is None else output_size,), int64)
    shape: tuple[Dim, ...] = (numel(t.shape),) if dim is None else t.shape
    d = dim_of(0 if dim is None else dim, len(shape))
    size = cx.fresh_size() if output_size is None else output_size
    made = (*shape[:d], size, *shape[d + 1 :])
    return TensorType(t.dtype, t.device, made, contiguous_strides(cx, made))


op(
    "repeat_each",
    "input, repeats=None, dim=None, *, output_size=None",
    torch="anyshape.eager.repeat_each",
    type=_repeat_interleave_type,
    raises=True,
)
op(
    "one_hot_of_data",
    "input, num_classes=-1",
    torch="anyshape.eager.one_hot_of_data",
    type=lambda cx, x, n=-1: new(cx, tensor(x), (*tensor(x).shape, cx.fresh_size(low=1)), int64),
    raises=True,
)


def _combinations_type(
    cx: TypeContext, x: Any, r: Any = 2, with_replacement: Any = False
) -> TensorType:
    """One row for each choice of ``r`` elements: ``n * (n - 1) * ... // r!`` of them."""
    t = tensor(x)
    if t.rank != 1 or not isinstance(r, int) or r < 0:
        raise OpError("combinations expects a vector and a number of elements")
    if r == 0:
        return new(cx, t, (0,))
    rows: Dim = 1
    for i in range(r):
        rows = rows * (t.shape[0] + (i if with_replacement else -i))
    return new(cx, t, (cx.facts.simplify(floordiv(rows, math.factorial(r))), r))


op(
    "combinations",
    "input, r=2, with_replacement=False",
    torch="torch.combinations",
    type=_combinations_type,
    by_value=("r",),
)


def _histogram_type(cx: TypeContext, x: Any, bins: Any, **options: Any) -> tuple[TensorType, ...]:
    t = tensor(x)
    if not t.dtype.is_floating:
        raise OpError(f"histogram is not implemented for {t.dtype}")
    count = numel(tensor(bins).shape) - 1 if is_tensor(bins) else bins
    return new(cx, t, (count,)), new(cx, t, (count + 1,))


op(
    "histogram",
    "input, bins, *, range=None, weight=None, density=False",
    torch="anyshape.eager.histogram",
    spellings=("torch.histogram", "torch.Tensor.histogram"),
    type=_histogram_type,
    raises=True,
)


def _histogramdd_type(
    cx: TypeContext, x: Any, bins: Any, range: Any = None, weight: Any = None, density: Any = False
) -> tuple[TensorType, ...]:
    """Counts with a dimension for each feature, then the edges along each."""
    t = tensor(x)
    if t.rank < 2:
        raise OpError("torch.histogramdd: input tensor should have at least 2 dimensions")
    given = (bins,) * decided_count(cx, t.shape[-1]) if isinstance(bins, int) else tuple(bins)
    cx.require(
        eq(t.shape[-1], len(given)),
        "histogramdd: The size of bins must be equal to the innermost dimension of the input.",
    )
    counts = [numel(tensor(b).shape) - 1 if is_tensor(b) else b for b in given]
    return new(cx, t, counts), *(new(cx, t, (count + 1,)) for count in counts)


op(
    "histogramdd",
    "input, bins, range=None, weight=None, density=False",
    torch="anyshape.eager.histogramdd",
    type=_histogramdd_type,
    raises=True,
)

# --- what most calls find in data (``capture/recording/expected_numbers.py``) ---

Numbers = tuple[Any, ...]
"""Numbers of which each may be the one that is found; empty where nothing is expected."""
UNKNOWN: Numbers = ()
SOME = (1, 2, 3, 5, 64, 1 << 20)  # numbers of things, of which none is none

FINITE: Mapping[str, Numbers] = MappingProxyType(
    {
        "isfinite": (True,),
        **dict.fromkeys(("isnan", "isinf", "isposinf", "isneginf"), (False,)),
    }
)
"""What is found of numbers, by operators of torch and of `math`."""
PASSES_ON = frozenset({"clone", "alias", "data", "detach", "to", "to_dtype", "item", "full"})
REDUCTIONS: Mapping[str, Numbers] = MappingProxyType(
    {"any": (True,), "sum": SOME, "count_nonzero": SOME, "all": UNKNOWN}
)
"""Of truths, and what is found of a mask."""
ELEMENTWISE: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
        "logical_not": operator.not_,
        "bitwise_not": operator.not_,  # of truths alone
        "where": lambda condition, yes, no: yes if condition else no,
    }
)
BOTH: Mapping[str, bool] = MappingProxyType(
    {"logical_and": False, "bitwise_and": False, "logical_or": True, "bitwise_or": True}
)
"""Operators on two truths, and the truth of one that decides alone."""
