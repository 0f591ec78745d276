"""What the planner of memory has found out, the verifier is answered without a search: it asks the
same questions of the same facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as draw
from hypothesis import settings
from hypothesis import strategies as st

from anyshape.ir.buffers import Buffer, BufferRef, SizeInMemory
from anyshape.ir.dtypes import float32
from anyshape.ir.loops import Axis, Kernel, Load, Op, PointerParam, SizeParam, Store
from anyshape.ir.program import (
    Allocate,
    BindItem,
    CheckStep,
    ExternCall,
    Free,
    Launch,
    NativeRegion,
    Program,
    Step,
    View,
)
from anyshape.ir.verify import Malformed
from anyshape.ir.verify_program import verify_memory
from anyshape.symbolic import Condition, Dim, Facts, Space, facts, ge, le
from anyshape.targets.cpu.native_regions import form_native_regions, overwriting
from anyshape.targets.triton.regions import form_gpu_regions

KERNEL_SPACE = Space()
I0, N0 = KERNEL_SPACE.symbol("i0"), KERNEL_SPACE.symbol("n0")
NEGATED = Kernel(
    (PointerParam("a", float32, "read"), PointerParam("c", float32, "write"), SizeParam("n0")),
    (Axis("i0", N0),),
    (),
    (Load("a", I0, float32), Op("neg", (0,), float32)),
    (Store("c", I0, 1, "cell"),),
    False,
)
SIZES = 6


def known() -> tuple[Facts, tuple[Dim, ...], tuple[Dim, Dim], Condition]:
    """Facts, sizes in elements whose order takes some searching, two that data decides, and what is
    tested of them."""
    space = Space()
    n, m = space.fresh("n"), space.fresh("m")
    early, late = (space.fresh("u", policy="unbacked", knowledge="midrun") for _ in range(2))
    found = Facts(space)
    tested = le(early + late, m)
    for fact in (ge(n, 1), ge(m, 8), ge(early, 1), ge(late, 1), le(early, n), tested):
        found.assume(fact)
    rows = n * (m // 8)
    sizes = (early, early * (m // 8), rows, 2 * rows - n, 3 * rows + early, n)
    assert len(sizes) == SIZES
    return found, sizes, (early, late), tested


def planned(picks: list[tuple[int, int, bool]], checked: int) -> tuple[Program, Facts]:
    """Buffers of these sizes, each computed of an earlier one, counted back, by a kernel or a library, freed
    behind their last use; a size is read, and tested with another one, at the step ``checked``."""
    found, sizes, (early, late), tested = known()
    buffers = {
        name: Buffer(name, float32, "cpu", (8,), (1,), "input") for name in ("x", "first", "second")
    }
    made = ["x"]
    steps: list[Step] = [BindItem(early.symbol, "first")]
    for number, (size, source, library) in enumerate(picks):
        if number == checked:
            steps += [BindItem(late.symbol, "second"), CheckStep(tested, "")]
        name, base = f"b{number}", BufferRef(made[-1 - min(source, number)])
        buffers[name] = Buffer(name, float32, "cpu", (sizes[size],), (1,), "temp")
        if library:
            steps.append(
                ExternCall("torch.conv", (base,), {}, (name,), restride=True, new_memory=True)
            )
        else:
            steps += [Allocate(name), Launch(NEGATED, (base, BufferRef(name), sizes[size]))]
        made.append(name)
    last = {name: n for n, step in enumerate(steps) for name in step.mentions()}
    freed: list[Step] = []
    for number, step in enumerate(steps):
        freed.append(step)
        dead = tuple(b for b in made[1:-1] if last[b] == number)
        freed += [Free(dead)] if dead else []
    buffers[made[-1]] = replace(buffers[made[-1]], role="output")
    outputs = (BufferRef(made[-1]),)
    return Program(buffers, ("x", "first", "second"), tuple(freed), outputs, ()), found


def verify_without_search(program: Program, found: Facts) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "STEPS", 0)
        verify_memory(program, found)


PICKS = st.lists(
    st.tuples(st.integers(0, SIZES - 1), st.integers(0, 3), st.booleans()),
    min_size=6,
    max_size=24,
)


@settings(max_examples=100, deadline=None)
@draw(PICKS, st.integers(0, 24))
def test_the_verifier_needs_no_search(picks, checked) -> None:
    program, found = planned(picks, checked)
    verify_without_search(form_native_regions(program, found), found)
    verify_without_search(form_gpu_regions(program, found, "cpu"), found)


def test_memory_from_outside_is_lent_by_what_was_known_then() -> None:
    """A size is tested between the kernels, so that more is known in the end."""
    picks = [(1, 0, False), (3, 0, False), (5, 0, False), (4, 0, False), (5, 0, True)]
    program, found = planned(picks, checked=2)
    grouped = form_native_regions(program, found)
    regions = [step for step in grouped.steps if isinstance(step, NativeRegion)]
    views = [step for region in regions for step in region.steps if isinstance(step, View)]
    assert ("b0", "b1") in {(view.output, view.base) for view in views}
    verify_without_search(grouped, found)
    small = replace(grouped.buffers["b1"], shape=program.buffers["b2"].shape)
    with pytest.raises(Malformed, match=r"writes b0, which is not known to fit into b1"):
        verify_memory(replace(grouped, buffers={**grouped.buffers, "b1": small}), found)


def test_a_result_takes_no_memory_where_the_verifier_would_not_have_it() -> None:
    plain = Launch(NEGATED, (BufferRef("a"), BufferRef("c"), 8))
    assert overwriting(plain) >= {("a", "c")}
    assert not overwriting(replace(plain, offsets={"c": 1}))
    params = (*NEGATED.params[:2], SizeParam("n0", in_memory=True))
    by_size = replace(NEGATED, params=params)
    args = (BufferRef("a"), BufferRef("c"), SizeInMemory("a", 8))
    assert ("a", "c") not in overwriting(Launch(by_size, args))
