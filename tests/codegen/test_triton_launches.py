"""Native regions on a GPU, with a driver that runs kernels on the CPU: plans, records, misses, threads."""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import anyshape

pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parent.parent / "schedule"))
from programs import OPTIONS, compile_sketch, same_as_reference
from random_graphs import Maker

from anyshape.capture.tensors.meta import dotted_name
from anyshape.costs import COSTS
from anyshape.driver import Driver
from anyshape.eager import DeviceError
from anyshape.ir.dtypes import int64
from anyshape.ir.loops import PointerParam, ScalarParam
from anyshape.ir.program import (
    Assertion,
    BindItem,
    EagerCall,
    Launch,
    LibraryCall,
    NativeRegion,
    Program,
)
from anyshape.ir.scalars import ScalarInput
from anyshape.moe.routed import ROUTED
from anyshape.runtime.arenas import slots
from anyshape.runtime.launch import TRAPS
from anyshape.targets.triton.graphs import why_not_recorded
from anyshape.targets.triton.launch import Launcher
from tests.fake_gpu import FakeGpu, counter


@pytest.fixture
def gpu(monkeypatch):
    gc.collect()  # programs of the tests before, whose handles are counted where they are deleted
    return FakeGpu(monkeypatch)


def regions(compiled):
    return [step for step in compiled.program.steps if isinstance(step, NativeRegion)]


def chain(b, x, w):
    """Products, each followed by a kernel."""
    for _ in range(4):
        x = b.tanh(b.mm(x, w))
    return x


SIZES = [(1, 1), (3, 7), (0, 5), (5, 0), (33, 64), (300, 257), (3, 7)]


