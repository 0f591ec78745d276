"""What generated C files start with: types, conversions, and scalar functions that vectorise.

In: the text of kernels. Out: the parts that it has names of, as a compiler reads all it is given.
Plain C without headers. float32 functions are polynomials that any compiler vectorises (errors near
one unit in the last place, see tests/codegen/test_scalar.py); the rest is the C library's
(vector_library.py). Sources: Cephes (exp, log), N. Juffa (erf, tanh); erfp1 is a least-squares fit
(reweighted until errors are even) of log2(erfc) on 0 to 4.4.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from anyshape.nouns import frozen
from anyshape.targets.cpu.moments import MOMENTS
from anyshape.targets.cpu.vector_library import texts_of_functions

TYPES = """
#if defined(__AVX512F__) && !defined(AS_WIDE) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512") /* by a flag it takes gcc less: build.py */
#endif
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
    typedef unsigned long long u64;
typedef float f32; typedef double f64;
/* An element of a tensor, which may lie at any address: memory of a file, of a bytearray. */
#define AS_UNALIGNED(T) typedef T T##_u __attribute__((aligned(1)));
AS_UNALIGNED(i8) AS_UNALIGNED(i16) AS_UNALIGNED(i32) AS_UNALIGNED(i64) AS_UNALIGNED(u8)
AS_UNALIGNED(u16) AS_UNALIGNED(u32) AS_UNALIGNED(u64) AS_UNALIGNED(f32) AS_UNALIGNED(f64)
#define AS_INLINE static inline __attribute__((always_inline, unused))
#ifdef __FMA__
#define AS_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define AS_FMA(a, b, c) ((a) * (b) + (c))
#endif
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define AS_MASKS /* of vectors: what is left of a fiber is one vector */
#endif
#define AS_IS_MINUS_ONE(T, b) ((T)-1 < 0 && (b) == (T)-1)
void *malloc(unsigned long), *aligned_alloc(unsigned long, unsigned long); void free(void *);
int omp_get_num_threads(void), omp_get_thread_num(void), omp_get_max_threads(void);
AS_INLINE u32 as_bits(f32 x) { union { f32 f; u32 u; } c; c.f = x; return c.u; }
AS_INLINE f32 as_float(u32 x) { union { f32 f; u32 u; } c; c.u = x; return c.f; }
AS_INLINE u64 as_bits64(f64 x) { union { f64 f; u64 u; } c; c.f = x; return c.u; }
"""

HALVES = """
AS_INLINE f32 as_load_bf16(u16 x) { return as_float((u32)x << 16); }
AS_INLINE f32 as_round_bf16(f32 x) {
  u32 b = as_bits(x), r = (b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u;
  return as_float(x != x ? 0x7fc00000u | (b & 0x80000000u) : r);
}
AS_INLINE u16 as_store_bf16(f32 x) { return (u16)(as_bits(x) >> 16); }
AS_INLINE f32 as_load_f16(u16 x) {
  u32 h = x, s = (h & 0x8000u) << 16, m = (h & 0x7fffu) << 13;
  f32 tiny = as_float(m + 0x38800000u) - 0x1p-14f; /* no f32 denormals, which take a trap each */
  u32 norm = m + (m >= 0x0f800000u ? 0x70000000u : 0x38000000u);
  return as_float(s | (m < 0x00800000u ? as_bits(tiny) : norm));
}
AS_INLINE u32 as_f16_bits(f32 x) {
  u32 b = as_bits(x), s = b & 0x80000000u, a = b ^ s;
  u32 tiny = as_bits(as_float(a) + 0.5f) - 0x3f000000u;
  u32 norm = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
  u32 huge = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (s >> 16) | (a >= 0x47800000u ? huge : a < 0x38800000u ? tiny : norm);
}
AS_INLINE f32 as_round_f16(f32 x) {
  u32 b = as_bits(x), s = b & 0x80000000u, a = b ^ s, e = b & 0x7f800000u;
  e = e > 0x38800000u ? e : 0x38800000u;
  f32 c = as_float(e + 0x06800000u); /* its last place is that of x in f16 */
  f32 r = (as_float(a) + c) - c;
  return as_float(s | (as_float(a) >= 65520.0f ? 0x7f800000u : as_bits(r)));
}
AS_INLINE u16 as_store_f16(f32 x) { return (u16)as_f16_bits(x); }
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__GNUC__) && !defined(__clang__)
typedef f32 as_f32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef i16 as_i16x16 __attribute__((vector_size(32)));
#define AS_SOME(left) ((left) >= 16 ? 0xffffu : (left) <= 0 ? 0u : (1u << (left)) - 1u)
AS_INLINE void as_load16_f16(const u16_u *p, int left, f32 *w) {
  as_i16x16 h = __builtin_ia32_loaddquhi256_mask((i16 *)p, (as_i16x16){}, AS_SOME(left));
  *(as_f32x16 *)w = __builtin_ia32_vcvtph2ps512_mask(h, (as_f32x16){}, 0xffff, 4);
}
AS_INLINE void as_store16_f16(const f32 *w, int left, u16_u *p) {
  as_f32x16 v = *(const as_f32x16 *)w;
  as_i16x16 h = __builtin_ia32_vcvtps2ph512_mask(v, 4, (as_i16x16){}, 0xffff);
  __builtin_ia32_storedquhi256_mask((i16 *)p, h, AS_SOME(left));
}
typedef u16 as_u16x16 __attribute__((vector_size(32)));
typedef u32 as_u32x16 __attribute__((vector_size(64)));
AS_INLINE void as_load16_bf16(const u16_u *p, int left, f32 *w) {
  as_i16x16 h = __builtin_ia32_loaddquhi256_mask((i16 *)p, (as_i16x16){}, AS_SOME(left));
  *(as_f32x16 *)w = (as_f32x16)(__builtin_convertvector((as_u16x16)h, as_u32x16) << 16);
}
AS_INLINE void as_store16_bf16(const f32 *w, int left, u16_u *p) {
  as_u32x16 v = (as_u32x16) * (const as_f32x16 *)w >> 16;
  as_i16x16 h = (as_i16x16)__builtin_convertvector(v, as_u16x16);
  __builtin_ia32_storedquhi256_mask((i16 *)p, h, AS_SOME(left));
}
#else
AS_INLINE void as_load16_bf16(const u16_u *p, int left, f32 *w) {
  for (int l = 0; l < 16; l++) w[l] = l < left ? as_load_bf16(p[l]) : 0.0f;
}
AS_INLINE void as_store16_bf16(const f32 *w, int left, u16_u *p) {
  for (int l = 0; l < 16 && l < left; l++) p[l] = as_store_bf16(w[l]);
}
AS_INLINE void as_load16_f16(const u16_u *p, int left, f32 *w) {
  for (int l = 0; l < 16; l++) w[l] = l < left ? as_load_f16(p[l]) : 0.0f;
}
AS_INLINE void as_store16_f16(const f32 *w, int left, u16_u *p) {
  for (int l = 0; l < 16 && l < left; l++) p[l] = as_store_f16(w[l]);
}
#endif
"""

FLOATS = """
AS_INLINE f32 as_exp_f32(f32 x) {
  f32 c = x > 89.0f ? 89.0f : x; c = x < -104.0f ? 0.0f : c; /* no denormals on the way to 0 */
  f32 t = AS_FMA(c, 1.44269504f, 12583166.0f); /* its low bits are the exponent plus 254 */
  f32 n = t - 12583166.0f;
  f32 r = AS_FMA(n, -0.693145752f, c); r = AS_FMA(n, -1.42860677e-6f, r);
  f32 p = 0.0013814584f;
  p = AS_FMA(p, r, 0.008368724f); p = AS_FMA(p, r, 0.04166839f);
  p = AS_FMA(p, r, 0.16666521f); p = AS_FMA(p, r, 0.49999994f); p = AS_FMA(p, r, 1.0f);
  p = AS_FMA(p, r, 1.0f);
  u32 k = as_bits(t), h = k >> 1;
  f32 e = p * as_float(h << 23) * as_float((k - h) << 23);
  return x < -104.0f ? 0.0f : e;
}

