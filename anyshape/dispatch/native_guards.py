"""The C functions that compare what guards rely on with what is there now: one translation unit,
made once a process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from anyshape.ir.code import ArgType, NativeFunction
from anyshape.options import Options
from anyshape.targets.cpu.build import Builder

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
}


@functools.cache
def compared(options: Options) -> Mapping[str, Callable[..., int]]:
    """The functions by name; raises `AnyshapeError` where there is no C compiler, or it fails."""
    return MappingProxyType(Builder.create(options).functions(FUNCTIONS))
