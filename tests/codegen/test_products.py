"""Products that are one kernel with what follows them: which, and that they are right."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parent.parent / "schedule"))

import anyshape
from anyshape.ir.dtypes import bfloat16, float32, int64
from anyshape.ir.loops import Axis, Kernel, Load, Op, PointerParam, Reduce, SizeParam, Store
from anyshape.ir.program import ExternCall, Free
from anyshape.symbolic import Space
from anyshape.targets.triton import tuning
from anyshape.targets.triton.products import LONGEST_SUM, tiled_product
from anyshape.targets.triton.schedules import Chooser
from tests.fake_gpu import FakeGpu

SPACE = Space()
I, J, R, N, V = (SPACE.symbol(name) for name in ("i0", "i1", "r0", "n0", "v0"))
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def gpu(monkeypatch):
    gc.collect()
    return FakeGpu(monkeypatch)


@pytest.mark.parametrize("mode", ["interpret", "every-80-90-100"])
def test_products_and_what_follows_them_are_right_and_compile(mode):
    script = Path(__file__).parent / "product_programs.py"
    done = subprocess.run(
        [sys.executable, str(script), mode], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("ok ") == 8


def linear_gelu(summed: int, dtype: torch.dtype = torch.bfloat16):
    w, c = torch.randn(24, summed, dtype=dtype), torch.randn(24, dtype=dtype)
    return lambda x: F.gelu(F.linear(x, w, c))


def library_calls(gpu: FakeGpu) -> int:
    steps = (step for program in gpu.programs for step in program.flat_steps())
    return sum(isinstance(step, ExternCall) for step in steps)


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("rows", [(5,), (0,), (1,), (2, 3)])
def test_a_short_product_is_made_by_the_kernel_that_reads_it(gpu, rows):
    program = linear_gelu(40)
    fast = anyshape.compile(program, fullgraph=True)
    for more in (0, 2):
        x = torch.randn(rows[0] and rows[0] + more, *rows[1:], 40, dtype=torch.bfloat16)
        same(fast(x), program(x))
    assert library_calls(gpu) == 0 and fast.stats().kernels == 1


def residual(x):
    w = torch.ones(40, 24, dtype=torch.bfloat16)
    product = x @ w
    return product + 1.0, product


def written(x):
    """The kernel writes what the product reads."""
    w = torch.ones(24, 24, dtype=torch.bfloat16)
    return x.copy_(torch.tanh(x[:, :24] @ w)) if x.shape[1] == 24 else x


REFUSED = {
    "long": (linear_gelu(LONGEST_SUM + 1), LONGEST_SUM + 1, torch.bfloat16),
    "float32": (linear_gelu(40, torch.float32), 40, torch.float32),
    "returned": (residual, 40, torch.bfloat16),
    "into what it reads": (written, 24, torch.bfloat16),
    "read twice": (
        lambda x: (lambda p: (p.exp(), p.float().cumsum(0)))(x @ torch.ones(40, 9, dtype=x.dtype)),
        40,
        torch.bfloat16,
    ),
}


@pytest.mark.parametrize(
    "name", ["long", "float32", "returned", "into what it reads", "read twice"]
)
def test_other_products_stay_the_librarys(gpu, name):
    program, summed, dtype = REFUSED[name]
    fast = anyshape.compile(program, fullgraph=True)
    x = torch.randn(7, summed, dtype=dtype)
    found, wanted = fast(x.clone()), program(x.clone())
    for a, b in zip(*((t if isinstance(t, tuple) else (t,)) for t in (found, wanted))):
        same(a, b)
    assert library_calls(gpu) == 1


def test_tiles_are_the_largest_of_which_each_multiprocessor_gets_one(gpu):
    fast = anyshape.compile(linear_gelu(40), fullgraph=True)
    fast(torch.randn(5, 40, dtype=torch.bfloat16))
    (launcher,) = gpu.loader.launchers.values()
    assert tiled_product(launcher.function.kernel)
    chooser = Chooser.of(launcher.function.kernel)
    names = [param.name for param in chooser.kernel.params]

    def chosen(rows: int):
        return chooser.schedule([rows if n in chooser.sizes else 0 for n in range(len(names))])

    few, many = chosen(16), chosen(1 << 16)
    assert (few.schedule.block, few.schedule.columns, few.tiles) == (16, 32, 1)
    assert (many.schedule.block, many.schedule.columns, many.tiles) == (64, 32, 1024)
    assert few.schedule.fiber == 64  # no more than the summed axis has
    assert len(chooser.candidates([64] * len(names))) > 3


@pytest.fixture
def measured(monkeypatch):
    """Both ways are measured; how long a candidate takes is in a table by its text."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    times = {}

    def took(choices, run):
        launches = [run(choice) for choice in choices]
        for launch in launches:
            launch()
        return [(str(c), times.get("library" if c.library else "template", 9.0)) for c in choices]

    monkeypatch.setattr(tuning, "_measured", took)
    return times