AS_INLINE f64 as_exp_f64(f64 x) { return exp(x); }

AS_INLINE f32 as_log_f32(f32 x) {
  f32 y = x < 1.17549435e-38f ? x * 8388608.0f : x;
  i32 b = (i32)as_bits(y), e = (b - 0x3f2aaaab) & (i32)0xff800000;
  f32 m = as_float((u32)(b - e)) - 1.0f;
  f32 i = (f32)e * 1.19209290e-7f + (x < 1.17549435e-38f ? -23.0f : 0.0f);
  f32 s = m * m;
  f32 r = -0.130310059f, t = 0.140869141f;
  r = AS_FMA(r, s, -0.121483512f); t = AS_FMA(t, s, 0.139814854f);
  r = AS_FMA(r, s, -0.166846126f); t = AS_FMA(t, s, 0.200120345f);
  r = AS_FMA(r, s, -0.249996200f);
  r = AS_FMA(t, m, r); r = AS_FMA(r, m, 0.333331972f); r = AS_FMA(r, m, -0.500000000f);
  r = AS_FMA(r, s, m); r = AS_FMA(i, 0.693147182f, r);
  f32 special = x == 0.0f ? -__builtin_inff() : x > 0.0f ? x : __builtin_nanf("");
  return x > 0.0f && x < __builtin_inff() ? r : special;
}

