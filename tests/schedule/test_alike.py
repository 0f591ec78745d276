"""Of kernels that differ in whole numbers alone, where there are many, one is compiled; few stay as
they are, and steps of 1 stay constants."""

from __future__ import annotations

import pytest
import torch

import anyshape
from anyshape.costs import COSTS
from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.dtypes import float32, int64
from anyshape.ir.loops import (
    Axis,
    Const,
    Kernel,
    Load,
    Op,
    PointerParam,
    Position,
    SizeParam,
    Store,
)
from anyshape.ir.program import Launch
from anyshape.ir.variants import no_variants
from anyshape.schedule.alike import one_for_many
from anyshape.symbolic import Space

MANY = COSTS.kernels_alike


def triangular(turns):
    """The recurrence in the chunks of delta rules: each turn reads what the last has written."""

    def program(x):
        x = x.clone()
        for i in range(1, turns):
            row, above = x[..., i, :i].clone(), x[..., :i, :i].clone()
            x[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
        return x

    return program


def strided(turns):
    return lambda x: tuple(x[:, 3 * i : 3 * i + i + 2].sum(1) for i in range(turns))


def padded(turns):
    return lambda x: tuple(
        torch.nn.functional.pad(x, (i, 2 * i)).cumsum(1) for i in range(2, turns)
    )


def joined(turns):
    def program(x):
        for i in range(2, turns):
            x = torch.cat([x[:, :i] + 1, x[:, i:] - 1, x[:, -i:] * 2], 1).relu()[:, : x.shape[1]]
        return x

    return program


@pytest.mark.parametrize("made", [triangular, strided, padded])
def test_turns_of_an_unrolled_loop_share_their_kernels(made):
    counts = []
    for turns in (MANY + 4, 2 * MANY + 8):
        program = made(turns)
        fast = anyshape.compile(program, fullgraph=True)
        for rows in (2, 5, 1, 0):
            shape = (rows, turns, turns) if made is triangular else (rows, 70)
            x = torch.randn(shape) / 8
            torch.testing.assert_close(fast(x), program(x))
        counts.append(fast.stats().kernels)
    assert counts[0] == counts[1] < 2 * MANY


@pytest.mark.parametrize("turns", [3, MANY, 2 * MANY])
def test_parts_that_a_constant_cuts(turns):
    program = joined(turns)
    fast = anyshape.compile(program, fullgraph=True)
    for rows, columns in ((2, 50), (1, 37), (0, 64), (7, 33)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(fast(x), program(x))


def compared(numbers, step=1, op="lt"):
    """Launches of kernels that differ in the numbers: an extent, an offset, what positions are
    compared with, and the operand of another operator."""
    buffers = {name: Buffer(name, float32, "cpu", (), (), "temp") for name in ("x", "y")}
    launches = []
    for number in numbers:
        space = Space()
        i0, i1, n0 = (space.symbol(name) for name in ("i0", "i1", "n0"))
        elements = (
            Position(i1, int64),
            Const(number, int64),
            Op(op, (0, 1), int64),
            Load("p0", number * i0 + step * i1 + 2 * number, float32),
        )
        params = (PointerParam("p0", float32, "read"), PointerParam("p1", float32, "write"))
        kernel = Kernel(
            (*params, SizeParam("n0")),
            (Axis("i0", n0), Axis("i1", number)),
            (),
            (*elements, Op("where", (2, 3, 3), float32)),
            (Store("p1", 5 * i0 + i1, 4, "cell"),),
        )
        launches.append(Launch(kernel, (BufferRef("x"), BufferRef("y"), 7)))
    return one_for_many(launches, buffers, no_variants)


def kernels_of(launches):
    return list(dict.fromkeys(launch.kernel for launch in launches))


def test_many_are_one_that_is_handed_the_numbers():
    launches = compared(range(3, 3 + MANY))
    (kernel,) = kernels_of(launches)
    assert [launch.args[2:] for launch in launches] == [(7, n, 2 * n) for n in range(3, 3 + MANY)]
    assert kernel.axes[1].extent is kernel.elements[1].index  # one parameter: the same in all
    assert str(kernel.stores[0].index) == "5*i0 + i1"  # in which they do not differ


def test_few_stay_as_they_are():
    launches = compared(range(3, 2 + MANY))
    assert len(kernels_of(launches)) == MANY - 1
    assert {launch.args[2:] for launch in launches} == {(7,)}


def test_a_step_of_one_is_a_constant_in_all_of_them():
    assert len(kernels_of(compared([1, *range(3, 3 + MANY)]))) == 2


def test_what_operators_know_as_a_constant_stays_one():
    assert len(kernels_of(compared(range(3, 3 + MANY), op="floordiv"))) == MANY


def test_negative_numbers_are_signed():
    launches = compared(range(3, 3 + MANY))
    (kernel,) = kernels_of(launches)
    assert not any(param.signed for param in kernel.params[2:])
    backwards = one_for_many([*map(shifted, range(MANY))], {"x": BUFFER, "y": BUFFER}, no_variants)
    (kernel,) = kernels_of(backwards)
    assert [param.signed for param in kernel.params[2:]] == [True]
    assert [launch.args[-1] for launch in backwards] == [3 - 2 * n for n in range(MANY)]


BUFFER = Buffer("x", float32, "cpu", (), (), "temp")


def shifted(number):
    i0 = Space().symbol("i0")
    params = (PointerParam("p0", float32, "read"), PointerParam("p1", float32, "write"))
    load = Load("p0", 3 * i0 + 3 - 2 * number, float32)
    kernel = Kernel(params, (Axis("i0", 9),), (), (load,), (Store("p1", i0, 0, "cell"),))
    return Launch(kernel, (BufferRef("x"), BufferRef("y")))
