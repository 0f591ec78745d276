"""Schedules of Triton kernels: every one that may be chosen covers the cells and the row, without a GPU."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from anyshape.ir.code import DeviceFunction
from anyshape.ir.dtypes import bfloat16, bool_, float32, int64
from anyshape.ir.loops import (
    Axis,
    Const,
    Kernel,
    Load,
    Op,
    PointerParam,
    Position,
    Read,
    Reduce,
    SizeParam,
    Store,
)
from anyshape.symbolic import Expr, Space, evaluate
from anyshape.targets.reduction_phases import analyse
from anyshape.targets.triton.binaries import compile_kernel
from anyshape.targets.triton.elements import ElementPrinter
from anyshape.targets.triton.kernel import emit_triton
from anyshape.targets.triton.launch_lists import parted
from anyshape.targets.triton.narrow import fiber_start, narrow_elements
from anyshape.targets.triton.online import online
from anyshape.targets.triton.schedules import (
    Chooser,
    KernelSchedule,
    fiber_in_registers,
    passes,
    thread_elements,
)

SPACE = Space()
I, R, ROWS, COLUMNS = (SPACE.symbol(name) for name in ("i0", "r0", "n0", "n1"))
V = SPACE.symbol("v0")
POINTERS = (PointerParam("p0", float32, "read"), PointerParam("p1", float32, "write"))
SIZES = (SizeParam("n0"), SizeParam("n1"))


def rows(index) -> Kernel:
    elements = (Load("p0", index, float32), Reduce("sum", 0, float32))
    stores = (Store("p1", I, 1, "fiber"),)
    return Kernel(
        (*POINTERS, *SIZES), (Axis("i0", ROWS),), (Axis("r0", COLUMNS),), elements, stores
    )


def gathered() -> Kernel:
    pointers = (
        PointerParam("p0", int64, "read"),
        *(POINTERS[1],),
        PointerParam("p2", float32, "read"),
    )
    elements = (
        Load("p0", I, int64),
        Load("p2", I * COLUMNS + V, float32),
        Op("neg", (1,), float32),
    )
    return Kernel(
        (*pointers, *SIZES), (Axis("i0", ROWS),), (), elements, (Store("p1", I, 2, "cell"),)
    )


LENGTHS = [*range(1, 40), 511, 512, 513, 640, 768, 769, 2560, 5120, 5121, 6144, 7168, 12000, 16384]


@pytest.mark.parametrize("length", LENGTHS)
def test_pieces_hold_a_row_and_all_but_the_last_are_full(length):
    made = fiber_in_registers(length)
    assert made.fiber * (made.pieces - 1) < length <= made.fiber * made.pieces
    assert made.even == (length == made.fiber * made.pieces)
    assert length > 1024 or made.pieces == 1
    assert made.fiber * made.pieces <= max(16, 2 * length)


@pytest.mark.parametrize("index", [I * COLUMNS + R, R * ROWS + I], ids=["rows", "columns"])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1), (3, 131072), (70, 5120), (1, 10**7), (4096, 64), (10**6, 7), (10**6, 8), (5, 33)],
)
def test_every_candidate_covers_cells_and_row(index, sizes):
    cells, row = sizes
    chooser = Chooser.of(rows(index))
    arguments = (0, 0, *sizes)
    choices = chooser.candidates(arguments)
    assert choices[0] == chooser.schedule(arguments)
    for choice in choices:
        schedule = choice.schedule
        assert choice.tiles * schedule.block >= cells > (choice.tiles - 1) * schedule.block
        if choice.shares > 1:
            assert not schedule.pieces and choice.each % schedule.fiber == 0
            assert choice.shares * choice.each >= row > (choice.shares - 1) * choice.each
        elif schedule.pieces:
            assert schedule.fiber * (schedule.pieces - 1) < row <= schedule.fiber * schedule.pieces
            assert schedule.even == (row == schedule.fiber * schedule.pieces)


def test_indices_are_64_bits_where_the_largest_index_or_a_masked_one_after_it_needs_them():
    chooser = Chooser.of(rows(I * COLUMNS + R))
    assert not chooser.schedule((0, 0, 16384, 65536)).schedule.wide
    assert chooser.schedule((0, 0, 16384, 151936)).schedule.wide
    assert chooser.schedule((0, 0, 1, (1 << 31) - 100)).schedule.wide


def test_what_is_added_to_a_loaded_integer_counts():
    chooser = Chooser.of(gathered())
    assert not chooser.schedule((0, 0, 0, 128, 151936)).schedule.wide
    assert chooser.schedule((0, 0, 0, 16384, 151936)).schedule.wide


def test_few_long_rows_are_cut_and_many_are_not():
    chooser = Chooser.of(rows(I * COLUMNS + R))
    assert chooser.schedule((0, 0, 3, 131072)).shares > 8
    assert chooser.schedule((0, 0, 16384, 4096)).shares == 1


def reading(*elements, index=I * COLUMNS + R) -> Kernel:
    loaded = (Load("p0", index, float32), *elements)
    store = Store("p1", I, len(loaded) - 1, "fiber")
    pointers = (POINTERS[0], PointerParam("p1", loaded[-1].dtype, "write"))
    return Kernel(
        (*pointers, *SIZES), (Axis("i0", ROWS),), (Axis("r0", COLUMNS),), loaded, (store,)
    )


def test_long_rows_that_begin_at_any_address_are_walked_in_aligned_tiles():
    chooser = Chooser.of(rows(I * COLUMNS + R))
    assert chooser.schedule((0, 0, 4096, 50257)).schedule.aligned
    assert not chooser.schedule((0, 0, 4096, 50256)).schedule.aligned
    assert not chooser.schedule((0, 0, 4096, 4097)).schedule.aligned  # in registers
    assert not Chooser.of(rows(R * ROWS + I)).schedule((0, 0, 4097, 50257)).schedule.aligned


@pytest.mark.parametrize("index", [R, R * 2 + I * COLUMNS, COLUMNS - R], ids=str)
def test_rows_that_share_a_start_or_have_gaps_are_not_aligned(index):
    assert fiber_start(rows(index), analyse(rows(index))) is None


def test_a_row_begins_where_most_of_what_is_done_for_its_cells_begins():
    kernel = rows(I * COLUMNS + R)
    assert fiber_start(kernel, analyse(kernel)) == I * COLUMNS


def test_positions_in_a_row_are_narrow_and_what_else_reads_them_is_not():
    highest = (1 << 63) - 1
    positions = (
        Op("isnan", (0,), bool_),
        Position(R, int64),
        Const(highest, int64),
        Op("where", (1, 2, 3), int64),
        Reduce("min", 4, int64),
    )
    assert narrow_elements(reading(*positions)) == {2, 3, 4, 5}
    assert not narrow_elements(reading(*positions[:-1], Reduce("sum", 4, int64)))
    wide = (positions[0], Position(R * COLUMNS, int64), *positions[2:])
    assert not narrow_elements(reading(*wide))
    large = (*positions[:2], Const(1 << 40, int64), *positions[3:])
    assert not narrow_elements(reading(*large))
    kernel = reading(*positions, Op("add", (2, 5), int64))
    assert not narrow_elements(kernel)


def test_a_lone_row_is_cut_where_one_pass_is_enough():
    chooser = Chooser.of(rows(I * COLUMNS + R))
    assert chooser.schedule((0, 0, 1, 4096)).shares == 16
    assert chooser.schedule((0, 0, 1, 2048)).shares == 1
    twice = reading(
        Reduce("max", 0, float32), Op("sub", (0, 1), float32), Reduce("sum", 2, float32)
    )
    assert Chooser.of(twice).schedule((0, 0, 1, 4096)).shares == 1


@pytest.mark.parametrize("row", range(1, 9))
def test_each_element_of_the_shortest_strided_rows_is_a_tile(row):
    made = Chooser.of(rows(R * ROWS + I)).schedule((0, 0, 131072, row)).schedule
    assert (made.fiber, made.pieces, made.even) == (1, row, True)


def test_where_one_number_lies_chooses_no_schedule():
    scale = PointerParam("p2", float32, "read")
    elements = (Load("p0", I, float32), Load("p2", ROWS * 3, float32), Op("mul", (0, 1), float32))
    kernel = Kernel(
        (*POINTERS, scale, *SIZES), (Axis("i0", ROWS),), (), elements, (Store("p1", I, 2, "cell"),)
    )
    chooser = Chooser.of(kernel)
    assert chooser.pointers == (0, 1)
    assert chooser.schedule((0, 0, 8, 64, 64)) == chooser.schedule((0, 0, 0, 64, 64))
    assert chooser.schedule((0, 8, 0, 64, 64)) != chooser.schedule((0, 0, 0, 64, 64))
    assert chooser.schedule((0, 0, 8, 64, 64)).schedule.divisible == (0, 1, 3)
    assert Chooser.of(gathered()).pointers == (0, 1, 2)  # it is read wherever the indices say
    parts = parted(kernel, 3)
    taken = [parts.params[n].name for n in Chooser.of(parts).pointers]
    assert taken == ["p0", "p1", "p0_1", "p1_1", "p0_2", "p1_2"]


def test_how_many_rows_there_are_chooses_no_schedule():
    """Not by multiples of 16: no load is wider for it."""
    side_by_side = Chooser.of(rows(I * COLUMNS + R))
    few, more = (side_by_side.schedule((0, 0, n, 4096)) for n in (1600, 1601))
    assert few.schedule == more.schedule and few.tiles != more.tiles
    narrow = side_by_side.schedule((0, 0, 1600, 4095)).schedule
    assert narrow.divisible != few.schedule.divisible
    strided = Chooser.of(rows(R * ROWS + I))
    few, more = (strided.schedule((0, 0, n, 7)).schedule for n in (1600, 1601))
    assert few != more  # neighbours in memory are of different cells


@pytest.mark.parametrize("inner", (2048, 24, 7))
def test_cells_end_where_a_row_of_known_length_ends(inner):
    """A multiple of 16 is one however many there are."""
    axes = (Axis("i0", ROWS), Axis("r0", inner))
    index = I * inner + R
    kernel = Kernel(
        (*POINTERS, *SIZES[:1]),
        axes,
        (),
        (Load("p0", index, float32),),
        (Store("p1", index, 0, "cell"),),
    )
    chooser = Chooser.of(kernel)
    even, odd = (chooser.schedule((0, 0, n)).schedule for n in (16000, 16001))
    assert (even == odd) is (inner == 2048)


def joined(position: Expr) -> Kernel:
    """Rows [n0, n1] that are read where an index is below n2."""
    index = I * COLUMNS + R
    elements = (
        Position(position, int64), Read("n2", int64), Op("lt", (0, 1), bool_),
        Load("p0", index, bfloat16, 2),
    )  # fmt: skip
    pointers = (PointerParam("p0", bfloat16, "read"), PointerParam("p1", bfloat16, "write"))
    params = (*pointers, *SIZES, SizeParam("n2"))
    stores = (Store("p1", index, 3, "cell"),)
    return Kernel(params, (Axis("i0", ROWS), Axis("r0", COLUMNS)), (), elements, stores)


def test_loads_are_wide_where_a_mask_ends_at_a_multiple_of_16(tmp_path):
    """As of tensors that are joined along their rows: a rotary embedding reads the other half."""
    chooser = Chooser.of(joined(R))
    for end, wide in ((64, True), (65, False)):
        schedule = chooser.schedule((0, 0, 4096, 128, end)).schedule
        made = compile_kernel(DeviceFunction("kernel", "", joined(R), 0), schedule, tmp_path, 90)
        assert ("ld.global.v4.b32" in made.asm["ptx"]) is wide
        assert ("ld.global.b16" in made.asm["ptx"]) is not wide
    of_rows = Chooser.of(joined(I))
    few, more = (of_rows.schedule((0, 0, 4096, 128, end)).schedule for end in (64, 65))
    assert few == more


def test_large_tensors_of_short_elements_have_half_as_many_programs():
    chooser = Chooser.of(joined(R))
    large, small = (chooser.schedule((0, 0, n, 4096, 64)) for n in (4096, 256))
    assert (large.schedule.block, large.schedule.warps) == (2048, 8)
    assert (small.schedule.block, small.schedule.warps) == (1024, 4)
    assert Chooser.of(gathered()).schedule((0, 0, 0, 1 << 26, 64)).schedule.block == 1024


def test_shares_of_one_tile_are_known_and_larger_ones_are_walked():
    chooser = Chooser.of(rows(I * COLUMNS + R))
    few, lone = chooser.schedule((0, 0, 3, 131072)), chooser.schedule((0, 0, 1, 1 << 26))
    assert few.schedule.once and few.each == few.schedule.fiber
    assert not lone.schedule.once and lone.each > lone.schedule.fiber == 4096
    assert lone.schedule.warps == 16 and lone.schedule.unroll == 2


def test_columns_have_more_programs_where_they_are_few_or_their_loads_are_narrow():
    chooser = Chooser.of(rows(R * ROWS + I))
    few, many, odd = (
        chooser.schedule((0, 0, *s)) for s in ((2048, 64), (2**20, 64), (50257, 4096))
    )
    assert (few.schedule.block, many.schedule.block, odd.schedule.block) == (32, 64, 32)
    assert odd.shares == 2 and few.shares == many.shares == 1
    assert chooser.schedule((0, 0, 50257, 700)).shares == 1  # few elements in each
    large = chooser.schedule((0, 0, 5120, 4096)).schedule
    assert (large.block, large.fiber, large.warps) == (32, 64, 4)
    short = replace(rows(R * ROWS + I), params=(*joined(R).params[:2], *SIZES))
    tiles = [Chooser.of(short).schedule((0, 0, n, 4096)).schedule for n in (4096, 5120)]
    assert [(t.block, t.fiber, t.warps) for t in tiles] == [(64, 64, 4), (64, 128, 8)]


def test_rows_that_are_written_stay_in_registers_twice_as_long():
    written = Kernel(
        (*POINTERS, *SIZES),
        (Axis("i0", ROWS),),
        (Axis("r0", COLUMNS),),
        (
            Load("p0", I * COLUMNS + R, float32),
            Reduce("sum", 0, float32),
            Op("sub", (0, 1), float32),
        ),
        (Store("p1", I * COLUMNS + R, 2, "cell"),),
    )
    chooser, summed = Chooser.of(written), Chooser.of(rows(I * COLUMNS + R))
    made = chooser.schedule((0, 0, 4096, 32000)).schedule
    assert (made.pieces, made.fiber, made.warps) == (8, 4096, 32)
    assert not summed.schedule((0, 0, 4096, 32000)).schedule.pieces
    assert not chooser.schedule((0, 0, 4096, 32001)).schedule.pieces
    assert not chooser.schedule((0, 0, 4096, 32784)).schedule.pieces


def softmax_like(below: str = "sub", combine: str = "max") -> Kernel:
    elements = (
        Load("p0", I * COLUMNS + R, float32),
        Reduce(combine, 0, float32),
        Op(below, (0, 1), float32),
        Op("exp", (2,), float32),
        Reduce("sum", 3, float32),
    )
    return Kernel(
        (*POINTERS, *SIZES), (Axis("i0", ROWS),), (Axis("r0", COLUMNS),), elements,
        (Store("p1", I, 4, "fiber"),),
    )  # fmt: skip


def test_a_sum_below_a_maximum_is_found_and_nothing_like_it_is():
    found = online(softmax_like())
    assert found.sums == {4: 1} and analyse(found.kernel).count == 2
    assert passes(softmax_like()) == 1
    for other in (softmax_like(below="add"), softmax_like(combine="min")):
        assert not online(other).sums and online(other).kernel is other and passes(other) == 2


@pytest.mark.parametrize("columns", [32_000, 50_257, 50_264])
def test_what_one_thread_has_of_a_row_is_combined_without_the_others(columns, tmp_path):
    """No element of a long row goes through shared memory, in which threads meet."""
    kernel = softmax_like()
    schedule = Chooser.of(kernel).schedule((0, 0, 4096, columns)).schedule
    assert not schedule.pieces and schedule.phase is None
    made = compile_kernel(DeviceFunction("kernel", "", kernel, 0), schedule, tmp_path, 90)
    whole, loops = made.asm["ttgir"], made.asm["ttgir"].split("scf.for")[2:]
    assert len(loops) == 2  # over the row: tiles that lie in it, and its ends
    for loop in loops:
        body = loop[: loop.index("scf.yield")]
        assert "tt.reduce" in body and "math.exp" in body
        assert "ttg.convert_layout" not in body, whole
    own = thread_elements(kernel, schedule)
    assert own.turns * own.neighbours * 32 * schedule.warps == schedule.fiber


def test_tiles_that_lie_in_a_row_have_no_mask():
    schedule = Chooser.of(softmax_like()).schedule((0, 0, 4096, 32_000)).schedule
    first, last = emit_triton(softmax_like(), "kernel", schedule).split("for start in")[-2:]
    assert "mask=rmask" not in first and "mask=rmask" in last


def normed_sum(position: Expr = I * COLUMNS + R, mode: str = "set") -> Kernel:
    """Elements of a sum, which are stored, by their row's total."""
    elements = (
        Load("p0", I * COLUMNS + R, float32),
        Load("p1", I * COLUMNS + R, float32),
        Op("add", (0, 1), float32),
        Reduce("sum", 2, float32),
        Op("div", (2, 3), float32),
    )
    pointers = (*POINTERS, *(PointerParam(name, float32, "write") for name in ("p2", "p3")))
    pointers = tuple(
        replace(p, access="write" if n > 1 else "read") for n, p in enumerate(pointers)
    )
    return Kernel(
        (*pointers, *SIZES), (Axis("i0", ROWS),), (Axis("r0", COLUMNS),), elements,
        (Store("p2", position, 2, "cell", mode=mode), Store("p3", I * COLUMNS + R, 4, "cell")),
    )  # fmt: skip