AS_INLINE f64 as_log_f64(f64 x) { return log(x); }

#ifdef AS_VECTOR_LIBRARY
AS_INLINE f32 as_tanh_f32(f32 x) { return tanhf(x); }
#else
AS_INLINE f32 as_tanh_f32(f32 x) {
  f32 a = __builtin_fabsf(x), s = x * x;
  f32 e = as_exp_f32(a + a), big = __builtin_copysignf(1.0f - 2.0f / (e + 1.0f), x);
  f32 r = 1.57394409e-2f;
  r = AS_FMA(r, s, -5.23025580e-2f); r = AS_FMA(r, s, 1.33152470e-1f);
      r = AS_FMA(r, s, -3.33327681e-1f);
  r = AS_FMA(r * s, x, x);
  return a <= 0.55f ? __builtin_copysignf(r, x) : big; /* -0 too */
}
#endif

AS_INLINE f64 as_tanh_f64(f64 x) { return tanh(x); }

AS_INLINE f32 as_erf_f32(f32 x) {
  f32 t = __builtin_fabsf(x), s = x * x;
  f32 r = AS_FMA(-1.72853470e-5f, t, 3.83197126e-4f);
  f32 u = AS_FMA(-3.88396438e-3f, t, 2.42546219e-2f);
  r = AS_FMA(r, s, u); r = AS_FMA(r, t, -1.06777877e-1f); r = AS_FMA(r, t, -6.34846687e-1f);
  r = AS_FMA(r, t, -1.28717512e-1f); r = AS_FMA(r, t, -t);
  f32 big = __builtin_copysignf(1.0f - as_exp_f32(r), x);
  big = t > 4.0f ? __builtin_copysignf(1.0f, x) : big;
  f32 p = -5.96761703e-4f;
  p = AS_FMA(p, s, 4.99119423e-3f); p = AS_FMA(p, s, -2.67681349e-2f);
      p = AS_FMA(p, s, 1.12819925e-1f);
  p = AS_FMA(p, s, -3.76125336e-1f); p = AS_FMA(p, s, 1.28379166e-1f); p = AS_FMA(p, x, x);
  return x != x ? x : t > 0.927734375f ? big : p;
}

AS_INLINE f64 as_erf_f64(f64 x) { return erf(x); }

