"""The verifier of programs: each kind of mistake with memory is planted once and named, beside the
same program without it, which passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from anyshape.ir.buffers import Buffer, BufferRef, TensorArg
from anyshape.ir.byte_ranges import Sizes
from anyshape.ir.dtypes import float32, float64
from anyshape.ir.established import established_in
from anyshape.ir.loops import Axis, Kernel, Load, Op, PointerParam, Reduce, SizeParam, Store
from anyshape.ir.program import (
    Allocate,
    Assign,
    BindItem,
    Call,
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
    Program,
    Step,
    View,
)
from anyshape.ir.slots import Slot
from anyshape.ir.verify import Malformed
from anyshape.ir.verify_bounds import verify_bounds
from anyshape.ir.verify_program import verify_memory, verify_program
from anyshape.symbolic import Dim, Expr, Facts, Space, eq, ge

SPACE = Space()
N, M = SPACE.fresh("n"), SPACE.fresh("m")
FACTS = Facts(SPACE)
FACTS.assume(ge(N, 0))
FACTS.assume(ge(M, 0))
EARLY, LATE = (SPACE.fresh("u", policy="unbacked", knowledge="midrun") for _ in range(2))
FACTS.assume(ge(EARLY, 0))
FACTS.assume(ge(LATE, 0))
FACTS.assume(eq(EARLY + LATE, 10))
KERNEL_SPACE = Space()
I0, N0 = KERNEL_SPACE.symbol("i0"), KERNEL_SPACE.symbol("n0")
AXES = (Axis("i0", N0),)
BYTES = 4 * N
ROOM = (BYTES + 63) // 64 * 64


def kernel(*operands: str, update: bool = False, index=I0, row: bool = False) -> Kernel:
    """Reads one or two operands and writes the last; ``index``: where the first one is read;
    ``update``: sets some elements only; ``row``: each element comes of all of the first operand."""
    *read, written = operands
    params = (
        *(PointerParam(name, float32, "read") for name in read),
        PointerParam(written, float32, "write"),
        SizeParam("n0"),
    )
    elements = [Load(read[0], index, float32), *(Load(name, I0, float32) for name in read[1:])]
    last = len(elements) - 1
    elements.append(Reduce("sum", last, float32) if row else Op("neg", (last,), float32))
    stores = (Store(written, I0, last + 1, "fiber" if row else "cell"),)
    rows = (Axis("r0", N0),) if row else ()
    return Kernel(params, AXES, rows, tuple(elements), stores, update)


ONE, TWO = kernel("a", "c"), kernel("a", "b", "c")
FLIPPED = kernel("a", "c", index=N0 - 1 - I0)
SUMMED = kernel("a", "c", row=True)
SOME = kernel("a", "c", update=True)


def launch(made: Kernel, *names: str) -> Launch:
    return Launch(made, (*map(BufferRef, names), N))


def at_once(*launches: Launch) -> LaunchList:
    return LaunchList(launches, divided=False)


def view(made: str, base: str, offset: int = 0) -> View:
    return View(made, base, offset)


def call(function: str, made: str, *names: str, kind=ExternCall, **rest) -> Call:
    return kind(function, tuple(map(BufferRef, names)), {}, (made,), **rest)


def mm(made: str, *names: str) -> LibraryCall:
    """A product that a native region writes to memory of the program."""
    args = tuple(("tensor", TensorArg(name, (N,), (1,))) for name in (made, *names))
    return LibraryCall(
        call("torch.mm", made, *names, restride=True, new_memory=True), "mm_out", args
    )


def attention(made: str, name: str) -> LibraryCall:
    """A library's operator whose result torch allocates inside a native region."""
    args = (("tensor", TensorArg(name, (N,), (1,))),)
    function = "torch.nn.functional.scaled_dot_product_attention"
    made_by = call(function, made, name, restride=True, new_memory=True)
    return LibraryCall(made_by, "aten::attention", args, dispatched=True)


