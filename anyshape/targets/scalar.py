"""How each target spells each scalar operator: a table a target, one entry an operator.

In: an operator, its operands' texts and dtype. Out: an expression with torch's semantics. An entry
has a text for floats and one for integers (``None``: the operator has no such form); helpers that
a text calls are in the target's prelude. bfloat16 and float16 elements are kept as float32 and
rounded by ``cast``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from anyshape.ir.dtypes import DType
from anyshape.nouns import frozen


@frozen
class Text:
    """How one target spells an operator: ``{0}``, ``{1}`` are operands, ``{t}`` is the suffix of
    the dtype (``f32``, ``i64``), ``{f}`` is ``f`` for float32 and nothing for float64."""

    floats: str | None
    integers: str | None = None


def _same(text: str) -> Text:
    return Text(text, text)


def _call(name: str) -> Text:
    return Text(f"{name}{{f}}({{0}})")


_COMMON: Mapping[str, Text] = MappingProxyType(
    {
        "add": _same("({0} + {1})"),
        "sub": _same("({0} - {1})"),
        "mul": _same("({0} * {1})"),
        "neg": _same("(-{0})"),
        "eq": _same("({0} == {1})"),
        "ne": _same("({0} != {1})"),
        "lt": _same("({0} < {1})"),
        "le": _same("({0} <= {1})"),
        "gt": _same("({0} > {1})"),
        "ge": _same("({0} >= {1})"),
        "logical_and": _same("(({0} != 0) & ({1} != 0))"),
        "logical_or": _same("(({0} != 0) | ({1} != 0))"),
        "logical_xor": _same("(({0} != 0) ^ ({1} != 0))"),
        "logical_not": _same("({0} == 0)"),
        "bit_and": Text(None, "({0} & {1})"),
        "bit_or": Text(None, "({0} | {1})"),
        "bit_xor": Text(None, "({0} ^ {1})"),
        "bit_not": Text(None, "(~{0})"),
    }
)
"""What C and Triton spell alike."""

C_TEXTS: Mapping[str, Text] = MappingProxyType(
    {
        **_COMMON,
        "div": Text("({0} / {1})", "as_div_{t}({0}, {1})"),
        "floordiv": _same("as_floordiv_{t}({0}, {1})"),
        "truncdiv": Text("__builtin_trunc{f}({0} / {1})", "as_div_{t}({0}, {1})"),
        "mod": _same("as_mod_{t}({0}, {1})"),
        "fmod": Text("fmod{f}({0}, {1})", "as_rem_{t}({0}, {1})"),
        "pow": Text("pow{f}({0}, {1})", "as_pow_{t}({0}, {1})"),
        "abs": Text("__builtin_fabs{f}({0})", "({0} < 0 ? -{0} : {0})"),
        "sign": _same("(({0} > 0) - ({0} < 0))"),
        "reciprocal": Text("(1 / {0})"),
        "sqrt": Text("__builtin_sqrt{f}({0})"),
        "rsqrt": Text("(1 / __builtin_sqrt{f}({0}))"),
        "exp": Text("as_exp_{t}({0})"),
        "exp2": _call("exp2"),
        "expm1": _call("expm1"),
        "log": Text("as_log_{t}({0})"),
        "log2": _call("log2"),
        "log10": _call("log10"),
        "log1p": _call("log1p"),
        "sin": _call("sin"),
        "cos": _call("cos"),
        "tan": _call("tan"),
        "asin": _call("asin"),
        "acos": _call("acos"),
        "atan": _call("atan"),
        "atan2": Text("atan2{f}({0}, {1})"),
        "sinh": _call("sinh"),
        "cosh": _call("cosh"),
        "tanh": Text("as_tanh_{t}({0})"),
        "asinh": _call("asinh"),
        "acosh": _call("acosh"),
        "atanh": _call("atanh"),
        "erf": Text("as_erf_{t}({0})"),
        "erfp1": Text("as_erfp1_{t}({0})"),
        "erfc": _call("erfc"),
        "erfinv": Text("as_erfinv_{t}({0})"),
        "lgamma": _call("lgamma"),
        "digamma": Text("as_digamma_{t}({0})"),
        "sigmoid": Text("as_sigmoid_{t}({0})"),
        "gelu_tanh": Text("as_gelu_tanh_{t}({0})"),
        "floor": Text("__builtin_floor{f}({0})", "{0}"),
        "ceil": Text("__builtin_ceil{f}({0})", "{0}"),
        "trunc": Text("__builtin_trunc{f}({0})", "{0}"),
        "round": Text("__builtin_rint{f}({0})", "{0}"),
        # the second operand, often a constant, first: it is looked at three times
        "minimum": Text("as_min_{t}({1}, {0})", "({0} < {1} ? {0} : {1})"),
        "maximum": Text("as_max_{t}({1}, {0})", "({0} > {1} ? {0} : {1})"),
        "fmin": Text("as_fmin_{t}({0}, {1})", "({0} < {1} ? {0} : {1})"),
        "fmax": Text("as_fmax_{t}({0}, {1})", "({0} > {1} ? {0} : {1})"),
        "shl": Text(None, "as_shl_{t}({0}, {1})"),
        "shr": Text(None, "as_shr_{t}({0}, {1})"),
        "isnan": Text("({0} != {0})", "0"),
        "isinf": Text("(__builtin_fabs{f}({0}) == __builtin_inf())", "0"),
        "isfinite": Text("(__builtin_fabs{f}({0}) < __builtin_inf())", "1"),
        "signbit": Text("as_signbit_{t}({0})", "({0} < 0)"),
        "copysign": Text("__builtin_copysign{f}({0}, {1})"),
        "hypot": Text("hypot{f}({0}, {1})"),
        "nextafter": Text("nextafter{f}({0}, {1})"),
    }
)

C_BOOL_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "add": "({0} | {1})",
        "mul": "({0} & {1})",
        "sub": "({0} ^ {1})",
        "maximum": "({0} | {1})",
        "minimum": "({0} & {1})",
        "bit_not": "(!{0})",
        "neg": "({0})",
        "abs": "({0})",
        "sign": "({0})",
    }
)


def c_scalar(op: str, dtype: DType, args: Sequence[str]) -> str:
    """C text of an operator on operands of ``dtype``."""
    if dtype.name == "bool" and op in C_BOOL_TEXTS:
        return C_BOOL_TEXTS[op].format(*args)
    texts = C_TEXTS[op]
    text = texts.floats if dtype.is_floating else texts.integers
    if text is None:
        raise NotImplementedError(f"{op} on {dtype}")
    suffix = "" if dtype.name == "float64" else "f"
    return text.format(*args, t=C_SUFFIXES[dtype.name], f=suffix)


C_SUFFIXES: Mapping[str, str] = MappingProxyType(
    {
        "bool": "u8",
        "uint8": "u8",
        "int8": "i8",
        "int16": "i16",
        "int32": "i32",
        "int64": "i64",
        "float16": "f32",
        "bfloat16": "f32",
        "float32": "f32",
        "float64": "f64",
    }
)

_LIBDEVICE = (
    "tan asin acos atan sinh cosh asinh acosh atanh erfc erfinv lgamma log10 atan2 "
    "pow fmod copysign hypot "
    "nextafter signbit"
)

TRITON_TEXTS: Mapping[str, Text] = MappingProxyType(
    {
        **_COMMON,
        "neg": Text("({0} * -1.0)", "(-{0})"),  # Triton's minus is 0 - x, of which 0 has no sign
        "div": Text("({0} / {1})", "as_int_divide({0}, {1})"),
        "floordiv": Text("as_floordiv({0}, {1})", "as_int_floordiv({0}, {1})"),
        "truncdiv": Text("tl.where({0} / {1} < 0, tl.ceil({0} / {1}), tl.floor({0} / {1}))",
                         "as_int_divide({0}, {1})"),
        "mod": Text("as_mod({0}, {1})", "as_int_mod({0}, {1})"),
        "abs": _same("tl.abs({0})"),
        "sign": Text("tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
                     "tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0))"),
        "reciprocal": Text("(1.0 / {0})"),
        "sqrt": Text("tl.sqrt({0})"),
        "rsqrt": Text("tl.rsqrt({0})"),
        "exp": Text("tl.exp({0})"),
        "exp2": Text("tl.exp2({0})"),
        "expm1": Text("as_expm1({0})"),
        "log": Text("tl.log({0})"),
        "log2": Text("tl.log2({0})"),
        "log1p": Text("as_log1p({0})"),
        "sin": Text("tl.sin({0})"),
        "cos": Text("tl.cos({0})"),
        "tanh": Text("as_tanh({0})"),
        "erf": Text("tl.erf({0})"),
        "erfp1": Text("as_erfp1({0})"),
        "sigmoid": Text("as_sigmoid({0})"),
        "gelu_tanh": Text("as_gelu_tanh({0}, CAPABILITY)"),
        "floor": Text("tl.floor({0})", "{0}"),
        "ceil": Text("tl.ceil({0})", "{0}"),
        "trunc": Text("tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))", "{0}"),
        "round": Text("as_round({0})", "{0}"),
        "minimum": Text("as_min({0}, {1})", "tl.minimum({0}, {1})"),
        "maximum": Text("as_max({0}, {1})", "tl.maximum({0}, {1})"),
        "fmin": _same("tl.minimum({0}, {1})"),
        "fmax": _same("tl.maximum({0}, {1})"),
        "shl": Text(None, "as_shl({0}, {1})"),
        "shr": Text(None, "as_shr({0}, {1})"),
        "digamma": Text("as_digamma({0})"),
        "isnan": Text("({0} != {0})", "({0} != {0})"),
        "isinf": Text('(tl.abs({0}) == float("inf"))', "({0} != {0})"),
        "isfinite": Text('(tl.abs({0}) < float("inf"))', "({0} == {0})"),
    }
    | {name: Text(f"tl.extra.cuda.libdevice.{name}({{0}})") for name in _LIBDEVICE.split()}
    | {name: Text(f"tl.extra.cuda.libdevice.{name}({{0}}, {{1}})")
       for name in ("atan2", "copysign", "hypot", "nextafter")}
    | {
        "fmod": Text("tl.extra.cuda.libdevice.fmod({0}, {1})", "as_int_remainder({0}, {1})"),
        "pow": Text("tl.extra.cuda.libdevice.pow({0}, {1})", "as_int_pow({0}, {1})"),
        "signbit": Text("(tl.extra.cuda.libdevice.signbit({0}) != 0)", "({0} < 0)"),
    }
)  # fmt: skip


TRITON_DOUBLES: Mapping[str, str] = MappingProxyType(
    {name: f"tl.extra.cuda.libdevice.{name}({{0}})" for name in ("tanh", "expm1", "log1p")}
    | {"sigmoid": "tl.sigmoid({0})"}
)
"""Where the text for float32 is not exact enough."""


def triton_scalar(op: str, dtype: DType, args: Sequence[str]) -> str:
    """Triton text of an operator on operands of ``dtype``."""
    if dtype.name == "bool" and op in C_BOOL_TEXTS:
        return C_BOOL_TEXTS[op].replace("(!{0})", "({0} == 0)").format(*args)
    texts = TRITON_TEXTS.get(op)
    text = None if texts is None else texts.floats if dtype.is_floating else texts.integers
    if dtype.name == "float64":
        text = TRITON_DOUBLES.get(op, text)
    if text is None:
        raise NotImplementedError(f"{op} on {dtype} in Triton")
    return text.format(*args)
