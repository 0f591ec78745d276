"""Rows that make tensors from nothing, or from the format of another tensor.

The core rows are ``full(shape, value, dtype, device)`` and ``arange(length, start, step, dtype,
device)``; the rest expand to them. ``layout``, ``pin_memory`` and the like are accepted at their
defaults only.
"""

from __future__ import annotations

import math
from typing import Any

from anyshape.ir.dtypes import DType, bool_, float32, float64, int64, result_type
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import ranges
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.layout import formatted_strides, strides_in_order
from anyshape.ops.rules import created, dim_of, new, number_category, sizes_of, tensor
from anyshape.ops.table import Form, OneByOne, Structural, op
from anyshape.ops.view import Normal, sequence
from anyshape.symbolic import Dim, Expr, ceildiv, ge, le, maximum, minimum

_REST = "layout=None, requires_grad=False, pin_memory=False"


def _plain(**rest: Arg) -> None:
    """Raises where an option asks for more than a plain tensor."""
    formatted = rest.get("memory_format") not in (None, "contiguous_format")
    if rest.get("layout") not in (None, "strided") or rest.get("requires_grad") or formatted:
        raise NoRow(f"creation with {rest} has no row")


def dtype_of_numbers(cx: TypeContext, *numbers: Arg) -> DType:
    """The dtype that torch infers for a tensor of these Python numbers."""
    return result_type((), (), map(number_category, numbers), cx.default_dtype)


# --- full and what expands to it ---


def _normal_full(
    cx: TypeContext, size: Arg, value: Any, dtype: Any = None, device: Any = None, *rest: Arg
) -> Normal:
    _plain(**dict(zip(("layout", "requires_grad", "pin_memory"), rest)))
    chosen = dtype or dtype_of_numbers(cx, value)
    return (sequence(size), value, chosen, device or cx.default_device), {}


op(
    "full",
    f"size, fill_value, dtype=None, device=None, {_REST}",
    torch="anyshape.eager.full",
    spellings=("torch.full",),
    normalize=_normal_full,
    lower=Structural(Form.FULL),
    range=ranges.of_number,
    holds=ranges.content_by_fill,
    type=lambda cx, size, value, dtype, device: created(cx, size, dtype, device),
)


UNWRITTEN = None  # in place of a value


def _filled(b: Any, shape: Any, value: Arg, dtype: DType, device: Any) -> Any:
    """A tensor of this value. Of `UNWRITTEN` it may be any: zeros here, and, where deterministic
    algorithms are asked for, what `torch.utils.deterministic.fill_uninitialized_memory` says."""
    if value is UNWRITTEN:
        value = _most(dtype) if b.modes is not None and b.modes.deterministic else 0
    return b.full(shape, value, dtype, device)


def _most(dtype: DType) -> Any:
    """NaN, the largest integer, or True."""
    if dtype.is_floating or dtype.is_complex:
        return math.nan
    return True if dtype == bool_ else 2 ** (8 * dtype.size_bytes - dtype.signed) - 1


def _normal_sized(
    cx: TypeContext, size: Arg, dtype: Any = None, device: Any = None, *rest: Arg
) -> Normal:
    _plain(**dict(zip(("layout", "requires_grad", "pin_memory", "memory_format"), rest)))
    return (sequence(size), dtype or cx.default_dtype, device or cx.default_device), {}


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", UNWRITTEN)):
    op(
        _name,
        f"size, dtype=None, device=None, {_REST}, memory_format=None",
        torch=f"anyshape.eager.{_name}",
        one_by_one=OneByOne(0),
        spellings=(f"torch.{_name}",),
        normalize=_normal_sized,
        type=lambda cx, size, dtype, device: created(cx, size, dtype, device),
        expand=lambda b, size, dtype, device, v=_value: _filled(b, size, v, dtype, device),
    )


def _like_type(
    cx: TypeContext, x: Any, *value: Arg, dtype: Any = None, device: Any = None, **rest: Arg
) -> TensorType:
    t = tensor(x)
    strides = formatted_strides(cx, t, rest.get("memory_format"))
    return TensorType(dtype or t.dtype, device or t.device, t.shape, strides)


def _like_expand(b: Any, x: Any, value: Arg, dtype: Any, device: Any) -> Any:
    return _filled(b, x.shape, value, dtype or x.dtype, device or x.type.device)


_LIKE = f"*, dtype=None, device=None, {_REST}, memory_format=None"
for _name, _value in (("zeros_like", 0), ("ones_like", 1), ("empty_like", UNWRITTEN)):
    op(
        _name,
        f"input, {_LIKE}",
        torch=f"torch.{_name}",
        type=_like_type,
        expand=lambda b, x, v=_value, dtype=None, device=None, **rest: _like_expand(
            b, x, v, dtype, device
        ),
        differentiable=False,
    )