def conv(made: str, *names: str) -> Call:
    return call("torch.nn.functional.conv2d", made, *names, restride=True, new_memory=True)


def turns(made: str, spare: str, given: str) -> NativeNested:
    return NativeNested(Loop((3, (BufferRef(given),), ()), (), (made,)), (spare,))


def assign(target: str, source: str) -> Assign:
    return Assign("anyshape.assign", target, (BufferRef(source),))


def region(*steps: Step, outer: str = "", inner=None, rooms=((ROOM,),)) -> NativeRegion:
    positions = {
        name: position if isinstance(position, tuple) else (position, 0)
        for name, position in (inner or {}).items()
    }
    slots = tuple(map(Slot, rooms)) if positions else ()
    return NativeRegion(steps, tuple(outer.split()), positions, slots, (), ())


def program(*steps: Step, outputs: str, inputs: str = "x y", **changed: Buffer) -> Program:
    """Every buffer is of n floats, unless ``changed``."""
    names = {*inputs.split(), *outputs.split()}
    for step in steps:
        for one in (step, *(step.steps if isinstance(step, NativeRegion) else ())):
            names.update(one.mentions())
    buffers = {name: Buffer(name, float32, "cpu", (N,), (1,), "temp") for name in names}
    for name in inputs.split():
        buffers[name] = replace(buffers[name], role="input")
    made = tuple(map(BufferRef, outputs.split()))
    return Program({**buffers, **changed}, tuple(inputs.split()), steps, made, ())


def counted(name: str, count: Expr) -> Buffer:
    return Buffer(name, float32, "cpu", (count,), (1,), "temp")


def large(name: str) -> Buffer:
    return Buffer(name, float64, "cpu", (N,), (1,), "temp")


@dataclass(frozen=True)
class Planted:
    """A right program, the same with a mistake, and what is said of it."""

    right: Program
    wrong: Program
    said: str
    also: tuple[Program, ...] = field(default=())


def taken(*last: Step, outputs: str) -> Program:
    """h = conv(x); g = relu(h) in the memory of h; r = conv(g)"""
    return program(
        conv("h", "x"), Allocate("g", "h"), launch(ONE, "h", "g"), *last, outputs=outputs
    )


def shared(*steps: Step, inner, rooms=((ROOM,),), **rest) -> Program:
    return program(
        Allocate("r"), region(*steps, outer="x y r", inner=inner, rooms=rooms), outputs="r", **rest
    )


