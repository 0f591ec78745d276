"""Flags that kernels set themselves: which launches and buffers are left, whoever else reads the condition."""

from __future__ import annotations

from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.dtypes import bool_, int64
from anyshape.ir.loops import (
    Axis,
    Const,
    Kernel,
    Load,
    Op,
    PointerParam,
    Reduce,
    SizeParam,
    Store,
)
from anyshape.ir.program import Allocate, Assertion, EagerCall, Free, Launch, Program
from anyshape.symbolic import Space
from anyshape.targets.triton.flags import with_flags
from anyshape.targets.triton.target import TRITON

SPACE = Space()
S, I, R, ROWS = (SPACE.symbol(name) for name in ("s0", "i0", "r0", "n0"))


def tensor(name, dtype, role="temp", shape=(S,)) -> Buffer:
    return Buffer(name, dtype, "cuda:0", shape, (1,) * len(shape), role)


NEGATIVE = Kernel(
    (
        PointerParam("p0", int64, "read"),
        PointerParam("p1", bool_, "write"),
        PointerParam("p2", int64, "write"),
        SizeParam("n0"),
    ),
    (Axis("i0", ROWS),),
    (),
    (Load("p0", I, int64), Const(0, int64), Op("lt", (0, 1), bool_), Op("where", (2, 1, 0), int64)),
    (Store("p1", I, 2, "cell"), Store("p2", I, 3, "cell")),
)
ANY = Kernel(
    (PointerParam("p0", bool_, "read"), PointerParam("p1", bool_, "write"), SizeParam("n0")),
    (),
    (Axis("r0", ROWS),),
    (Load("p0", R, bool_), Reduce("any", 0, bool_)),
    (Store("p1", 0, 1, "fiber"),),
)
BUFFERS = {
    "positions": tensor("positions", int64, "input"),
    "bad": tensor("bad", bool_),
    "safe": tensor("safe", int64, "output"),
    "found": tensor("found", bool_, shape=()),
}
STEPS = (
    Allocate("bad"),
    Allocate("safe"),
    Launch(NEGATIVE, (BufferRef("positions"), BufferRef("bad"), BufferRef("safe"), S)),
    Allocate("found"),
    Launch(ANY, (BufferRef("bad"), BufferRef("found"), S)),
    Free(("bad",)),
    Assertion("found", deferred=True),
    Free(("found",)),
)


def flagged(steps=STEPS, seen=True, outputs=("safe",)) -> Program:
    made = Program(BUFFERS, ("positions",), steps, tuple(map(BufferRef, outputs)), (S,))
    return with_flags(made, TRITON.variants, lambda device: seen)


def launches(program):
    return [step for step in program.steps if isinstance(step, Launch)]


def test_the_kernel_that_finds_it_sets_the_flag_and_what_told_it_is_gone():
    made = flagged()
    (launch,) = launches(made)
    assert made.steps == (Allocate("safe"), launch) and {*made.buffers} == {
        "positions",
        "safe",
        "flag_4",
    }
    assert launch.args[1] == BufferRef("flag_4") and made.buffers["flag_4"].role == "flag"
    assert launch.kernel.stores[0] == Store("p1", 0, 2, "cell", mask=2)
    assert launch.kernel.stores[1] == NEGATIVE.stores[1]


def test_what_is_read_besides_is_stored_and_the_next_kernel_sets_the_flag():
    read = EagerCall("torch.sum", (BufferRef("bad"),), {}, ("",))
    for made in (flagged((*STEPS[:5], read, *STEPS[5:])), flagged(outputs=("safe", "bad"))):
        first, second = launches(made)
        assert first.kernel is NEGATIVE and second.args[1] == BufferRef(f"flag_{len(BUFFERS)}")
        assert second.kernel.stores == (Store("p1", 0, 1, "fiber", mask=1),)


def test_all_stays_where_the_condition_is_read_or_the_host_does_not_see_flags():
    assert flagged(seen=False).steps == STEPS
    assert flagged(outputs=("safe", "found")).steps == STEPS
    at_once = (*STEPS[:6], Assertion("found"), STEPS[7])
    assert flagged(at_once).steps == at_once


def test_a_part_of_the_cells_does_not_tell_of_all():
    shorter = Launch(ANY, (BufferRef("bad"), BufferRef("found"), S - 1))
    steps = (*STEPS[:4], shorter, *STEPS[5:])
    assert [launch.kernel.stores for launch in launches(flagged(steps))][0] == NEGATIVE.stores
