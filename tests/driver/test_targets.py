"""Which target serves a device, and how its kernels are named, without a GPU at hand."""

from __future__ import annotations

import ctypes
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch

from anyshape.driver import PLACEHOLDER, _named
from anyshape.ir import dtypes
from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.loops import (
    Axis,
    Kernel,
    Load,
    PointerParam,
    ScalarParam,
    SizeParam,
    Store,
)
from anyshape.ir.program import Launch, Program
from anyshape.nouns import replace
from anyshape.options import Options
from anyshape.symbolic import Facts, Space
from anyshape.targets.cpu.build import Builder
from anyshape.targets.cpu.target import CPU
from anyshape.targets.table import CUDA, TARGETS, Targets
from anyshape.targets.target import DEFERRED, Target, loaded_on_use
from anyshape.targets.triton.launch import direct_launch
from anyshape.targets.triton.schedules import Chooser
from anyshape.targets.triton.target import TRITON


def copy_kernel(dtype: dtypes.DType) -> Kernel:
    """``p1[i] = p0[i]``."""
    space = Space()
    i, n = space.symbol("i0", knowledge="entry"), space.symbol("n0", knowledge="entry")
    pointers = (PointerParam("p0", dtype, "read"), PointerParam("p1", dtype, "write"))
    return Kernel(
        (*pointers, SizeParam("n0")), (Axis("i0", n), ), (), (Load("p0", i, dtype),),
        (Store("p1", i, 0, "cell"),),
    )  # fmt: skip


def launch_of(dtype: dtypes.DType) -> Launch:
    return Launch(copy_kernel(dtype), (BufferRef("x"), BufferRef("y"), 3))


def test_devices_have_targets() -> None:
    assert TARGETS.of("cpu") is CPU
    assert TARGETS.of("cuda:1") is CUDA
    assert TARGETS.of("xpu:0") is None
    assert TARGETS.allocators({"cpu", "cuda:0", "cuda:1"}) == {"cpu": "anyshape.empty_cpu"}


def test_a_target_that_is_loaded_on_use_says_what_the_loaded_one_says() -> None:
    known = [each.name for each in fields(Target) if each.name not in DEFERRED]
    assert [getattr(CUDA, name) for name in known] == [getattr(TRITON, name) for name in known]
    called = []
    real = replace(
        TRITON,
        **{name: lambda *given, name=name: called.append((name, given)) for name in DEFERRED},
    )
    later = loaded_on_use("cuda", TRITON.function, lambda: real)
    for name in DEFERRED:
        getattr(later, name)(1, 2)
    assert called == [(name, (1, 2)) for name in DEFERRED]
    assert TARGETS.builds_late(TRITON.print_kernel(launch_of(dtypes.float32), "f", "cuda:0"))


@pytest.mark.parametrize("device", ("cpu", "cuda:1"))
@pytest.mark.parametrize("deep", (False, True), ids=("outside", "in a body"))
def test_a_program_goes_to_the_targets_of_its_memory(device: str, deep: bool) -> None:
    asked: list[str] = []

    def noting(target: Target) -> Target:
        def one(program: Program, _: object) -> Program:
            asked.append(target.kind)
            return program

        return replace(target, listed=one, group=one)

    buffers = {"x": Buffer("x", dtypes.float32, device, (3,), (1,), "input")}
    program = Program(buffers, ("x",), (), (), ())
    if deep:
        step = SimpleNamespace(inside=lambda inner=program: (SimpleNamespace(program=inner),))
        program = Program({}, (), (step,), (), ())  # type: ignore[arg-type]
    targets = Targets({each.kind: noting(each) for each in (CPU, TRITON)})
    for pass_over, given in ((targets.listed, Options()), (targets.group, Facts(Space()))):
        asked.clear()
        assert pass_over(program, given) is program
        assert asked == ["cpu", "cuda"][: 1 + (device != "cpu")]


def test_deterministic_algorithms_are_eagers() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert "deterministic" in str(TRITON.missing())
    finally:
        torch.use_deterministic_algorithms(False)


def test_kernels_of_two_dtypes_or_devices_have_two_names() -> None:
    names = {
        _named(TRITON.print_kernel(launch_of(dtype), PLACEHOLDER, device), "kernel")[0]
        for dtype in (dtypes.float16, dtypes.bfloat16)
        for device in ("cuda:0", "cuda:1")
    }
    assert len(names) == 4


def test_the_schedule_follows_sizes_and_addresses() -> None:
    chooser = Chooser.of(copy_kernel(dtypes.float32))
    aligned, odd = chooser.schedule((1024, 4096, 64)), chooser.schedule((1024, 4096, 65))
    assert aligned.schedule.divisible == (0, 1, 2)
    assert odd.schedule.divisible == (0, 1)
    assert chooser.schedule((1028, 4096, 64)).schedule.divisible == ()
    assert not aligned.schedule.wide
    assert chooser.schedule((1024, 4096, 1 << 31)).schedule.wide
    assert chooser.schedule((1024, 4096, 1 << 20)).tiles == 1024
    assert chooser.schedule((1024, 4096, 0)).tiles == 0


def with_a_number(dtype: dtypes.DType) -> Kernel:
    """The same, of a kernel that is also handed a host number."""
    kernel = copy_kernel(dtypes.float32)
    params = (*kernel.params, ScalarParam("c0", dtype))
    return Kernel(params, kernel.axes, (), kernel.elements, kernel.stores)


class LaunchConfig(ctypes.Structure):
    """What `cuLaunchKernelEx` is handed, as CUDA lays it out."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


@pytest.mark.parametrize("number", [3, 2.5])
def test_the_driver_is_handed_each_argument_where_it_lies(number: float) -> None:
    real = isinstance(number, float)
    kernel = with_a_number(dtypes.float64 if real else dtypes.int64)
    kind = ctypes.c_double if real else ctypes.c_int64
    seen: list[tuple[float, ...]] = []
    pointers = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LaunchConfig), *pointers)
    def entry(config, function, values, extra):
        kinds = (ctypes.c_int64,) * 3 + (kind,) + (ctypes.c_int64,) * 2
        given = [ctypes.cast(values[n], ctypes.POINTER(k))[0] for n, k in enumerate(kinds)]
        made = config.contents
        launched = (*made.grid, made.block[0], made.shared, made.stream, made.count)
        seen.append((function, *launched, *given))
        return 5

    name, text = direct_launch(kernel)
    builder = Builder.create(Options(), "")
    launch = builder.functions({name: text})[name]
    address = ctypes.cast(entry, ctypes.c_void_p).value
    for early in (0, 1):
        assert launch(address, 11, 12, 7, 4, 128, 64, early, 1 << 40, 2, 3, number) == 5
        assert seen.pop() == (11, 7, 4, 1, 128, 64, 12, early, 1 << 40, 2, 3, number, 0, 0)


@pytest.mark.parametrize("size", [2**30, 2**31 - 1, 2**31])
def test_sizes_past_int32_are_passed_whole(size: int) -> None:
    chooser = Chooser.of(copy_kernel(dtypes.float32))
    assert chooser.schedule((0, 0, size)).schedule.wide is (size > 2**30)