def test_what_a_phase_has_written_of_two_tensors_is_read_back():
    schedule = Chooser.of(normed_sum()).schedule((0, 0, 0, 0, 4096, 50_257)).schedule
    before, after = emit_triton(normed_sum(), "kernel", schedule).split("tl.debug_barrier()")
    assert "tl.load(p0" in before and "tl.load(p2" not in before
    assert "tl.load(p0" not in after and "tl.load(p1" not in after and "tl.load(p2" in after
    for other in (normed_sum(I + R), normed_sum(mode="sum")):  # cells that share an element
        assert "tl.load(p2" not in emit_triton(other, "kernel", schedule)
    sum_of = normed_sum()
    weighted = (*sum_of.elements, Op("mul", (4, 0), float32), Op("mul", (5, 1), float32))
    for last in (5, 6):  # one of what is added is loaded anyway, or both are
        stores = (sum_of.stores[0], replace(sum_of.stores[1], value=last))
        text = emit_triton(replace(sum_of, elements=weighted, stores=stores), "kernel", schedule)
        assert "tl.load(p2" not in text and "tl.debug_barrier()" not in text
    in_registers = Chooser.of(normed_sum()).schedule((0, 0, 0, 0, 4096, 4096)).schedule
    assert "tl.load(p2" not in emit_triton(normed_sum(), "kernel", in_registers)


