"""What each kind of step says of itself: what it reads, writes, defines and binds."""

from __future__ import annotations

import pytest

from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.dtypes import float32
from anyshape.ir.loops import Axis, Kernel, Load, Op, PointerParam, SizeParam, Store
from anyshape.ir.program import (
    Allocate,
    Assertion,
    Assign,
    BindItem,
    BindNumber,
    BindSize,
    BumpVersion,
    CheckStep,
    EagerCall,
    ExternCall,
    Free,
    Launch,
    LaunchList,
    LibraryCall,
    Loop,
    NativeNested,
    NativeRegion,
    View,
    ViewCall,
)
from anyshape.symbolic import Space, le

SPACE = Space()
N, U, N0, I0 = (SPACE.symbol(name) for name in ("n", "u", "n0", "i0"))
X, Y, Z = (BufferRef(name) for name in "xyz")
KERNEL = Kernel(
    (
        PointerParam("p0", float32, "read"),
        PointerParam("p1", float32, "update"),
        PointerParam("p2", float32, "write"),
        SizeParam("n0"),
    ),
    (Axis("i0", N0),),
    (),
    (Load("p0", I0, float32), Op("neg", (0,), float32)),
    (Store("p1", I0, 1, "cell"), Store("p2", I0, 1, "cell")),
)
LAUNCH = Launch(KERNEL, (X, Y, Z, N))
CALL = ExternCall("torch.mm", (X, (Y, 2)), {"other": Z}, ("out", ""))
BUFFERS = {name: Buffer(name, float32, "cpu", (N,), (1,), "temp") for name in ("x", "out")}

STEPS = [  # step, reads, writes, defines
    (Allocate("x"), "", "", "x"),
    (Free(("x", "y")), "", "", ""),
    (LAUNCH, "x y", "y z", ""),
    (LaunchList((LAUNCH, LAUNCH), divided=False), "x y", "y z y z", ""),
    (CALL, "x y z", "", "out"),
    (EagerCall("torch.sort", (X,), {}, ("y", "z")), "x", "", "y z"),
    (View("y", "x", 3), "x", "", "y"),
    (ViewCall("torch.select", (X, 0, 1), {}, "y"), "x", "", "y"),
    (Assign("torch.Tensor.copy_", "x", (Y,)), "y", "x", ""),
    (Assertion("x"), "x", "", ""),
    (LibraryCall(CALL, "mm_out", ()), "x y z", "", "out"),
    (BindSize(U.symbol, "x", 0), "x", "", ""),
    (BindItem(U.symbol, "x"), "x", "", ""),
    (BindNumber(U.symbol, "isqrt", (N,)), "", "", ""),
    (CheckStep(le(U, 3), "at most three"), "", "", ""),
    (BumpVersion("x"), "", "x", ""),
    (Loop((N, (X,), (Y,)), (), ("y",)), "x y", "", "y"),
    (NativeNested(Loop((N, (X,), (Z,)), (), ("y",)), ("s",)), "x z", "", "y s"),
    (NativeRegion((View("v", "x"), LAUNCH), ("x", "z"), {"y": (0, 0)}, (), (), ()), "x", "z", ""),
]


@pytest.mark.parametrize("step,reads,writes,defines", STEPS, ids=lambda x: type(x).__name__)
def test_a_step_says_what_it_does(step, reads: str, writes: str, defines: str) -> None:
    assert list(dict.fromkeys(step.reads())) == reads.split()
    assert list(step.writes()) == writes.split()
    assert list(step.defines()) == defines.split()
    assert list(step.mentions()) == list(dict.fromkeys(f"{reads} {writes} {defines}".split()))


@pytest.mark.parametrize(
    "step", [step for step, *_ in STEPS if isinstance(step, (BindSize, BindItem, BindNumber))]
)
def test_a_step_binds_the_size_that_it_alone_knows(step) -> None:
    assert list(step.binds()) == [U.symbol]


def test_what_a_step_is_handed_names_the_sizes_of_the_layouts_that_it_makes() -> None:
    assert list(Allocate("x").arguments(BUFFERS)) == [N, 1]
    assert list(View("out", "x", 2 * N).arguments(BUFFERS)) == [N, 1, 2 * N]
    assert list(CALL.arguments(BUFFERS)) == [X, (Y, 2), Z]
    restrided = ExternCall("torch.mm", (X,), {}, ("out",), restride=True)
    assert list(restrided.arguments(BUFFERS)) == [X, 1]


def test_what_may_fail_is_what_ends_a_segment_as_if_it_had_not_happened() -> None:
    failing = {type(step) for step, *_ in STEPS if step.may_fail}
    assert failing == {ExternCall, EagerCall, LibraryCall, Assertion, BindNumber, CheckStep} | {
        Loop,
        NativeNested,
    }