def test_slots_of_an_arena_are_apart_where_they_are_large(gpu, monkeypatch):
    def program(b, x, w):
        left, right = b.mm(x, w), b.mm(b.tanh(x), w)
        return b.mm(b.add(b.softmax(left, 0), b.softmax(right, 1)), w)

    compiled = compile_sketch(program, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    asked, empty = [], torch.empty

    def counted(size):
        asked.append(size)
        return empty(size, dtype=torch.uint8)

    assert "slots(" in compiled.linked.code.host.text
    for small in (1 << 24, 1000):
        monkeypatch.setattr("anyshape.runtime.arenas.SMALL_ARENA", small)
        for a, b in SIZES:
            same_as_reference(compiled, torch.randn(a, b), torch.randn(b, b) / 8, tolerance=1e-4)
    addresses, alive = slots("cpu", counted, 1024, 2048, 64)
    assert len(alive) == len(addresses) == 3 and asked == [1024, 2048, 64]
    addresses, whole = slots("cpu", counted, 64, 128, 64)
    assert asked[3:] == [256] and addresses == [whole.data_ptr() + n for n in (0, 64, 192)]


def test_an_arena_is_asked_for_before_what_outlives_it(gpu, monkeypatch):
    """So that what is given back at a new high-water mark serves that, too."""

    def program(b, x, w):
        return b.mm(b.softmax(b.mm(x, w), 0), w), b.tanh(x)

    compiled = compile_sketch(program, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    first = next(
        line for line in compiled.linked.code.host.text.split("\n") if "empty_cpu(" in line
    )
    assert "= slots('cpu', lambda size: empty_cpu(" in first
    monkeypatch.setattr("anyshape.runtime.arenas.SMALL_ARENA", 0)
    for a, b in SIZES:
        same_as_reference(compiled, torch.randn(a, b), torch.randn(b, b) / 8, tolerance=1e-4)


def test_a_number_that_the_host_reads_is_said_to_keep_a_program_from_being_recorded(gpu):
    step = BindItem(ScalarInput("n", "float"), "x")
    why = why_not_recorded(Program({}, (), (step,), (), ()))
    assert why == "it reads x on the host, and a graph would keep one call's number"


def test_operators_of_ours_are_recorded_and_those_of_others_said_not_to_be():
    """Those of a program may read numbers on the host, which a graph would keep."""

    def why(function: str) -> str | None:
        call = EagerCall(function, ("x",), {}, ("y",), guessed=True)
        return why_not_recorded(Program({}, (), (call,), (), ()))

    assert why(dotted_name(ROUTED)) is None
    assert why("anyshape.custom_operators.functional.anyshape.scatter_add.default") is None
    assert "torch.ops.mine.op.default, which may read numbers" in why("torch.ops.mine.op.default")
    assert why("torch.ops.anyshape_mine.op.default") is not None


def test_one_region_does_products_and_kernels_at_every_size(gpu):
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    (region,) = regions(compiled)[:1]
    kinds = [type(step) for each in regions(compiled) for step in each.steps]
    assert kinds.count(LibraryCall) == 4 and kinds.count(Launch) == 4
    for a, b in SIZES:
        same_as_reference(compiled, torch.randn(a, b), torch.randn(b, b) / 8, tolerance=1e-4)
    assert counter("wrong_streams").value == 0


def test_a_region_whose_call_is_made_again_is_replayed(gpu):
    """With what the same memory has at each call; results lie where the allocator has room, so it
    may take a while until one lies where one was."""
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    assert "replays_of_table_0(arena[1], table_0, 0, " in compiled.linked.code.host.text
    x, w = torch.randn(33, 64), torch.randn(64, 64) / 8
    for turn in range(300):
        x.copy_(torch.randn(33, 64))
        same_as_reference(compiled, x, w, tolerance=1e-4)
        if turn >= 20 and len(gpu.recorded) < gpu.replayed:
            break
    assert 1 <= len(gpu.recorded) < gpu.replayed


def test_a_region_of_few_steps_is_not_recorded(gpu):
    def program(b, x, w):
        return b.mean(b.softmax(x, 1), (0,))

    compiled = compile_sketch(program, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    assert len(regions(compiled)) == 1
    assert "replays" not in compiled.linked.code.host.text


def test_what_was_chosen_for_sizes_is_not_asked_for_again(gpu):
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    x, w = torch.randn(3, 8), torch.randn(8, 8)
    compiled.run(x, w)
    chosen = gpu.chosen
    assert chosen
    before, reads = counter("launches").value, counter("streams").value
    for _ in range(3):
        compiled.run(x, w)
    assert gpu.chosen == chosen
    assert counter("launches").value == before + 12
    assert counter("streams").value == reads + 3 * len(regions(compiled))
    compiled.run(torch.randn(4, 8), w)
    assert gpu.chosen > chosen


def test_handles_are_kept_while_addresses_stay_and_deleted_with_the_program(gpu):
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    x, w = torch.randn(3, 8), torch.randn(8, 8)
    compiled.run(x, w)
    first = counter("handles").value
    assert first > 4 and not counter("deleted").value
    for _ in range(20):
        compiled.run(x, w)  # what is new may lie elsewhere each time, the arguments do not
    assert counter("handles").value - first <= 20 * (first - 2)
    same_as_reference(compiled, torch.randn(5, 8), w)
    del compiled
    gc.collect()
    assert counter("handles").value == counter("deleted").value


def test_a_launch_that_the_driver_refuses_is_made_again_from_python(gpu):
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    x, w = torch.randn(3, 8), torch.randn(8, 8)
    for _ in range(2):
        counter("refusals").value = 1
        same_as_reference(compiled, x, w)
        assert counter("refusals").value == 0


def test_what_python_raises_while_it_chooses_is_raised_by_the_call(gpu, monkeypatch):
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))

    def failing(launcher, arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("anyshape.targets.triton.launch.Launcher._choice", failing)
        with pytest.raises(KeyboardInterrupt):
            compiled.run(torch.randn(3, 8), torch.randn(8, 8))
    same_as_reference(compiled, torch.randn(3, 8), torch.randn(8, 8))


def test_more_sizes_than_a_record_keeps_and_threads_that_share_it(gpu):
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    weights = torch.randn(8, 8) / 8
    failed = []

    def work(start: int) -> None:
        for turn in range(400):
            x = torch.randn((start + turn * 7) % 300, 8)
            wanted = x
            for _ in range(4):
                wanted = torch.tanh(wanted @ weights)
            (found,) = compiled.run(x, weights)
            if not torch.allclose(found, wanted, atol=1e-5):
                failed.append(x.shape)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_rows_that_are_cut_are_launched_from_python_each_time(gpu):
    def program(b, x, y):
        return b.softmax(b.add(x, y), -1), b.mul(x, y)

    compiled = compile_sketch(program, "a b", "a b", driver=Driver(OPTIONS, targets=gpu.targets))
    for a, b in ((2, 100000), (2, 30), (2, 100000)):
        same_as_reference(compiled, torch.randn(a, b), torch.randn(a, b))


@pytest.mark.parametrize("start", range(0, 20, 5))
def test_random_graphs_give_the_references_numbers(start, gpu):
    driver = Driver(OPTIONS, targets=gpu.targets)
    for seed in range(start, start + 5):
        maker = Maker(seed)
        compiled = driver.compile_graph(maker.graph(10), {})
        for a, b in [(1, 1), (3, 2), (0, 2), (7, 70)]:
            same_as_reference(compiled, *maker.tensors(a, b), tolerance=1e-3)


def attends(x, w):
    q = (x @ w).view(1, x.shape[0], 2, x.shape[1] // 2).transpose(1, 2)
    k = torch.sigmoid(q)
    made = F.scaled_dot_product_attention(q, k, k * 2, is_causal=True, scale=0.3)
    return made.transpose(1, 2).reshape(x.shape) @ w + 1


def routed(x, w):
    scores = torch.softmax(x @ w, -1)
    best, which = scores.topk(2, dim=-1)
    positions, order = which.reshape(-1).sort()
    counts = torch.histc(positions.float(), bins=8, min=0, max=7)
    return best / best.sum(-1, keepdim=True), counts.cumsum(0) * 2 + order.sum()


def dropped(x, w):
    """Of two results one is used, and the other is a size of a view."""
    best, _ = torch.tanh(x).topk(2, dim=-1)
    return torch.tanh(best[:, 1:] + (x @ w)[:, :1])


@pytest.mark.parametrize("program", [attends, routed, dropped])
def test_libraries_that_give_memory_of_their_own(gpu, program):
    fast = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
    for rows, columns in ((3, 8), (1, 8), (33, 64), (0, 8), (3, 8)):
        given = torch.randn(rows, columns), torch.randn(columns, columns) / 8
        torch.testing.assert_close(fast(*given), program(*given), rtol=1e-4, atol=1e-4)
    assert "torch_" not in fast.code().split("\n\n")[0].replace("torch_as_strided", "")


def test_flags_of_indices_are_set_in_regions(gpu):
    def program(table, positions, w):
        x = torch.tanh(F.embedding(positions, table) @ w)
        return torch.tanh((x * 2) @ w)

    fast = anyshape.compile(program, options={"fallback": "error"})
    # the C that stands in for a GPU's kernel reads past the end of the table: there is more memory
    table, w, positions = torch.randn(110, 32)[:100], torch.randn(32, 32) / 8, torch.arange(10)
    with torch.inference_mode():
        fast(table, positions, w)
    for _ in range(2):
        torch.testing.assert_close(fast(table, positions, w), program(table, positions, w))
        TRAPS.raise_traps()
    fast(table, positions + 95, w)
    with pytest.raises(IndexError, match="test_triton_launches.py"):
        TRAPS.raise_traps()
    assert "trap_if" not in fast.code()
    fast(table, positions, w)
    TRAPS.raise_traps()


def test_kernels_say_which_schedule_ran_at_these_sizes(gpu):
    fast = anyshape.compile(lambda x: torch.softmax(x, -1), options={"fallback": "error"})
    long, short = torch.randn(3, 20_000), torch.randn(64, 700)
    for x in (short, long, short):
        fast(x)
    ran = [[*fast.kernels(x).split("\n")] for x in (short, long)]
    assert [line for (line,) in ran]
    assert ran[0][0].endswith("copy's speed, tiles of 1 x 1024, 4 warps")
    parts = (f"phase {n} over shares of rows, tiles of 1 x 4096, 16 warps" for n in (0, 1))
    assert ran[1][0].endswith(f"copy's speed, {'; '.join(parts)}")


def flagged(compiled):
    return [b for b in compiled.program.buffers.values() if b.role == "flag"]


@pytest.mark.parametrize("whole", [True, False])
def test_the_kernel_that_finds_an_index_out_of_range_sets_the_flag_itself(gpu, whole):
    """Of indices that another kernel reads at, and of those that only a library does."""

    def program(b, x, positions):
        taken = b.index_select(x, 0, positions)
        return b.mul(taken, taken) if whole else b.sum(taken, (0, 1), False)

    compiled = compile_sketch(
        program, "a b", ("c", int64), driver=Driver(OPTIONS, targets=gpu.targets)
    )
    assert len(flagged(compiled)) == 1 and not [
        step for step in compiled.program.flat_steps() if isinstance(step, Assertion)
    ]
    # the C that stands in for a GPU's kernel reads outside: there is more memory
    x = torch.randn(20, 3)[5:10]
    for positions in ([0, 4, 2], [], [3] * 50, [-1], [5, 0], [0, -1, 9]):
        outside = any(position < 0 or position > 4 for position in positions)
        given = torch.tensor(positions, dtype=torch.int64)
        compiled.run(x, given)
        if outside:
            with pytest.raises(DeviceError, match="out of range"):
                TRAPS.raise_traps()
        else:
            same_as_reference(compiled, x, given)
        TRAPS.raise_traps()


def test_what_is_read_besides_is_made_and_the_flag_set_all_the_same(gpu):
    def program(b, x, positions):
        bad = b.any(b.lt(positions, 0), (0,), False)
        b.trap_if(bad)
        return b.where(bad, 0.0, x), bad

    compiled = compile_sketch(
        program, "a b", ("c", int64), driver=Driver(OPTIONS, targets=gpu.targets)
    )
    assert not flagged(compiled)
    same_as_reference(compiled, torch.randn(2, 3), torch.arange(7))


def test_kernels_begin_while_the_one_before_them_ends(gpu):
    compiled = compile_sketch(chain, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    same_as_reference(compiled, torch.randn(3, 8), torch.randn(8, 8))
    assert counter("early").value == counter("launches").value == 4
    compiled.run(torch.randn(1100, 1000), torch.randn(1000, 1000))  # large ones lie evenly
    assert counter("early").value == 4 and counter("launches").value == 8


def test_long_runs_are_cut_where_nothing_of_torchs_outlives_a_part(gpu):
    def program(b, x, w):
        for turn in range(40):
            x = b.tanh(b.mm(x, w))
            if turn % 3 == 0:
                best, positions = b.topk(x, 4, 1, True, True)
                x = b.add(b.sum(best, (1,), True), b.mul(x, 0.5))
        return x

    compiled = compile_sketch(program, "a b", "b b", driver=Driver(OPTIONS, targets=gpu.targets))
    found = regions(compiled)
    counts = [sum(isinstance(s, (Launch, LibraryCall)) for s in each.steps) for each in found]
    assert sum(counts) > 90 and max(counts) <= COSTS.gpu_region_steps + 2 and len(found) >= 4
    for a, b in ((3, 8), (1, 8), (0, 4), (33, 64)):
        same_as_reference(compiled, torch.randn(a, b), torch.randn(b, b) / 8, tolerance=1e-4)


def test_a_kernel_is_launched_with_its_device_as_the_current_one(gpu, monkeypatch):
    """The driver launches on the current device, whatever the addresses."""
    current, launched = [0], []

    class Entered:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            self.before, current[0] = current[0], self.device

        def __exit__(self, *error):
            current[0] = self.before

    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    monkeypatch.setattr(torch.cuda, "device", Entered)
    choose = Launcher._choose
    monkeypatch.setattr(
        *(Launcher, "_choose"),
        lambda launcher, *given: launched.append(current[0]) or choose(launcher, *given),
    )
    compiled = compile_sketch(
        lambda b, x: b.exp(x), "a", driver=Driver(OPTIONS, targets=gpu.targets)
    )
    (step,) = [step for step in compiled.program.flat_steps() if isinstance(step, Launch)]
    (launcher,) = gpu.loader.launchers.values()
    for device in (1, 0):
        launch = replace(
            launcher, function=replace(launcher.function, device=device), chosen={}
        ).call()
        x, y = torch.randn(5), torch.empty(5)
        launch(
            *(
                5
                if not isinstance(p, PointerParam)
                else x.data_ptr()
                if p.access == "read"
                else y.data_ptr()
                for p in step.kernel.params
            )
        )
        torch.testing.assert_close(y, x.exp())
    assert launched == [1, 0] and current == [0]


def test_small_launches_of_one_kernel_share_a_launch(gpu):
    """An optimizer's step: what is counted for each parameter, and small parameters."""
    shapes = [(64,), (40, 300), (64,), (7,), (64,), (40, 300)]

    def made():
        torch.manual_seed(0)
        ps = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        optimizer = torch.optim.AdamW(ps, 1e-2, fused=True)

        def step(x):
            optimizer.zero_grad()
            loss = sum((p * x).sin().sum() for p in ps)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return ps, step, optimizer

    (ours, step, mine), (theirs, eager, other) = made(), made()
    fast = anyshape.compile(step, fullgraph=True)
    for n in range(1, 6):
        x = torch.tensor(n / 3)
        torch.testing.assert_close(fast(x), eager(x))
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(mine.state_dict(), other.state_dict())
    steps = [step for step in gpu.programs[-1].flat_steps() if isinstance(step, Launch)]
    parts = [step.kernel.parts for step in steps]
    assert parts.count(6) >= 1 and parts.count(3) >= 1, parts
    assert counter("wrong_streams").value == 0


def test_what_is_handed_a_number_of_the_program_is_expected(gpu):
    """A number chooses no schedule, so that its kernel is begun with the others."""
    expected = []
    target = replace(
        gpu.targets.by_kind["cpu"],
        expect=lambda function, arguments, options: expected.append((function.name, arguments)),
    )
    gpu.targets = replace(gpu.targets, by_kind={**gpu.targets.by_kind, "cpu": target})
    fast = anyshape.compile(lambda x, rate: torch.softmax(x, 0) * rate)
    for rate in (0.5, 0.25):
        x = torch.randn(5, 7)
        torch.testing.assert_close(fast(x, rate), torch.softmax(x, 0) * rate)
    made = {name: arguments for name, arguments in expected}
    kernels = {f.name: f.kernel for f in (each.function for each in gpu.loader.launchers.values())}
    assert made.keys() == kernels.keys()
    assert any(isinstance(p, ScalarParam) for k in kernels.values() for p in k.params)
    assert all(len(made[name]) == len(kernel.params) for name, kernel in kernels.items())
