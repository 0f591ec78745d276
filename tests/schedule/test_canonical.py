"""Loops that are equal up to names are one kernel; every refusal to fuse has a reason."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from models import llama
from programs import Sketch

from anyshape.ir.dtypes import int64
from anyshape.ir.loops import Kernel, SizeParam
from anyshape.ir.program import Launch
from anyshape.ops import OPS
from anyshape.passes.pipeline import INFERENCE
from anyshape.schedule import refusals, schedule
from anyshape.targets.reduction_phases import analyse, lane, thresholds


def core(graph):
    return [stage for _, stage in INFERENCE.stages(graph, OPS)][-1]


def kernels_of(make, *inputs) -> tuple[Kernel, ...]:
    sketch = Sketch()
    values = [
        sketch.input(*item) if isinstance(item, tuple) else sketch.input(item) for item in inputs
    ]
    return schedule(core(sketch.finish(make(sketch.builder, *values)))).kernels()


def test_kernels_of_two_functions_with_other_names_are_equal():
    first = kernels_of(lambda b, x, y: b.exp(b.add(x, y)), "a b", "a b")
    other = kernels_of(lambda b, p, x, y: b.exp(b.add(x, y)), "z", "k l m", "k l m")
    assert first == other and hash(first[0]) == hash(other[0])


def test_other_strides_are_another_kernel():
    first = kernels_of(lambda b, x, y: b.add(x, y), "a b", "a b")
    other = kernels_of(lambda b, x, y: b.add(x, b.permute(y, (1, 0))), "a b", "b a")
    assert first != other


def test_dense_dims_are_one_loop():
    (kernel,) = kernels_of(lambda b, x: b.exp(x), "a b c d")
    assert len(kernel.axes) == 1 and len(kernel.params) == 3


def test_layers_share_kernels():
    one, four = (schedule(core(llama(n)[1])) for n in (1, 4))
    assert len(four.kernels()) <= len(one.kernels()) + 1


def test_the_same_work_on_other_buffers_is_one_kernel_object():
    launches = [s for s in schedule(core(llama(4)[1])).flat_steps() if isinstance(s, Launch)]
    assert len({id(launch.kernel) for launch in launches}) == len({l.kernel for l in launches})
    assert len({launch.args for launch in launches}) == len(launches)


def test_a_refusal_says_why():
    sketch = Sketch()
    x, y = sketch.input("a b"), sketch.input("a c")
    b = sketch.builder
    made = b.add(b.sum(y, (1,), True), b.mul(x, b.softmax(x, 1)))
    reasons = [str(r) for r in refusals(core(sketch.finish(made)))]
    assert any("reduces over" in reason for reason in reasons), reasons


def test_extents_made_of_other_sizes_are_one_kernel():
    def gelu(b, x):
        return b.exp(b.neg(x))

    first = kernels_of(gelu, "a b")
    for other in ("8 a", "a 3 16", "a b 5 c"):
        assert kernels_of(gelu, other) == first


def test_a_join_is_cut_where_its_parts_end():
    """What parts begin at are parameters of a kernel, which says that none is below the one before:
    no element of a loop asks which part it is of."""
    for sizes in ("b", "c", "d"), ("b", "b", "b"), ("3", "c", "b"):
        (kernel,) = kernels_of(
            lambda b, *parts: b.relu(b.cat(parts, 1)), *(f"a {size}" for size in sizes)
        )
        phases = analyse(kernel)
        assert len(thresholds(phases, lane(kernel, phases))) == 2, str(kernel)


def test_positions_of_unknown_order_are_not_cut_at():
    (kernel,) = kernels_of(
        lambda b, x, y, z: b.logical_and(
            b.lt(b.arange(0, x.shape[0], 1, dtype=int64, device="cpu"), y.shape[0]),
            b.lt(b.arange(0, x.shape[0], 1, dtype=int64, device="cpu"), z.shape[0]),
        ),
        *("a", "b", "c"),
    )
    phases = analyse(kernel)
    assert thresholds(phases, lane(kernel, phases)) == {}


def test_a_size_that_may_be_negative_is_another_kernel():
    """What C divides may be printed in another way then."""
    size, signed = (
        Kernel((SizeParam("n0", signed=each),), (), (), (), ()) for each in (False, True)
    )
    assert size != signed
