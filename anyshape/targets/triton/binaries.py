"""Kernels as machine code: made by Triton side by side, kept on disk, loaded by the driver.

In: a ``DeviceFunction`` and a ``KernelSchedule``. Out: a ``LoadedKernel``, which the driver
launches.
Triton is imported where a kernel is not on disk, and no sooner. It is handed the types of the
parameters, so that it specializes on no value.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

import torch

from anyshape.ir.code import DeviceFunction
from anyshape.ir.loops import Kernel, Param, PointerParam, ScalarParam, SizeParam
from anyshape.nouns import frozen, mutable
from anyshape.optional import require
from anyshape.runtime.cache import DiskCache, digest
from anyshape.runtime.cuda_driver import driver
from anyshape.targets.triton import compile_worker
from anyshape.targets.triton.compile_worker import Wanted, compile_text
from anyshape.targets.triton.kernel import (
    block_sizes,
    emit_triton,
    scratch_name,
    total_dtype,
    totals,
)
from anyshape.targets.triton.schedules import KernelSchedule
from anyshape.targets.triton.texts import CAPABILITY, OVERLAPPING

TYPES = {
    "bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip
"""Triton's names of dtypes."""
PLAIN_SHARED_BYTES = 48 << 10
"""Of one program; more has to be asked for."""
MOST_SHARED = 8
"""The driver's CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
NO_CONTEXT = 201
"""The driver's CUDA_ERROR_INVALID_CONTEXT."""
OVERLAPPING_DRIVER = 12_040
"""The least driver with which a kernel begins while the one before it ends."""
FEWEST_WORKERS, MOST_WORKERS = 2, 14
CUBIN, ABOUT = "kernel.cubin", "kernel.json"


@frozen
class Binary:
    """Machine code of one kernel: its name there, its threads, the shared bytes that it takes."""

    code: bytes
    name: str
    threads: int
    shared: int

    def blobs(self) -> dict[str, bytes]:
        """As the disk cache keeps it."""
        about = {"name": self.name, "threads": self.threads, "shared": self.shared}
        return {CUBIN: self.code, ABOUT: json.dumps(about).encode()}

    @classmethod
    def of_blobs(cls, blobs: dict[str, bytes]) -> Binary:
        """What ``blobs`` made."""
        return cls(blobs[CUBIN], **json.loads(blobs[ABOUT]))


@frozen
class LoadedKernel:
    """A kernel on a device: its address there, and how many threads and bytes it takes."""

    function: int
    threads: int
    shared: int


def signature(kernel: Kernel, schedule: KernelSchedule) -> dict[str, str]:
    """The type of each parameter, and of each constant, as Triton spells it."""
    types = {param.name: _type(param, schedule.wide) for param in kernel.params}
    if schedule.phase is not None:
        for n in totals(kernel):
            types[scratch_name(n)] = f"*{TYPES[total_dtype(kernel, n).name]}"
        types |= dict.fromkeys(("shares", "each"), "i64" if schedule.wide else "i32")
    return types | dict.fromkeys(block_sizes(schedule), "constexpr")


def divisible(kernel: Kernel, schedule: KernelSchedule) -> tuple[int, ...]:
    """The positions of parameters that are multiples of 16: what the schedule says, and our own
    memory for shares of fibers, which are whole tiles."""
    if schedule.phase is None:
        return schedule.divisible
    count, scratch = len(kernel.params), len(totals(kernel))
    return (*schedule.divisible, *range(count, count + scratch), count + scratch + 1)


def _type(param: Param, wide: bool) -> str:
    match param:
        case PointerParam(dtype=dtype):
            return f"*{TYPES[dtype.name]}"
        case ScalarParam(dtype=dtype):
            return TYPES[dtype.name]
        case SizeParam(in_memory=True):
            return "*i64"
    return "i64" if wide else "i32"