PLANTED: dict[str, Planted] = {
    # --- memory that one buffer takes of another ---
    "taken while it is returned": Planted(
        taken(conv("r", "g"), outputs="r"),
        taken(conv("r", "g"), outputs="r h"),
        r"step 2 \(a kernel that writes g\) has written g over the output h",
    ),
    "taken while it is read later": Planted(
        taken(conv("r", "g"), outputs="r"),
        taken(conv("r", "h"), outputs="r"),
        r"step 3 \(torch.nn.functional.conv2d makes r\) reads h, over which step 2 .* written g",
    ),
    "taken while a view that is made later is returned": Planted(
        taken(conv("r", "g"), view("v", "g"), outputs="r v"),
        taken(conv("r", "g"), view("v", "h"), outputs="r v"),
        r"step 2 .* has written g over the output v",
    ),
    "taken while a view of a view is returned": Planted(
        program(
            conv("h", "x"), view("v", "h"), view("w", "v", 2), Free(("h", "v")),
            Allocate("g"), launch(ONE, "w", "g"), outputs="g w",
        ),
        program(
            conv("h", "x"), view("v", "h"), view("w", "v", 2),
            Allocate("g", "h"), launch(ONE, "h", "g"), outputs="g w",
        ),
        r"has written g over the output w",
    ),
    "taken through an operator that may return its argument": Planted(
        program(
            conv("h", "x"), call("torch.contiguous", "c", "h", kind=EagerCall, restride=True),
            Allocate("g", "h"), launch(ONE, "h", "g"), outputs="g c",
        ),
        program(
            conv("h", "x"), call("torch.contiguous", "c", "h", kind=EagerCall),
            Allocate("g", "h"), launch(ONE, "h", "g"), outputs="g c",
        ),
        r"has written g over the output c",
    ),
    "taken from an argument": Planted(
        program(Allocate("g"), launch(ONE, "x", "g"), outputs="g"),
        program(Allocate("g", "x"), launch(ONE, "x", "g"), outputs="g"),
        r"step 0 \(allocates g over x\) writes g into the memory of x, which is not the program's",
    ),
    "taken from an operator that may have kept it": Planted(
        program(conv("h", "x"), Allocate("g", "h"), launch(ONE, "h", "g"), outputs="g"),
        program(
            call("user.op", "h", "x", kind=EagerCall, guessed=True),
            Allocate("g", "h"), launch(ONE, "h", "g"), outputs="g",
        ),
        r"writes g into the memory of h, which is not the program's own",
    ),
    "taken though it is too small": Planted(
        program(conv("h", "x"), Allocate("g", "h"), launch(ONE, "h", "g"), outputs="g", g=large("g"), h=large("h")),
        program(conv("h", "x"), Allocate("g", "h"), launch(ONE, "h", "g"), outputs="g", g=large("g")),
        r"step 1 .* writes g, which is not known to fit into h",
    ),
    "taken after it is freed": Planted(
        program(conv("h", "x"), Allocate("g", "h"), Free(("h",)), launch(ONE, "x", "g"), outputs="g"),
        program(conv("h", "x"), Free(("h",)), Allocate("g", "h"), launch(ONE, "x", "g"), outputs="g"),
        r"step 2 \(allocates g over h\) uses h, which is gone since step 1 \(frees h\)",
    ),
    # --- kernels that write where they read ---
    "in place, elements read elsewhere": Planted(
        taken(outputs="g"),
        program(conv("h", "x"), Allocate("g", "h"), launch(FLIPPED, "h", "g"), outputs="g"),
        r"step 2 \(a kernel that writes g\) writes g where it reads h",
    ),
    "in place, of a reduction": Planted(
        program(conv("h", "x"), Allocate("g"), launch(SUMMED, "h", "g"), outputs="g"),
        program(conv("h", "x"), Allocate("g", "h"), launch(SUMMED, "h", "g"), outputs="g"),
        r"writes g where it reads h",
    ),
    "in place, through a view that begins elsewhere": Planted(
        program(
            conv("h", "x"), view("v", "h"), Allocate("g", "h"), launch(ONE, "v", "g"), outputs="g",
        ),
        program(
            conv("h", "x"), view("v", "h", 1), Allocate("g", "h"), launch(ONE, "v", "g"), outputs="g",
        ),
        r"writes g where it reads v",
    ),
    "in place into an operand that is read later": Planted(
        program(
            conv("h", "x"), Allocate("g"), launch(ONE, "h", "g"), Allocate("k"),
            launch(TWO, "g", "h", "k"), outputs="k",
        ),
        program(
            conv("h", "x"), Allocate("g", "h"), launch(ONE, "h", "g"), Allocate("k"),
            launch(TWO, "g", "h", "k"), outputs="k",
        ),
        r"step 4 \(a kernel that writes k\) reads h, over which step 2 .* has written g",
    ),
    "one launch of a list reads what another one writes": Planted(
        program(
            Allocate("g"), Allocate("k"), at_once(launch(ONE, "x", "g"), launch(ONE, "y", "k")), outputs="g k",
        ),
        program(
            Allocate("g"), Allocate("k"), at_once(launch(ONE, "x", "g"), launch(ONE, "g", "k")), outputs="g k",
        ),
        r"step 2 .*: one launch touches g, another one writes g",
    ),
    "one launch of a list writes over what another one reads": Planted(
        program(
            conv("h", "x"), Allocate("g", "h"), Allocate("k"),
            at_once(launch(ONE, "h", "g"), launch(ONE, "y", "k")), outputs="g k",
        ),
        program(
            conv("h", "x"), Allocate("g", "h"), Allocate("k"),
            at_once(launch(ONE, "h", "k"), launch(ONE, "y", "g")), outputs="g k",
        ),
        r"step 3 .*: one launch touches h, another one writes g",
    ),
    "a library writes where it reads": Planted(
        shared(mm("r", "x", "y"), inner={}),
        program(conv("h", "x"), Allocate("r", "h"), region(mm("r", "h", "y"), outer="h y r"), outputs="r"),
        r"step 2.0 \(torch.mm makes r\) writes r where it reads h",
    ),
    "a loop writes where it reads": Planted(
        program(Allocate("r"), Allocate("s"), region(turns("r", "s", "x"), outer="x r s"), outputs="r"),
        program(
            conv("h", "x"), Allocate("r", "h"), Allocate("s"), region(turns("r", "s", "h"), outer="h r s"),
            outputs="r",
        ),
        r"step 3.0 \(a loop\) writes r where it reads h",
    ),
    "what a loop carries lies in one buffer": Planted(
        program(Allocate("r"), Allocate("s"), region(turns("r", "s", "x"), outer="x r s"), outputs="r"),
        program(Allocate("r"), region(view("s", "r"), turns("r", "s", "x"), outer="x r"), outputs="r"),
        r"step 1.1 \(a loop\) writes r and s in one buffer.s memory",
    ),
    "a loop fails after a write": Planted(
        program(Allocate("r"), region(turns("r", "s", "x"), outer="x r", inner={"s": 0}), assign("y", "r"), outputs="r"),
        program(Allocate("r"), assign("y", "x"), region(turns("r", "s", "x"), outer="x r", inner={"s": 0}), outputs="r"),
        r"step 2 \(a native region\) may fail after step 1",
    ),
    # --- the arena ---
    "two live buffers in one slot": Planted(
        shared(
            launch(ONE, "x", "a"), launch(ONE, "y", "b"), launch(TWO, "a", "b", "r"),
            inner={"a": 0, "b": 1}, rooms=((ROOM,), (ROOM,)),
        ),
        shared(
            launch(ONE, "x", "a"), launch(ONE, "y", "b"), launch(TWO, "a", "b", "r"),
            inner={"a": 0, "b": 0},
        ),
        r"step 1.2 \(a kernel that writes r\) reads a, over which step 1.1 .* has written b",
    ),
    "two live buffers that overlap for some sizes": Planted(
        shared(
            launch(ONE, "x", "a"), launch(ONE, "y", "b"), launch(TWO, "a", "b", "r"),
            inner={"a": (0, 0), "b": (0, ROOM)}, rooms=((ROOM + ROOM,),),
        ),
        shared(
            launch(ONE, "x", "a"), launch(ONE, "y", "b"), launch(TWO, "a", "b", "r"),
            inner={"a": (0, 0), "b": (0, 4 * M)}, rooms=((ROOM + 4 * M,),),
        ),
        r"reads a, over which step 1.1 .* has written b",
    ),
    "a slot too small": Planted(
        shared(launch(ONE, "x", "a"), launch(ONE, "a", "r"), inner={"a": 0}),
        shared(launch(ONE, "x", "a"), launch(ONE, "a", "r"), inner={"a": 0}, rooms=((4 * M,),)),
        r"step 1 \(a native region\): a is not known to fit into slot 0 of the arena of step 1",
    ),
    "a slot too small beside another": Planted(
        shared(
            launch(ONE, "x", "a"), launch(ONE, "a", "r"), inner={"a": (0, ROOM)}, rooms=((2 * ROOM,),)
        ),
        shared(launch(ONE, "x", "a"), launch(ONE, "a", "r"), inner={"a": (0, ROOM)}),
        r"a is not known to fit into slot 0",
    ),
    "the arena after its native region": Planted(
        shared(launch(ONE, "x", "a"), launch(ONE, "a", "r"), inner={"a": 0}),
        program(region(launch(ONE, "x", "a"), outer="x", inner={"a": 0}), outputs="a"),
        r"the output a is gone since step 0 \(a native region\)",
    ),
    "a view into the arena after its native region": Planted(
        shared(launch(ONE, "x", "a"), view("v", "a"), launch(ONE, "v", "r"), inner={"a": 0}),
        program(
            region(launch(ONE, "x", "a"), view("v", "a"), outer="x", inner={"a": 0}),
            conv("r", "v"), outputs="r",
        ),
        r"step 1 .* uses v, which is gone since step 0 \(a native region\)",
    ),
    "an inner step writes over an output": Planted(
        program(
            Allocate("r"), Allocate("s"),
            region(view("t", "s"), launch(ONE, "x", "t"), launch(ONE, "t", "r"), launch(ONE, "r", "s"), outer="x r s"),
            outputs="r s",
        ),
        program(
            Allocate("r"), Allocate("s"),
            region(view("t", "s"), launch(ONE, "x", "s"), launch(ONE, "y", "t"), launch(ONE, "t", "r"), outer="x y r s"),
            outputs="r s",
        ),
        r"step 2.2 \(a kernel that writes t\) has written t over the output s",
    ),
    "lent memory that is too small": Planted(
        program(
            Allocate("r"), region(view("t", "r"), launch(ONE, "x", "t"), launch(ONE, "t", "r"), outer="x r"),
            outputs="r",
        ),
        program(
            Allocate("r"), region(view("t", "r"), launch(ONE, "x", "t"), launch(ONE, "y", "r"), outer="x y r"),
            outputs="r", t=large("t"),
        ),
        r"step 1.1 .* writes t, which is not known to fit into r",
    ),
    "a slot sized by what is tested only later": Planted(
        program(
            BindItem(EARLY.symbol, "x"), BindItem(LATE.symbol, "y"), Allocate("r"),
            region(launch(ONE, "x", "a"), launch(ONE, "a", "r"), outer="x r", inner={"a": 0}, rooms=((64,),)),
            outputs="r", a=counted("a", EARLY),
        ),
        program(
            BindItem(EARLY.symbol, "x"), Allocate("r"),
            region(launch(ONE, "x", "a"), launch(ONE, "a", "r"), outer="x r", inner={"a": 0}, rooms=((64,),)),
            BindItem(LATE.symbol, "y"), outputs="r", a=counted("a", EARLY),
        ),
        r"step 2 \(a native region\): a is not known to fit into slot 0",
    ),
    "a native region uses what it is not handed": Planted(
        program(Allocate("r"), region(launch(ONE, "x", "r"), outer="x r"), outputs="r"),
        program(Allocate("r"), region(launch(ONE, "x", "r"), outer="r"), outputs="r"),
        r"step 1.0 .* uses x, which its native region is not handed",
    ),
    # --- what torch frees ---
    "a result of torch's own after it is freed": Planted(
        shared(attention("t", "x"), launch(ONE, "t", "r"), Free(("t",)), inner={}),
        shared(attention("t", "x"), Free(("t",)), launch(ONE, "t", "r"), inner={}),
        r"step 1.2 .* uses t, which is gone since step 1.1 \(frees t\)",
    ),
    "a view of a result of torch's own after it is freed": Planted(
        shared(attention("t", "x"), view("v", "t"), launch(ONE, "v", "r"), Free(("t",)), inner={}),
        shared(attention("t", "x"), view("v", "t"), Free(("t",)), launch(ONE, "v", "r"), inner={}),
        r"uses v, which is gone since step 1.2 \(frees t\)",
    ),
    "freed and read": Planted(
        program(conv("h", "x"), conv("r", "h"), Free(("h",)), outputs="r"),
        program(conv("h", "x"), Free(("h",)), conv("r", "h"), outputs="r"),
        r"step 2 .* uses h, which is gone since step 1",
    ),
    "freed and returned": Planted(
        program(conv("h", "x"), outputs="h"),
        program(conv("h", "x"), Free(("h",)), outputs="h"),
        r"the output h is gone since step 1 \(frees h\)",
    ),
    # --- what was never written ---
    "read before anything is written": Planted(
        program(Allocate("a"), launch(ONE, "x", "a"), conv("r", "a"), outputs="r"),
        program(Allocate("a"), conv("r", "a"), launch(ONE, "x", "a"), outputs="r"),
        r"step 1 .* reads a, where nothing has been written",
    ),
    "read before it is made": Planted(
        program(conv("h", "x"), conv("r", "h"), outputs="r"),
        program(conv("r", "h"), conv("h", "x"), outputs="r"),
        r"step 0 .* uses h, which is not there yet",
    ),
    "returned though nothing is written": Planted(
        program(Allocate("a"), launch(ONE, "x", "a"), outputs="a"),
        program(Allocate("a"), outputs="a"),
        r"nothing has been written into the output a",
    ),
    "some elements written of memory without contents": Planted(
        program(Allocate("a"), launch(ONE, "x", "a"), launch(SOME, "y", "a"), outputs="a"),
        program(Allocate("a"), launch(SOME, "y", "a"), outputs="a"),
        r"step 1 .* reads a, where nothing has been written",
    ),
    "a number read of memory that is written over": Planted(
        taken(BindItem(N.symbol, "g"), outputs="g"),
        taken(BindItem(N.symbol, "h"), outputs="g"),
        r"step 3 \(reads a number of h\) reads h, over which",
    ),
    # --- arguments ---
    "an argument written before it is last read": Planted(
        program(conv("r", "x"), assign("x", "y"), outputs="r"),
        program(assign("x", "y"), Allocate("r"), launch(ONE, "x", "r"), outputs="r"),
        r"step 2 \(a kernel that writes r\) reads x, to which step 0 \(assigns to x\) has assigned",
    ),
    "an argument written before a view of it is last read": Planted(
        program(view("v", "x"), Allocate("r"), launch(ONE, "v", "r"), assign("x", "y"), outputs="r v"),
        program(view("v", "x"), assign("x", "y"), Allocate("r"), launch(ONE, "v", "r"), outputs="r"),
        r"step 3 .* reads v, over which step 1 \(assigns to x\) has written x",
    ),
    "an argument that is copied to itself": Planted(
        program(view("v", "x"), Allocate("r"), launch(ONE, "v", "r"), assign("x", "r"), outputs="r"),
        program(view("v", "x"), assign("x", "v"), outputs="x"),
        r"step 1 \(assigns to x\) copies v to x, in whose memory it lies",
    ),
    "a check after an assignment": Planted(
        program(CheckStep(True, ""), assign("x", "y"), outputs="x"),
        program(assign("x", "y"), CheckStep(True, ""), outputs="x"),
        r"step 1 \(a check\) may fail after step 0 \(assigns to x\), which cannot be done again",
    ),
    "a check after a write into what was read": Planted(
        program(launch(SOME, "y", "x"), CheckStep(True, ""), conv("r", "x"), outputs="r"),
        program(conv("r", "x"), launch(SOME, "y", "x"), CheckStep(True, ""), outputs="r"),
        r"step 2 \(a check\) may fail after step 1 .*, and step 0 .*, run again, would read",
    ),
    "an assignment to what is no argument": Planted(
        program(conv("h", "x"), assign("y", "h"), outputs="h"),
        program(conv("h", "x"), assign("h", "y"), outputs="h"),
        r"step 1 \(assigns to h\) assigns to h, which is no argument",
    ),
    "another buffer written into an argument": Planted(
        program(Allocate("r"), region(launch(ONE, "x", "r"), outer="x r"), outputs="r"),
        program(Allocate("r"), region(view("t", "x"), launch(ONE, "y", "t"), launch(ONE, "t", "r"), outer="x y r"), outputs="r"),
        r"step 1.1 .* writes t into the memory of x, which is not the program's own",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_named_and_the_right_program_passes(name: str) -> None:
    planted = PLANTED[name]
    for verify in (verify_program, verify_memory):
        verify(planted.right, FACTS)
        with pytest.raises(Malformed, match=planted.said):
            verify(planted.wrong, FACTS)


def rows_then_check(early: bool, kernel: Kernel = ONE) -> Program:
    """A kernel over EARLY elements of ten, before or after LATE is read and EARLY + LATE == 10 tested."""
    ten = {name: Buffer(name, float32, "cpu", (10,), (1,), "temp") for name in "xr"}
    work = [Allocate("r"), Launch(kernel, (BufferRef("x"), BufferRef("r"), EARLY))]
    tested = [BindItem(LATE.symbol, "y"), CheckStep(eq(EARLY + LATE, 10), "ten")]
    steps = [*work, *tested] if early else [*tested, *work]
    return program(BindItem(EARLY.symbol, "y"), *steps, outputs="r", **ten)


def verify_own_bounds(program: Program) -> None:
    verify_bounds(program, FACTS, established_in(program, FACTS))


@pytest.mark.parametrize("kernel", [ONE, FLIPPED, SUMMED])
def test_no_bound_rests_on_what_is_tested_later(kernel: Kernel) -> None:
    verify_own_bounds(rows_then_check(early=False, kernel=kernel))
    with pytest.raises(Malformed, match=r"step 2: a kernel stays in . only if .* tested later"):
        verify_own_bounds(rows_then_check(early=True, kernel=kernel))


def test_the_verifier_of_programs_asks_for_bounds() -> None:
    with pytest.raises(Malformed, match="tested later"):
        verify_program(rows_then_check(early=True), FACTS)


def test_a_kernel_may_write_where_it_reads_the_same_element() -> None:
    verify_program(taken(outputs="g"), FACTS)


def chain(length: int) -> Program:
    """a0 = f(x); a1 = f(a0); ...: in two slots, by turns."""
    names = [f"a{number}" for number in range(length)]
    steps = [launch(ONE, a, b) for a, b in zip(["x", *names], [*names, "r"])]
    inner = {name: number % 2 for number, name in enumerate(names)}
    made = region(*steps, outer="x r", inner=inner, rooms=((ROOM,), (ROOM,)))
    return program(Allocate("r"), made, outputs="r")


def test_the_work_grows_with_the_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(original: Callable[..., bool]) -> Callable[..., bool]:
        def meet(*args: object) -> bool:
            asked[-1] += 1
            return original(*args)

        return meet

    monkeypatch.setattr(Sizes, "meet", counted(Sizes.meet))
    for length in (100, 200, 400):
        asked.append(0)
        verify_program(chain(length), FACTS)
    assert asked[1] <= 2 * asked[0] + 8 and asked[2] <= 2 * asked[1] + 8


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [((N, 0), (1, 1), 0), ((0, N, M), (M, M, 1), 0), ((N, M), (M, 1), BYTES * M)],
)
def test_what_has_no_elements_takes_no_memory(
    shape: tuple[Dim, ...], strides: tuple[Dim, ...], expected: Dim
) -> None:
    buffer = Buffer("a", float32, "cpu", shape, strides, "temp")
    assert Sizes(FACTS).span(buffer) == expected


def test_a_room_rounded_up_holds_a_quotient_by_a_number() -> None:
    rows, sizes = N * M - 3 * N, Sizes(FACTS)
    assert sizes.at_most(32 * (rows // 4), 64 * ((rows + 4) // 8))
    assert not sizes.at_most(32 * (rows // 4), 64 * ((rows + 3) // 8))


def test_a_room_rounded_up_holds_a_quotient_of_sizes() -> None:
    facts = FACTS.fork()
    facts.assume(ge(M, 1))
    rows, sizes = 4 * (N * N // M), Sizes(facts)
    assert sizes.at_most(rows, 64 * ((N * N + 15 * M) // (16 * M)))
    assert not sizes.at_most(rows, 64 * ((N * N + 14 * M) // (16 * M)))
