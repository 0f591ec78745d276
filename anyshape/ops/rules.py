"""Type rules that many rows share: promotion, pointwise results, results like an argument, dims.

In: arguments as nodes have them (values, numbers, sizes, scalars). Out: ``TensorType``s. A rule is
a function of ``(cx, *args, **kwargs)``; the makers here return such functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from anyshape.ir.dtypes import (
    REAL_OF_COMPLEX,
    Category,
    DType,
    bool_,
    int64,
    result_type,
)
from anyshape.ir.graph import HOST, Arg, ScalarType, TensorType, Value, values_in
from anyshape.ir.scalars import SCALAR_FUNCTIONS, Scalar, ScalarInput
from anyshape.nouns import frozen, replace
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.layout import (
    Shape,
    contiguous_strides,
    pointwise_strides,
    preserved_strides,
)
from anyshape.symbolic import Dim, Expr, any_of, eq

Rule: TypeAlias = Callable[..., TensorType]


def of_numbers(function: str, *numbers: Any) -> Any:
    """A row of ``SCALAR_FUNCTIONS`` of host numbers that makes a float: worked out where Python
    knows them all, else computed in each call."""
    if all(isinstance(number, (int, float)) for number in numbers):
        return SCALAR_FUNCTIONS[function][0](*numbers)
    return Scalar("float", function, numbers)


def is_tensor(arg: object) -> bool:
    """Is the argument a tensor value?"""
    return arg.__class__ is Value and arg.type.__class__ is TensorType


def tensors_of(args: Iterable[Arg]) -> list[TensorType]:
    """The types of the tensors among the arguments."""
    return [a.type for a in args if a.__class__ is Value and a.type.__class__ is TensorType]


def number_category(arg: object) -> Category:
    """The category that a number has in promotion."""
    if isinstance(arg, bool):
        return "bool"
    if isinstance(arg, (int, Expr)):
        return "int"
    if isinstance(arg, float):
        return "float"
    if isinstance(arg, complex):
        return "complex"
    if isinstance(arg, Value) and isinstance(arg.type, ScalarType):
        return arg.type.kind
    if isinstance(arg, (Scalar, ScalarInput)):
        return arg.kind
    raise OpError(f"expected a tensor or a number, got {arg!r}")


def has_complex_number(args: Iterable[Arg]) -> bool:
    """Is an argument a complex number of Python's?"""
    return any(
        arg.__class__ is complex
        or (isinstance(arg, (Scalar, ScalarInput)) and arg.kind == "complex")
        for arg in args
    )


def promoted(cx: TypeContext, operands: Sequence[Arg]) -> DType:
    """``torch.result_type`` of the operands; ``None`` operands do not count."""
    dims: list[DType] = []
    zero_dim: list[DType] = []
    numbers: list[Category] = []
    for operand in operands:
        if operand.__class__ is Value and operand.type.__class__ is TensorType:
            t = operand.type
            if t.shape:
                dims.append(t.dtype)
            elif t.wrapped_number:
                numbers.append(t.dtype.category)
            else:
                zero_dim.append(t.dtype)
        elif operand is not None:
            numbers.append(number_category(operand))
    if dims and not zero_dim and not numbers and all(d is dims[0] for d in dims):
        return dims[0]
    return result_type(dims, zero_dim, numbers, cx.default_dtype)


def device_of(tensors: Sequence[TensorType]) -> str:
    """Where the result of these operands lives: 0-dim tensors of the host go anywhere."""
    device = tensors[0].device
    if len(tensors) == 1 or all(t.device == device for t in tensors):
        return device
    devices = {t.device for t in tensors if t.shape or t.device != HOST}
    if len(devices) > 1:
        raise OpError(f"Expected all tensors to be on the same device, found {sorted(devices)}")
    return devices.pop() if devices else device


POSITIONS_ANYWHERE = frozenset({"index", "index_put"})
"""Rows whose second argument, positions, may lie on the host whatever the first one's device."""


def require_one_device(name: str, args: Sequence[Arg]) -> None:
    """What a row reads at positions, or joins, lies on one device. Raises OpError as eager does."""
    first, rest = args[0], args[1:]
    here = [t for v in values_in((first, *rest)) if isinstance(t := v.type, TensorType)]
    if all(t.device == here[0].device for t in here):
        return
    if name in POSITIONS_ANYWHERE:
        positions = [tensor(value) for value in values_in(args[1])]
        if any(t.device not in (HOST, tensor(first).device) for t in positions):
            raise OpError(f"indices should be either on {HOST} or on the indexed tensor's device")
        rest = args[2:]
    device_of([t for v in values_in((first, *rest)) if isinstance(t := v.type, TensorType)])


