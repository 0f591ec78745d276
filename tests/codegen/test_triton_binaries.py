"""Machine code of Triton kernels: made once for each schedule, in threads, and kept on disk. Without a GPU: for sm_90."""

from __future__ import annotations

import ast
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

from anyshape.ir.code import DeviceFunction, NativeFunction
from anyshape.ir.dtypes import float32, float64
from anyshape.ir.loops import (
    Axis,
    Kernel,
    Load,
    Op,
    PointerParam,
    Read,
    ScalarParam,
    SizeParam,
    Store,
)
from anyshape.options import Options
from anyshape.runtime.cache import DiskCache
from anyshape.symbolic import Space
from anyshape.targets.cpu.build import Builder
from anyshape.targets.table import TARGETS
from anyshape.targets.triton import binaries, compile_worker, target
from anyshape.targets.triton.binaries import Binary, Compiler, Workers
from anyshape.targets.triton.compile_worker import compile_text
from anyshape.targets.triton.launch import TritonLoader
from anyshape.targets.triton.schedules import KernelSchedule

I = Space().symbol("i0")


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch):
    monkeypatch.setattr(binaries, "capability_of", lambda device: 90)


def doubled() -> DeviceFunction:
    space = Space()
    i, size = space.symbol("i0"), space.symbol("n0")
    kernel = Kernel(
        (
            PointerParam("p0", float32, "read"),
            PointerParam("p1", float32, "write"),
            SizeParam("n0"),
        ),
        (Axis("i0", size),),
        (),
        (Load("p0", i, float32), Op("add", (0, 0), float32)),
        (Store("p1", i, 1, "cell"),),
    )
    return DeviceFunction("add_1f", "", kernel, 0)


SCHEDULES = [KernelSchedule(1024), KernelSchedule(256, warps=2), KernelSchedule(1024, wide=False)]


@pytest.mark.parametrize("processes", [0, 2])
def test_kernels_are_made_once_each_and_come_from_disk_without_triton(
    processes, tmp_path, monkeypatch
):
    cache, function = DiskCache.open(str(tmp_path)), doubled()
    compiler = Compiler(workers=Workers(processes))
    made = [compiler.start(function, schedule, cache).result() for schedule in SCHEDULES]
    assert compiler.start(function, SCHEDULES[0], cache).result() is made[0]
    assert [binary.threads for binary in made] == [128, 64, 128]
    assert all(binary.code.startswith(b"\x7fELF") for binary in made)
    assert len({binary.code for binary in made}) == 3

    def missing(*arguments):
        raise AssertionError("Triton was asked")

    monkeypatch.setattr(binaries, "compile_kernel", missing)
    assert [Compiler().start(function, each, cache).result() for each in SCHEDULES] == made


def test_processes_make_what_this_one_would(tmp_path, monkeypatch):
    monkeypatch.setattr(binaries, "compile_kernel", None)
    workers = Workers(2)
    wanted = binaries.wanted_of(doubled(), SCHEDULES[1], tmp_path, 90)
    made = workers.binary(wanted)
    here = compile_text(wanted)
    assert made == Binary(here.asm["cubin"], here.metadata.name, 64, here.metadata.shared)
    with pytest.raises(RuntimeError, match="AttributeError"):
        workers.binary(replace(wanted, name="missing"))
    assert workers.binary(wanted) == made  # it goes on after a mistake
    (process,) = workers.idle
    process.kill()
    process.wait()
    assert workers.binary(wanted) is None


def test_processes_begin_before_a_kernel_is_asked_for(tmp_path, monkeypatch):
    begun, start = [], binaries._started
    monkeypatch.setattr(binaries, "_started", lambda: begun.append(start()) or begun[-1])
    compiler = Compiler(workers=Workers(2))
    for _ in range(2):
        compiler.awaken()
    compiler.threads.submit(int).result()
    assert 1 <= len(begun) <= 2
    cache = DiskCache.open(str(tmp_path))
    made = [compiler.start(doubled(), schedule, cache) for schedule in SCHEDULES]
    assert all(each.result().code for each in made)
    assert len(begun) <= 2
    idle = Compiler(workers=Workers(0))
    idle.awaken()
    assert idle.threads is None


