"""Text of C to running code: shared objects of all kernels that are not yet loaded or cached.

In: kernel texts by name. Out: built-in functions (``calls.py``). Long texts are several objects,
compiled side by side. An object is addressed by text, compiler and flags, CPU features and torch
version; it is compiled into a temporary directory, kept in the disk cache, and loaded from memory,
so that a full or read-only disk cannot stop it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from anyshape.errors import AnyshapeError, said, stage_of, versions
from anyshape.ir.code import NativeFunction
from anyshape.options import Options
from anyshape.runtime.cache import DiskCache, digest, roomy
from anyshape.runtime.launch import Loaded
from anyshape.targets.cpu.calls import CALLS_PRELUDE, built_in, caller
from anyshape.targets.cpu.prelude import Part, standing_before

FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-fwrapv", "-std=gnu11", "-shared", "-fPIC", "-w",
)  # fmt: skip
SANITIZED = (
    "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all", "-fopenmp", "-ffp-contract=off", "-fno-math-errno",
    "-fwrapv", "-std=gnu11", "-shared", "-fPIC", "-w",
)  # fmt: skip
"""The same for finding accesses outside of buffers and what C leaves undefined: not for this
machine's vectors, whose masked loads no sanitizer looks at."""
PART_BYTES = 12_000
"""Of text that makes a further C compiler worth its start."""
MOST_PARTS = 4
COMPILERS = ("cc", "gcc", "clang")
OBJECT = "kernels.so"
SOURCE = "kernels.c"
TEMPORARY_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm", ".")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C compiler as the cache sees it; ``identity`` changes when the compiler does."""

    path: str
    identity: str
    flags: tuple[str, ...] = FLAGS

    @classmethod
    def find(cls, cc: str, flags: tuple[str, ...] = FLAGS) -> Toolchain | None:
        """The compiler the options name, or the first installed one; None where there is none."""
        for name in (cc,) if cc else COMPILERS:
            if path := shutil.which(name):
                real = Path(path).resolve()
                status = real.stat()
                return cls(path, f"{real} {status.st_size} {status.st_mtime_ns}", flags)
        return None


