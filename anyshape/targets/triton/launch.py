"""Triton kernels of this process: compiled when a schedule is first chosen, launched by address.

In: ``DeviceFunction``s. Out: functions that take addresses and numbers, as kernels of other targets
do. A launch reads the caller's current stream. Triton is handed the types of the parameters, so
that it specializes on no value.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import itertools
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from anyshape.ir.code import ArgType, DeviceFunction, NativeFunction
from anyshape.ir.loops import Kernel, Param, PointerParam, ScalarParam
from anyshape.optional import require
from anyshape.runtime.launch import Loaded
from anyshape.targets.cpu.build import Builder
from anyshape.targets.triton.kernel import (
    block_sizes,
    emit_triton,
    scratch_name,
    total_dtype,
    totals,
)
from anyshape.targets.triton.schedules import Choice, Chooser, KernelSchedule

LARGEST_GRID = (1 << 31) - 1
MOST_SIZES = 4096
"""Combinations of sizes that a launcher keeps what it chose for."""
TYPES = {
    "bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip
"""Triton's names of dtypes."""


def signature(kernel: Kernel, schedule: KernelSchedule) -> dict[str, str]:
    """The type of each parameter, and of each constant, as Triton spells it."""
    types = {param.name: _type(param, schedule.wide) for param in kernel.params}
    if schedule.part != "whole":
        for n in totals(kernel):
            types[scratch_name(n)] = f"*{TYPES[total_dtype(kernel, n).name]}"
        types |= dict.fromkeys(("shares", "each"), "i64" if schedule.wide else "i32")
    return types | dict.fromkeys(block_sizes(schedule), "constexpr")


def divisible(kernel: Kernel, schedule: KernelSchedule) -> tuple[int, ...]:
    """The positions of parameters that are multiples of 16: what the schedule says, and our own
    memory for shares of rows, which are whole tiles."""
    if schedule.part == "whole":
        return schedule.divisible
    count, scratch = len(kernel.params), len(totals(kernel))
    return (*schedule.divisible, *range(count, count + scratch), count + scratch + 1)


def _type(param: Param, wide: bool) -> str:
    match param:
        case PointerParam(dtype=dtype):
            return f"*{TYPES[dtype.name]}"
        case ScalarParam(dtype=dtype):
            return TYPES[dtype.name]
    return "i64" if wide else "i32"


def compile_kernel(
    function: DeviceFunction, schedule: KernelSchedule, directory: Path, target: Any = None
) -> Any:
    """Triton's compiled kernel, for the current device where no ``target`` is named."""
    triton = require("triton")
    source = require("triton", "compiler").ASTSource(
        _jit_function(function, schedule, directory),
        signature(function.kernel, schedule),
        constexprs=block_sizes(schedule),
        attrs={(n,): [["tt.divisibility", 16]] for n in divisible(function.kernel, schedule)},
    )
    options = {"num_warps": schedule.warps, "enable_fp_fusion": False}
    return triton.compile(source, target=target, options=options)


_numbers = itertools.count()


def _jit_function(function: DeviceFunction, schedule: KernelSchedule, directory: Path) -> Any:
    """Triton reads the source of a function from a file."""
    path = directory / f"{function.name}_{next(_numbers)}.py"
    path.write_text(emit_triton(function.kernel, function.name, schedule))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function.name)


@dataclass(frozen=True, slots=True)
class Variant:
    """A compiled kernel: its address on the device, and how many threads and bytes it takes.
    ``plain``: it needs nothing but its arguments."""

    function: int
    threads: int
    shared: int
    plain: bool
    run: Callable[..., None]