op(
    "full_like",
    f"input, fill_value, {_LIKE}",
    torch="torch.full_like",
    type=_like_type,
    expand=lambda b, x, v, dtype=None, device=None, **rest: _like_expand(b, x, v, dtype, device),
    differentiable=False,
)
op(
    "isreal",
    "input",
    torch="torch.isreal",
    spellings=("torch.Tensor.isreal",),
    type=lambda cx, x: _like_type(cx, x, dtype=bool_),
    expand=lambda b, x: b.ones_like(x, dtype=bool_),
)


def _new_type(
    cx: TypeContext,
    x: Any,
    size: Arg,
    *value: Arg,
    dtype: Any = None,
    device: Any = None,
    **rest: Arg,
) -> TensorType:
    t = tensor(x)
    return created(cx, sizes_of(size), dtype or t.dtype, device or t.device)


def _new_expand(b: Any, x: Any, size: Arg, value: Arg, dtype: Any, device: Any) -> Any:
    return _filled(b, sequence(size), value, dtype or x.dtype, device or x.type.device)


_NEW = f"*, dtype=None, device=None, {_REST}"
for _name, _value in (("new_zeros", 0), ("new_ones", 1), ("new_empty", UNWRITTEN)):
    op(
        _name,
        f"input, size, {_NEW}",
        torch=f"torch.Tensor.{_name}",
        one_by_one=OneByOne(1, "method"),
        type=_new_type,
        expand=lambda b, x, s, v=_value, dtype=None, device=None, **rest: _new_expand(
            b, x, s, v, dtype, device
        ),
        differentiable=False,
    )
op(
    "new_full",
    f"input, size, fill_value, {_NEW}",
    torch="torch.Tensor.new_full",
    type=_new_type,
    expand=lambda b, x, s, v, dtype=None, device=None, **rest: _new_expand(
        b, x, s, v, dtype, device
    ),
    differentiable=False,
)

# --- arange ---

op(
    "arange",
    "length, start, step, dtype, device",
    torch="anyshape.eager.arange",
    lower=Structural(Form.ARANGE),
    range=ranges.of_arange,
    type=lambda cx, length, start, step, dtype, device: created(cx, (length,), dtype, device),
)


def _counts(dtype: DType) -> None:
    """Eager has no kernel that counts in bools or complex numbers."""
    if dtype is bool_ or dtype.is_complex:
        raise NoRow(f"counting in {dtype} has no row")


def _normal_torch_arange(
    cx: TypeContext,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    **rest: Arg,
) -> Normal:
    _plain(**rest)
    if start is None and end is None:
        raise OpError("arange() takes an end")
    first, last = (0, start) if end is None else (0 if start is None else start, end)
    chosen = dtype or dtype_of_numbers(cx, first, last, step)
    _counts(chosen if dtype else int64)
    chosen = int64 if chosen is bool_ else chosen
    if chosen.is_integral:  # ATen casts the ends to int64 before it counts
        if chosen is not int64 and any(type(n) is float and n % 1 for n in (first, last, step)):
            raise NoRow(f"counting fractions in {chosen} has no row")
        first, last, step = (int(n) if isinstance(n, float) else n for n in (first, last, step))
    return (first, last, step), {"dtype": chosen, "device": device or cx.default_device}


