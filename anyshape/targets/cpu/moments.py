"""Means and squares of a fiber in the order of ATen's kernels, as C that is handed number by
number.

In: nothing. Out: texts of the prelude: of each order the record that it keeps, and functions that
start it, add a number and give a moment; and the tests whether squares near a moment fit into their
type. The record is that of ATen's ``RowwiseMoments`` (``aten/src/ATen/native/cpu/moments_utils.h``,
after Welford, and Chan, Golub and LeVeque): a fiber is read as vectors of ``AS_EAGER_BYTES``,
sixteen of them are a chunk, chunks are joined two by two as a binary counter counts, then the lanes
behind what is left of the fiber. Where means are squared, and by what that is multiplied, decides
what is NaN.
"""

from __future__ import annotations

from anyshape.targets.cpu.few_passes import without_passes

FITS = """
AS_INLINE int as_fits_1_S(T mean) { return __builtin_expect(mean * mean < LIMIT, 1); }
AS_INLINE int as_fits_2_S(T mean, T squares) {
  return __builtin_expect((mean * mean < LIMIT) & (squares < LIMIT), 1);
}
"""
LIMITS = {"f32": "1e37f", "f64": "1e307"}
"""No square of a difference of two partial means is more than 16 times as much."""

JOINED = """
enum { AS_LANES_S = AS_EAGER_BYTES / sizeof(T), AS_CHUNK_S = 16 };
typedef struct {
  i64 at, whole, chunks; int parts, depth, lane, turn;
  T mean[2][AS_LANES_S], squares[2][AS_LANES_S];                        /* of this chunk */
  i64 counts[64]; T means[64][AS_LANES_S], more[64][AS_LANES_S];        /* of those before */
  i64 last; T last_mean, last_squares;                                  /* of what is left */
} as_joined_S, as_joined_halves_S;
static __attribute__((unused)) void as_joined_begin_S(as_joined_S *s, i64 count, int parts) {
  i64 step = AS_LANES_S * parts, chunks = (count / step + AS_CHUNK_S - 1) / AS_CHUNK_S;
  __builtin_memset(s, 0, sizeof *s);
  s->parts = parts; s->whole = count / step * step; s->depth = 1;
  while (((i64)1 << s->depth) < chunks) s->depth++;
}
AS_INLINE void as_joined_start_S(as_joined_S *s, i64 count) { as_joined_begin_S(s, count, 1); }
AS_INLINE void as_joined_halves_start_S(as_joined_S *s, i64 count) {
  as_joined_begin_S(s, count, 2);
}
static __attribute__((unused))
    void as_joined_into_S(as_joined_S *s, int k, i64 added, const T *mean, const T *squares) {
  i64 count = s->counts[k] + added;
  T share = count ? (T)added / (T)count : 0;
  for (int l = 0; l < AS_LANES_S; l++) {
    T gap = mean[l] - s->means[k][l];
    s->means[k][l] += share * gap;
    s->more[k][l] = FMA(gap * (T)s->counts[k], share * gap, s->more[k][l] + squares[l]);
  }
  s->counts[k] = count;
}
static __attribute__((unused)) void as_joined_level_S(as_joined_S *s, int from, int to) {
  as_joined_into_S(s, to, s->counts[from], s->means[from], s->more[from]);
  s->counts[from] = 0;
  for (int l = 0; l < AS_LANES_S; l++) s->means[from][l] = s->more[from][l] = 0;
}
static __attribute__((unused)) void as_joined_chunk_S(as_joined_S *s, i64 count) {
  for (int p = 0; p < s->parts; p++) as_joined_into_S(s, 0, count, s->mean[p], s->squares[p]);
  for (int l = 0; l < AS_LANES_S; l++) for (int p = 0; p < 2; p++)
    s->mean[p][l] = s->squares[p][l] = 0;
  i64 bits = ++s->chunks;
  for (int k = 1; k < s->depth && !(bits & 1); k++, bits >>= 1) as_joined_level_S(s, k - 1, k);
}
static __attribute__((unused)) void as_joined_add_S(as_joined_S *s, T x) {
  if (s->at >= s->whole) {
    T gap = x - s->last_mean;
    s->last_mean += gap / (T)++s->last;
    s->last_squares += gap * (x - s->last_mean);
    return;
  }
  T *mean = s->mean[0] + s->lane, *squares = s->squares[0] + s->lane, gap = x - *mean;
  *mean = FMA(gap, 1 / (T)(s->turn + 1), *mean);
  *squares = FMA(gap, x - *mean, *squares);
  s->at++;
  if (++s->lane < AS_LANES_S * s->parts) return;
  s->lane = 0;
  if (++s->turn < AS_CHUNK_S && s->at < s->whole) return;
  as_joined_chunk_S(s, s->turn);
  s->turn = 0;
}
AS_INLINE void as_joined_halves_add_S(as_joined_S *s, T x) { as_joined_add_S(s, x); }
static __attribute__((unused)) void as_joined_end_S(as_joined_S *s) {
  for (int k = 1; k < s->depth; k++) as_joined_level_S(s, k, 0);
  i64 added = s->whole / AS_LANES_S;
  for (int l = 0; l < AS_LANES_S; l++) {
    i64 count = s->last + added;
    T share = count ? (T)added / (T)count : 0, gap = s->means[0][l] - s->last_mean;
    s->last_mean += share * gap;
    s->last_squares += s->more[0][l] + gap * gap * share * (T)s->last;
    s->last = count;
  }
}
AS_INLINE T as_joined_mean_S(as_joined_S *s) { as_joined_end_S(s); return s->last_mean; }
AS_INLINE T as_joined_squares_S(as_joined_S *s) { as_joined_end_S(s); return s->last_squares; }
AS_INLINE T as_joined_halves_mean_S(as_joined_S *s) { return as_joined_mean_S(s); }
AS_INLINE T as_joined_halves_squares_S(as_joined_S *s) { return as_joined_squares_S(s); }
"""