AS_INLINE f32 as_erfp1_f32(f32 x) { /* as erfc(-x), which is 2 to the power of -h or 2 less that */
  f32 t = __builtin_fabsf(x), h = 5.92020148e-07f;
  h = AS_FMA(h, t, -1.35943458e-05f); h = AS_FMA(h, t, 0.000132736293f);
  h = AS_FMA(h, t, -0.000696994036f); h = AS_FMA(h, t, 0.00185276283f);
  h = AS_FMA(h, t, 0.000520583432f); h = AS_FMA(h, t, -0.0281939704f);
  h = AS_FMA(h, t, 0.148497176f); h = AS_FMA(h, t, 0.918408104f); h = AS_FMA(h, t, 1.62790933f);
  h = h * t;
  f32 k = 12582912.0f - h, r = -h - (k - 12582912.0f), p = 0.000153533619f;
  p = AS_FMA(p, r, 0.00133988744f); p = AS_FMA(p, r, 0.00961843736f);
  p = AS_FMA(p, r, 0.0555033247f); p = AS_FMA(p, r, 0.240226479f);
  p = AS_FMA(p, r, 0.693147203f); p = AS_FMA(p, r, 1.0f);
  f32 e = p * as_float((as_bits(k) + 127u) << 23);
  e = t > 4.4f ? 0.0f : e;
  return x < 0.0f ? e : 2.0f - e;
}

AS_INLINE f64 as_erfp1_f64(f64 x) { return 1.0 + erf(x); }

AS_INLINE f32 as_sigmoid_f32(f32 x) { return 1.0f / (1.0f + as_exp_f32(-x)); }

AS_INLINE f64 as_sigmoid_f64(f64 x) { return 1.0 / (1.0 + exp(-x)); }

/* (1 + tanh(u)) / 2 is sigmoid(2 u), and exact where u is far below 0 */
AS_INLINE f32 as_gelu_tanh_f32(f32 x) {
  return x * as_sigmoid_f32(1.5957691216057308f * (x + 0.044715f * (x * x * x)));
}

AS_INLINE f64 as_gelu_tanh_f64(f64 x) {
  return x * as_sigmoid_f64(1.5957691216057308 * (x + 0.044715 * (x * x * x)));
}

AS_INLINE i32 as_signbit_f32(f32 x) { return as_bits(x) >> 31; }

AS_INLINE i32 as_signbit_f64(f64 x) { return (i32)(as_bits64(x) >> 63); }

