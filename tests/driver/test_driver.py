"""A typed graph, compiled, does what the reference interpreter does: every stage between is exercised."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import anyshape
from anyshape import reference
from anyshape.driver import CompiledGraph, Driver
from anyshape.errors import AnyshapeError
from anyshape.ir.dtypes import float32, float64, int64
from anyshape.ir.graph import Graph, TensorType, row_major
from anyshape.ir.program import NativeRegion, Program, View
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.options import Options
from anyshape.passes.pipeline import INFERENCE
from anyshape.symbolic import Facts, Space, eq

SIZES = [(0, 3), (1, 1), (1, 7), (2, 0), (2, 5), (3, 64)]


class Sketch:
    """A graph under construction over two sizes, ``s0`` and ``s1``."""

    def __init__(self) -> None:
        space = Space()
        self.s0, self.s1 = space.fresh("s"), space.fresh("s")
        self.b = Builder(TypeContext(space, Facts(space)))
        self.constants: dict[str, torch.Tensor] = {}

    def input(self, *shape, dtype=float32):
        t = TensorType(dtype, "cpu", shape, row_major(shape))
        return self.b.input(t, "argument", "x")

    def parameter(self, tensor: torch.Tensor):
        shape = tuple(tensor.shape)
        dtype = {torch.float32: float32, torch.float64: float64}[tensor.dtype]
        t = TensorType(dtype, "cpu", shape, tensor.stride())
        value = self.b.input(t, "parameter", "self.p")
        self.constants[value.name] = tensor
        return value


def compile_sketch(sketch: Sketch, outputs, **options) -> tuple[Graph, CompiledGraph]:
    graph = sketch.b.finish(outputs)
    driver = Driver.create(Options(cache=False, verify_programs=True, **options))
    return graph, driver.compile_graph(graph, sketch.constants)


def agrees(graph: Graph, compiled: CompiledGraph, sketch: Sketch, *arguments: torch.Tensor) -> None:
    """Compiled and reference on copies of the same arguments: results, strides and writes."""
    theirs, ours = ([a.clone() for a in arguments] for _ in range(2))
    inputs = iter(theirs)
    full = [
        next(inputs) if e.kind == "argument" else sketch.constants[e.value.name]
        for e in graph.inputs
    ]
    expected = reference.run(graph, full)
    versions = [a._version for a in ours]
    found = compiled.run(*ours)
    for want, got in zip(expected, found, strict=True):
        torch.testing.assert_close(got, want, check_stride=got.numel() > 0, equal_nan=True)
    for want, got, version, before in zip(theirs, ours, versions, arguments, strict=True):
        torch.testing.assert_close(got, want)
        written = want.numel() > 0 and not torch.equal(want, before)
        assert not written or got._version > version


def test_products_and_kernels_become_one_region():
    sketch = Sketch()
    x = sketch.input(sketch.s0, sketch.s1, 8)
    w, bias = sketch.parameter(torch.randn(16, 8)), sketch.parameter(torch.randn(16))
    w2 = sketch.parameter(torch.randn(4, 16))
    hidden = sketch.b.silu(sketch.b.linear(sketch.b.tanh(x), w, bias))
    graph, compiled = compile_sketch(sketch, (sketch.b.linear(hidden, w2),))
    assert [type(step) for step in compiled.program.steps].count(NativeRegion) == 1
    for size in SIZES:
        agrees(graph, compiled, sketch, torch.randn(*size, 8))


def test_a_result_lends_its_memory_until_it_is_written():
    sketch = Sketch()
    x = sketch.input(sketch.s0, 16)
    for _ in range(3):
        x = sketch.b.linear(x, sketch.parameter(torch.randn(16, 16)))
    graph, compiled = compile_sketch(sketch, (x,))
    (region,) = (step for step in compiled.program.steps if isinstance(step, NativeRegion))
    assert len(region.inner) == len(region.slot_sizes) == 1  # of two: the other lies in the result
    for rows, _ in SIZES:
        agrees(graph, compiled, sketch, torch.randn(rows, 16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrix_products_with_transposed_operands(dtype):
    sketch = Sketch()
    ours = float32 if dtype is torch.float32 else float64
    a = sketch.input(sketch.s0, sketch.s1, dtype=ours)
    c = sketch.input(sketch.s0, 6, dtype=ours)
    product = sketch.b.mm(sketch.b.permute(sketch.b.exp(a), (1, 0)), sketch.b.cos(c))
    graph, compiled = compile_sketch(sketch, (sketch.b.sin(product),))
    for rows, columns in SIZES:
        agrees(
            graph, compiled, sketch,
            torch.randn(rows, columns, dtype=dtype), torch.randn(rows, 6, dtype=dtype),
        )  # fmt: skip


def test_a_write_to_an_input_is_seen_by_the_caller():
    sketch = Sketch()
    x = sketch.input(sketch.s0, sketch.s1)
    row = sketch.b.call("slice", x, 0, 0, 0, 1)
    del row
    sketch.b.call("add_", x, 1.0)
    doubled = sketch.b.mul(x, 2.0)
    graph, compiled = compile_sketch(sketch, (doubled,))
    for size in SIZES:
        agrees(graph, compiled, sketch, torch.randn(*size))


def test_a_write_through_views_reaches_the_base_and_its_other_views():
    sketch = Sketch()
    x = sketch.input(sketch.s0, 6)
    y = sketch.b.sin(x)
    flat = sketch.b.permute(y, (1, 0))
    sketch.b.call("mul_", sketch.b.select(flat, 0, 2), 10.0)
    sketch.b.call("add_", sketch.b.call("slice", y, 1, 1, 3, 2), 5.0)
    graph, compiled = compile_sketch(sketch, (y, sketch.b.sum(flat, (1,), False)))
    for rows, _ in SIZES:
        agrees(graph, compiled, sketch, torch.randn(rows, 6))


def test_inputs_may_be_swapped():
    sketch = Sketch()
    x, y = sketch.input(sketch.s0, 4), sketch.input(sketch.s0, 4)
    old = sketch.b.clone(x)
    sketch.b.call("copy_", x, y)
    sketch.b.call("copy_", y, old)
    graph, compiled = compile_sketch(sketch, (sketch.b.sub(x, y),))
    for rows, _ in SIZES:
        agrees(graph, compiled, sketch, torch.randn(rows, 4), torch.randn(rows, 4))


def test_an_input_may_take_its_own_transpose():
    sketch = Sketch()
    x = sketch.input(5, 5)
    sketch.b.call("copy_", x, sketch.b.clone(sketch.b.permute(x, (1, 0))))
    graph, compiled = compile_sketch(sketch, (sketch.b.select(x, 0, 1),))
    agrees(graph, compiled, sketch, torch.randn(5, 5))


def test_an_output_that_views_a_written_input_is_a_view_of_it():
    sketch = Sketch()
    x = sketch.input(sketch.s0, 6)
    column = sketch.b.select(x, 1, 2)
    sketch.b.call("add_", column, 3.0)
    graph, compiled = compile_sketch(sketch, (column,))
    given = torch.zeros(4, 6)
    (found,) = compiled.run(given)
    assert found.data_ptr() == given.data_ptr() + 8 and found.stride() == (6,)
    assert given[:, 2].eq(3).all() and given.sum() == 12


def test_an_input_returned_unchanged_is_the_same_tensor():
    sketch = Sketch()
    x = sketch.input(sketch.s0, 6)
    _, compiled = compile_sketch(sketch, (x, sketch.b.add(x, 1)))
    given = torch.zeros(4, 6)
    assert compiled.run(given)[0] is given


def test_integers_stay_exact():
    sketch = Sketch()
    x = sketch.input(sketch.s0, sketch.s1, dtype=int64)
    y = sketch.b.sum(sketch.b.mul(x, 2**53 + 1), (1,), False)
    graph, compiled = compile_sketch(sketch, (y,))
    for size in SIZES:
        agrees(graph, compiled, sketch, torch.randint(-9, 9, size))


def test_equal_layers_share_their_kernels():
    sketch = Sketch()
    x = sketch.input(sketch.s0, 32)
    for _ in range(12):
        weight = sketch.parameter(torch.randn(32, 32) / 6)
        scale = sketch.parameter(torch.rand(32))
        x = sketch.b.add(x, sketch.b.linear(sketch.b.silu(sketch.b.mul(x, scale)), weight))
    graph, compiled = compile_sketch(sketch, (x,))
    kernels = [name for name in compiled.linked.code.functions if name.startswith("kernel")]
    assert len(kernels) <= 3
    agrees(graph, compiled, sketch, torch.randn(5, 32))


def test_equal_regions_keep_their_own_weights():
    sketch = Sketch()
    x = sketch.input(sketch.s0, 8)
    for _ in range(3):
        weight = sketch.parameter(torch.randn(8, 8))
        x = sketch.b.tanh(sketch.b.linear(sketch.b.sin(x), weight))
        x = sketch.b.sort(x, -1, False)[0]  # a library call between native regions
    graph, compiled = compile_sketch(sketch, (x,))
    regions = [name for name in compiled.linked.code.functions if name.startswith("region")]
    assert len(regions) < len(compiled.linked.code.tables)
    agrees(graph, compiled, sketch, torch.randn(5, 8))


LAST = INFERENCE.passes[-1].name


def replace_pass(monkeypatch, name, run):
    """From now on the pass of this name does something else."""
    passes = tuple(replace(p, run=run) if p.name == name else p for p in INFERENCE.passes)
    monkeypatch.setattr("anyshape.driver.INFERENCE", replace(INFERENCE, passes=passes))


def test_verify_names_the_pass_that_changes_a_result(monkeypatch):
    sketch = Sketch()
    x = sketch.input(sketch.s0, 3)
    graph = sketch.b.finish((sketch.b.add(x, 1.0),))
    other = sketch.b.finish((sketch.b.add(x, 2.0),))
    replace_pass(monkeypatch, "merge-equal", lambda *given: other)
    compiled = Driver.create(Options(cache=False, verify=True)).compile_graph(graph, {})
    with pytest.raises(AnyshapeError, match="merge-equal"):
        compiled.run(torch.zeros(2, 3))


def test_verify_names_the_pass_that_makes_a_malformed_graph(monkeypatch):
    sketch = Sketch()
    x = sketch.input(sketch.s0, 3)
    graph = sketch.b.finish((sketch.b.exp(sketch.b.neg(x)),))
    backwards = replace(graph, nodes=graph.nodes[::-1])
    replace_pass(monkeypatch, LAST, lambda *given: backwards)
    with pytest.raises(AnyshapeError, match=f"E502 {LAST} .*(?s:.*)before it is defined"):
        Driver.create(Options(cache=False, verify=True)).compile_graph(graph, {})


def test_an_operator_without_a_kernel_is_an_error_when_asked_for():
    sketch = Sketch()
    x = sketch.input(4, 4)
    with pytest.raises(AnyshapeError, match="as_strided"):
        compile_sketch(
            sketch, (sketch.b.call("as_strided", sketch.b.sin(x), (2,), (1,), 0),), fallback="error"
        )


def test_what_a_later_fact_makes_a_view_is_handed_to_products_as_it_lies():
    """Reshapes that copy in general are views once both sizes are known to be one."""
    sketch = Sketch()
    b, s0, s1 = sketch.b, sketch.s0, sketch.s1
    x, y = sketch.input(2, s0, s1, 64), sketch.input(s0, s1, 2, 2)
    left = b.reshape(b.permute(b.mul(x, 2.0), (1, 2, 3, 0)), (s0 * s1, 64, 2))
    right = b.reshape(b.permute(b.tanh(y), (0, 1, 3, 2)), (s0 * s1, 2, 2))
    product = b.bmm(left, right)
    for size in (s0, s1):
        b.cx.facts.assume(eq(size, 1))
    graph, compiled = compile_sketch(sketch, (b.relu(product),))
    agrees(graph, compiled, sketch, torch.randn(2, 1, 1, 64), torch.randn(1, 1, 2, 2))
    assert views_of(compiled.program)


def views_of(program: Program) -> list[View]:
    """The steps that lay a view over a buffer, in native regions and outside."""
    steps = [*program.steps]
    steps += [inner for step in steps if isinstance(step, NativeRegion) for inner in step.steps]
    return [step for step in steps if isinstance(step, View)]


def clone(b, x):
    return (b.clone(x),)


SHARED = {
    "a copy becomes its argument": (clone, lambda b, x: (x,)),
    "an argument becomes a copy": (lambda b, x: (x,), clone),
    "two results become one": (
        lambda b, x: (b.clone(x), b.clone(x)),
        lambda b, x: 2 * (b.clone(x),),
    ),
    "one result becomes two": (
        lambda b, x: 2 * (b.clone(x),),
        lambda b, x: (b.clone(x), b.clone(x)),
    ),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("at", ["merge-equal", LAST])
def test_verify_names_the_pass_that_changes_which_tensors_share_memory(name, at, monkeypatch):
    sketch = Sketch()
    x = sketch.input(sketch.s0, 3)
    graph, other = (sketch.b.finish(make(sketch.b, x)) for make in SHARED[name])
    replace_pass(monkeypatch, at, lambda *given: other)
    compiled = Driver.create(Options(cache=False, verify=True)).compile_graph(graph, {})
    compiled.run(torch.zeros(0, 3))
    with pytest.raises(AnyshapeError, match=f"E501 pass '{at}'(.|\n)*bytes into the memory of"):
        compiled.run(torch.zeros(2, 3))


def test_verify_sees_a_write_that_is_lost(monkeypatch):
    def program(x):
        return x.add_(1) * 2

    def lost(graph, ops, captured):
        return replace(graph, nodes=tuple(n for n in graph.nodes if n.op != "assign"))

    replace_pass(monkeypatch, "merge-equal", lost)
    with pytest.raises(AnyshapeError, match="E501 pass 'merge-equal'(.|\n)*x_0: "):
        anyshape.compile(program, options={"verify": True})(torch.zeros(3))


def test_verify_leaves_the_random_stream_as_it_finds_it():
    def program(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    fast = anyshape.compile(program, options={"verify": True})
    for size in (3, 1, 0, 17):
        x, found = torch.ones(size), []
        for run in (program, fast):
            torch.manual_seed(2)
            found.append((run(x), torch.rand(2)))
        torch.testing.assert_close(*found)


def test_verify_knows_that_passes_keep_the_strides_of_what_is_written():
    def program(x):
        turned = torch.zeros(x.shape[1], x.shape[0])
        return turned.copy_(x.t()), turned.view(-1)

    fast = anyshape.compile(program, options={"verify": True})
    for shape in ((3, 4), (1, 4), (0, 2), (17, 1)):
        x = torch.randn(shape)
        torch.testing.assert_close(fast(x), program(x))


def test_verify_leaves_an_index_that_eager_takes_to_eager():
    def program(x, i):
        t = x[x * 0 == 0].reshape(1, -1)
        x[:, :0].index_fill_(1, i[:0], 1)
        return torch.take_along_dim(t, t.argsort(-1), 0)

    fast = anyshape.compile(program, options={"verify": True})
    for size in (3, 5):
        x, i = torch.randn(size, size), torch.arange(size)
        assert torch.equal(fast(x, i), program(x, i))


def test_sizes_that_a_backward_half_is_handed_have_their_values_from_the_beginning():
    """Else its nodes are ordered behind the one that shows such a size first."""

    def program(x, i):
        t = x[x >= 0]
        t[i] = 2
        return t

    fast = anyshape.compile(program, options={"verify_programs": True})
    for index in range(3):
        found = []
        for run in (program, fast):
            x = torch.tensor([1.0, 0.0, 3.0, 0.0, 4.0], requires_grad=True)
            run(x, torch.tensor([index])).sum().backward()
            found.append(x.grad)
        assert torch.equal(*found)
