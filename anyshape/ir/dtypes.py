"""Data types and torch's promotion rules, without torch.

In: names such as ``float32`` and operands' types. Out: interned ``DType`` constants and the type
of a result. The one idea: a wrapped Python number only lifts the *category* (bool, int, float,
complex), a 0-dim tensor lifts the category of tensors with dims, and inside one category the wider
type wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from anyshape.nouns import frozen

Category = Literal["bool", "int", "float", "complex"]

CATEGORIES: tuple[Category, ...] = ("bool", "int", "float", "complex")


@frozen(eq=False)
class DType:
    """One element type; this module's constants are its only instances, compared by identity."""

    name: str
    size_bytes: int
    category: Category
    signed: bool = True

    @property
    def is_floating(self) -> bool:
        return self.category == "float"

    @property
    def is_integral(self) -> bool:
        return self.category == "int"

    @property
    def is_complex(self) -> bool:
        return self.category == "complex"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name

    def __deepcopy__(self, memo: object) -> DType:
        return self


bool_ = DType("bool", 1, "bool", signed=False)
uint8 = DType("uint8", 1, "int", signed=False)
uint16 = DType("uint16", 2, "int", signed=False)
uint32 = DType("uint32", 4, "int", signed=False)
uint64 = DType("uint64", 8, "int", signed=False)
int8 = DType("int8", 1, "int")
int16 = DType("int16", 2, "int")
int32 = DType("int32", 4, "int")
int64 = DType("int64", 8, "int")
float8_e4m3fn = DType("float8_e4m3fn", 1, "float")
float8_e5m2 = DType("float8_e5m2", 1, "float")
float16 = DType("float16", 2, "float")
bfloat16 = DType("bfloat16", 2, "float")
float32 = DType("float32", 4, "float")
float64 = DType("float64", 8, "float")
complex32 = DType("complex32", 4, "complex")
complex64 = DType("complex64", 8, "complex")
complex128 = DType("complex128", 16, "complex")

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float8_e4m3fn, float8_e5m2,
        float16, bfloat16, float32, float64, complex32, complex64, complex128,
    )
}  # fmt: skip

REAL_OF_COMPLEX: dict[DType, DType] = {complex32: float16, complex64: float32, complex128: float64}
COMPLEX_OF_REAL: dict[DType, DType] = {
    bfloat16: complex64,
    **{real: cplx for cplx, real in REAL_OF_COMPLEX.items()},
}


def promote_two(a: DType, b: DType) -> DType:
    """The type that holds both, as ``torch.promote_types``.

    >>> promote_two(uint8, int8)
    int16
    >>> promote_two(float16, bfloat16)
    float32
    """
    if a is b:
        return a
    rank_a, rank_b = CATEGORIES.index(a.category), CATEGORIES.index(b.category)
    if rank_a != rank_b:
        low, high = (a, b) if rank_a < rank_b else (b, a)
        if high.is_complex and low.is_floating:
            return promote_two(high, COMPLEX_OF_REAL[low])
        return high
    if a.is_integral:
        return _promote_integers(a, b)
    if a.is_floating:
        return _promote_floats(a, b)
    return a if a.size_bytes > b.size_bytes else b


def _promote_integers(a: DType, b: DType) -> DType:
    wide_unsigned = {uint16, uint32, uint64}
    if (a in wide_unsigned) != (b in wide_unsigned) or {a, b} & wide_unsigned:
        raise TypeError(f"Promotion for {a} and {b} is not supported")
    if a.signed == b.signed:
        return a if a.size_bytes > b.size_bytes else b
    signed = a if a.signed else b
    return int16 if signed is int8 else signed  # the unsigned one is uint8


def _promote_floats(a: DType, b: DType) -> DType:
    if a.size_bytes == b.size_bytes:
        if a.size_bytes == 1:
            raise TypeError(f"Promotion for Float8 Types is not supported, attempted {a} and {b}")
        return float32  # float16 with bfloat16
    if 1 in (a.size_bytes, b.size_bytes):
        raise TypeError(f"Promotion for Float8 Types is not supported, attempted {a} and {b}")
    return a if a.size_bytes > b.size_bytes else b


def result_type(
    tensors: Iterable[DType],
    zero_dim_tensors: Iterable[DType],
    numbers: Iterable[Category],
    default: DType = float32,
) -> DType:
    """The result of an operator over three ranks of operands, as ``torch.result_type``.

    ``tensors`` have dimensions, ``zero_dim_tensors`` have none, ``numbers`` are categories of
    Python numbers (or of tensors that wrap one). ``default`` is the default floating dtype.
    """
    result: DType | None = None
    for rank in (tuple(tensors), tuple(zero_dim_tensors), _default_dtypes(numbers, default)):
        promoted: DType | None = None
        for dtype in rank:
            promoted = dtype if promoted is None else promote_two(promoted, dtype)
        result = _combine(result, promoted)
    if result is None:
        raise TypeError("result_type needs at least one operand")
    return result


def _default_dtypes(numbers: Iterable[Category], default: DType) -> tuple[DType, ...]:
    of_category: dict[str, DType] = {
        "bool": bool_,
        "int": int64,
        "float": default,
        "complex": COMPLEX_OF_REAL[default],
    }
    return tuple(of_category[category] for category in numbers)


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    """A lower rank counts only if its category is above the higher rank's."""
    if higher is None or lower is None:
        return higher or lower
    if CATEGORIES.index(lower.category) > CATEGORIES.index(higher.category):
        if lower.is_complex and higher.is_floating:
            return COMPLEX_OF_REAL[higher]
        return lower
    return higher