AS_INLINE f64 as_erfinv_f64(f64 y) {
  f64 a = __builtin_fabs(y);
  if (a >= 1.0) return a == 1.0 ? __builtin_copysign(__builtin_inf(), y) : __builtin_nan("");
  f64 x;
  if (a <= 0.7) {
    f64 z = y * y;
    x = y * (((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899)
      / ((((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1.0);
  } else {
    f64 z = __builtin_sqrt(-log((1.0 - a) / 2.0));
    x = __builtin_copysign(((1.641345311 * z + 3.429567803) * z - 1.62490649) * z - 1.970840454, y)
      / ((1.6370678 * z + 3.5438892) * z + 1.0);
  }
  x -= (erf(x) - y) / (1.1283791670955126 * exp(-x * x));
  x -= (erf(x) - y) / (1.1283791670955126 * exp(-x * x));
  return y != y ? y : x;
}

AS_INLINE f32 as_erfinv_f32(f32 y) { return (f32)as_erfinv_f64(y); }

static __attribute__((unused)) f64 as_digamma_f64(f64 x) {
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  f64 shift = 0.0;
  if (x < 0) {
    if (x == __builtin_trunc(x)) return __builtin_nan("");
    f64 q = x - __builtin_trunc(x);
    shift = -3.14159265358979323846 / tan(3.14159265358979323846 * q);
    x = 1 - x;
  }
  f64 r = 0;
  while (x < 10) { r -= 1 / x; x += 1; }
  if (x == 10) return r + 2.25175258906672110764 + shift;
  f64 y = 0;
  if (x < 1.0e17) {
    f64 z = 1.0 / (x * x);
    y = z * (8.33333333333333333333e-2 - z * (8.33333333333333333333e-3 -
        z * (3.96825396825396825397e-3
      - z * (4.16666666666666666667e-3 - z * (7.57575757575757575758e-3 -
          z * (2.10927960927960927961e-2
      - z * 8.33333333333333333333e-2))))));
  }
  return r + log(x) - 0.5 / x - y + shift;
}

AS_INLINE f32 as_digamma_f32(f32 x) { return (f32)as_digamma_f64(x); }
"""

FLOAT_OPERATORS = """
AS_INLINE T as_max_S(T a, T b) { T m = a > b ? a : b; return a != a ? a : m; }
AS_INLINE T as_min_S(T a, T b) { T m = a < b ? a : b; return a != a ? a : m; }
AS_INLINE T as_fmax_S(T a, T b) { return a > b || b != b ? a : b; }
AS_INLINE T as_fmin_S(T a, T b) { return a < b || b != b ? a : b; }
AS_INLINE T as_mod_S(T a, T b) { T m = fmodF(a, b); return m != 0 && ((b < 0) != (m < 0)) ?
    m + b : m; }
AS_INLINE T as_floordiv_S(T a, T b) {
  T m = fmodF(a, b), d = (a - m) / b;
  d = m != 0 && ((b < 0) != (m < 0)) ? d - 1 : d;
  T f = __builtin_floorF(d); f = d - f > (T)0.5 ? f + 1 : f;
  f = d != 0 ? f : __builtin_copysignF((T)0, a / b);
  return b == 0 ? a / b : f;
}
"""

INTEGER_OPERATORS = """
AS_INLINE T as_div_S(T a, T b) { return b == 0 ? 0 : AS_IS_MINUS_ONE(T, b) ? (T)(0 - (UNSIGNED)a)
    : a / b; }
AS_INLINE T as_rem_S(T a, T b) { return b == 0 || AS_IS_MINUS_ONE(T, b) ? 0 : a % b; }
AS_INLINE T as_floordiv_S(T a, T b) {
  T q = as_div_S(a, b), r = as_rem_S(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? q - 1 : q;
}
AS_INLINE T as_mod_S(T a, T b) { T r = as_rem_S(a, b); return r != 0 && ((r < 0) != (b < 0)) ?
    r + b : r; }
AS_INLINE T as_pow_S(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == (T)-1 ? (b % 2 ? -1 : 1) : 0;
  T r = 1;
  for (; b; b >>= 1, a = (T)((UNSIGNED)a * (UNSIGNED)a)) r = b & 1 ?
      (T)((UNSIGNED)r * (UNSIGNED)a) : r;
  return r;
}
AS_INLINE T as_shl_S(T a, T b) { return (u64)b >= 8 * sizeof(T) ? 0 : (T)((UNSIGNED)a << b); }
AS_INLINE T as_shr_S(T a, T b) { return (u64)b < 8 * sizeof(T) ? a >> b : a < 0 ? -1 : 0; }
"""

_CAST = """AS_INLINE {i} as_{name}_{f}({f} x) {{
  {i} whole = x >= -0x1p{bits}{s} && x < 0x1p{bits}{s} ? ({i})x : ({i})(1{u} << {bits});
  return x > -1.0{s} && x < 1.0{s} ? 0 : whole;
}}
"""
_INTEGERS = (("i64", "int", 63, "ull"), ("i32", "int32", 31, "u"))
_FLOATS = (("f64", ""), ("f32", "f"))
CASTS = """
/* 0 where the integer is 0: gcc makes (f32)(i32)x a truncation, of which some are -0 */
""" + "".join(
    _CAST.format(i=i, name=name, bits=bits, u=u, f=f, s=s)
    for i, name, bits, u in _INTEGERS
    for f, s in _FLOATS
)

TURN = """
typedef S as_any_S __attribute__((aligned(1), may_alias));
static __attribute__((unused, noinline, noipa))
    void as_turn_S(const as_any_S *p, i64 step, i64 ts, i64 ls, as_any_S *w) {
  i64 t = 0, l = 0;
#if defined(__GNUC__) && !defined(__clang__)
  enum { N = AS_ROWS_S };
  typedef S V __attribute__((vector_size(N * sizeof(S)), aligned(1), may_alias));
  const V low = AS_LOW_S, high = AS_HIGH_S;
  t = ts / N * N; l = ls / N * N;
  for (i64 j = 0; j < l; j += N) for (i64 i = 0; i < t; i += N) {
    V a[N], b[N];
    for (int k = 0; k < N; k++) a[k] = *(const V *)(p + (j + k) * step + i);
    for (int s = 1; s < N; s *= 2) {
      for (int k = 0; k < N / 2; k++) {
        b[2 * k] = __builtin_shuffle(a[k], a[k + N / 2], low);
        b[2 * k + 1] = __builtin_shuffle(a[k], a[k + N / 2], high);
      }
      for (int k = 0; k < N; k++) a[k] = b[k];
    }
    for (int k = 0; k < N; k++) *(V *)(w + (i + k) * 64 + j) = a[k];
  }
#endif
  /* What is left of whole squares, each part along its longer side. */
  for (i64 j = l; j < ls; j++) for (i64 i = 0; i < ts; i++) w[i * 64 + j] = p[j * step + i];
  for (i64 i = t; i < ts; i++) for (i64 j = 0; j < l; j++) w[i * 64 + j] = p[j * step + i];
}
"""

VECTORS = {"#if defined(__AVX512F__)": 64, "#elif defined(__AVX2__)": 32, "#else": 16}
"""Bytes of the processor's vectors."""
MOST_TURNED = 16
"""Lines of a tile that are turned at a time, at most."""

JOIN = """
AS_INLINE T as_join_NAME_T_LANES(T *b) {
#if defined(__GNUC__) && !defined(__clang__)
  HALVES
  return v0[0];
#else
  for (int h = LANES / 2; h; h /= 2) for (int l = 0; l < h; l++) {
    T v = b[l], w = b[l + h];
    b[l] = SCALARS;
  }
  return b[0];
#endif
}
"""

TRUTHS = """
AS_INLINE _Bool as_join_any(const _Bool *b, int count) { /* eight at a time */
  u64 joined = 0, truths;
  for (int l = 0; l < count; l += 8) { __builtin_memcpy(&truths, b + l, 8); joined |= truths; }
  return joined != 0;
}
AS_INLINE _Bool as_join_all(const _Bool *b, int count) {
  u64 joined = 0x0101010101010101ull, truths;
  for (int l = 0; l < count; l += 8) { __builtin_memcpy(&truths, b + l, 8); joined &= truths; }
  return joined == 0x0101010101010101ull;
}
"""

JOINS = {
    "sum": ("v += w", "v + w"),
    "prod": ("v *= w", "v * w"),
    "max": (
        "m = (v > w) | (v != v); v = (V)((m & (M)v) | (~m & (M)w))",
        "v > w || v != v ? v : w",
    ),
    "min": (
        "m = (v < w) | (v != v); v = (V)((m & (M)v) | (~m & (M)w))",
        "v < w || v != v ? v : w",
    ),
}
"""How accumulators are combined: as vectors, one by one. NaN stays."""
JOIN_LANES = {"f32": (16, 64), "i32": (16, 64), "f64": (8, 64), "i64": (8, 64)}
"""Accumulators of each type that there are helpers for: 64 bytes, and those of a cheap total."""

UNSIGNED = {"u8": "u32", "i8": "u32", "i16": "u32", "i32": "u32", "i64": "u64"}
"""The type in which a product of each integer type wraps."""


@frozen
class Part:
    """A part, and the names that it gives to what stands behind it; without names it always
    stands there."""

    text: str
    names: tuple[str, ...] = ()


NAMES = re.compile(r"\b(?:as|AS|anyshape)_\w+")
NAMES_OF_THE_LIBRARY = texts_of_functions()
"""What a text calls that needs each of these texts."""


def texts(*further: str) -> tuple[str, ...]:
    """Those of all parts, in order: the types, what kernels need, then the further ones."""
    return (TYPES, *_texts(), *further)


@functools.cache
def parts(given: Sequence[str]) -> tuple[Part, ...]:
    """A name belongs to the first part that has it. Asked for only where something is compiled."""
    found: list[Part] = []
    known: set[str] = set()
    for text in given:
        names = NAMES.findall(text)
        names += NAMES_OF_THE_LIBRARY.get(text, ())
        first = dict.fromkeys(name for name in names if name not in known)
        found.append(Part(text, () if text is TYPES else tuple(first)))
        known.update(names)
    return tuple(found)


def standing_before(text: str, given: Sequence[str]) -> str:
    """Of the texts given, in order, those that the text needs, and that these need in turn."""
    needed: list[str] = []
    for part in reversed(parts(given)):
        if not part.names or any(name in text for name in part.names):
            needed.append(part.text)
            text += part.text
    return "\n".join(reversed(needed))


def _texts() -> list[str]:
    """What stands behind the types, in order."""
    floats = [
        FLOAT_OPERATORS.replace("S(", f"{suffix}(").replace("T ", f"{suffix} ")
        .replace("(T)", f"({suffix})").replace("F(", f"{letter}(")
        for suffix, letter in (("f32", "f"), ("f64", ""))
    ]  # fmt: skip
    integers = [
        INTEGER_OPERATORS.replace("UNSIGNED", unsigned).replace("S(", f"{name}(")
        .replace("T ", f"{name} ").replace("(T)", f"({name})").replace("ONE(T,", f"ONE({name},")
        for name, unsigned in UNSIGNED.items()
    ]  # fmt: skip
    turns = [_turn(size) for size in (1, 2, 4, 8)]
    joins = [
        _join(name, kind, count)
        for name in JOINS
        for kind in JOIN_LANES
        for count in JOIN_LANES[kind]
    ]
    return [
        HALVES,
        *NAMES_OF_THE_LIBRARY,
        *FLOATS.split("\n\n"),
        *floats,
        *integers,
        CASTS,
        *turns,
        TRUTHS,
        *joins,
        *MOMENTS,
    ]


def _join(name: str, kind: str, lanes: int) -> str:
    """Accumulators combined into a number, half of them with the other half."""
    vectors, scalars = JOINS[name]
    text = "".join(
        f"{condition}\n{_halves(kind, lanes, size, vectors)}\n"
        for condition, size in VECTORS.items()
    )
    text = JOIN.replace("HALVES", f"{text}#endif").replace("SCALARS", scalars)
    text = text.replace("NAME", name).replace("LANES", str(lanes))
    return text.replace("_T_", f"_{kind}_").replace("T ", f"{kind} ").replace("(T)", f"({kind})")


def _halves(kind: str, lanes: int, size: int, combined: str) -> str:
    """The same in vectors of ``size`` bytes, each step written out: to unroll it takes GCC a
    twentieth of its time."""
    word, width = ("i32", size // 4) if kind.endswith("32") else ("i64", size // 8)
    lies = f"vector_size({size}), aligned(sizeof({kind})), may_alias"
    lines = [
        f"typedef {kind} V __attribute__(({lies})); V w;",
        f"typedef {word} M __attribute__((vector_size({size}))); M m;",
    ]
    half = lanes // width
    lines += [f"V v{n} = *(const V *)(b + {n * width});" for n in range(half)]
    while half := half // 2:
        lines += [_combined(combined, f"v{n}", f"v{n + half}") for n in range(half)]
    half = width
    while half := half // 2:
        order = ", ".join(str(n ^ half) for n in range(width))
        lines.append(f"w = __builtin_shuffle(v0, (M){{{order}}});")
        lines.append(_combined(combined, "v0", "w"))
    return "\n  ".join(lines)


def _combined(text: str, v: str, w: str) -> str:
    return re.sub(r"\b[vw]\b", lambda found: v if found[0] == "v" else w, text) + ";"


def _turn(size: int) -> str:
    """Transposition of tiles of words of so many bytes, some rows at a time, by interleaving
    halves. A vector is no longer than the processor's: GCC takes longer ones apart."""
    word, text = f"u{8 * size}", ""
    for condition, longest in VECTORS.items():
        count = min(MOST_TURNED, longest // size)
        low = ", ".join(f"{n // 2 + count * (n % 2)}" for n in range(count))
        high = ", ".join(f"{count // 2 + n // 2 + count * (n % 2)}" for n in range(count))
        text += f"{condition}\n#define AS_ROWS_S {count}\n"
        text += f"#define AS_LOW_S {{{low}}}\n#define AS_HIGH_S {{{high}}}\n"
    return re.sub(r"\bS\b|(?<=_)S\b|\bS(?=_u\b)", word, f"{text}#endif{TURN}")