RAW = """
enum { AS_RAW_LANES_S = AS_EAGER_BYTES / sizeof(T) };
typedef struct { i64 at, count; T sums[AS_RAW_LANES_S], squares[AS_RAW_LANES_S]; } as_raw_S;
AS_INLINE void as_raw_start_S(as_raw_S *s, i64 count) {
  __builtin_memset(s, 0, sizeof *s); s->count = count;
}
AS_INLINE void as_raw_add_S(as_raw_S *s, T x) {
  i64 lane = s->at++ % AS_RAW_LANES_S;
  s->sums[lane] += x; s->squares[lane] += x * x;
}
AS_INLINE T as_raw_total_S(const T *sums) {
  T total = 0;
  for (int l = 0; l < AS_RAW_LANES_S; l++) total += sums[l];
  return total;
}
AS_INLINE T as_raw_mean_S(as_raw_S *s) { return as_raw_total_S(s->sums) / (T)s->count; }
AS_INLINE T as_raw_squares_S(as_raw_S *s) {
  T mean = as_raw_mean_S(s), v = as_raw_total_S(s->squares) / (T)s->count - mean * mean;
  return (v < 0 ? 0 : v) * (T)s->count;
}
"""

ONE_BY_ONE = """
typedef struct { W sum; i64 count; } as_ORDER_S;
AS_INLINE void as_ORDER_start_S(as_ORDER_S *s, i64 count) { s->sum = 0; s->count = count; }
AS_INLINE void as_ORDER_add_S(as_ORDER_S *s, T x) { s->sum += x; }
AS_INLINE T as_ORDER_mean_S(as_ORDER_S *s) { return s->sum / s->count; }
"""


def _of_kind(text: str, kind: str) -> str:
    text = text.replace("_S", f"_{kind}").replace("LIMIT", LIMITS[kind])
    text = text.replace("FMA(", f"__builtin_fma{'f' if kind == 'f32' else ''}(")
    return text.replace("T ", f"{kind} ").replace("(T)", f"({kind})")


ORDERS = (
    JOINED,
    RAW,
    ONE_BY_ONE.replace("ORDER", "double").replace("W ", "f64 "),
    ONE_BY_ONE.replace("ORDER", "single").replace("W ", "T "),
)
MOMENTS = [
    *(_of_kind(FITS, kind) for kind in LIMITS),
    *(without_passes(_of_kind(text, kind)) for text in ORDERS for kind in LIMITS),
]
"""Tests of each fiber, and what is done to the few fibers that fail them."""