LIBRARY = "a library's product, and a kernel"


@pytest.mark.parametrize("fastest", ["library", "template"])
@pytest.mark.parametrize("summed", [40, 700])
def test_the_faster_of_library_and_template_is_launched(
    monkeypatch, tmp_path, measured, fastest, summed
):
    gpu = FakeGpu(monkeypatch, tune=True)
    measured[fastest] = 1.0
    program = linear_gelu(summed)
    fast = anyshape.compile(program, fullgraph=True, options={"cache_dir": str(tmp_path)})
    for rows in (5, 7, 0, 1, 300):
        x = torch.randn(rows, summed, dtype=torch.bfloat16)
        same(fast(x), program(x))
    assert library_calls(gpu) == 0
    (launcher,) = gpu.loader.launchers.values()
    assert {c.library for c in launcher.choices.values() if c.tiles} == {fastest == "library"}
    told = [*launcher.tuned.lines()]
    chosen, *losers = told
    assert (LIBRARY in chosen) is (fastest == "library") and len(losers) > 3
    assert any(LIBRARY in line for line in told)


def residual_scaled(x, y):
    w = torch.ones(24, 40, dtype=torch.bfloat16).t()
    return ((x @ w + y) * 0.5).float()


def test_the_librarys_product_of_turned_operands(monkeypatch, tmp_path, measured):
    FakeGpu(monkeypatch, tune=True)
    measured["library"] = 1.0
    fast = anyshape.compile(residual_scaled, fullgraph=True, options={"cache_dir": str(tmp_path)})
    for rows in (5, 1, 31):
        x = torch.randn(40, rows, dtype=torch.bfloat16).t()
        y = torch.randn(rows, 24, dtype=torch.bfloat16)
        same(fast(x, y), residual_scaled(x, y))


def test_each_layer_of_a_chain_is_one_kernel(gpu):
    """What a product is the last to read is freed behind the launch that makes it."""
    layers = [m for _ in range(4) for m in (torch.nn.Linear(24, 24), torch.nn.GELU())]
    net = torch.nn.Sequential(*layers).bfloat16()
    fast = anyshape.compile(net, fullgraph=True, options={"verify_programs": True})
    with torch.no_grad():
        for rows in (5, 9):
            x = torch.randn(rows, 24, dtype=torch.bfloat16)
            same(fast(x), net(x))
    assert library_calls(gpu) == 0
    steps = [*gpu.programs[-1].flat_steps()]
    freed = [name for step in steps if isinstance(step, Free) for name in step.buffers]
    assert len(freed) == len({*freed}) == 3


def sum_of_products(left, right, first=()) -> Kernel:
    """[i0, i1] = the sum over r0 of p0[left] * p1[right]."""
    at = len(first)
    elements = (
        *first,
        Load("p0", left, bfloat16),
        Op("cast", (at,), float32),
        Load("p1", right, bfloat16),
        Op("cast", (at + 2,), float32),
        Op("mul", (at + 1, at + 3), float32),
        Reduce("sum", at + 4, float32),
    )
    pointers = (
        *(PointerParam(name, bfloat16, "read") for name in ("p0", "p1")),
        PointerParam("p2", float32, "write"),
        PointerParam("p3", int64, "read"),
    )
    axes, row = (Axis("i0", N), Axis("i1", N)), (Axis("r0", N),)
    stores = (Store("p2", I * N + J, at + 5, "fiber"),)
    return Kernel((*pointers, SizeParam("n0")), axes, row, elements, stores)


def test_a_product_has_a_side_for_each_axis_at_indices_that_follow_from_them():
    assert tiled_product(sum_of_products(I * N + R, J * N + R)) == (0, 2, 5)
    assert tiled_product(sum_of_products(I * N + R, I * N + R)) is None
    assert tiled_product(sum_of_products(R, J * N + R)) is None
    loaded = (Load("p3", I, int64),)
    assert tiled_product(sum_of_products(I * N + R + V, J * N + R, loaded)) is None
