"""Every scalar operator as C, against torch: special values, integers at their ends, accuracy."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
import torch

from anyshape.ir import dtypes
from anyshape.ir.loops import SCALAR_OPS
from anyshape.targets.cpu.build import Toolchain
from anyshape.targets.cpu.c_texts import STORAGE, c_cast
from anyshape.targets.cpu.prelude import texts as prelude_texts
from anyshape.targets.scalar import C_TEXTS, c_scalar

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 7.25, -7.25, 1e-30, 1e30, 88.5, -88.5, 1e-3,
           float("inf"), float("-inf"), float("nan")]  # fmt: skip


def gelu_tanh(x):
    """In float64, and exact where eager's 1 + tanh is 0."""
    wide = x.double()
    return (wide * torch.sigmoid(1.5957691216057308 * (wide + 0.044715 * wide**3))).to(x.dtype)


UNARY = {
    "gelu_tanh": gelu_tanh,
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "reciprocal": torch.reciprocal, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos,
    "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh,
    "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "erf": torch.erf, "erfp1": lambda x: (1 + torch.erf(x.double())).to(x.dtype), "erfc": torch.erfc, "erfinv": torch.erfinv, "lgamma": torch.lgamma,
    "digamma": torch.digamma, "sigmoid": torch.sigmoid, "floor": torch.floor, "ceil": torch.ceil,
    "trunc": torch.trunc, "round": torch.round, "logical_not": torch.logical_not, "isnan": torch.isnan,
    "isinf": torch.isinf, "isfinite": torch.isfinite, "signbit": torch.signbit,
}  # fmt: skip
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "floordiv": torch.floor_divide,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "mod": torch.remainder, "fmod": torch.fmod,
    "pow": torch.pow, "atan2": torch.atan2, "minimum": torch.minimum, "maximum": torch.maximum,
    "fmin": torch.fmin, "fmax": torch.fmax, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le,
    "gt": torch.gt, "ge": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "copysign": torch.copysign, "hypot": torch.hypot,
    "nextafter": torch.nextafter,
}  # fmt: skip
INTEGER = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "neg": torch.neg, "abs": torch.abs,
    "sign": torch.sign, "floordiv": torch.floor_divide, "mod": torch.remainder, "fmod": torch.fmod,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "minimum": torch.minimum, "maximum": torch.maximum, "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or, "bit_xor": torch.bitwise_xor, "bit_not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift, "lt": torch.lt, "eq": torch.eq,
}  # fmt: skip
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """One object with a loop for each operator and dtype, scalar and vector lengths alike."""
    texts = [*prelude_texts()]
    for dtype in ("float32", "float64"):
        texts += [loop(name, dtype) for name in (*UNARY, *BINARY)]
    for dtype in INTEGERS:
        texts += [loop(name, dtype) for name in INTEGER]
    for source in (*INTEGERS, "float32", "float64", "bool", "bfloat16", "float16"):
        texts += [
            cast_loop(source, t)
            for t in (*INTEGERS, "float32", "float64", "bool", "bfloat16", "float16")
        ]
    path = tmp_path_factory.mktemp("scalar")
    (path / "all.c").write_text("\n".join(texts))
    toolchain = Toolchain.find("gcc")
    assert toolchain is not None
    command = [
        toolchain.path,
        *toolchain.flags,
        str(path / "all.c"),
        "-o",
        str(path / "all.so"),
        *toolchain.libraries(),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return ctypes.CDLL(str(path / "all.so"))


def loop(name, dtype):
    kind = getattr(dtypes, dtype)
    arity = SCALAR_OPS[name].arity
    result = "u8" if SCALAR_OPS[name].result == "bool" else STORAGE[dtype]
    text = c_scalar(name, kind, ["a", "b"][:arity])
    c = STORAGE[dtype]
    return (
        f"void {name}_{dtype}(const {c} *x, const {c} *y, {result} *z, long n) {{\n#pragma omp simd\n"
        f"for (long i = 0; i < n; i++) {{ {c} a = x[i], b = y[i]; z[i] = {text}; }} }}"
    )


def cast_loop(source, target):
    halves = {"bfloat16": "bf16", "float16": "f16"}
    load = f"as_load_{halves[source]}(x[i])" if source in halves else "x[i]"
    text = c_cast("a", getattr(dtypes, source + "_" * (source == "bool")),
                  getattr(dtypes, target + "_" * (target == "bool")))  # fmt: skip
    store = f"as_store_{halves[target]}({text})" if target in halves else text
    inner = "f32" if source in halves else STORAGE[source]
    return (
        f"void cast_{source}_{target}(const {STORAGE[source]} *x, {STORAGE[target]} *z, long n) {{\n"
        f"#pragma omp simd\nfor (long i = 0; i < n; i++) {{ {inner} a = {load}; z[i] = {store}; }} }}"
    )


def call(function, *tensors):
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    function(*pointers, ctypes.c_long(tensors[0].numel()))


def pairs(values, dtype):
    x = torch.tensor(values, dtype=dtype)
    return x.repeat_interleave(len(values)).contiguous(), x.repeat(len(values)).contiguous()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_floats_are_torchs_at_special_values(library, name, dtype):
    kind = getattr(torch, dtype)
    x, y = pairs(SPECIAL, kind)
    if name in ("mod", "fmod"):  # eager's vector version gives up on quotients above 2**53
        kept = ~((x / y).abs() > 1e20)
        x, y = x[kept], y[kept]
    wanted = UNARY[name](x) if name in UNARY else BINARY[name](x, y)
    found = torch.empty_like(wanted)
    call(library[f"{name}_{dtype}"], x, y, found)
    loose = {"erfinv": 1e-5, "tan": 1e-5, "pow": 1e-5, "digamma": 1e-5, "lgamma": 1e-5}.get(
        name, 2e-6
    )
    torch.testing.assert_close(found, wanted, rtol=loose, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", INTEGER)
def test_integers_are_torchs_at_their_ends(library, name, dtype):
    kind = getattr(torch, dtype)
    ends = torch.iinfo(kind)
    values = sorted(
        {
            ends.min,
            ends.min + 1,
            ends.max,
            ends.max - 1,
            0,
            1,
            2,
            3,
            7,
            max(-1, ends.min),
            max(-5, ends.min),
        }
    )
    x, y = pairs(values, kind)
    if name in ("floordiv", "mod", "fmod", "truncdiv"):  # eager raises, or kills the process
        kept = (y != 0) & ~((x == ends.min) & (y == -1))
        x, y = x[kept], y[kept]
    wanted = INTEGER[name](x) if SCALAR_OPS[name].arity == 1 else INTEGER[name](x, y)
    found = torch.empty_like(wanted)
    call(library[f"{name}_{dtype}"], x, y, found)
    assert torch.equal(found, wanted)


def test_integer_division_by_zero_does_not_end_the_process(library):
    x, y = torch.full((40,), 5), torch.zeros(40, dtype=torch.int64)
    x[3], y[3] = torch.iinfo(torch.int64).min, -1
    for name in ("floordiv", "mod", "fmod", "truncdiv"):
        call(library[f"{name}_int64"], x, y, torch.empty_like(x))


CASTS = (*INTEGERS, "float32", "float64", "bool", "bfloat16", "float16")


@pytest.mark.parametrize("source", CASTS)
@pytest.mark.parametrize("target", CASTS)
def test_casts_are_torchs(library, source, target):
    values = [0, 1, 2, 100, 127, 128, 255, 256, 32767, 65519, 65520, -1, -2, -128, -32768]
    values += [
        0.5,
        -0.5,
        1.9,
        -1.9,
        3.4e38,
        1e-8,
        6e-8,
        1e-45,
        float("inf"),
        float("nan"),
        1.0039,
        257.5,
    ]
    kind = getattr(torch, source)
    whole = not kind.is_floating_point
    numbers = [int(v) for v in values if v == v and abs(v) < 1e9] if whole else values
    x = torch.tensor(numbers, dtype=torch.int64 if whole else torch.float64).to(kind)
    if not getattr(torch, target).is_floating_point and not whole and target != "bool":
        x = x[
            x.isfinite() & (x.abs() < 1e9)
        ]  # what C leaves undefined differs from machine to machine
    wanted = x.to(getattr(torch, target))
    found = torch.empty_like(wanted)
    call(library[f"cast_{source}_{target}"], x, found)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid"])
def test_own_polynomials_are_near_the_last_bit(library, name):
    x = torch.linspace(-20, 20, 400_001)
    x = x.abs() + 1e-6 if name == "log" else x
    found = torch.empty_like(x)
    call(library[f"{name}_float32"], x, x, found)
    wanted = UNARY[name](x.double())
    unit = torch.maximum(wanted.abs(), torch.tensor(1e-30, dtype=torch.float64)) * 2.0**-23
    if name == "log":  # near 1, units of the argument count
        unit = torch.maximum(unit, torch.tensor(2.0**-26, dtype=torch.float64))
    assert ((found.double() - wanted).abs() / unit).max() <= 4


def test_every_scalar_operator_has_a_row():
    given = {"where", "cast"}
    assert set(C_TEXTS) == set(SCALAR_OPS) - given