@pytest.mark.parametrize("compiles", [False, True])
def test_processes_begin_early_where_c_was_not_on_disk(compiles, monkeypatch):
    begun = []
    monkeypatch.setattr(Compiler, "awaken", lambda compiler: begun.append(compiler))
    monkeypatch.setattr(target, "builder_of", lambda options: SimpleNamespace(compiles=compiles))
    TARGETS.awaken(("cpu", "cuda:0", "cuda:1"), Options())
    assert len(begun) == compiles


def sizeless(dtype=float32) -> DeviceFunction:
    """What an optimizer does to a parameter: every extent is a number."""
    params = PointerParam("p0", dtype, "update"), ScalarParam("x0", float64)
    elements = (Load("p0", I, dtype), Read("x0", float64), Op("mul", (0, 1), dtype))
    kernel = Kernel(params, (Axis("i0", 64),), (), elements, (Store("p0", I, 2, "cell"),))
    return DeviceFunction("mul_2f", "", kernel, 0)


def test_what_takes_longest_is_begun_first(monkeypatch):
    begun, free = [], threading.Event()
    compiler = Compiler(workers=Workers(0), threads=ThreadPoolExecutor(1))

    def made(compiler, function, schedule, *rest):
        free.wait()
        begun.append(schedule.pieces)

    monkeypatch.setattr(Compiler, "_binary", made)
    orders = [
        compiler.start(doubled(), KernelSchedule(1, 16, pieces), DiskCache(None))
        for pieces in (0, 2, 8, 4, 3)
    ]
    free.set()
    for made in orders:
        made.result()
    assert begun[1:] == sorted(begun[1:], reverse=True) and sorted(begun) == [0, 2, 3, 4, 8]


def test_kernels_without_sizes_are_begun_before_they_are_linked(monkeypatch):
    asked = []
    monkeypatch.setattr(Compiler, "start", lambda compiler, *given: asked.append(given))

    class Begun:
        cache = DiskCache(None)
        start = staticmethod(lambda functions: asked.append(sorted(functions)))

    TritonLoader().start({"mul": sizeless(), "add": doubled()}, Begun(), tune=False)
    (function, schedule, _), functions = asked
    assert function == sizeless() and schedule.divisible == (0,) and schedule.block == 256
    assert functions == [
        "as_gpu_launch",
        *(f"as_gpu_launch_{kinds}" for kinds in ("ld", "ldll", "lll", "lllll")),
    ]


def test_a_failed_compile_is_raised_where_the_kernel_is_needed(monkeypatch):
    def failing(*arguments):
        raise RuntimeError("out of registers")

    monkeypatch.setattr(binaries, "compile_kernel", failing)
    with pytest.raises(RuntimeError, match="out of registers"):
        Compiler(workers=Workers(0)).start(doubled(), SCHEDULES[0], DiskCache(None)).result()


def test_what_processes_run_imports_nothing_of_ours():
    """Python starts it apart from the environment; where the package is installed, no run tells."""
    tree = ast.parse(Path(compile_worker.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [getattr(node, "module", None) or node.names[0].name for node in imports]
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_machine_code_is_read_as_it_was_written():
    binary = Binary(b"\x7fELF", "add_1f", 128, 512)
    assert Binary.of_blobs(binary.blobs()) == binary


def test_a_builder_says_whether_something_was_not_on_disk(tmp_path):
    function = NativeFunction("long one(long x)\n{\n    return x;\n}\n", ("int64",))
    for compiles in (True, False):
        builder = Builder.create(Options(cache_dir=str(tmp_path)))
        assert not builder.compiles
        builder.start({"one": function})
        assert builder.compiles or not compiles  # while it is being made
        builder.functions({"one": function})
        assert builder.compiles == compiles