@dataclass(slots=True)
class Launcher:
    """One kernel on one device, with a compiled variant for each schedule that was chosen.

    ``chosen``: what to launch, by sizes and by the lowest bits of all addresses.
    """

    function: DeviceFunction
    device: int
    directory: Callable[[], Path]
    chooser: Chooser
    direct: Callable[..., int]
    compiled: dict[KernelSchedule, Variant] = field(default_factory=dict)
    chosen: dict[tuple[int, ...], tuple[Variant, int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self) -> Callable[..., None]:
        """The function that launches: a lookup by sizes, then the driver's own call."""
        names = [param.name for param in self.function.kernel.params]
        numbers = [name for n, name in enumerate(names) if n not in self.chooser.pointers]
        addresses = " | ".join(names[n] for n in self.chooser.pointers) or "0"
        key = "".join(f"{name}, " for name in numbers)
        given = ", ".join(names)
        text = f"""def launch({given}):
    key = ({key}({addresses}) & 15)
    found = table.get(key)
    if found is None:
        found = choose(key, ({given},))
    variant, tiles = found
    if tiles and (not variant.plain or direct(
        entry, variant.function, stream(device), tiles, variant.threads, variant.shared, {given}
    )):
        slow(variant, tiles, ({given},))
"""
        namespace: dict[str, Any] = {
            "table": self.chosen,
            "choose": self._choose,
            "direct": self.direct,
            "entry": driver_entry(),
            "stream": torch._C._cuda_getCurrentRawStream,
            "device": self.device,
            "slow": self._slow,
        }
        exec(compile(text, f"<launch of {self.function.name}>", "exec"), namespace)
        made: Callable[..., None] = namespace["launch"]
        return made

    def _choose(self, key: tuple[int, ...], arguments: tuple[Any, ...]) -> tuple[Variant, int]:
        choice = self.chooser.schedule(arguments)
        with self.lock:
            if len(self.chosen) >= MOST_SIZES:
                self.chosen.clear()
            variant = self._cut(choice) if choice.shares > 1 else self._compiled(choice.schedule)
            found = self.chosen[key] = variant, min(choice.tiles, LARGEST_GRID)
            return found

    def _compiled(self, schedule: KernelSchedule) -> Variant:
        if schedule not in self.compiled:
            made = compile_kernel(self.function, schedule, self.directory())
            self.compiled[schedule] = _variant(made, tuple(block_sizes(schedule).values()))
        return self.compiled[schedule]

    def _cut(self, choice: Choice) -> Variant:
        """Two kernels: totals of the shares of each row, then their combination."""
        kernel, shares = self.function.kernel, choice.shares
        partial = self._compiled(replace(choice.schedule, part="partial"))
        tile = max(16, 1 << (shares - 1).bit_length())
        last = replace(choice.schedule, part="final", row=min(tile, 64), warps=4)
        final = self._compiled(last)
        dtypes = [getattr(torch, total_dtype(kernel, n).name) for n in totals(kernel)]
        device, cells_of = torch.device("cuda", self.device), self.chooser.cells

        def run(tiles: int, stream: int, arguments: tuple[Any, ...]) -> None:
            cells = cells_of(*arguments)
            scratch = [torch.empty(shares * cells, dtype=dtype, device=device) for dtype in dtypes]
            addresses = (memory.data_ptr() for memory in scratch)
            given = (*arguments, *addresses, shares, choice.each)
            partial.run(tiles, stream, given, shares)
            final.run(tiles, stream, given)

        return Variant(0, 0, 0, plain=False, run=run)

    def _slow(self, variant: Variant, tiles: int, arguments: tuple[Any, ...]) -> None:
        """By way of Triton's own launcher, which also makes a context where the thread has none."""
        variant.run(tiles, torch._C._cuda_getCurrentRawStream(self.device), arguments)


def _variant(compiled: Any, constants: tuple[int, ...]) -> Variant:
    run, packed, meta = compiled.run, compiled.packed_metadata, compiled.metadata
    function = compiled.function

    def launch(programs: int, stream: int, arguments: tuple[Any, ...], shares: int = 1) -> None:
        run(programs, shares, 1, stream, function, packed, None, None, None, *arguments, *constants)

    needs = meta.global_scratch_size or meta.profile_scratch_size or meta.launch_cooperative_grid
    plain = not needs and not meta.launch_pdl and meta.num_ctas == 1 and meta.shared <= 48 << 10
    return Variant(function, meta.num_warps * 32, meta.shared, plain, launch)


@functools.cache
def driver_entry() -> int:
    """The address of the driver's ``cuLaunchKernel``; 0 where there is no driver."""
    try:
        found = ctypes.CDLL("libcuda.so.1")["cuLaunchKernel"]
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(found, ctypes.c_void_p).value or 0


def direct_launch(kernel: Kernel) -> tuple[str, NativeFunction] | None:
    """A C function that launches kernels of so many parameters by the driver, None for kernels
    that take floats. Each argument is 8 bytes, of which the driver takes the lower ones."""
    if any(isinstance(p, ScalarParam) and p.dtype.is_floating for p in kernel.params):
        return None
    count = len(kernel.params)
    name = f"as_gpu_launch_{count}"
    given = "".join(f", long a{n}" for n in range(count))
    values = "".join(f"&a{n}, " for n in range(count))
    text = f"""
long {name}(void *entry, void *function, void *stream, long tiles, long threads, long shared{given})
{{
    void *scratch = 0, *profile = 0;
    void *values[] = {{{values}&scratch, &profile}};
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **) = entry;
    if (!entry) return 1;
    return launch(function, tiles, 1, 1, threads, 1, 1, shared, stream, values, 0);
}}
"""
    types: list[ArgType] = ["pointer", "pointer", "pointer"]
    types += ["int64"] * (3 + count)
    return name, NativeFunction(text, tuple(types), returns_status=True)


def _refused(*arguments: Any) -> int:
    """Stands for the driver's call where the kernel's parameters do not fit it."""
    return 1


@dataclass(slots=True)
class TritonLoader:
    """Loads kernels for one process; each function is one launcher."""

    loaded: dict[tuple[str, int], Loaded] = field(default_factory=dict)
    files: list[tempfile.TemporaryDirectory[str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, wanted: Mapping[str, DeviceFunction], builder: Builder) -> Mapping[str, Loaded]:
        """Launchers by name. No kernel is compiled before it is launched; ``builder`` builds the
        C functions that hand arguments to the driver."""
        calls = {name: direct_launch(function.kernel) for name, function in wanted.items()}
        texts = dict(filter(None, calls.values()))
        built = builder.functions(texts) if texts else {}
        with self.lock:
            for name, function in wanted.items():
                key = name, function.device
                if key not in self.loaded:
                    chooser, call = Chooser.of(function.kernel), calls[name]
                    direct = _refused if call is None else built[call[0]]
                    launcher = Launcher(function, function.device, self.directory, chooser, direct)
                    self.loaded[key] = Loaded(launcher.call())
            return {name: self.loaded[name, f.device] for name, f in wanted.items()}

    def directory(self) -> Path:
        """Where texts of kernels are for Triton to read, as long as this process lives."""
        with self.lock:
            if not self.files:
                self.files.append(tempfile.TemporaryDirectory(prefix="anyshape-triton-"))
            return Path(self.files[0].name)
