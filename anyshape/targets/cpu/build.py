"""Text of C to running code: shared objects of all kernels that are not yet loaded or cached.

In: kernel texts by name. Out: built-in functions (``calls.py``). Long texts are several objects,
compiled side by side, as are those that several threads ask for. An object is addressed by text,
compiler and flags, CPU features and torch version; it is compiled into a temporary directory, kept
in the disk cache, and loaded from memory, so that a full or read-only disk cannot stop it.
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from pathlib import Path
from typing import Any, NoReturn

import torch

from anyshape.errors import AnyshapeError, said, stage_of, versions
from anyshape.ir.code import NativeFunction
from anyshape.nouns import frozen, mutable
from anyshape.options import Options
from anyshape.runtime.cache import DiskCache, digest, roomy
from anyshape.runtime.launch import Loaded
from anyshape.targets.cpu.calls import CALLS_PRELUDE, Caller, built_in
from anyshape.targets.cpu.few_passes import FEW_PASSES
from anyshape.targets.cpu.prelude import standing_before

FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-fwrapv", "-std=gnu11", "-shared", "-fPIC", "-w",
)  # fmt: skip
IDLE = ("loop-interchange", "predictive-commoning", "tree-loop-distribution")
"""Passes of gcc that find nothing to do in loops that are printed as they are to be walked."""
WITHOUT = (
    *IDLE,
    *("thread-jumps", "cse-follow-jumps", "crossjumping", "tree-tail-merge"),
    *("gcse", "gcse-after-reload", "code-hoisting"),
    *("ipa-cp", "ipa-cp-clone", "ipa-sra", "ipa-icf", "isolate-erroneous-paths-dereference"),
    "schedule-insns2",
)
"""Passes of gcc that make no kernel faster, as far as the rows of benchmarks/kernels.py, reductions
and scans in float32 and bfloat16 tell. Not among them, for what was slower without: partial
redundancies (softmax 1.1, a deviation over rows 12 times), value ranges (that deviation 1.2), split
paths, merged stores and extensions (scans and sums of bfloat16 1.1), and what ``-O1`` lacks.
"""
LESS = ("-fira-region=one", "--param=max-combine-insns=2")
"""Of what others do, by the same rows: registers are dealt out to whole functions, and instructions
are combined two at a time."""
WIDE = ("-mprefer-vector-width=512", "-DAS_WIDE")
"""What the prelude says by a pragma to a gcc that is not known by its name: options of a target
that differ from those of the command line are made anew, which is 4 % of a short program's work."""
LINKED = ("-nostartfiles", "-nodefaultlibs")
"""No object has constructors, and the process has the C library already: to read both and gcc's own
files takes the linker half of its time. gcc's functions are still linked in where one is called."""
SANITIZED = (
    "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all", "-fopenmp", "-ffp-contract=off", "-fno-math-errno",
    "-fwrapv", "-std=gnu11", "-shared", "-fPIC", "-w",
)  # fmt: skip
"""The same for finding accesses outside of buffers and what C leaves undefined: not for this
machine's vectors, whose masked loads no sanitizer looks at."""
PART_BYTES = 6_000
"""Of text that makes a further C compiler worth its start: about 70 ms of work to 20."""
MOST_PARTS = 4
COMPILERS = ("cc", "gcc", "clang")
OBJECT = "kernels.so"
SOURCE = "kernels.c"
TEMPORARY_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm", ".")


@frozen
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
                identity = f"{real} {status.st_size} {status.st_mtime_ns}"
                eager = f"-DAS_EAGER_BYTES={eager_vector_bytes()}"
                return cls(path, identity, (*flags, *flags_of_gcc(real.name, flags), eager))
        return None

    def libraries(self) -> tuple[str, ...]:
        """What stands behind the text: where gcc adds nothing of its own, what it would add."""
        own = ("-lgomp", "-lgcc") if {*LINKED} <= {*self.flags} else ()
        return ("-lm", *_mathvec(), *own)


def flags_of_gcc(compiler: str, flags: Sequence[str]) -> Iterator[str]:
    """The flags for gcc alone, by the name of the compiler's file."""
    if "gcc" in compiler and flags is FLAGS:
        yield from (f"-fno-{name}" for name in WITHOUT)
        yield from LESS
        yield from LINKED
        if "avx512f" in cpu_identity().split():
            yield from WIDE


EAGER_VECTORS = {"SVE256": 32, "VSX": 32, "Z VECTOR": 32}
"""Bytes of the vectors of ATen's kernels of norms, by what torch calls the processor's capability:
of AVX512 they have none (``REGISTER_DISPATCH`` in ``layer_norm_kernel.cpp``), and AVX2's run."""


def eager_vector_bytes() -> int:
    """The same here: without a capability of its own, of 256 bits on x86 and of 128 on ARM."""
    other = 16 if platform.machine() in ("aarch64", "arm64") else 32
    return EAGER_VECTORS.get(torch.backends.cpu.get_cpu_capability(), other)


