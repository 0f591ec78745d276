"""Triton kernels of this process: compiled when a schedule is first chosen, launched by address.

In: ``TritonFunction``s. Out: functions that take addresses and numbers, as kernels of other targets
do. A launch reads the caller's current stream. Triton is handed the types of the parameters, so
that it specializes on no value.
"""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from anyshape.ir.code import TritonFunction
from anyshape.ir.loops import Kernel, Param, PointerParam, ScalarParam
from anyshape.optional import require
from anyshape.runtime.launch import Loaded
from anyshape.targets.triton.kernel import block_sizes, emit_triton
from anyshape.targets.triton.schedules import Chooser, KernelSchedule

LARGEST_GRID = (1 << 31) - 1
TYPES = {
    "bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip
"""Triton's names of dtypes."""

Run = Callable[[int, int, tuple[Any, ...]], None]
"""Launches a compiled kernel: (number of programs, stream, arguments)."""


def signature(kernel: Kernel, schedule: KernelSchedule) -> dict[str, str]:
    """The type of each parameter, and of each constant, as Triton spells it."""
    types = {param.name: _type(param, schedule.wide) for param in kernel.params}
    return types | dict.fromkeys(block_sizes(schedule), "constexpr")


def _type(param: Param, wide: bool) -> str:
    match param:
        case PointerParam(dtype=dtype):
            return f"*{TYPES[dtype.name]}"
        case ScalarParam(dtype=dtype):
            return TYPES[dtype.name]
    return "i64" if wide else "i32"


def compile_kernel(
    function: TritonFunction, schedule: KernelSchedule, directory: Path, target: Any = None
) -> Any:
    """Triton's compiled kernel, for the current device where no ``target`` is named."""
    triton = require("triton")
    source = require("triton", "compiler").ASTSource(
        _jit_function(function, schedule, directory),
        signature(function.kernel, schedule),
        constexprs=block_sizes(schedule),
        attrs={(n,): [["tt.divisibility", 16]] for n in schedule.divisible},
    )
    options = {"num_warps": schedule.warps, "enable_fp_fusion": False}
    return triton.compile(source, target=target, options=options)


_numbers = itertools.count()


def _jit_function(function: TritonFunction, schedule: KernelSchedule, directory: Path) -> Any:
    """Triton reads the source of a function from a file."""
    path = directory / f"{function.name}_{next(_numbers)}.py"
    path.write_text(emit_triton(function.kernel, function.name, schedule))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function.name)


@dataclass(slots=True)
class Launcher:
    """One kernel on one device, with a compiled variant for each schedule that was chosen."""

    function: TritonFunction
    device: int
    directory: Callable[[], Path]
    chooser: Chooser
    compiled: dict[KernelSchedule, Run] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, *arguments: Any) -> None:
        schedule, tiles = self.chooser.schedule(arguments)
        if not tiles:
            return
        run = self.compiled.get(schedule)
        if run is None or torch.cuda.current_device() != self.device:
            with torch.cuda.device(self.device):
                self._variant(schedule)(min(tiles, LARGEST_GRID), self._stream(), arguments)
            return
        run(min(tiles, LARGEST_GRID), self._stream(), arguments)

    def _stream(self) -> int:
        stream: int = torch._C._cuda_getCurrentRawStream(self.device)
        return stream

    def _variant(self, schedule: KernelSchedule) -> Run:
        with self.lock:
            if schedule not in self.compiled:
                made = compile_kernel(self.function, schedule, self.directory())
                self.compiled[schedule] = _runner(made, tuple(block_sizes(schedule).values()))
            return self.compiled[schedule]


def _runner(compiled: Any, constants: tuple[int, ...]) -> Run:
    run, packed = compiled.run, compiled.packed_metadata
    function = compiled.function

    def launch(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        run(programs, 1, 1, stream, function, packed, None, None, None, *arguments, *constants)

    return launch


@dataclass(slots=True)
class TritonLoader:
    """Loads kernels for one process; each function is one launcher."""

    loaded: dict[tuple[str, int], Loaded] = field(default_factory=dict)
    files: list[tempfile.TemporaryDirectory[str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, wanted: Mapping[str, TritonFunction]) -> Mapping[str, Loaded]:
        """Launchers by name. Nothing is compiled before it is launched."""
        with self.lock:
            for name, function in wanted.items():
                key = name, function.device
                if key not in self.loaded:
                    chooser = Chooser.of(function.kernel)
                    launcher = Launcher(function, function.device, self.directory, chooser)
                    self.loaded[key] = Loaded(launcher)
            return {name: self.loaded[name, f.device] for name, f in wanted.items()}

    def directory(self) -> Path:
        """Where texts of kernels are for Triton to read, as long as this process lives."""
        with self.lock:
            if not self.files:
                self.files.append(tempfile.TemporaryDirectory(prefix="anyshape-triton-"))
            return Path(self.files[0].name)