def wanted_of(
    function: DeviceFunction, schedule: KernelSchedule, directory: Path, capability: int
) -> Wanted:
    """What Triton is asked for, with its text in a file of this directory."""
    path = directory / f"{function.name}_{next(_numbers)}.py"
    path.write_text(emit_triton(function.kernel, function.name, schedule))
    return Wanted(
        str(path),
        function.name,
        signature(function.kernel, schedule),
        block_sizes(schedule) | {CAPABILITY: capability},
        [*divisible(function.kernel, schedule)],
        schedule.warps,
        capability,
    )


_numbers = itertools.count()


def effort(kernel: Kernel, schedule: KernelSchedule) -> int:
    """How long Triton takes for a kernel, beside others: each tile of a fiber has its own text."""
    return len(kernel.elements) * max(schedule.pieces, 1)


def compile_kernel(
    function: DeviceFunction, schedule: KernelSchedule, directory: Path, capability: int
) -> Any:
    """What Triton makes of the kernel for GPUs of this compute capability, as 90."""
    require("triton")
    return compile_text(wanted_of(function, schedule, directory, capability))


@mutable
class Workers:
    """Processes that compile, each for one thread at a time. A machine of few cores has none."""

    count: int = field(default_factory=lambda: max(0, min((os.cpu_count() or 1) - 2, MOST_WORKERS)))
    idle: list[subprocess.Popen[str]] = field(default_factory=list)  # those that nobody waits for

    @property
    def usable(self) -> bool:
        return self.count >= FEWEST_WORKERS and bool(sys.executable)

    def binary(self, wanted: Wanted) -> Binary | None:
        """None where there is no such process. Raises RuntimeError where Triton raises."""
        if not self.usable:
            return None
        try:
            with self._taken() as process:
                found = json.loads(_asked(process, json.dumps(asdict(wanted))))
        except (OSError, ValueError):  # it could not be started, or was ended
            return None
        if "error" in found:
            raise RuntimeError(found["error"])
        code = Path(found["code"]).read_bytes()
        return Binary(code, found["name"], found["warps"] * 32, found["shared"])

    def awaken(self) -> None:
        """One more process imports Triton, for seconds, while nothing waits for it."""
        with contextlib.suppress(OSError):  # it is told of where a kernel is asked for
            self.idle.append(_started())

    @contextlib.contextmanager
    def _taken(self) -> Iterator[subprocess.Popen[str]]:
        try:
            process = self.idle.pop()
        except IndexError:
            process = _started()
        try:
            yield process
        finally:
            self.idle.append(process)


def _started() -> subprocess.Popen[str]:
    """It ends with its input, which this process's end closes."""
    command = [sys.executable, "-I", compile_worker.__file__]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(sys.path) + "\n")
    process.stdin.flush()
    return process


