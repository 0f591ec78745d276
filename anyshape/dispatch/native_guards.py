"""The C functions that compare what guards rely on with what is there now: one translation unit,
made once a process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from anyshape.ir.code import ArgType, NativeFunction
from anyshape.options import Options
from anyshape.targets.cpu.build import Builder, Building

CHANGED = """
long long anyshape_changed(long long words, long long **words_at, long long *expected,
                           long long count, char **dicts, long long *numbers, long long from)
{
    if (!from)
        for (long long i = 0; i < words; i++)
            if (*words_at[i] != expected[i]) return -2;
    for (long long i = from; i < count; i++)
        if (*(long long *)(dicts[i] + 24) != numbers[i]) return i;
    return -1;
}
"""
FRESH = """
int anyshape_fresh(long long count, char **impls, char *copies, long long start,
                   long long words, long long storage, long long data,
                   long long *pointers, char **flags, char *required,
                   long long tables, char **dicts)
{
    for (long long i = 0; i < count; i++) {
        long long *now = (long long *)(impls[i] + start);
        long long *then = (long long *)(copies + i * words * 8);
        long long different = 0;
        for (long long w = 0; w < words; w++) different |= now[w] ^ then[w];
        char *owner = *(char **)(impls[i] + storage);
        if (different || *(long long *)(owner + data) != pointers[i]) return 1;
        if (flags[i] && *flags[i] != required[i]) return 1;  /* requires_grad */
    }
    for (long long i = 0; i < tables; i++)
        if (*(long long *)(dicts[i] + 16)) return 2;  /* ma_used */
    return 0;
}
"""
GIVES = """
extern void *PyObject_Vectorcall(void *, void *const *, unsigned long, void *);
extern int PyObject_RichCompareBool(void *, void *, int);
extern void Py_DecRef(void *);
extern char _Py_TrueStruct[], _Py_FalseStruct[];

/* Triples of objects: a function, what it is handed (0: nothing), what it gave. 0 ends them. */
int anyshape_gives(void **reads)
{
    for (; *reads; reads += 3) {
        void *given = PyObject_Vectorcall(reads[0], reads + 1, reads[1] != 0, 0);
        if (!given) return -1;
        int same = PyObject_RichCompareBool(given, reads[2], 2 /* Py_EQ */);
        Py_DecRef(given);
        if (same < 1) return same;
    }
    return 1;
}

void *call_anyshape_gives(void *self, void **arguments, long count)
{
    if (count != 1) { PyErr_BadArgument(); return 0; }
    int same = anyshape_gives((void **)PyLong_AsUnsignedLongLongMask(arguments[0]));
    if (same < 0) return 0;
    void *result = same ? _Py_TrueStruct : _Py_FalseStruct;
    Py_IncRef(result);
    return result;
}
"""
"""Asks Python's own functions, under Python's lock."""
_CHANGED: tuple[ArgType, ...] = (
    "int64",
    "pointer",
    "pointer",
    "int64",
    "pointer",
    "pointer",
    "int64",
)
_FRESH: tuple[ArgType, ...] = (
    *("int64", "pointer", "pointer", "int64", "int64", "int64"),
    *("int64", "pointer", "pointer", "pointer", "int64", "pointer"),
)
FUNCTIONS = {
    "anyshape_changed": NativeFunction(CHANGED, _CHANGED, returns_status=True),
    "anyshape_fresh": NativeFunction(FRESH, _FRESH, returns_status=True),
    "anyshape_gives": NativeFunction(GIVES, caller="own", few_passes=True),
}


@functools.cache
def _builder(options: Options) -> Builder:
    return Builder.create(options)


@functools.cache
def compared(options: Options) -> Mapping[str, Callable[..., int]]:
    """The functions by name; raises `AnyshapeError` where there is no C compiler, or it fails."""
    return MappingProxyType(_builder(options).functions(FUNCTIONS))


def are_built(options: Options) -> bool:
    """Whether `compared` waits for no compiler, which runs beside from now on. May raise as it."""
    begun = _begun(options)
    begun[:] = _builder(options).start(FUNCTIONS)
    return all(part.done.done() for part in begun)


def are_being_built(options: Options) -> bool:
    """Whether a compiler that `are_built` has begun is at work: until it is done there is nothing
    to ask."""
    return not all(part.done.done() for part in _begun(options))


@functools.cache
def _begun(options: Options) -> list[Building]:
    return []
