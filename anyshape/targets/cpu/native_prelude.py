"""What every native region stands on, in C: BLAS, handles on torch's tensors, and the one function
that runs a region as its plan says.

Functions of torch's library are reached through pointers that the native region's table holds;
their stable C interface is torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h.
"""

from __future__ import annotations

from anyshape.targets.cpu.few_passes import with_few_passes, without_passes
from anyshape.targets.cpu.region_steps import STEPS

_STEPS = (
    """
static long anyshape_largest(long count, const long *sizes)
{
    long largest = sizes[0];
    for (long i = 1; i < count; i++) largest = sizes[i] > largest ? sizes[i] : largest;
    return largest;
}
""",
    """
/* One step: its operands are the slots `a` of `v`, the sizes `n` and the scalars `f`. */
typedef long anyshape_part(void **v, const long *a, const long *n, const double *f);

/* Runs a native region, or the body of a loop: see RUN_REGION. */
typedef long anyshape_run(const void *plan, void **table, char **base, long *n, const double *f);
""",
    """
static unsigned long anyshape_bits(double number)
{
    unsigned long bits;
    __builtin_memcpy(&bits, &number, 8);
    return bits;
}
""",
    """
typedef void gemm_f(const char *, const char *, const int *, const int *, const int *,
                    const void *, const void *, const int *, const void *, const int *,
                    const void *, void *, const int *);

/* A copy of rows that overlap in memory, each behind the other. */
static void *anyshape_apart(const char *rows, long count, long bytes, long step)
{
    char *copy = malloc(count * bytes);
    for (long i = 0; copy && i < count; i++)
        __builtin_memcpy(copy + i * bytes, rows + i * step, bytes);
    return copy;
}
""",
    """
/* Row-major c[m, n] = a[m, k] b[k, n] + beta c, by a column-major BLAS, which takes no rows that
   overlap; of a single row, the stride is any number. */
static long anyshape_gemm(void *gemm, int is_double, int a_transposed, int b_transposed,
                          long m, long n, long k, const void *a, long lda, const void *b, long ldb,
                          void *c, double beta)
{
    if ((m | n | k | lda | ldb) >> 31) return 1;
    int m_ = (int)m, n_ = (int)n, k_ = (int)k, ldc = n > 1 ? (int)n : 1;
    long least_a = a_transposed ? m : k, least_b = b_transposed ? k : n;
    long rows_a = a_transposed ? k : m, rows_b = b_transposed ? n : k, width = is_double ? 8 : 4;
    void *apart_a = 0, *apart_b = 0;
    if (m == 0 || n == 0) return 0;
    if (lda < least_a && rows_a > 1) {
        if (!(apart_a = anyshape_apart(a, rows_a, least_a * width, lda * width))) return 1;
        a = apart_a;
    }
    if (ldb < least_b && rows_b > 1) {
        apart_b = anyshape_apart(b, rows_b, least_b * width, ldb * width);
        if (!apart_b) return free(apart_a), 1;
        b = apart_b;
    }
    int lda_ = (int)(lda > least_a ? lda : least_a), ldb_ = (int)(ldb > least_b ? ldb : least_b);
    float one = 1.0f, beta_ = (float)beta;
    double one_double = 1.0;
    if (lda_ < 1) lda_ = 1;
    if (ldb_ < 1) ldb_ = 1;
    ((gemm_f *)gemm)(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &n_, &m_, &k_,
                     is_double ? (void *)&one_double : (void *)&one, b, &ldb_, a, &lda_,
                     is_double ? (void *)&beta : (void *)&beta_, c, &ldc);
    free(apart_a);
    free(apart_b);
    return 0;
}
""",
)
_CALLS = (
    """
static void anyshape_fill_rows(char *c, const char *row, long rows, long bytes)
{
    for (long i = 0; i < rows; i++) __builtin_memcpy(c + i * bytes, row, bytes);
}
""",
    """
/* Looks at the first and the last element of what a library is about to use, so that the address
   sanitizer sees an access outside of a buffer there, too. */
static void anyshape_touch(const void *data, long width, long rank, const long *sizes,
                           const long *strides)
{
    const volatile char *p = data;
    long last = 0;
    for (long i = 0; i < rank; i++) {
        if (sizes[i] == 0) return;
        last += (sizes[i] - 1) * strides[i];
    }
    (void)p[0];
    (void)p[(last + 1) * width - 1];
}
""",
    """
/* A tensor on a device, of this type and number, over memory that somebody else owns. */
typedef int anyshape_from_blob(void *, long, const long *, const long *, long, int, int, int,
                               void **);

static int anyshape_handle(void *from_blob, void *dtype, int device, int number, void *data,
                           long rank, const long *sizes, const long *strides, void **handle)
{
    int code = ((int (*)(void))dtype)();
    for (long i = 0; i < rank; i++) /* where nothing lies, no device is asked whose it is */
        if (sizes[i] == 0) data = 0;
    return ((anyshape_from_blob *)from_blob)(data, rank, sizes, strides, 0, code, device, number,
                                             handle);
}
""",
    """
/* The same, kept from one call to the next: `cell` has the handle, its data and its dimensions.
   A run that does not have the cells for itself makes its own. */
static int anyshape_blob(void *mine, long *cell, void *delete_handle, void *from_blob, void *dtype,
                         int device, int number, void *data, long rank, const long *sizes,
                         const long *strides, void **handle)
{
    if (mine && cell[0]) {
        long differ = cell[1] != (long)data;
        for (long i = 0; i < rank; i++)
            differ |= (cell[2 + i] != sizes[i]) | (cell[2 + rank + i] != strides[i]);
        if (!differ) {
            *handle = (void *)cell[0];
            return 0;
        }
        ((int (*)(void *))delete_handle)((void *)cell[0]);
        cell[0] = 0;
    }
    if (anyshape_handle(from_blob, dtype, device, number, data, rank, sizes, strides, handle))
        return 1;
    if (!mine) return 0;
    cell[0] = (long)*handle;
    cell[1] = (long)data;
    for (long i = 0; i < rank; i++) cell[2 + i] = sizes[i], cell[2 + rank + i] = strides[i];
    return 0;
}
""",
    """
static int anyshape_empty(void *empty, void *dtype, int device, int number, long rank,
                          const long *sizes, const long *strides, void **handle)
{
    return ((int (*)(long, const long *, const long *, int, int, int, void **))empty)(
        rank, sizes, strides, ((int (*)(void))dtype)(), device, number, handle);
}
""",
    """
/* The memory of what torch returned; copied where its strides are not those that eager's are. */
static int anyshape_result(void *get_data, void *get_strides, void *empty, void *copy,
                           void *delete_handle, void *dtype, int device, int number, long rank,
                           const long *sizes, const long *strides, void **handle, void **data)
{
    long *found, differ = 0, count = 1;
    if (((int (*)(void *, long **))get_strides)(*handle, &found)) return 1;
    for (long i = 0; i < rank; i++) {
        count *= sizes[i];
        differ |= sizes[i] != 1 && found[i] != strides[i];
    }
    if (differ && count) {
        void *dense;
        if (anyshape_empty(empty, dtype, device, number, rank, sizes, strides, &dense)) return 1;
        int failed = ((int (*)(void *, void *, int))copy)(dense, *handle, 0);
        ((int (*)(void *))delete_handle)(*handle);
        *handle = dense;
        if (failed) return 1;
    }
    return ((int (*)(void *, void **))get_data)(*handle, data);
}
""",
    """
/* Values that the dispatcher takes over: a reference to a tensor, a number, an optional one. */
static unsigned long anyshape_share(void *new_handle, void *handle)
{
    void *shared = 0;
    ((int (*)(void *, void **))new_handle)(handle, &shared);
    return (unsigned long)shared;
}
""",
    """
static unsigned long anyshape_some(void *new_value, int is_plain, unsigned long value)
{
    unsigned long *some = 0;
    if (is_plain) some = ((unsigned long *(*)(unsigned long))new_value)(sizeof value);
    else ((int (*)(unsigned long **))new_value)(&some);
    if (some) *some = value;
    return (unsigned long)some;
}
""",
)
NATIVE_PRELUDE = (*map(with_few_passes, _STEPS), *map(without_passes, _CALLS))
"""Each stands where steps name it: see ``standing_before``. What stands beside a call of
torch's, which takes microseconds, is compiled without passes."""
_RUN = """
enum {SUM, PRODUCT, MIN, MAX, BROADCAST, FLOORDIV, MOD, EQ, NE, GE, LE, ALL, ANY};

AS_INLINE long anyshape_floordiv(long a, long b)
{
    if (b == 0) return 0; /* of a condition that does not hold */
    if (b == -1) return -a;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Each instruction fills the next element of `n` from those before it. */
AS_INLINE const long *anyshape_numbers(const long *code, long count, long *n, long next)
{
    for (long i = 0; i < count; i++, next++) {
        long operation = code[0], many = code[1], r = code[2];
        const long *a = code + 2;
        code += 2 + many;
        switch (operation) {
        case SUM:
            for (long j = 0; j < many; j++) r += a[1 + 2 * j] * n[a[2 + 2 * j]];
            code += 1 + many;
            break;
        case PRODUCT:
            for (r = 1; many--; a++) r *= n[*a];
            break;
        case MIN:
            for (r = n[*a]; many--; a++) r = n[*a] < r ? n[*a] : r;
            break;
        case MAX:
            for (r = n[*a]; many--; a++) r = n[*a] > r ? n[*a] : r;
            break;
        case BROADCAST:
            for (r = 1; many-- && r == 1; a++) r = n[*a];
            break;
        case FLOORDIV: r = anyshape_floordiv(n[a[0]], n[a[1]]); break;
        case MOD: r = n[a[0]] - n[a[1]] * anyshape_floordiv(n[a[0]], n[a[1]]); break;
        case EQ: r = n[a[0]] == n[a[1]]; break;
        case NE: r = n[a[0]] != n[a[1]]; break;
        case GE: r = n[a[0]] >= n[a[1]]; break;
        case LE: r = n[a[0]] <= n[a[1]]; break;
        case ALL:
            for (r = 1; many--; a++) r &= n[*a] != 0;
            break;
        case ANY:
            for (r = 0; many--; a++) r |= n[*a] != 0;
            break;
        }
        n[next] = r;
    }
    return code;
}

/* How a native region is run; the first entry of its table. `native.py: Plan` writes it. */
typedef struct {
    long outer, longs, doubles; /* what it is handed after its table and the arena */
    long computed, owned, entries, pointers, steps, handles, blobs, slots, delete_handle;
    long kept; /* the entry of the cells of handles on memory that is not torch's; 0: none */
    long code[];
} anyshape_plan;

/* Runs the steps up to the first that fails; handles that are left are deleted, but for those that
   are kept. `base` begins with the arena and outer buffers, `n` with what is handed over; both have
   room for the rest. */
long ANYSHAPE_FUNCTION(const void *plan, void **table, char **base, long *n, const double *f)
{
    const anyshape_plan *p = plan;
    const long *code = anyshape_numbers(p->code, p->computed, n, p->longs);
    for (long i = 0; i < p->owned; i++) {
        long bytes = n[*code++];
        base[1 + p->outer + i] = bytes ? malloc(bytes) : 0;
    }
    void *v[p->slots];
    __builtin_memcpy(v, table, p->entries * sizeof(void *));
    for (long i = 0; i < p->pointers; i++, code += 3) /* slot, what it is near, how far from it */
        v[code[0]] = (code[1] < 0 ? (char *)v[-1 - code[1]] : base[code[1]]) + n[code[2]];
    const long *steps = code, *operands = code + 2 * p->steps;
    long first_blob = p->slots - p->blobs, first_handle = first_blob - p->handles, status = 0;
    for (long i = first_handle; i < p->slots; i++) v[i] = 0;
    long *kept = p->kept ? v[p->kept] : 0; /* its first element: does a thread have the cells? */
    if (kept && __atomic_exchange_n(kept, 1, __ATOMIC_ACQUIRE)) v[p->kept] = kept = 0;
    for (long i = 0; i < p->steps && !status; i++)
    {
        anyshape_part *step = steps[2 * i] < 0 ? steps_known[-1 - steps[2 * i]] : v[steps[2 * i]];
        status = step(v, operands + steps[2 * i + 1], n, f);
    }
    for (long i = first_handle; i < (kept ? first_blob : p->slots); i++)
        if (v[i]) ((int (*)(void *))v[p->delete_handle])(v[i]);
    if (kept) __atomic_store_n(kept, 0, __ATOMIC_RELEASE);
    for (long i = 0; i < p->owned; i++) free(base[1 + p->outer + i]);
    return status;
}

/* NAME(table, arena, address of each outer buffer, ..., integers, ..., floats, ...) of Python */
void *call_ANYSHAPE_FUNCTION(void *self, void **arguments, long count)
{
    void **table = (void **)PyLong_AsUnsignedLongLongMask(arguments[0]);
    const anyshape_plan *p = table[0];
    if (count != 2 + p->outer + p->longs + p->doubles) { PyErr_BadArgument(); return 0; }
    char *base[1 + p->outer + p->owned];
    long n[p->longs + p->computed + 1];
    double f[p->doubles + 1];
    arguments++;
    for (long i = 0; i < 1 + p->outer; i++)
        base[i] = (char *)PyLong_AsUnsignedLongLongMask(*arguments++);
    for (long i = 0; i < p->longs; i++) n[i] = PyLong_AsLong(*arguments++);
    for (long i = 0; i < p->doubles; i++) f[i] = PyFloat_AsDouble(*arguments++);
    if (PyErr_Occurred()) return 0;
    void *state = PyEval_SaveThread();
    long status = ANYSHAPE_FUNCTION(p, table, base, n, f);
    PyEval_RestoreThread(state);
    return PyLong_FromLong(status);
}
"""
RUN_REGION = STEPS + _RUN
"""The function of Python that every native region is: its plan and its table say which. It is
compiled once, with the steps that most regions are made of."""
