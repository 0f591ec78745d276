"""What every native region stands on, in C: BLAS, the loop over steps, and handles on torch's
tensors.

Functions of torch's library are reached through pointers that the native region's table holds;
their stable C interface is torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h.
"""

from __future__ import annotations

NATIVE_PRELUDE = """
typedef void gemm_f(const char *, const char *, const int *, const int *, const int *,
                    const void *, const void *, const int *, const void *, const int *,
                    const void *, void *, const int *);

/* Row-major c[m, n] = a[m, k] b[k, n] + beta c, by a column-major BLAS. */
static long anyshape_gemm(void *gemm, int is_double, int a_transposed, int b_transposed,
                          long m, long n, long k, const void *a, long lda, const void *b, long ldb,
                          void *c, double beta)
{
    if ((m | n | k | lda | ldb) >> 31) return 1;
    int m_ = (int)m, n_ = (int)n, k_ = (int)k, ldc = n > 1 ? (int)n : 1;
    long least_a = a_transposed ? m : k, least_b = b_transposed ? k : n;
    int lda_ = (int)(lda > least_a ? lda : least_a), ldb_ = (int)(ldb > least_b ? ldb : least_b);
    float one = 1.0f, beta_ = (float)beta;
    double one_double = 1.0;
    if (m == 0 || n == 0) return 0;
    if (lda_ < 1) lda_ = 1;
    if (ldb_ < 1) ldb_ = 1;
    ((gemm_f *)gemm)(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &n_, &m_, &k_,
                     is_double ? (void *)&one_double : (void *)&one, b, &ldb_, a, &lda_,
                     is_double ? (void *)&beta : (void *)&beta_, c, &ldc);
    return 0;
}

static void anyshape_fill_rows(char *c, const char *row, long rows, long bytes)
{
    for (long i = 0; i < rows; i++) __builtin_memcpy(c + i * bytes, row, bytes);
}

static long anyshape_largest(long count, const long *sizes)
{
    long largest = sizes[0];
    for (long i = 1; i < count; i++) largest = sizes[i] > largest ? sizes[i] : largest;
    return largest;
}

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

/* One step: its operands are the places `a` of `v`, the sizes `n` and the scalars `f`. */
typedef long anyshape_part(void **v, const int *a, const long *n, const double *f);
typedef struct { anyshape_part *part; int first; } anyshape_step;

/* Runs the steps up to the first that fails; handles left in v[first_handle..end) are deleted. */
static long anyshape_run(const anyshape_step *steps, long count, const int *operands, void **v,
                         const long *n, const double *f, long first_handle, long end,
                         void *delete_handle)
{
    long status = 0;
    for (long i = first_handle; i < end; i++) v[i] = 0;
    for (long i = 0; i < count && !status; i++)
        status = steps[i].part(v, operands + steps[i].first, n, f);
    for (long i = first_handle; i < end; i++)
        if (v[i]) ((int (*)(void *))delete_handle)(v[i]);
    return status;
}

/* A tensor on the CPU over memory that somebody else owns. */
typedef int anyshape_from_blob(void *, long, const long *, const long *, long, int, int, int,
                               void **);

static int anyshape_handle(void *from_blob, void *dtype, void *data, long rank, const long *sizes,
                           const long *strides, void **handle)
{
    int code = ((int (*)(void))dtype)();
    return ((anyshape_from_blob *)from_blob)(data, rank, sizes, strides, 0, code, 0, -1, handle);
}

static int anyshape_empty(void *empty, void *dtype, long rank, const long *sizes,
                          const long *strides, void **handle)
{
    return ((int (*)(long, const long *, const long *, int, int, int, void **))empty)(
        rank, sizes, strides, ((int (*)(void))dtype)(), 0, -1, handle);
}

/* The memory of what torch returned; copied where its strides are not those that eager's are. */
static int anyshape_result(void *get_data, void *get_strides, void *empty, void *copy,
                           void *delete_handle, void *dtype, long rank, const long *sizes,
                           const long *strides, void **handle, void **data)
{
    long *found, differ = 0, count = 1;
    if (((int (*)(void *, long **))get_strides)(*handle, &found)) return 1;
    for (long i = 0; i < rank; i++) {
        count *= sizes[i];
        differ |= sizes[i] != 1 && found[i] != strides[i];
    }
    if (differ && count) {
        void *dense;
        if (anyshape_empty(empty, dtype, rank, sizes, strides, &dense)) return 1;
        int failed = ((int (*)(void *, void *, int))copy)(dense, *handle, 0);
        ((int (*)(void *))delete_handle)(*handle);
        *handle = dense;
        if (failed) return 1;
    }
    return ((int (*)(void *, void **))get_data)(*handle, data);
}

/* Values that the dispatcher takes over: a reference to a tensor, a number, an optional one. */
static unsigned long anyshape_share(void *new_handle, void *handle)
{
    void *shared = 0;
    ((int (*)(void *, void **))new_handle)(handle, &shared);
    return (unsigned long)shared;
}

static unsigned long anyshape_bits(double number)
{
    unsigned long bits;
    __builtin_memcpy(&bits, &number, 8);
    return bits;
}

static unsigned long anyshape_some(void *new_value, unsigned long value)
{
    unsigned long *some = 0;
    ((int (*)(unsigned long **))new_value)(&some);
    if (some) *some = value;
    return (unsigned long)some;
}
"""
