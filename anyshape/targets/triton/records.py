"""Kernels as C launches them: a record of each, in which C keeps what was chosen for which sizes.

In: the parameters of a kernel, and a function that chooses. Out: a ``Record``, whose address C
knows. C looks up sizes and the lowest bits of the addresses; where it finds nothing, or the driver
refuses, it calls the function that chooses, in Python, which gives what to launch, or launches it
itself. What it gives is kept, in a table of fixed size that threads share without a lock.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from anyshape.ir.code import NativeFunction
from anyshape.ir.loops import Kernel, Param, PointerParam, ScalarParam, SizeParam
from anyshape.nouns import mutable
from anyshape.runtime.raised_in_c import RAISED

OTHER, SIZE, ADDRESS, REAL = range(4)
SETS = 64
"""Of two cells each, of a record's table."""
FAILED, DONE, LAUNCH = range(3)
"""Answers of Python; ctypes gives 0 where Python has none."""
Launched: TypeAlias = tuple[int, int, int, int, int]
"""A function of the driver's, how many programs of it, their threads, their shared bytes, is it to
begin while the kernel before it ends; no programs: nothing is to be done."""
Choose: TypeAlias = Callable[[tuple[Any, ...], int, bool], Launched | None]
"""Of arguments and a stream, what to launch; None where it was launched. True: the driver refused
what was given before."""

CALLED = ctypes.CFUNCTYPE(
    ctypes.c_long,
    *(ctypes.POINTER(ctypes.c_long), ctypes.c_void_p, ctypes.c_long),
    ctypes.POINTER(ctypes.c_long),
)
LAUNCH_NAME = "as_gpu_launch"
EARLY = 6
"""The driver's CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: a kernel begins while the one
before it ends."""


def driver_call(function: str, shares: str) -> str:
    """C: a call of ``driver``, which is ``cuLaunchKernelEx``. Its two structures are here as CUDA
    lays them out; names in scope: tiles, threads, shared, stream, early, values."""
    return f"""
    struct {{ int id, unused; long value[8]; }} attribute = {{{EARLY}, 0, {{1}}}};
    struct {{
        unsigned grid[3], block[3], shared;
        void *stream, *attributes;
        unsigned count;
    }} config = {{{{tiles, {shares}, 1}}, {{threads, 1, 1}}, shared, stream, &attribute, early}};
    long status = driver(&config, {function}, values, 0);"""


