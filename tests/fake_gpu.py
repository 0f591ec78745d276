"""A GPU that is the CPU: programs are launched as on a GPU, by a driver that runs kernels of C and counts.

Everything else is real: how steps are grouped, plans, records, schedules that are chosen, the C function that
launches. Tensors lie on the CPU, and products are torch's of the CPU.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch

from anyshape.driver import Driver
from anyshape.ir.code import DeviceFunction, NativeFunction
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam
from anyshape.ir.program import Assertion, Program
from anyshape.options import Options
from anyshape.runtime import launch as runtime_launch
from anyshape.runtime import region_graphs
from anyshape.runtime.launch import Flag, Loaded, library_function
from anyshape.runtime.region_graphs import Graph, Recorder
from anyshape.targets.cpu.build import Toolchain, compile_c, load_shared_object
from anyshape.targets.cpu.c import emit_c
from anyshape.targets.cpu.launch_lists import with_lists
from anyshape.targets.cpu.schedules import variants
from anyshape.targets.cpu.target import CPU, builder_of
from anyshape.targets.table import Targets
from anyshape.targets.target import as_it_is, awake, nothing, one_by_one, when_loaded
from anyshape.targets.triton import launch as triton_launch
from anyshape.targets.triton.binaries import LoadedKernel
from anyshape.targets.triton.flags import with_flags
from anyshape.targets.triton.launch import Launcher, TritonLoader, followers
from anyshape.targets.triton.launch_lists import GridLists
from anyshape.targets.triton.products import with_products
from anyshape.targets.triton.regions import emit_gpu_region, form_gpu_regions
from anyshape.targets.triton.schedules import Choice, KernelSchedule
from anyshape.targets.triton.target import TRITON

STREAM = 77
COUNTERS = ("launches", "refusals", "streams", "wrong_streams", "handles", "deleted", "early")
DRIVER = f"""
long fake_launches, fake_refusals, fake_streams, fake_wrong_streams, fake_handles, fake_deleted, fake_early;
void *fake_make, *fake_delete;

int aoti_torch_create_tensor_from_blob(void *data, long rank, void *sizes, void *strides, long offset, int dtype,
                                       int device, int number, void *handle)
{{
    __atomic_fetch_add(&fake_handles, 1, __ATOMIC_RELAXED);
    return ((int (*)(void *, long, void *, void *, long, int, int, int, void *))fake_make)(
        data, rank, sizes, strides, offset, dtype, device, number, handle);
}}

int aoti_torch_delete_tensor_object(void *handle)
{{
    __atomic_fetch_add(&fake_deleted, 1, __ATOMIC_RELAXED);
    return ((int (*)(void *))fake_delete)(handle);
}}

typedef struct {{ int id; char unused[4]; union {{ int allowed; char most[64]; }} value; }} fake_attribute;
typedef struct {{
    unsigned grid, y, z, threads, ty, tz, shared;
    void *stream;
    fake_attribute *attributes;
    unsigned count;
}} fake_config;

/* As CUDA's header lays out what cuLaunchKernelEx is handed. */
int fake_launch(const fake_config *config, void *function, void **values, void **extra)
{{
    if (__atomic_load_n(&fake_refusals, __ATOMIC_RELAXED) > 0) {{
        __atomic_fetch_sub(&fake_refusals, 1, __ATOMIC_RELAXED);
        return 201;
    }}
    __atomic_fetch_add(&fake_launches, 1, __ATOMIC_RELAXED);
    const fake_attribute *early = config->attributes;
    if (config->count == 1 && early->id == 6 && early->value.allowed == 1)
        __atomic_fetch_add(&fake_early, 1, __ATOMIC_RELAXED);
    if ((long)config->stream != {STREAM} || !config->grid || config->y != 1 || config->z != 1 || config->threads < 32
        || config->ty != 1 || config->tz != 1 || extra)
        __atomic_fetch_add(&fake_wrong_streams, 1, __ATOMIC_RELAXED);
    ((void (*)(void **))function)(values);
    return 0;
}}