@functools.cache
def cpu_identity() -> str:
    """The instruction set that ``-march=native`` means here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))


@mutable(eq=False)
class Building:
    """Functions that become one object, which ``done`` has as soon as it is there, and the thread
    that makes it, where it is not from the cache. ``shared``: programs have it in common. ``key``
    is its content address. ``along`` is made by the same run of the compiler, which takes longer to
    start than to compile it."""

    functions: Mapping[str, NativeFunction]
    shared: bool = False
    key: str = ""
    along: Sequence[Building] = ()
    done: Future[bytes] = field(default_factory=Future)
    thread: threading.Thread | None = None

    def result(self) -> bytes:
        """The object, once its thread has ended: who counts threads or objects meets none of ours.
        Raises what the compiler raised."""
        binary = self.done.result()
        if self.thread is not None:
            self.thread.join()
        return binary


@mutable
class Builder:
    """Compiles and loads kernels for one process; each different text is compiled and loaded once.

    ``compiled`` counts runs of the C compiler, of which there are no more at a time than
    processors. Safe to use from several threads: no lock is held while a compiler runs.
    """

    toolchain: Toolchain
    cache: DiskCache
    prelude: Sequence[str]
    address: str  # of the prelude
    loaded: dict[str, Loaded] = field(default_factory=dict)
    building: dict[str, Building] = field(default_factory=dict)
    compiled: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    processors: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(cores()))

    @classmethod
    def create(cls, options: Options, prelude: Sequence[str] = ()) -> Builder:
        """Raises AnyshapeError E601 where no C compiler is found, E604 where what it makes could
        not be loaded."""
        toolchain = Toolchain.find(options.cc, SANITIZED if options.sanitize else FLAGS)
        if toolchain is None:
            raise AnyshapeError("E601", tried=options.cc or ", ".join(COMPILERS))
        if options.sanitize and not has_sanitizer():
            raise AnyshapeError("E604")
        cache = DiskCache.open(options.cache_dir) if options.cache else DiskCache(None)
        return cls(toolchain, cache, prelude, digest(*prelude))

    @property
    def compiles(self) -> bool:
        """Whether something was not on disk so far."""
        with self.lock:
            parts = self.building.values()
            return self.compiled > 0 or any(not part.done.done() for part in parts)

    def functions(self, wanted: Mapping[str, NativeFunction]) -> dict[str, Callable[..., Any]]:
        """A callable for each C function; names are content addresses."""
        return {name: found.call for name, found in self.load(wanted).items()}

    def load(self, wanted: Mapping[str, NativeFunction]) -> dict[str, Loaded]:
        """Each C function; names are content addresses."""
        with stage_of("running the C compiler"):
            parts = self.start(wanted)
            binaries = [part.result() for part in parts]
        with self.lock:
            for part, binary in zip(parts, binaries, strict=True):
                self._load(part, binary)
            return {name: self._called(name, function) for name, function in wanted.items()}

    def start(self, wanted: Mapping[str, NativeFunction]) -> list[Building]:
        """Begins to compile what is neither loaded nor begun, and what calls it for Python; what
        has to be done before all of it can be loaded."""
        begun: list[Building] = []
        try:
            with self.lock:
                wanted = {**wanted, **self._callers(wanted)}
                for part in self._parts(wanted):
                    begun.append(part)
                    self.building |= dict.fromkeys(part.functions, part)
                parts = [self.building[name] for name in wanted if name in self.building]
            if begun:
                self._begin(begun)
        except BaseException as error:
            for part in begun:  # other threads may wait for them already
                self._settle(part, error)
            raise
        return list(dict.fromkeys(parts))

    def _parts(self, wanted: Mapping[str, NativeFunction]) -> list[Building]:
        """What is neither loaded nor begun, as objects: what programs share has one of its own."""
        sizes, parts = dict[str, int](), list[Building]()
        for name in sorted(wanted):
            if name not in self.loaded and name not in self.building:
                if wanted[name].shared:
                    parts.append(Building({name: wanted[name]}, shared=True))
                else:
                    sizes[name] = len(wanted[name].text)
        if sizes:
            steps = {name for name in sizes if wanted[name].few_passes}
            dealt_out = dealt(sizes, cores(), steps)
            parts += (Building({name: wanted[name] for name in names}) for names in dealt_out)
        return parts

    def _callers(self, wanted: Mapping[str, NativeFunction]) -> dict[str, NativeFunction]:
        """What calls these functions for Python and is not loaded, one for all of the same
        types."""
        made = (Caller.of(name, each) for name, each in wanted.items() if each.caller == "made")
        missing = (caller for caller in dict.fromkeys(made) if caller.name not in self.loaded)
        return {caller.name: caller.function for caller in missing}

    def _begin(self, begun: Sequence[Building]) -> None:
        """Objects from the cache, or threads that make them. What programs share is made along with
        another object: that of this program has it too, but is not addressed by it."""
        own: list[Building] = []
        shared: list[Building] = []
        for part in begun:
            if not self._is_kept(part):
                (shared if part.shared else own).append(part)
        if own and shared:
            least = min(own, key=lambda part: len(text_of(part.functions)))
            least.along, shared = shared, []
        for part in (*own, *shared):
            part.thread = threading.Thread(target=self._compile, args=(part,))
            for each in part.along:
                each.thread = part.thread
            part.thread.start()

    def _is_kept(self, part: Building) -> bool:
        """Is its object in the cache? Then it is done."""
        toolchain, text = self.toolchain, text_of(part.functions)
        identity = (toolchain.identity, " ".join(toolchain.flags), cpu_identity())
        part.key = digest("c", text, *identity, torch.__version__, self.address)
        kept = (self.cache.load(part.key) or {}).get(OBJECT)
        if kept is not None:
            self._settle(part, kept)
        return kept is not None

    def _compile(self, part: Building) -> None:
        """Of its text, and what is made along with it, behind what these need of the prelude."""
        parts = (part, *part.along)
        try:
            functions = {n: function for each in parts for n, function in each.functions.items()}
            text = text_of(functions)
            source = f"{standing_before(text, self.prelude)}\n{text}"
            with self.processors:
                binary = compile_c(self.toolchain, source)
            for each in parts:
                self.cache.store(each.key, {SOURCE: source.encode(), OBJECT: binary})
        except BaseException as error:
            self._settle(part, error)
            for each in part.along:  # other programs may wait for it, whose text is not to blame
                self._compile(each)
        else:
            with self.lock:
                self.compiled += 1
            for each in parts:
                self._settle(each, binary)

    def _settle(self, part: Building, result: bytes | BaseException) -> None:
        """Tells all who wait; what failed is begun anew where it is asked for again."""
        with self.lock:
            if part.done.done():
                return
            if isinstance(result, bytes):
                part.done.set_result(result)
                return
            for name in part.functions:
                self.building.pop(name, None)
            part.done.set_exception(result)

    def _load(self, part: Building, binary: bytes) -> None:
        """Makes its functions known, unless another thread was first."""
        if self.building.get(next(iter(part.functions))) is not part:
            return
        library = load_shared_object(binary)
        for name, function in part.functions.items():
            address, call = _address(library, name), _for_c_alone
            if function.caller == "own":
                call = built_in(name, address, _address(library, Caller.of(name, function).name))
            self.loaded[name] = Loaded(call, address)
            del self.building[name]

    def _called(self, name: str, function: NativeFunction) -> Loaded:
        """The same as Python calls it, where it does: what only C called so far may be wanted."""
        found = self.loaded[name]
        if function.caller == "made" and found.call is _for_c_alone:
            caller = self.loaded[Caller.of(name, function).name].address
            assert found.address is not None and caller is not None
            found = self.loaded[name] = Loaded(built_in(name, found.address, caller), found.address)
        return found


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(library[name], ctypes.c_void_p).value
    assert address is not None
    return address


def _for_c_alone(*arguments: object) -> NoReturn:
    """Stands for a function that only other C functions call."""
    raise TypeError("Python does not call this function")


def text_of(functions: Mapping[str, NativeFunction]) -> str:
    """Kernels, then what only calls others: steps of native regions, and what Python calls."""
    kernels = (each.text for each in functions.values() if not each.few_passes)
    steps = (each.text for each in functions.values() if each.few_passes)
    return "\n".join((CALLS_PRELUDE, *kernels, FEW_PASSES, *steps))


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def dealt(sizes: Mapping[str, int], hands: int, steps: Collection[str] = ()) -> list[list[str]]:
    """The names in parts of like size: as many as are worth it, and as there are hands. Steps stay
    together where they fill no more than a part: what they call is compiled with each that has one.
    """
    total = sum(sizes.values())
    count = max(1, min(hands, MOST_PARTS, total // PART_BYTES, len(sizes)))
    units = [[name] for name in sorted(sizes)]
    if steps and sum(sizes[name] for name in steps) * count <= total:
        units = [[name] for name in sorted(sizes.keys() - steps)] + [sorted(steps)]
        count = min(count, len(units))
    parts: list[list[str]] = [[] for _ in range(count)]
    taken = [0] * count
    weights = [sum(sizes[name] for name in unit) for unit in units]
    for weight, unit in sorted(zip(weights, units, strict=True), key=lambda each: -each[0]):
        least = taken.index(min(taken))
        parts[least] += unit
        taken[least] += max(weight, 1)  # so that each has one before any has two
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
                (*environment, *compiler, "-x", "c", "-", "-o", target, *toolchain.libraries()),
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