@functools.cache
def cpu_identity() -> str:
    """The instruction set that ``-march=native`` means here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))


@dataclass(slots=True)
class Builder:
    """Compiles and loads kernels for one process; each different text is loaded once.

    ``compiled`` counts runs of the C compiler. Safe to use from several threads.
    """

    toolchain: Toolchain
    cache: DiskCache
    prelude: Sequence[Part]
    address: str  # of the prelude
    loaded: dict[str, Loaded] = field(default_factory=dict)
    compiled: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, options: Options, prelude: Sequence[Part] = ()) -> Builder:
        """Raises AnyshapeError E601 where no C compiler is found, E604 where what it makes could
        not be loaded."""
        toolchain = Toolchain.find(options.cc, SANITIZED if options.sanitize else FLAGS)
        if toolchain is None:
            raise AnyshapeError("E601", tried=options.cc or ", ".join(COMPILERS))
        if options.sanitize and not has_sanitizer():
            raise AnyshapeError("E604")
        cache = DiskCache.open(options.cache_dir) if options.cache else DiskCache(None)
        return cls(toolchain, cache, prelude, digest(*(part.text for part in prelude)))

    def functions(self, wanted: Mapping[str, NativeFunction]) -> dict[str, Callable[..., Any]]:
        """A callable for each C function; names are content addresses."""
        return {name: found.call for name, found in self.load(wanted).items()}

    def load(self, wanted: Mapping[str, NativeFunction]) -> dict[str, Loaded]:
        """Each C function; names are content addresses."""
        with self.lock:
            missing = {n: function for n, function in wanted.items() if n not in self.loaded}
            if missing:
                self._load(missing)
            return {name: self.loaded[name] for name in wanted}

    def _load(self, functions: Mapping[str, NativeFunction]) -> None:
        texts = {n: functions[n].text + caller(n, functions[n]) for n in sorted(functions)}
        parts = dealt({name: len(text) for name, text in texts.items()}, cores())
        own = ["\n".join((CALLS_PRELUDE, *(texts[name] for name in part))) for part in parts]
        for part, binary in zip(parts, self._objects(own), strict=True):
            library = load_shared_object(binary)
            for name in part:
                address = ctypes.cast(library[name], ctypes.c_void_p).value
                assert address is not None
                from_python = functions[name].caller != "none"
                call = built_in(library, name) if from_python else _for_c_alone
                self.loaded[name] = Loaded(call, address)

    def _objects(self, texts: Sequence[str]) -> list[bytes]:
        """The shared object of each text behind the prelude; those that are not kept are compiled
        side by side."""
        toolchain = self.toolchain
        flags = " ".join(toolchain.flags)
        identity = (toolchain.identity, flags, cpu_identity(), torch.__version__, self.address)
        keys = {text: digest("c", text, *identity) for text in texts}
        kept = {text: (self.cache.load(key) or {}).get(OBJECT) for text, key in keys.items()}
        missing = [text for text, binary in kept.items() if binary is None]
        if missing:
            self._compile(missing, keys, kept)
        return [binary for binary in kept.values() if binary is not None]

    def _compile(
        self, texts: Sequence[str], keys: Mapping[str, str], kept: dict[str, bytes | None]
    ) -> None:
        sources = [f"{standing_before(text, self.prelude)}\n{text}" for text in texts]
        self.compiled += len(texts)
        with stage_of("running the C compiler"), ThreadPoolExecutor(MOST_PARTS) as threads:
            made = threads.map(partial(compile_c, self.toolchain), sources)
            for text, source, binary in zip(texts, sources, made, strict=True):
                self.cache.store(keys[text], {SOURCE: source.encode(), OBJECT: binary})
                kept[text] = binary


def _for_c_alone(*arguments: object) -> NoReturn:
    """Stands for a function that only other C functions call."""
    raise TypeError("Python does not call this function")


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def dealt(sizes: Mapping[str, int], hands: int) -> list[list[str]]:
    """The names in parts of like size: as many as are worth it, and as there are hands."""
    count = max(1, min(hands, MOST_PARTS, sum(sizes.values()) // PART_BYTES, len(sizes)))
    parts: list[list[str]] = [[] for _ in range(count)]
    taken = [0] * count
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = taken.index(min(taken))
        parts[least].append(name)
        taken[least] += sizes[name]
    return [sorted(part) for part in parts]


def has_sanitizer() -> bool:
    """Was the runtime of the address sanitizer loaded with the process?"""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def compile_c(toolchain: Toolchain, source: str) -> bytes:
    """The shared object of a translation unit; AnyshapeError E602 with the compiler's words."""
    parent = roomy((tempfile.gettempdir(), *TEMPORARY_DIRECTORIES))
    with tempfile.TemporaryDirectory(prefix="anyshape-", dir=parent) as directory:
        target = os.path.join(directory, OBJECT)
        environment = ("env", "-u", "LD_PRELOAD", f"TMPDIR={directory}")
        compiler = (toolchain.path, *toolchain.flags)
        try:
            finished = subprocess.run(
                (*environment, *compiler, "-x", "c", "-", "-o", target, "-lm", *_mathvec()),
                input=source.encode(),
                capture_output=True,
                check=False,
            )
        except OSError as error:  # no process can be started
            raise _failed(said(error)) from error
        if finished.returncode != 0:
            raise _failed(_words(finished))
        return Path(target).read_bytes()


def _failed(output: str) -> AnyshapeError:
    return AnyshapeError("E602", output=f"{output}\n({versions()})")


def _words(finished: subprocess.CompletedProcess[bytes]) -> str:
    """What the compiler said, or how it ended where it could say nothing."""
    said = finished.stderr.decode(errors="replace").strip()[-4000:]
    if finished.returncode < 0:
        name = signal.Signals(-finished.returncode).name
        return f"it was ended by {name} (is there memory enough?) {said}".strip()
    return said or f"it said nothing, and its status was {finished.returncode}"


def _mathvec() -> tuple[str, ...]:
    return ("-lmvec",) if platform.machine() == "x86_64" else ()


def load_shared_object(binary: bytes) -> ctypes.CDLL:
    """Loads a library from its bytes; torch's own OpenMP runtime, loaded already, serves it.

    The descriptor stays open for the life of the process: the loader knows libraries by name, and a
    number used twice would silently give the older library.
    """
    descriptor = os.memfd_create("anyshape-kernels")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(binary)
    return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
