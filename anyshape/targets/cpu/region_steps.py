"""The steps that native regions are made of, as C that is compiled once for all of them.

In: nothing. Out: ``STEPS``, a C function for each ``Does``. ``native.py`` writes the steps of a
plan that name them: what a step is done to is numbers in the plan, and no text. Such a function is
handed all slots ``v``, the numbers ``n`` and the scalars ``f`` of a region, and ``a``: which of
them this step is about. Steps that are none of these have texts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto

from anyshape.targets.cpu.few_passes import without_passes

CHECK_FAILED, LIBRARY_FAILED = 2, 3
MOST_OPERANDS = 24
"""Of a kernel that ``Does.LAUNCH`` launches."""
WORDS = 4
"""It is handed a multiple of these."""


class Does(IntEnum):
    """What a step is; its number in a plan is -1 - this."""

    LAUNCH = 0
    GEMM = auto()
    HANDLE = auto()
    CALL = auto()
    DISPATCH = auto()
    RESULT = auto()
    FREE = auto()
    MOVE = auto()
    ASSERT = auto()


class Value(IntEnum):
    """Where a value for the dispatcher is; ``OPTIONAL`` is added where the operator may lack it."""

    NUMBER = 0
    TENSOR = auto()
    REAL = auto()
    WHOLE = auto()
    OPTIONAL = auto()


def _call(count: int) -> str:
    types, words = ", ".join(["long"] * count), ", ".join(f"w[{n}]" for n in range(count))
    return f"    case {count // WORDS}: ((void (*)({types}))v[a[-2]])({words}); break;\n"


LAUNCH = f"""
/* The kernel, how many operands, each: a slot, or -1 - a number. Wherever torch runs, addresses and
   numbers are handed over alike, and whoever calls makes room for them and takes it back: a kernel
   that is handed a few words more does not see them. To have each count takes the compiler long. */
{{
    long w[{MOST_OPERANDS}], count = a[1], i = 0;
    for (a += 2; i < count; i++) w[i] = a[i] < 0 ? n[-1 - a[i]] : (long)v[a[i]];
    for (; i % {WORDS}; i++) w[i] = 0;
    switch (i / {WORDS}) {{
{"".join(map(_call, range(WORDS, MOST_OPERANDS + 1, WORDS)))}    }}
    return 0;
}}
"""

GEMM = """
/* BLAS, is_double, is each operand transposed, rows, columns, inner; both operands and their
   leading sizes, the result; the bias and the bytes of a row, or a negative slot. */
{
    if (a[12] >= 0) anyshape_fill_rows(v[a[11]], v[a[12]], n[a[4]], n[a[13]]);
    return anyshape_gemm(v[a[0]], a[1], a[2], a[3], n[a[4]], n[a[5]], n[a[6]], v[a[7]], n[a[8]],
                         v[a[9]], n[a[10]], v[a[11]], a[12] >= 0);
}
"""

HANDLE = f"""
/* The handle, which is made unless it is there; the cells and its own, what deletes and what makes
   one, type, device and its number, the data, the rank; sizes and strides. */
{{
    long rank = a[9], dims[2 * rank + 1];
    if (v[a[0]]) return 0;
    anyshape_dims(rank, a + 10, n, dims);
    return anyshape_blob(v[a[1]], v[a[2]], v[a[3]], v[a[4]], v[a[5]], a[6], a[7], v[a[8]], rank,
                         dims, dims + rank, &v[a[0]]) ? {LIBRARY_FAILED} : 0;
}}
"""

CALL = """
/* A function of torch's, how many tensors, what its failure is; the tensors, and two doubles where
   they are four. */
{
    int status;
    if (a[1] == 3) {
        status = ((int (*)(void *, void *, void *))v[*a])(v[a[3]], v[a[4]], v[a[5]]);
    } else {
        double x, y;
        __builtin_memcpy(&x, n + a[7], 8);
        __builtin_memcpy(&y, n + a[8], 8);
        status = ((int (*)(void *, void *, void *, void *, double, double))v[*a])(
            v[a[3]], v[a[4]], v[a[5]], v[a[6]], x, y);
    }
    return status ? a[2] : 0;
}
"""
CALLS = (("tensor",) * 3, ("tensor",) * 4 + ("float",) * 2)
"""What functions are handed that ``Does.CALL`` calls."""

DISPATCH = f"""
/* The dispatcher, the operator's name, what shares a tensor, what makes an optional value and is
   that plain memory, how many operands and results; of each operand, `Value` and where it is; the
   handles of the results. The dispatcher takes over what it is handed. */
{{
    long results = a[6];
    unsigned long stack[a[5] + results];
    const long *each = a + 7;
    for (long i = 0; i < a[5]; i++, each += 2) {{
        unsigned long value = 0;
        switch (each[0] & {Value.OPTIONAL - 1}) {{
        case {Value.NUMBER}: value = n[each[1]]; break;
        case {Value.TENSOR}: value = anyshape_share(v[a[2]], v[each[1]]); break;
        case {Value.REAL}: value = anyshape_bits(f[each[1]]); break;
        case {Value.WHOLE}: value = anyshape_bits((double)n[each[1]]); break;
        }}
        stack[i] = each[0] & {Value.OPTIONAL} ? anyshape_some(v[a[3]], a[4], value) : value;
    }}
    if (((int (*)(const char *, const char *, unsigned long *))v[a[0]])(v[a[1]], "", stack))
        return {LIBRARY_FAILED};
    for (long i = 0; i < results; i++) v[each[i]] = (void *)stack[i];
    return 0;
}}
"""

RESULT = f"""
/* What `anyshape_result` is handed: five functions, type, device and its number, the rank; the
   handle of what torch returned, and the slot for its data; sizes and strides. */
{{
    long rank = a[8], dims[2 * rank + 1];
    anyshape_dims(rank, a + 11, n, dims);
    return anyshape_result(v[a[0]], v[a[1]], v[a[2]], v[a[3]], v[a[4]], v[a[5]], a[6], a[7], rank,
                           dims, dims + rank, &v[a[9]], &v[a[10]]) ? {LIBRARY_FAILED} : 0;
}}
"""

FREE = """
/* What deletes a handle, and the handle. */
{
    if (v[a[1]]) ((int (*)(void *))v[a[0]])(v[a[1]]);
    v[a[1]] = 0;
    return 0;
}
"""

MOVE = """
/* An address, what it is near, how far from it. */
{
    v[a[0]] = (char *)v[a[1]] + n[a[2]];
    return 0;
}
"""

ASSERT = f"""
/* The truth that is not to be there. */
{{
    return *(volatile char *)v[a[0]] ? {CHECK_FAILED} : 0;
}}
"""

TEXTS: Mapping[Does, str] = {
    Does.LAUNCH: LAUNCH,
    Does.GEMM: GEMM,
    Does.HANDLE: HANDLE,
    Does.CALL: CALL,
    Does.DISPATCH: DISPATCH,
    Does.RESULT: RESULT,
    Does.FREE: FREE,
    Does.MOVE: MOVE,
    Does.ASSERT: ASSERT,
}

DIMS = """
static void anyshape_dims(long rank, const long *a, const long *n, long *dims)
{
    for (long i = 0; i < 2 * rank; i++) dims[i] = n[a[i]];
}
"""


def _function(does: Does) -> str:
    comment, _, body = TEXTS[does].rpartition("*/\n")
    head = f"static long step_{does.name.lower()}(void **v, const long *a, const long *n,"
    return f"{comment}*/\n{head} const double *f)\n{body}"


QUICK = (Does.LAUNCH, Does.GEMM, Does.MOVE, Does.ASSERT)
"""The others stand beside a call of torch's, which takes microseconds."""
BESIDE_CALLS = tuple(does for does in Does if does not in QUICK)
STEPS = without_passes("".join((DIMS, *map(_function, BESIDE_CALLS))))
STEPS += "".join(map(_function, QUICK))
NAMES = ", ".join(f"step_{does.name.lower()}" for does in Does)
STEPS += f"\nstatic anyshape_part *const steps_known[] = {{{NAMES}}};\n"