def _asked(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


@functools.cache
def capability_of(device: int) -> int:
    """As 90."""
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor


@functools.cache
def _versions() -> str:
    """What else decides the machine code of a text."""
    return importlib.metadata.version("triton")


@mutable
class Compiler:
    """Makes machine code in threads of its own, each with a process; one for this process. Without
    processes, Triton's passes and the assembler alone let go of Python's lock."""

    pending: dict[tuple[str, KernelSchedule, int], Future[Binary]] = field(default_factory=dict)
    waiting: dict[tuple[int, int], tuple[Callable[[], Binary], Future[Binary]]] = field(
        default_factory=dict
    )
    """What no thread has begun, by how long it takes, the longest with the least number."""
    workers: Workers = field(default_factory=Workers)
    threads: ThreadPoolExecutor | None = None
    files: tempfile.TemporaryDirectory[str] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def awaken(self) -> None:
        """Begins the processes, once: kernels will be asked for in a second or so."""
        with self.lock:
            if self.threads is None and self.workers.usable:
                threads = self._threads()
                for _ in range(self.workers.count):
                    threads.submit(self.workers.awaken)

    def _threads(self) -> ThreadPoolExecutor:
        """The lock is held."""
        if self.threads is None:
            threads = self.workers.count or os.cpu_count() or 1
            self.threads = ThreadPoolExecutor(threads, "anyshape-triton")
            self.files = tempfile.TemporaryDirectory(prefix="anyshape-triton-")
        return self.threads

    def start(
        self, function: DeviceFunction, schedule: KernelSchedule, cache: DiskCache
    ) -> Future[Binary]:
        """The machine code, once it is there."""
        capability = capability_of(function.device)
        wanted = function.name, schedule, capability
        with self.lock:
            if wanted not in self.pending:
                made: Future[Binary] = Future()
                make = functools.partial(self._binary, function, schedule, capability, cache)
                order = -effort(function.kernel, schedule), len(self.pending)
                self.waiting[order] = make, made
                self.pending[wanted] = made
                self._threads().submit(self._make_longest)
            return self.pending[wanted]

    def _make_longest(self) -> None:
        """One of those that wait, the one that takes longest: none begins last that others would
        have to wait for."""
        with self.lock:
            make, made = self.waiting.pop(min(self.waiting))
        try:
            made.set_result(make())
        except BaseException as error:  # who waits for it raises it
            made.set_exception(error)

    def settle(self) -> None:
        """Returns once nothing is made: while something is, the host is slow, and what is measured
        on the device waits for it."""
        with self.lock:
            pending = [*self.pending.values()]
        wait(pending)

    def _binary(
        self, function: DeviceFunction, schedule: KernelSchedule, capability: int, cache: DiskCache
    ) -> Binary:
        text = emit_triton(function.kernel, "kernel", schedule)
        asked = repr((signature(function.kernel, schedule), asdict(schedule)))
        key = digest("triton", function.name, text, asked, str(capability), _versions())
        kept = cache.load(key)
        if kept is not None:
            return Binary.of_blobs(kept)
        assert self.files is not None
        directory = Path(self.files.name)
        wanted = wanted_of(function, schedule, directory, capability)
        binary = self.workers.binary(wanted)
        if binary is None:
            made = compile_kernel(function, schedule, directory, capability)
            meta = made.metadata
            binary = Binary(made.asm["cubin"], meta.name, meta.num_warps * 32, meta.shared)
        cache.store(key, binary.blobs())
        return binary


COMPILER = Compiler()
"""Of this process."""


def load_binary(binary: Binary) -> LoadedKernel:
    """The kernel on the current device, as long as this process lives."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    in_context(lambda: driver().cuModuleLoadData(ctypes.byref(module), binary.code))
    name = binary.name.encode()
    in_context(lambda: driver().cuModuleGetFunction(ctypes.byref(function), module, name))
    if binary.shared > PLAIN_SHARED_BYTES:
        in_context(lambda: driver().cuFuncSetAttribute(function, MOST_SHARED, binary.shared))
    assert function.value is not None
    return LoadedKernel(function.value, binary.threads, binary.shared)


def in_context(call: Callable[[], int]) -> None:
    """A call of the driver, again where the thread had no context on the device. RuntimeError
    where the driver refuses it."""
    status = call()
    if status == NO_CONTEXT:
        torch.cuda.current_stream().query()
        status = call()
    if status:
        name = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(name))
        raise RuntimeError(f"the CUDA driver refused: {(name.value or b'').decode()} ({status})")


@functools.cache
def driver_entry() -> int:
    """The address of the driver's ``cuLaunchKernelEx``."""
    found = ctypes.cast(driver()["cuLaunchKernelEx"], ctypes.c_void_p).value
    assert found is not None
    return found


@functools.cache
def overlaps(device: int) -> bool:
    """May a kernel begin there while the one before it ends? Kernels wait for its memory
    themselves. A CUDA graph records such launches from this driver on."""
    version = ctypes.c_int()
    known = driver().cuDriverGetVersion(ctypes.byref(version)) == 0
    return known and version.value >= OVERLAPPING_DRIVER and capability_of(device) >= OVERLAPPING