LAUNCH_TEXT = f"""
/* `records.py: Record` lays it out. A cell: its version, which is odd while it is written and 0
   where nothing was; function, programs, threads, shared bytes, early; the key. */
typedef struct {{
    void *here;
    int (*driver)(void *, void *, void **, void **);
    long (*choose)(long *, void *, long, long *);
    long params, sizes;
    long rest[]; /* the kind of each parameter; the cells */
}} as_record;

static long as_known(const long *cell, const long *key, long keys, long *found)
{{
    long version = __atomic_load_n(cell, __ATOMIC_ACQUIRE), differ = version == 0 || version & 1;
    for (long i = 0; i < 5; i++) found[i] = __atomic_load_n(cell + 1 + i, __ATOMIC_RELAXED);
    for (long i = 0; i < keys; i++)
        differ |= __atomic_load_n(cell + 6 + i, __ATOMIC_RELAXED) != key[i];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return !differ && __atomic_load_n(cell, __ATOMIC_RELAXED) == version;
}}

/* Unless another thread writes the cell. */
static void as_keep(long *cell, const long *key, long keys, const long *found)
{{
    long version = __atomic_load_n(cell, __ATOMIC_RELAXED);
    if (version & 1 || !__atomic_compare_exchange_n(cell, &version, version + 1, 0,
                                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (long i = 0; i < 5; i++) __atomic_store_n(cell + 1 + i, found[i], __ATOMIC_RELAXED);
    for (long i = 0; i < keys; i++) __atomic_store_n(cell + 6 + i, key[i], __ATOMIC_RELAXED);
    __atomic_store_n(cell, version + 2, __ATOMIC_RELEASE);
}}

long {LAUNCH_NAME}(void *record, void *stream, long *words)
{{
    as_record *r = record;
    long key[r->sizes + 1], keys = 0, bits = 0, found[5];
    void *values[r->params + 2], *none = 0;
    unsigned long hash = 0;
    for (long i = 0; i < r->params; i++) {{
        values[i] = words + i;
        if (r->rest[i] == {SIZE}) key[keys++] = words[i];
        if (r->rest[i] == {ADDRESS}) bits |= words[i];
    }}
    key[keys++] = bits & 15;
    values[r->params] = values[r->params + 1] = &none; /* no scratch, no profile */
    for (long i = 0; i < keys; i++) hash = (hash ^ (unsigned long)key[i]) * 0x9E3779B97F4A7C15;
    long width = 6 + keys, *one = r->rest + r->params + (hash >> 32) % {SETS} * 2 * width;
    long *other = one + width;
    if (!as_known(one, key, keys, found) && !as_known(other, key, keys, found)) {{
        long answer = r->choose(words, stream, 0, found);
        if (answer != {LAUNCH}) return answer != {DONE};
        as_keep(*one == 0 || (*other != 0 && *one <= *other) ? one : other, key, keys, found);
    }}
    if (found[1] == 0) return 0;
    long tiles = found[1], threads = found[2], shared = found[3], early = found[4];
    int (*driver)(void *, void *, void **, void **) = r->driver;
{driver_call("(void *)found[0]", "1")}
    return status && r->choose(words, stream, 1, found) != {DONE};
}}
"""
LAUNCH_FUNCTION = NativeFunction(LAUNCH_TEXT, caller="none", few_passes=True)


@mutable(eq=False)
class Record:
    """What C knows of a kernel; it must live as long as C may launch it."""

    kernel: Kernel
    choose: Choose
    memory: Any = None
    called: Any = field(init=False)

    @classmethod
    def of(cls, kernel: Kernel, choose: Choose, launch: int, driver: int) -> Record:
        """``launch`` is the address of ``LAUNCH_FUNCTION``, ``driver`` that of the driver's own."""
        made = cls(kernel, choose)
        made.called = CALLED(made.missed)
        called = ctypes.cast(made.called, ctypes.c_void_p).value or 0
        kinds = [*map(kind_of, kernel.params)]
        sizes = kinds.count(SIZE)
        head = (launch, driver, called, len(kinds), sizes, *kinds)
        made.memory = (ctypes.c_long * (len(head) + SETS * 2 * (7 + sizes)))(*head)
        return made

    @property
    def address(self) -> int:
        return ctypes.addressof(self.memory)

    def missed(self, words: Any, stream: int | None, refused: int, found: Any) -> int:
        """C calls it; what it raises is raised again once C has come back."""
        try:
            arguments = unpacked(self.kernel.params, words)
            launched = self.choose(arguments, stream or 0, bool(refused))
            if launched is None:
                return DONE
            for n, number in enumerate(launched):
                found[n] = number
            return LAUNCH
        except BaseException as error:
            RAISED[threading.get_ident()] = error
            return FAILED


def kind_of(param: Param) -> int:
    """What a parameter is to the choice of a schedule, and how it is passed."""
    match param:
        case PointerParam():
            return ADDRESS
        case SizeParam():
            return SIZE
        case ScalarParam(dtype=dtype) if dtype.is_floating:
            return REAL
    return OTHER


def unpacked(params: Sequence[Param], words: Any) -> tuple[Any, ...]:
    """The arguments that are words of 8 bytes each."""
    return tuple(
        struct.unpack("d", struct.pack("q", words[n]))[0] if kind_of(param) == REAL else words[n]
        for n, param in enumerate(params)
    )