def test_a_sum_that_was_rounded_is_read_back_rounded():
    """Nothing behind it names the sum as it was before, which that phase does not make."""
    at, wide = I * COLUMNS + R, float32
    elements = (
        *(Load("p0", at, bfloat16), Op("cast", (0,), wide), Load("p1", at, wide)),
        *(Op("add", (1, 2), wide), Op("cast", (3,), bfloat16), Op("cast", (4,), wide)),
        *(Reduce("sum", 5, wide), Op("div", (5, 6), wide)),
    )
    kinds = (("p0", bfloat16, "read"), ("p1", wide, "read"), ("p2", bfloat16, "write"))
    pointers = (PointerParam(*kind) for kind in (*kinds, ("p3", wide, "write")))
    kernel = Kernel(
        (*pointers, *SIZES), (Axis("i0", ROWS),), (Axis("r0", COLUMNS),), elements,
        (Store("p2", at, 4, "cell"), Store("p3", at, 7, "cell")),
    )  # fmt: skip
    schedule = Chooser.of(kernel).schedule((0, 0, 0, 0, 4096, 50_257)).schedule
    before, after = emit_triton(kernel, "kernel", schedule).split("tl.debug_barrier()")
    assert "as_rounded(v3" in before and "v4 = tl.load(p2" in after and "v3" not in after


