"""What the text of every kernel begins with: operators that Triton has not, or has otherwise."""

from __future__ import annotations

from anyshape.targets.triton.texts import OVERLAPPING

_TEXT = """import triton
import triton.language as tl


@triton.jit
def as_begin(CAPABILITY: tl.constexpr):
    # only then may the next one come: some read, before they wait, what is older than this one
    if CAPABILITY >= OVERLAPPING:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def as_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def as_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def as_times(a, b):
    return a * b


@triton.jit
def as_online(highest, total, x, TURNS: tl.constexpr, NEXT: tl.constexpr):
    # of the elements that one thread has, so that what was summed is made smaller once for all
    own = tl.reshape(x, [x.shape[0], TURNS, highest.shape[1], NEXT])
    above = tl.reduce(tl.reduce(own, 3, as_max), 1, as_max)
    above = as_max(highest, above)
    powers = tl.exp(own - above[:, None, :, None])
    return above, total * tl.exp(highest - above) + tl.sum(tl.sum(powers, 3), 1)


@triton.jit
def as_online_joined(highest, total, others, their_total):
    both = as_max(highest, others)
    return both, total * tl.exp(highest - both) + their_total * tl.exp(others - both)


@triton.jit
def as_online_total(highest, total):
    both = tl.reduce(highest, 1, as_max)[:, None]
    return both, tl.sum(total * tl.exp(highest - both), 1)[:, None]


@triton.jit
def as_online_result(highest, total, count):
    nothing = total == 0
    total = tl.where(nothing & (count > 0), float("nan"), total)
    return tl.where(nothing, float("-inf"), highest), total


@triton.jit
def as_first_max(highest, first, x, at, IN_ORDER: tl.constexpr):
    # where x is above all before it, NaN above all numbers; of two that are alike the first
    above = (highest == highest) & ((highest >= x) == 0)
    if not IN_ORDER:
        alike = (highest == x) | ((highest != highest) & (x != x))
        above = above | (alike & (at < first))
    return tl.where(above, x, highest), tl.where(above, at, first)


@triton.jit
def as_first_min(lowest, first, x, at, IN_ORDER: tl.constexpr):
    below = (lowest == lowest) & ((lowest <= x) == 0)
    if not IN_ORDER:
        alike = (lowest == x) | ((lowest != lowest) & (x != x))
        below = below | (alike & (at < first))
    return tl.where(below, x, lowest), tl.where(below, at, first)


@triton.jit
def as_first_total(elements, extreme, first, NONE: tl.constexpr):
    # the first of all that are as the extreme; where no element was past infinity, all are as it
    at = tl.where((elements == extreme) | (elements != elements), first, NONE)
    at = tl.min(at, 1)[:, None]
    return tl.where(at == NONE, 0, at)


@triton.jit
def as_atomic_max(address, x, mask=True):
    # bits of floats are ordered as integers, negative ones from the largest down; the NaN of the
    # largest integer wins, and one of the other sign that was there is put back
    if x.dtype == tl.float64:
        bits, nan = x.to(tl.int64, bitcast=True), tl.full([], 0x7FFFFFFFFFFFFFFF, tl.int64)
        signed = address.to(tl.pointer_type(tl.int64), bitcast=True)
        unsigned = address.to(tl.pointer_type(tl.uint64), bitcast=True)
    else:
        bits, nan = x.to(tl.int32, bitcast=True), tl.full([], 0x7FFFFFFF, tl.int32)
        signed = address.to(tl.pointer_type(tl.int32), bitcast=True)
        unsigned = address.to(tl.pointer_type(tl.uint32), bitcast=True)
    bits = tl.where(x != x, nan, bits)
    above = tl.atomic_max(signed, bits, mask=(bits >= 0) & mask)
    raw = bits.to(unsigned.dtype.element_ty, bitcast=True)
    below = tl.atomic_min(unsigned, raw, mask=(bits < 0) & mask).to(bits.dtype, bitcast=True)
    before = tl.where(bits < 0, below, above).to(x.dtype, bitcast=True)
    tl.atomic_max(signed, bits * 0 + nan, mask=(before != before) & mask)


@triton.jit
def as_atomic_min(address, x, mask=True):
    if x.dtype == tl.float64:
        bits, nan = x.to(tl.int64, bitcast=True), tl.full([], -1, tl.int64)
        signed = address.to(tl.pointer_type(tl.int64), bitcast=True)
        unsigned = address.to(tl.pointer_type(tl.uint64), bitcast=True)
    else:
        bits, nan = x.to(tl.int32, bitcast=True), tl.full([], -1, tl.int32)
        signed = address.to(tl.pointer_type(tl.int32), bitcast=True)
        unsigned = address.to(tl.pointer_type(tl.uint32), bitcast=True)
    bits = tl.where(x != x, nan, bits)
    above = tl.atomic_min(signed, bits, mask=(bits >= 0) & mask)
    raw = bits.to(unsigned.dtype.element_ty, bitcast=True)
    below = tl.atomic_max(unsigned, raw, mask=(bits < 0) & mask).to(bits.dtype, bitcast=True)
    before = tl.where(bits < 0, below, above).to(x.dtype, bitcast=True)
    least = (bits * 0 + nan).to(unsigned.dtype.element_ty, bitcast=True)
    tl.atomic_max(unsigned, least, mask=(before != before) & mask)


@triton.jit
def as_sigmoid(x):
    # a quarter of 1 + exp(-x) is never so large that its reciprocal is flushed to zero
    quarter = tl.fma(tl.exp2(x * -1.4426950408889634), 0.25, 0.25)
    return tl.extra.cuda.libdevice.fast_dividef(1.0, quarter) * 0.25


@triton.jit
def as_gelu_tanh(x, CAPABILITY: tl.constexpr):
    # x sigmoid(2 u) of u = sqrt(2 / pi) (x + 0.044715 x^3), with log2(e) in the factors; where
    # 1 + 2^y is past 2^126 the result is 0, as eager's 1 + tanh(u) is long before
    if x.dtype == tl.float64:
        made = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x)))
    else:
        least = tl.full([], -2.3022081981443250, x.dtype)
        y = x * tl.fma(x * x, tl.full([], -0.10294324112406, x.dtype), least)
        made = x * as_reciprocal(1.0 + tl.exp2(y), CAPABILITY)
    return made


@triton.jit
def as_reciprocal(x, CAPABILITY: tl.constexpr):
    # one instruction: to a bit or two, and 0 past 2^126
    if CAPABILITY:
        made = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        made = 1.0 / x
    return made


@triton.jit
def as_number(x, CAPABILITY: tl.constexpr):
    # an integer of which LLVM does not know that it is a comparison's -1 or 0: it would make a
    # bfloat16 of 1 of that
    made = x
    if CAPABILITY > 0:
        if x.dtype == tl.int64:
            made = tl.inline_asm_elementwise(
                "mov.b64 $0, $1;", "=l,l", [x], dtype=tl.int64, is_pure=True, pack=1,
            )
        else:
            made = tl.inline_asm_elementwise(
                "mov.b32 $0, $1;", "=r,r", [x.to(tl.int32)], dtype=tl.int32, is_pure=True, pack=1,
            )
    return made


@triton.jit
def as_rounded(x, CAPABILITY: tl.constexpr):
    # to bfloat16 and back, two elements an instruction: one alone takes the unit of exp and log
    if CAPABILITY >= 80 and x.numel > 1:
        made = tl.inline_asm_elementwise(
            "{ .reg .b32 both; cvt.rn.bf16x2.f32 both, $3, $2; "
            "shl.b32 $0, both, 16; and.b32 $1, both, 0xffff0000; }",
            "=r,=r,r,r", [x], dtype=tl.float32, is_pure=True, pack=2,
        )
    else:
        made = x.to(tl.bfloat16).to(tl.float32)
    return made


@triton.jit
def as_tanh(x):
    a = tl.abs(x)
    s = x * x
    r = tl.fma(tl.full([], 1.57394409e-2, x.dtype), s, tl.full([], -5.23025580e-2, x.dtype))
    r = tl.fma(r, s, tl.full([], 1.33152470e-1, x.dtype))
    r = tl.fma(r, s, tl.full([], -3.33327681e-1, x.dtype))
    small = tl.fma(r * s, x, x)
    big = 1.0 - tl.fdiv(tl.full([], 2.0, x.dtype), tl.exp(a + a) + 1.0)
    return tl.where(a <= 0.55, small, tl.where(x < 0, -big, big))


@triton.jit
def as_erfp1(x):
    # as erfc(-x), which is 2 to the power of -h or 2 less that: fewer instructions than erf takes,
    # and as exact where erf is near -1 as elsewhere
    if x.dtype == tl.float64:
        made = 1.0 + tl.erf(x)
    else:
        t = tl.abs(x)
        h = tl.fma(tl.full([], 5.92020148e-7, x.dtype), t, tl.full([], -1.35943458e-5, x.dtype))
        h = tl.fma(h, t, tl.full([], 1.32736293e-4, x.dtype))
        h = tl.fma(h, t, tl.full([], -6.96994036e-4, x.dtype))
        h = tl.fma(h, t, tl.full([], 1.85276283e-3, x.dtype))
        h = tl.fma(h, t, tl.full([], 5.20583432e-4, x.dtype))
        h = tl.fma(h, t, tl.full([], -2.81939704e-2, x.dtype))
        h = tl.fma(h, t, tl.full([], 1.48497176e-1, x.dtype))
        h = tl.fma(h, t, tl.full([], 9.18408104e-1, x.dtype))
        h = tl.fma(h, t, tl.full([], 1.62790933, x.dtype))
        e = tl.where(t > 4.4, 0.0, tl.exp2(-(h * t)))
        made = tl.where(x < 0, e, 2.0 - e)
    return made


@triton.jit
def as_expm1(x):
    u = tl.exp(x)
    return tl.where(u == 1.0, x, tl.where(u - 1.0 == -1.0, -1.0, (u - 1.0) * x / tl.log(u)))


@triton.jit
def as_log1p(x):
    u = 1.0 + x
    big = tl.abs(u) == float("inf")
    return tl.where(u == 1.0, x, tl.where(big, tl.log(u), tl.log(u) * x / (u - 1.0)))


@triton.jit
def as_round(x):
    f = tl.floor(x)
    d = x - f
    odd = f - 2.0 * tl.floor(f * 0.5) != 0.0
    made = tl.where((d > 0.5) | ((d == 0.5) & odd), f + 1.0, f)
    return tl.where(made == 0, x * 0.0, made)  # of x's sign


@triton.jit
def as_mod(a, b):
    r = tl.extra.cuda.libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def as_int_divide(a, b):
    safe = tl.where(b == 0, 1, b)
    return tl.where(b == 0, 0, a // safe)


@triton.jit
def as_int_remainder(a, b):
    safe = tl.where(b == 0, 1, b)
    return tl.where(b == 0, 0, a % safe)


@triton.jit
def as_int_floordiv(a, b):
    r = as_int_remainder(a, b)
    return as_int_divide(a, b) - tl.where((r != 0) & ((r < 0) != (b < 0)), 1, 0)


@triton.jit
def as_int_mod(a, b):
    r = as_int_remainder(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def as_int_pow(a, b):
    left = tl.where(b < 0, 0, b)
    r, base = a * 0 + 1, a
    for _ in range(63):
        r = tl.where((left & 1) != 0, r * base, r)
        base = base * base
        left = left >> 1
    below = tl.where(a == 1, 1, tl.where(a + 1 == 0, tl.where((b & 1) == 0, 1, -1), 0))
    return tl.where(b < 0, below, r)


@triton.jit
def as_shl(a, b):
    out = (b < 0) | (b >= a.dtype.primitive_bitwidth)
    return tl.where(out, 0, a << tl.where(out, 0, b))


@triton.jit
def as_shr(a, b):
    out = (b < 0) | (b >= a.dtype.primitive_bitwidth)
    last = tl.where(a < 0, a >> a.dtype.primitive_bitwidth - 1, a ^ a)
    return tl.where(out, last, a >> tl.where(out, 0, b))


@triton.jit
def as_floordiv(a, b):
    m = tl.extra.cuda.libdevice.fmod(a, b)
    d = (a - m) / b
    d = tl.where((m != 0) & ((b < 0) != (m < 0)), d - 1.0, d)
    f = tl.floor(d)
    f = tl.where(d - f > 0.5, f + 1.0, f)
    f = tl.where(d != 0, f, tl.extra.cuda.libdevice.copysign(d * 0.0, a / b))
    return tl.where(b == 0, a / b, f)


@triton.jit
def as_digamma(x):
    a = x.to(tl.float64)
    whole = tl.where(a < 0, tl.ceil(a), tl.floor(a))
    turned = -3.14159265358979323846 / tl.extra.cuda.libdevice.tan(
        3.14159265358979323846 * (a - whole)
    )
    y, r = tl.where(a < 0, 1.0 - a, a), tl.where(a < 0, turned, 0.0)
    for _ in range(10):
        r = tl.where(y < 10.0, r - 1.0 / y, r)
        y = tl.where(y < 10.0, y + 1.0, y)
    z = 1.0 / (y * y)
    p = 4.16666666666666666667e-3 - z * (7.57575757575757575758e-3 - z * (
        2.10927960927960927961e-2 - z * 8.33333333333333333333e-2))
    p = z * (8.33333333333333333333e-2 - z * (8.33333333333333333333e-3 - z * (
        3.96825396825396825397e-3 - z * p)))
    r = r + tl.log(y) - 0.5 / y - p
    pole = (a < 0) & (a == whole)
    r = tl.where(pole, float("nan"), r)
    zero = tl.extra.cuda.libdevice.copysign(tl.full(a.shape, float("inf"), tl.float64), a * -1.0)
    return tl.where(a == 0, zero, r).to(x.dtype)
"""

HEADER = _TEXT.replace("OVERLAPPING", str(OVERLAPPING))