def pointwise_type(
    cx: TypeContext, tensors: Sequence[TensorType], dtype: DType, numbers: bool = False
) -> TensorType:
    """The result of an elementwise operator: broadcast shape, TensorIterator's strides.

    ``numbers``: Python numbers are among its operands.
    """
    shape = tensors[0].shape
    for t in tensors:
        if t.shape is not shape and t.shape != shape:
            shape = cx.broadcast_shapes([t.shape for t in tensors], _MISMATCH)
            break
    strides = pointwise_strides(cx, shape, tensors, numbers)
    return TensorType(dtype, device_of(tensors), shape, strides)


def operands_type(cx: TypeContext, operands: Sequence[Arg], dtype: DType) -> TensorType:
    """``pointwise_type`` of tensors and Python numbers; ``None`` operands do not count."""
    tensors = tensors_of(operands)
    numbers = len(tensors) < sum(operand is not None for operand in operands)
    if len(tensors) > 1 and any(t.dtype is not dtype for t in tensors):
        common = promoted(cx, operands) if dtype is bool_ else dtype
        tensors = [_as_iterated(cx, t, common) for t in tensors]
    return pointwise_type(cx, tensors, dtype, numbers)


def _as_iterated(cx: TypeContext, t: TensorType, common: DType) -> TensorType:
    """The operand as ATen iterates on the host over it: as a copy where it is converted."""
    if t.dtype is common or t.device != HOST or not t.shape:
        return t
    return replace(t, dtype=common, strides=preserved_strides(cx, t))


_MISMATCH = "The sizes of the tensors must match (or be 1) to broadcast"


@frozen
class PointwiseRule:
    """The rule of an elementwise row whose first ``operands`` arguments (all, if None) take
    part."""

    dtype: Callable[[TypeContext, Sequence[Arg]], DType] = promoted
    operands: int | None = None

    def __call__(self, cx: TypeContext, *args: Arg, **kwargs: Arg) -> TensorType:
        taken = args if self.operands is None else args[: self.operands]
        return operands_type(cx, taken, self.dtype(cx, taken))


@frozen
class _OwnRule(PointwiseRule):
    """Of a row that has more to say than a dtype; ``rule`` is of ``operands_type`` in the end."""

    rule: Rule = operands_type

    def __call__(self, cx: TypeContext, *args: Arg, **kwargs: Arg) -> TensorType:
        return self.rule(cx, *args, **kwargs)


def by_element(rule: Rule) -> PointwiseRule:
    """The rule of an elementwise row whose result lies as ``operands_type`` of its arguments says,
    so that everybody can see that it is one."""
    return _OwnRule(rule=rule)


@frozen
class RowMajorRule:
    """The rule of a row whose results ``rule`` makes row-major, whatever its arguments lie like, so
    that everybody can see that it does."""

    rule: Callable[..., TensorType | tuple[TensorType, ...]]

    def __call__(
        self, cx: TypeContext, *args: Any, **kwargs: Any
    ) -> TensorType | tuple[TensorType, ...]:
        return self.rule(cx, *args, **kwargs)


def laid_like_first(rule: Rule) -> Rule:
    """The rule's type, of a result that eager makes in the format of its argument first."""

    def laid(cx: TypeContext, *args: Any, **kwargs: Any) -> TensorType:
        made = rule(cx, *args, **kwargs)
        return replace(made, strides=preserved_strides(cx, tensor(args[0])))

    return laid


def floated(cx: TypeContext, operands: Sequence[Arg]) -> DType:
    """Promotion of ``exp`` and its like: bools and integers become the default dtype."""
    dtype = promoted(cx, operands)
    return dtype if dtype.is_floating or dtype.is_complex else cx.default_dtype


def booled(cx: TypeContext, operands: Sequence[Arg]) -> DType:
    """The dtype of comparisons."""
    return bool_


def realed(cx: TypeContext, operands: Sequence[Arg]) -> DType:
    """Promotion of ``abs``: complex numbers give real ones."""
    dtype = promoted(cx, operands)
    return REAL_OF_COMPLEX.get(dtype, dtype)


def summed(x: TensorType, dtype: DType | None) -> DType:
    """The dtype of sums and products: integers are added in int64."""
    if dtype is not None:
        return dtype
    return x.dtype if x.dtype.is_floating or x.dtype.is_complex else int64