int fake_stream(int device, void **stream)
{{
    __atomic_fetch_add(&fake_streams, 1, __ATOMIC_RELAXED);
    *stream = (void *){STREAM};
    return 0;
}}
"""


@functools.cache
def driver() -> ctypes.CDLL:
    toolchain = Toolchain.find("")
    assert toolchain is not None
    made = load_shared_object(compile_c(toolchain, DRIVER))
    wrapped = {"make": "create_tensor_from_blob", "delete": "delete_tensor_object"}
    for name, symbol in wrapped.items():
        real = ctypes.cast(library_function(f"aoti_torch_{symbol}"), ctypes.c_void_p).value
        ctypes.c_void_p.in_dll(made, f"fake_{name}").value = real
    return made


def counter(name: str) -> ctypes.c_long:
    return ctypes.c_long.in_dll(driver(), f"fake_{name}")


def runner(kernel: Kernel, name: str) -> str:
    """A kernel in C, and a function that is handed what a driver is: where each argument is."""
    types = [
        "void *" if isinstance(p, PointerParam)
        else "double" if isinstance(p, ScalarParam) and p.dtype.is_floating
        else "long"
        for p in kernel.params
    ]  # fmt: skip
    own = len(kernel.pointers) // kernel.parts
    one, numbers = kernel.first_part(), range(len(kernel.pointers), len(types))
    calls = []
    for part in range(kernel.parts):
        positions = (
            [*range(part * own, (part + 1) * own), *numbers]
            if kernel.parts > 1
            else range(len(types))
        )
        given = ", ".join(f"*({types[n]} *)values[{n}]" for n in positions)
        calls.append(f"    c_{name}({given});\n")
    text = emit_c(one, f"c_{name}", variants(one))
    return f"{text}\nvoid run_{name}(void **values)\n{{\n{''.join(calls)}}}\n"


def deferred(program: Program) -> Program:
    """Indices out of range are told later, as on a GPU."""
    steps = (replace(s, deferred=True) if isinstance(s, Assertion) else s for s in program.steps)
    return replace(program, steps=tuple(steps))


def flag(device: torch.device) -> Flag:
    """One byte, which the device sees."""
    pinned = torch.zeros((), dtype=torch.bool)
    return Flag(device, pinned, pinned, pinned)


class FakeGpu:
    """``targets`` compile for it; ``chosen`` counts what Python was asked to choose, ``recorded`` are the
    calls of regions that are graphs, of which ``replayed`` were made again."""

    def __init__(self, monkeypatch: Any, *, tune: bool = False) -> None:
        """``tune``: schedules are measured, as in ``mode="max-autotune-no-cudagraphs"``."""
        self.tune = tune
        self.loader = TritonLoader()
        self.addresses: dict[str, int] = {}
        self.chosen = 0
        self.recorded: list[Callable[[], int]] = []
        self.replayed = 0
        self.programs: list[Program] = []
        for name in COUNTERS:
            counter(name).value = 0
        target = replace(
            TRITON,
            kind="cpu",
            load=self.load,
            awaken=awake,
            start=when_loaded,
            prepare=builder_of,
            missing=nothing,
            listed=self.listed,
            group=lambda program, facts: form_gpu_regions(deferred(program), facts, "cpu"),
            print_region=lambda *given: emit_gpu_region(*given[:4], stream="fake_stream"),
            allocator="anyshape.empty_cpu",
            expect=lambda function, arguments, options: None,
            schedules=lambda function, sizes, options: self.loader.schedules(
                function, sizes, tune=tune
            ),
            measured=lambda function, options: self.loader.measured(function, tune=tune),
        )
        self.targets = Targets(
            {"cpu": target, "native": replace(CPU, group=as_it_is, listed=one_by_one)}
        )
        libraries = (driver(), *runtime_launch.torch_libraries())
        entry = ctypes.cast(driver()["fake_launch"], ctypes.c_void_p).value
        choose = Launcher._choose

        def counted(launcher: Launcher, *given: Any) -> Any:
            self.chosen += 1
            return choose(launcher, *given)

        monkeypatch.setattr(runtime_launch, "torch_libraries", lambda: libraries)
        monkeypatch.setattr(triton_launch, "driver_entry", lambda: entry)
        monkeypatch.setattr(triton_launch, "overlaps", lambda device: True)
        monkeypatch.setattr(triton_launch, "device_of", lambda function: torch.device("cpu"))
        monkeypatch.setattr(Launcher, "_choose", counted)
        monkeypatch.setattr(Launcher, "_compiled", self._compiled)
        monkeypatch.setattr(Launcher, "_start", lambda *given: Future())
        monkeypatch.setattr(Launcher, "_cut", self._cut)
        monkeypatch.setattr(Driver, "create", self._driver)
        monkeypatch.setattr(Recorder, "recorded", self._recorded)
        monkeypatch.setattr(region_graphs, "launch_graph", self._replayed)
        monkeypatch.setattr(region_graphs, "is_being_recorded", lambda: False)
        monkeypatch.setattr(Flag, "on", flag)
        monkeypatch.setattr(Flag, "clear", lambda flag: flag.pinned.zero_())
        stream = "_cuda_getCurrentRawStream"
        monkeypatch.setattr(torch._C, stream, lambda device: STREAM, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)

    def load(self, wanted: Mapping[str, DeviceFunction], options: Options) -> Mapping[str, Loaded]:
        builder = builder_of(options)
        after = {name: f for name, (_, f) in followers(wanted).items()} if self.tune else {}
        own = {**wanted, **after}
        texts = {
            f"run_{name}": NativeFunction(runner(f.kernel, name), caller="none", few_passes=True)
            for name, f in own.items()
        }
        built = builder.load(texts)
        self.addresses |= {name: built[f"run_{name}"].address or 0 for name in own}
        return self.loader.load(wanted, builder, tune=self.tune)

    def listed(self, program: Program, options: Options) -> Program:
        fused = with_products(deferred(program), TRITON.variants, "cpu", measured=self.tune)
        flagged = with_flags(fused, TRITON.variants, lambda device: True)
        made = with_lists(flagged, "cpu", lambda: GridLists(variants=TRITON.variants))
        self.programs.append(made)
        return made

    @property
    def _recorded(self) -> Any:
        """A graph is the call itself, and its address which of them it is."""

        def recorded(recorder: Recorder, device: int, stream: int, call: Callable[[], int]) -> Any:
            assert stream == STREAM
            self.recorded.append(call)
            return Graph(len(self.recorded))

        return recorded

    def _replayed(self, graph: int, stream: int) -> int:
        assert stream == STREAM
        self.replayed += 1
        return self.recorded[graph - 1]()

    def _driver(self, options: Options, name: str = "a graph") -> Driver:
        return Driver(options, name, targets=self.targets)

    @property
    def _compiled(self) -> Any:
        """Every schedule of a kernel is its text in C."""

        def compiled(launcher: Launcher, schedule: KernelSchedule) -> LoadedKernel:
            return LoadedKernel(self.addresses[launcher.function.name], schedule.warps * 32, 0)

        return compiled

    @property
    def _cut(self) -> Any:
        """Shares of rows are one launch here."""

        def cut(launcher: Launcher, choice: Choice, tiles: int) -> Any:
            loaded = launcher._compiled(choice.schedule)

            def launch(stream: int, arguments: tuple[Any, ...]) -> None:
                assert not Launcher._launched(launcher.direct, loaded, stream, 1, 1, 0, arguments)

            return launch

        return cut