def arange_length(cx: TypeContext, start: Any, end: Any, step: Any) -> Dim:
    """How many numbers ``start, start + step, ...`` there are before ``end``."""
    if all(isinstance(n, (int, float)) for n in (start, end, step)):
        if step == 0 or (end - start) / step < 0:
            raise OpError("upper bound and lower bound inconsistent with step sign")
        integral = all(isinstance(n, int) for n in (start, end, step))
        return -((start - end) // step) if integral else -int(-((end - start) / step) // 1)
    if not isinstance(step, int) or not all(isinstance(n, (int, Expr)) for n in (start, end)):
        raise NoRow("arange over symbolic floats has no row")
    text = "upper bound and lower bound inconsistent with step sign"
    cx.require(ge(end, start) if step > 0 else le(end, start), text)
    return ceildiv(end - start, step) if step > 0 else ceildiv(start - end, -step)


def _torch_arange_expand(
    b: Any, start: Any, end: Any, step: Any, *, dtype: Any, device: Any, **rest: Arg
) -> Any:
    return b.arange(arange_length(b.cx, start, end, step), start, step, dtype, device)


op(
    "torch_arange",
    f"start=None, end=None, step=1, *, dtype=None, device=None, {_REST}",
    torch="torch.arange",
    normalize=_normal_torch_arange,
    expand=_torch_arange_expand,
    type=lambda cx, start, end, step, *, dtype, device: created(
        cx, (arange_length(cx, start, end, step),), dtype, device
    ),
)


def _normal_linspace(cx: TypeContext, *args: Arg, dtype: Any = None, **rest: Arg) -> Normal:
    _counts(dtype or cx.default_dtype)
    return args, {"dtype": dtype, **rest}


def _linspace_expand(
    b: Any, start: Any, end: Any, steps: Any, *, dtype: Any = None, device: Any = None, **rest: Arg
) -> Any:
    """ATen's form: from both ends towards the middle."""
    if not all(isinstance(n, (int, float)) for n in (start, end)):
        return NotImplemented
    chosen, device = dtype or b.cx.default_dtype, device or b.cx.default_device
    work = chosen if chosen in (float32, float64) else float64
    at = b.arange(steps, 0, 1, int64, device)
    last = max(steps - 1, 1) if isinstance(steps, int) else maximum(steps - 1, 1)
    step = (
        (end - start) / last
        if isinstance(last, int)
        else b.div(b.full((), end - start, work, device), last)
    )
    low = b.add(b.mul(b.to_dtype(at, work), step), start)
    high = b.rsub(b.mul(b.to_dtype(b.rsub(at, steps - 1), work), step), end)
    made = b.where(b.lt(at, maximum(steps // 2, minimum(steps, 1))), low, high)
    return made if work is chosen else b.to_dtype(made, chosen)


op(
    "linspace",
    f"start, end, steps, *, dtype=None, device=None, {_REST}",
    torch="torch.linspace",
    normalize=_normal_linspace,
    expand=_linspace_expand,
    type=lambda cx, start, end, steps, *, dtype=None, device=None, **rest: created(
        cx, (steps,), dtype, device
    ),
)


def _eye_expand(
    b: Any, n: Any, m: Any = None, *, dtype: Any = None, device: Any = None, **rest: Arg
) -> Any:
    device = device or b.cx.default_device
    rows = b.unsqueeze(b.arange(n, 0, 1, int64, device), 1)
    columns = b.arange(n if m is None else m, 0, 1, int64, device)
    return b.to_dtype(b.eq(rows, columns), dtype or b.cx.default_dtype)


op(
    "eye",
    f"n, m=None, *, dtype=None, device=None, {_REST}",
    torch="torch.eye",
    normalize=lambda cx, n, m=None, **rest: ((n, n if m is None else m), rest),
    expand=_eye_expand,
    type=lambda cx, n, m=None, *, dtype=None, device=None, **rest: created(
        cx, (n, n if m is None else m), dtype, device
    ),
)

# --- tensors of Python numbers ---


def _flat(data: Arg) -> list[Arg]:
    return [n for item in data for n in _flat(item)] if isinstance(data, tuple) else [data]


def _data_shape(data: Arg) -> tuple[int, ...]:
    if not isinstance(data, tuple):
        return ()
    shapes = {_data_shape(item) for item in data}
    if len(shapes) > 1:
        raise OpError("expected sequences of equal length")
    return (len(data), *(shapes.pop() if shapes else ()))


def _tensor_type(
    cx: TypeContext, data: Arg, *, dtype: Any = None, device: Any = None, **rest: Arg
) -> TensorType:
    numbers = _flat(data)
    chosen = dtype or (dtype_of_numbers(cx, *numbers) if numbers else cx.default_dtype)
    return created(cx, _data_shape(data), chosen, device)


def _tensor_expand(b: Any, data: Arg, *, dtype: Any = None, device: Any = None, **rest: Arg) -> Any:
    t = _tensor_type(b.cx, data, dtype=dtype, device=device)
    numbers = _flat(data)
    if t.shape == ():
        return b.full((), data, t.dtype, t.device)
    if not numbers or all(n == numbers[0] and type(n) is type(numbers[0]) for n in numbers):
        return b.full(t.shape, numbers[0] if numbers else 0, t.dtype, t.device)
    flat = b.cat(tuple(b.full((1,), n, t.dtype, t.device) for n in numbers), 0)
    return flat if len(t.shape) == 1 else b.reshape(flat, t.shape)


op(
    "tensor",
    "data, *, dtype=None, device=None, requires_grad=False, pin_memory=False",
    torch="torch.tensor",
    type=_tensor_type,
    expand=_tensor_expand,
)
op(
    "scalar_tensor",
    f"s, *, dtype=None, device=None, {_REST}",
    torch="torch.scalar_tensor",
    type=lambda cx, s, *, dtype=None, device=None, **rest: created(cx, (), dtype, device),
    expand=lambda b, s, *, dtype=None, device=None, **rest: b.full(
        (), s, dtype or b.cx.default_dtype, device or b.cx.default_device
    ),
)

# --- triangles ---


def _triangle(keep_lower: bool) -> Any:
    def expand(b: Any, x: Any, diagonal: Any = 0) -> Any:
        rows, columns = x.shape[-2], x.shape[-1]
        device = x.type.device
        row = b.unsqueeze(b.arange(rows, 0, 1, int64, device), 1)
        column = b.arange(columns, 0, 1, int64, device)
        distance = b.sub(column, row)
        keep = b.le(distance, diagonal) if keep_lower else b.ge(distance, diagonal)
        return b.where(keep, x, b.full((), 0, x.dtype, device))

    return expand


for _name, _lower in (("tril", True), ("triu", False)):
    op(
        _name,
        "input, diagonal=0",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        type=lambda cx, x, diagonal=0: new(cx, tensor(x), tensor(x).shape),
        expand=_triangle(_lower),
        vjp="expansion",
    )


def _diag_embed_expand(b: Any, x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    rank = len(x.shape) + 1
    i, j = dim_of(dim1, rank), dim_of(dim2, rank)
    size = x.shape[-1] + abs(offset)
    device = x.type.device
    row = b.unsqueeze(b.arange(size, 0, 1, int64, device), 1)
    column = b.arange(size, 0, 1, int64, device)
    on_diagonal = b.eq(b.sub(column, row), offset)
    padded = b.pad(x, (*((0, 0),) * (rank - 2), (max(-offset, 0), max(offset, 0))), 0)
    square = b.where(on_diagonal, b.unsqueeze(padded, -1), b.full((), 0, x.dtype, device))
    if offset > 0:
        padded = b.pad(x, (*((0, 0),) * (rank - 2), (0, offset)), 0)
        square = b.where(on_diagonal, b.unsqueeze(padded, -1), b.full((), 0, x.dtype, device))
    return b.contiguous(b.movedim(square, (-2, -1), (i, j)))


def _diag_embed_type(
    cx: TypeContext, x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> TensorType:
    t = tensor(x)
    i, j = sorted((dim_of(dim1, t.rank + 1), dim_of(dim2, t.rank + 1)))
    shape = list(t.shape[:-1])
    for dim in (i, j):
        shape.insert(dim, t.shape[-1] + abs(offset))
    return new(cx, t, shape)


op(
    "diag_embed",
    "input, offset=0, dim1=-2, dim2=-1",
    torch="torch.diag_embed",
    spellings=("torch.Tensor.diag_embed",),
    expand=_diag_embed_expand,
    type=_diag_embed_type,
    by_value=("offset",),
    vjp="expansion",
)


def _diag_expand(b: Any, x: Any, diagonal: int = 0) -> Any:
    return b.diag_embed(x, diagonal) if len(x.shape) == 1 else b.clone(b.diagonal(x, diagonal))


op(
    "diag",
    "input, diagonal=0",
    torch="torch.diag",
    spellings=("torch.Tensor.diag",),
    expand=_diag_expand,
    by_value=("diagonal",),
    vjp="expansion",
)

# --- strides as they are asked for: left to torch, since nothing is in them yet ---


def _strided_type(
    cx: TypeContext, size: Arg, stride: Arg, *, dtype: Any = None, device: Any = None, **rest: Arg
) -> TensorType:
    _plain(**rest)
    chosen = dtype or cx.default_dtype, device or cx.default_device
    shape, strides = sizes_of(size), sizes_of(stride)
    if len(shape) != len(strides):
        raise OpError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides "
            f"({len(strides)})"
        )
    return TensorType(*chosen, shape, strides)


def _permuted_type(cx: TypeContext, size: Arg, physical_layout: Arg, **options: Any) -> TensorType:
    shape = sizes_of(size)
    order = [dim_of(d, len(shape)) for d in sequence(physical_layout)]
    if sorted(order) != list(range(len(shape))):
        raise OpError(f"physical_layout must be a permutation of the dimensions, got {order}")
    strides = strides_in_order(shape, order[::-1])
    return _strided_type(cx, shape, strides, **options)


op(
    "empty_strided",
    f"size, stride, *, dtype=None, device=None, {_REST}",
    torch="torch.empty_strided",
    type=_strided_type,
)
op(
    "empty_permuted",
    f"size, physical_layout, *, dtype=None, device=None, {_REST}",
    torch="torch.empty_permuted",
    type=_permuted_type,
)
op(
    "new_empty_strided",
    f"input, size, stride, *, dtype=None, device=None, {_REST}",
    torch="torch.Tensor.new_empty_strided",
    type=lambda cx, x, size, stride, *, dtype=None, device=None, **rest: _strided_type(
        cx,
        size,
        stride,
        dtype=dtype or tensor(x).dtype,
        device=device or tensor(x).device,
        **rest,
    ),
    differentiable=False,
)