def test_a_grid_is_exact_where_rows_are_in_registers_and_sizes_are_the_hosts():
    at = (0, 0, 4096)
    assert Chooser.of(softmax_like()).schedule((*at, 4096)).schedule.exact_grid
    assert not Chooser.of(softmax_like()).schedule((*at, 50_257)).schedule.exact_grid
    many = Chooser.of(reading())._choice(KernelSchedule(1, 16, 1), 1, (0, 0, 1 << 32, 16))
    assert not many.schedule.exact_grid
    kernel = softmax_like()
    params = (*POINTERS, *(replace(size, in_memory=True) for size in SIZES))
    there = Kernel(params, kernel.axes, kernel.reduction_axes, kernel.elements, kernel.stores)
    assert not Chooser.of(there).schedule((*at, 4096)).schedule.exact_grid
    text = emit_triton(kernel, "kernel", KernelSchedule(1, 16, 1, exact_grid=True))
    assert "num_programs" not in text.split("def kernel")[1]


def test_text_of_divisions_in_one_another_is_as_long_as_they_are_many():
    def nested(depth: int) -> Expr:
        index = I + R
        for _ in range(depth):
            index = (index * ROWS - 3) // COLUMNS + (index - 7) % COLUMNS
        return index

    def text(depth: int) -> str:
        return emit_triton(
            rows(nested(depth)), "kernel", Chooser.of(rows(R)).schedule((0, 0, 5, 40)).schedule
        )

    lengths = [len(text(depth)) for depth in (2, 4, 6, 8)]
    steps = [b - a for a, b in zip(lengths, lengths[1:])]
    assert max(steps) < 2 * min(steps), steps


def test_divisions_in_one_another_round_down():
    index, printer = I, ElementPrinter(rows(R), "kernel", KernelSchedule(16))
    for _ in range(3):
        index = (index * ROWS - 30) // COLUMNS + (index - 70) % COLUMNS
    printer.phases = analyse(rows(R))
    result = printer._dim(index)
    for i0, n0, n1 in itertools.product((0, 1, 9, 40), (1, 3), (1, 5, 8)):
        values = {"i0": i0, "n0": n0, "n1": n1}
        for line in printer.lines:
            exec(line.strip(), {}, values)
        assert eval(result, {}, values) == evaluate(
            index, {I.symbol: i0, ROWS.symbol: n0, COLUMNS.symbol: n1}
        )