def like(position: int = 0) -> Rule:
    """A new tensor of the argument's dtype and shape, in its format."""

    def rule(cx: TypeContext, *args: Arg, **kwargs: Arg) -> TensorType:
        t = tensor(args[position])
        return TensorType(t.dtype, t.device, t.shape, preserved_strides(cx, t))

    return rule


def same_as(position: int = 0) -> Rule:
    """The very type of an argument: what in-place operators and aliases return."""

    def rule(cx: TypeContext, *args: Arg, **kwargs: Arg) -> TensorType:
        return tensor(args[position])

    return rule


def contiguous_like(position: int = 0) -> Rule:
    """A new row-major tensor of the argument's dtype and shape."""

    def rule(cx: TypeContext, *args: Arg, **kwargs: Arg) -> TensorType:
        t = tensor(args[position])
        return new(cx, t, t.shape)

    return rule


def new(
    cx: TypeContext, t: TensorType, shape: Iterable[Dim], dtype: DType | None = None
) -> TensorType:
    """A row-major result on the device of ``t``."""
    sizes: Shape = tuple(shape)
    return TensorType(dtype or t.dtype, t.device, sizes, contiguous_strides(cx, sizes))


def created(
    cx: TypeContext, shape: Iterable[Dim], dtype: DType | None, device: str | None
) -> TensorType:
    """A row-major tensor from nothing; ``None`` means the defaults."""
    sizes: Shape = tuple(shape)
    return TensorType(
        dtype or cx.default_dtype,
        device or cx.default_device,
        sizes,
        contiguous_strides(cx, sizes),
    )


def size_of(size: Arg) -> Dim:
    """A size as an argument; raises ``NoRow`` for what is no whole number."""
    if not isinstance(size, (int, Expr)):
        raise NoRow(f"a size must be a whole number, not {size!r}")
    return size


def sizes_of(sizes: Arg) -> tuple[Dim, ...]:
    """Sizes given as one tuple or a single number."""
    return tuple(map(size_of, sizes)) if isinstance(sizes, tuple) else (size_of(sizes),)


def dim_of(dim: Arg, rank: int) -> int:
    """The dimension counted from 0; a 0-dim tensor counts as having one."""
    if not isinstance(dim, int):
        raise OpError(f"a dimension must be an int, not {dim!r}")
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise OpError(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {dim})"
        )
    return dim % bound


def dims_of(dims: Arg, rank: int, *, empty_is_all: bool = True) -> tuple[int, ...]:
    """Dimensions counted from 0, in the order given; ``None`` means all."""
    if dims is None or (empty_is_all and dims == ()):
        return tuple(range(rank))
    chosen = dims if isinstance(dims, tuple) else (dims,)
    found = tuple(dim_of(d, rank) for d in chosen)
    if len(set(found)) != len(found):
        raise OpError(f"dim {dims} appears multiple times in the list of dims")
    return found if rank else ()


def require_sizes(
    cx: TypeContext, found: Sequence[Dim], expected: Sequence[Dim], message: str
) -> None:
    """The two shapes must be the same: a precondition on each size."""
    if len(found) != len(expected):
        raise OpError(message)
    for a, b in zip(found, expected, strict=True):
        if a is not b and a != b:
            cx.require(eq(a, b), message)


def tensor(arg: Any) -> TensorType:
    """The type of a tensor argument; raises ``OpError`` where it is none."""
    if not is_tensor(arg):
        raise OpError(f"expected a tensor, got {arg!r}")
    return arg.type


def is_empty(cx: TypeContext, t: TensorType) -> bool:
    """Has it no elements? Guarded; where nobody may guard, it is checked that it has some."""
    return is_any_zero(cx, t.shape)


def is_any_zero(cx: TypeContext, sizes: Sequence[Dim]) -> bool:
    """Is one of the sizes 0? Guarded; where nobody may guard, it is checked that none is."""
    empty = any_of(*(eq(size, 0) for size in sizes))
    known, hint = cx.known(empty), cx.hint(empty)
    if known is False or isinstance(empty, bool):
        return empty is True
    if known is None and (hint is None or cx.on_guard is None):
        cx.require(~empty, "it has elements")
        return False
    zeros = [eq(size, 0) for size in sizes] if hint and cx.on_guard is not None else []
    if any(cx.hint(zero) and cx.decide(zero) for zero in zeros):  # which one, for what asks later
        return True
    return bool(known) or cx.decide(empty)
