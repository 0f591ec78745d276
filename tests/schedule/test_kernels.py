"""Generated C kernels give eager's numbers, at every size, from one compile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import anyshape
from anyshape.ir import dtypes
from anyshape.ir.program import EagerCall
from anyshape.targets.cpu.c import emit_c
from anyshape.targets.triton.kernel import emit_triton

sys.path.insert(0, str(Path(__file__).parent))
from programs import calls, compile_sketch, launches, same_as_reference

SIZES = [(0, 3), (3, 0), (1, 1), (2, 1), (1, 2), (2, 3), (7, 33), (5, 257), (300, 130)]


def tensors(case, a, b):
    """One tensor for each input of a case, for sizes a and b."""
    made = []
    for sizes, dtype, order in case:
        shape = [{"a": a, "b": b}.get(n) if not n.isdigit() else int(n) for n in sizes.split()]
        order = order or tuple(range(len(shape)))
        if dtype.is_floating:
            x = torch.randn([shape[d] for d in order])
        elif dtype.name == "bool":
            x = torch.rand([shape[d] for d in order]) > 0.5
        else:
            x = torch.randint(0, 100, [shape[d] for d in order])
        back = [order.index(d) for d in range(len(shape))]
        made.append(x.to(getattr(torch, dtype.name)).permute(back))
    return made


def normal(inputs):
    cases = []
    for item in inputs:
        item = item if isinstance(item, tuple) else (item,)
        sizes, dtype, order = (*item, *(dtypes.float32, ())[len(item) - 1 :])[:3]
        cases.append((sizes, dtype, order))
    return cases


def layer_norm_gelu(b, x, w, c):
    return b.gelu(b.layer_norm(x, (x.shape[-1],), w, c), approximate="tanh")


def rms_norm(b, x, w):
    variance = b.mean(b.pow(x, 2), (-1,), True)
    return b.mul(w, b.mul(x, b.rsqrt(b.add(variance, 1e-6))))


def sum_and_norm(b, x, y, w):
    total = b.add(x, y)
    return total, rms_norm(b, total, w)


def cross_entropy(b, x, y):
    return b.nll_loss(b.log_softmax(x, -1), y)


def masked_softmax(b, x, mask):
    return b.softmax(b.masked_fill(x, mask, float("-inf")), -1)


def rotate_half(b, x):
    half = x.shape[-1] // 2
    left, right = b.slice(x, 1, 0, half), b.slice(x, 1, half, x.shape[-1] - half)
    return b.cat((b.neg(right), left), 1)


# name -> (what the rows compute, the inputs: sizes, or (sizes, dtype, order of dims in memory))
FUSED = {
    "chain": (lambda b, x, y: b.tanh(b.add(b.mul(x, y), 1.5)), ["a b", "a b"]),
    "broadcast": (lambda b, x, y: b.add(x, y), ["a b", "b"]),
    "broadcast column": (lambda b, x, y: b.add(x, y), ["a b", "a 1"]),
    "transposed add": (lambda b, x, y: b.add(b.permute(x, (1, 0)), y), ["b a", "a b"]),
    "permuted input": (lambda b, x, y: b.add(x, y), [("a b", dtypes.float32, (1, 0)), "a b"]),
    "both permuted": (
        lambda b, x, y: b.add(x, y),
        [("a b", dtypes.float32, (1, 0)), ("a b", dtypes.float32, (1, 0))],
    ),
    "softmax": (lambda b, x: b.softmax(x, -1), ["a b"]),
    "softmax of columns": (lambda b, x: b.softmax(x, 0), ["a b"]),
    "log softmax": (lambda b, x: b.log_softmax(x, 1), ["a b"]),
    "layer norm gelu": (layer_norm_gelu, ["a b", "b", "b"]),
    "rms norm": (rms_norm, ["a b", "b"]),
    "sum and its norm": (sum_and_norm, ["a b", "a b", "b"]),
    "swiglu": (lambda b, x, y: b.mul(b.silu(x), y), ["a b", "a b"]),
    "cross entropy": (cross_entropy, ["a 200", ("a", dtypes.int64)]),
    "masked softmax": (masked_softmax, ["a b", ("a b", dtypes.bool_)]),
    "sum": (lambda b, x: b.sum(x), ["a b"]),
    "sum of rows": (lambda b, x: b.sum(x, 1), ["a b"]),
    "sum of columns": (lambda b, x: b.sum(x, 0), ["a b"]),
    "gelu of rows without their mean": (
        lambda b, x: b.gelu(b.sub(x, b.mean(x, 1, True)), approximate="tanh"),
        ["a b"],
    ),
    "mean and more": (lambda b, x: b.sub(x, b.mean(x, 0)), ["a b"]),
    "cat of three": (lambda b, x, y, z: b.relu(b.cat((x, y, z), 1)), ["a b", "a 3", "a b"]),
    "cat of rows": (lambda b, x, y: b.relu(b.cat((x, y), 0)), ["a b", "a b"]),
    "pad": (lambda b, x: b.torch_pad(b.exp(x), (1, 2, 0, 3), "constant", 0.5), ["a b"]),
    "rotate half": (lambda b, x, y: b.mul(rotate_half(b, x), y), ["a 64", "a 64"]),
    "slice": (lambda b, x: b.exp(b.slice(x, 1, 1, 5, 2)), ["a 12"]),
    "flip": (lambda b, x: b.flip(x, (1,)), ["a b"]),
    "reshape": (lambda b, x: b.exp(b.reshape(x, (x.shape[0] * x.shape[1],))), ["a b"]),
    "heads": (
        lambda b, x: b.reshape(
            b.permute(b.reshape(x, (x.shape[0], x.shape[1], 4, 8)), (0, 2, 1, 3)),
            (x.shape[0] * 4, x.shape[1], 8),
        ),
        ["a b 32"],
    ),
    "heads back": (
        lambda b, x: b.reshape(b.permute(x, (0, 2, 1, 3)), (x.shape[0], x.shape[2], 32)),
        ["a 4 b 8"],
    ),
    "embedding and add": (
        lambda b, i, w, y: b.add(b.embedding(i, w), y),
        [("a b", dtypes.int64), "100 16", "b 16"],
    ),
    "argmax": (lambda b, x: b.argmax(x, 1), ["a 7"]),
    "argmin of columns": (lambda b, x: b.argmin(x, 1), ["b 9"]),
    "two outputs": (lambda b, x: (b.exp(x), b.sum(b.exp(x), 1)), ["a b"]),
    "residual norm": (
        lambda b, x, y, w: (b.add(x, y), rms_norm(b, b.add(x, y), w)),
        ["a b", "a b", "b"],
    ),
    "cumsum": (lambda b, x: b.cumsum(x, 1), ["a b"]),
    "cumsum of columns": (lambda b, x: b.cumsum(b.mul(x, 2.0), 0), ["a b"]),
    "var": (lambda b, x: b.var(x, (1,), correction=0), ["a b"]),
    "where": (lambda b, m, x, y: b.where(m, x, y), [("a b", dtypes.bool_), "a b", "b"]),
    "causal mask": (
        lambda b, x: b.where(
            b.le(
                b.arange(x.shape[1], 0, 1, dtypes.int64, "cpu"),
                b.unsqueeze(b.arange(x.shape[0], 0, 1, dtypes.int64, "cpu"), 1),
            ),
            x,
            0.0,
        ),
        ["a b"],
    ),
    "gather": (lambda b, x, i: b.gather(x, 1, i), ["a 100", ("a b", dtypes.int64)]),
    "index": (
        lambda b, x, i, j: b.index(x, (i, j)),
        ["100 100", ("a b", dtypes.int64), ("b", dtypes.int64)],
    ),
    "index negative": (
        lambda b, x, i: b.index(x, (b.neg(i), None)),
        ["101 b", ("a", dtypes.int64)],
    ),
    "scalar result": (lambda b, x: b.sqrt(b.sum(b.mul(x, x))), ["a b"]),
    "size as number": (lambda b, x: b.mul(x, x.shape[0]), ["a b"]),
    "full": (lambda b, x: b.add(b.full(x.shape, 2.0, dtypes.float32, "cpu"), x), ["a b"]),
    "group norm": (lambda b, x: b.group_norm(x, 2), ["a 6 b 3"]),
    "select": (lambda b, x: b.exp(b.select(x, 1, 2)), ["a 4 b"]),
    "unfold": (lambda b, x: b.exp(b.unfold(x, 1, 3, 2)), ["a 9"]),
    "diagonal": (lambda b, x: b.exp(b.diagonal(x, 0, 1, 2)), ["a 9 9"]),
    "expand": (lambda b, x: b.exp(b.expand(x, (5, *x.shape))), ["a b"]),
}


def test_reductions_beside_bytes_have_lanes_that_gcc_makes_vectors_of():
    """Loops of 16 cells beside a mask were run one cell at a time."""
    make, inputs = FUSED["masked softmax"]
    (launch,) = launches(compile_sketch(make, *normal(inputs)).program)
    assert "for (; r0w + 32 <= r0e; r0w += 32)" in emit_c(launch.kernel, "k")


@pytest.mark.parametrize("name", FUSED)
def test_one_compile_serves_every_size(name):
    make, inputs = FUSED[name]
    case = normal(inputs)
    compiled = compile_sketch(make, *case)
    assert not calls(compiled.program, EagerCall)
    for a, b in SIZES:
        try:
            args = tensors(case, a, b)
            same_as_reference(compiled, *args, tolerance=2e-5)
        except Exception as error:
            error.add_note(
                f"at a={a} b={b}\n" + "\n".join(str(x.kernel) for x in launches(compiled.program))
            )
            raise


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_constants_are_rounded_like_tensors(dtype):
    kind = getattr(dtypes, dtype)
    compiled = compile_sketch(
        lambda b, x: (b.full((3,), 0.1, kind, "cpu"), b.where(b.gt(x, 0.0), x, 0.7)), ("a b", kind)
    )
    x = torch.randn(5, 7).to(getattr(torch, dtype))
    full, where = compiled.run(x)
    assert torch.equal(full, torch.full((3,), 0.1, dtype=x.dtype))
    assert torch.equal(where, torch.where(x > 0.0, x, 0.7))


def test_host_numbers_keep_their_kind():
    from anyshape.ir.scalars import Scalar

    def make(b, x):
        half = Scalar("float", "mul", (x.shape[0], 0.25))
        big = Scalar("bool", "gt", (x.shape[0], 2))
        return b.mul(x, half), b.where(b.gt(x, 0.0), x, half), b.add(x, big)

    compiled = compile_sketch(make, "a b")
    for a in (1, 3, 7):
        x = torch.randn(a, 5)
        scaled, where, added = compiled.run(x)
        torch.testing.assert_close(scaled, x * (a * 0.25))
        torch.testing.assert_close(where, torch.where(x > 0.0, x, a * 0.25))
        torch.testing.assert_close(added, x + (a > 2))


TAILS = (
    "chain",
    "softmax",
    "masked softmax",
    "sum of rows",
    "sum of columns",
    "argmax",
    "cat of three",
    "transposed add",
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_tails_of_every_vector_width(dtype):
    kind = getattr(dtypes, dtype)
    names = [
        n for n in TAILS if kind.is_floating or n in ("sum of rows", "argmax", "transposed add")
    ]
    for name in names:
        make, inputs = FUSED[name]
        case = [
            (s.replace("7", "b"), kind if d.is_floating else d, o) for s, d, o in normal(inputs)
        ]
        compiled = compile_sketch(make, *case)
        for b in (*range(1, 70, 3), 127, 128, 129, 191, 255, 257):
            args = tensors(case, 3, b)
            same_as_reference(compiled, *args, tolerance=1e-5 if dtype != "bfloat16" else 3e-2)


@pytest.mark.parametrize("name", FUSED)
def test_two_threads_give_the_bits_of_one(name):
    make, inputs = FUSED[name]
    compiled = compile_sketch(make, *normal(inputs))
    threads = torch.get_num_threads()
    for a, b in ((0, 3), (1, 1), (301, 1003)):
        args = tensors(normal(inputs), a, b)
        found = []
        try:
            for count in (1, 2):
                torch.set_num_threads(count)
                found.append([t.clone() for t in compiled.run(*args)])
        finally:
            torch.set_num_threads(threads)
        torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)


ONE_KERNEL = [
    "chain", "softmax", "softmax of columns", "layer norm gelu", "rms norm", "swiglu", "masked softmax",
    "mean and more", "cat of three", "rotate half", "argmax", "two outputs",
    "residual norm", "var", "causal mask", "scalar result", "pad", "log softmax", "group norm",
]  # fmt: skip


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_is_one_kernel(name):
    make, inputs = FUSED[name]
    program = compile_sketch(make, *normal(inputs)).program
    assert len(launches(program)) == 1, [str(x.kernel) for x in launches(program)]


SMALL = ["bool_", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float64"]
REDUCTIONS = {
    "sum": lambda b, x: b.sum(x, 1),
    "prod": lambda b, x: b.prod(x, 1),
    "any": lambda b, x: b.any(x, 1),
    "all": lambda b, x: b.all(x, 1),
    "amax": lambda b, x: b.amax(x, (1,)),
    "amin": lambda b, x: b.amin(x, (1,)),
    "argmax": lambda b, x: b.argmax(x, 1),
    "argmin": lambda b, x: b.argmin(x, 1),
    "cumsum": lambda b, x: b.cumsum(x, 1),
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("dtype", SMALL)
def test_every_dtype_in_every_reduction(dtype, order):
    kind = getattr(dtypes, dtype)
    names = [n for n in REDUCTIONS if not (dtype == "bool_" and n.startswith("arg"))]
    compiled = compile_sketch(
        lambda b, x: tuple(REDUCTIONS[n](b, x) for n in names), ("a b", kind, order)
    )
    for a, b in [(0, 3), (1, 1), (2, 1), (3, 18), (5, 130)]:
        for _ in range(3):
            (x,) = tensors([("a b", kind, order)], a, b)
            if x.is_floating_point() and x.numel() > 4:
                x = (x * 0.5 + 1).to(x.dtype)
                if b == 18:
                    x[0, 3] = float("nan")
            loose = {"float16": 4e-3, "bfloat16": 4e-2}.get(kind.name, 1e-6)
            wanted = {n: getattr(torch, n)(x, dim=1) for n in names}
            found = dict(zip(names, compiled.run(x), strict=True))
            for n in names:
                assert found[n].dtype == wanted[n].dtype, n
                torch.testing.assert_close(
                    found[n],
                    wanted[n],
                    rtol=loose,
                    atol=loose,
                    equal_nan=True,
                    msg=lambda m, n=n: f"{n}: {m}",
                )


SCATTERS = {
    "scatter": (lambda b, x, i, s: b.scatter(x, 1, i, s), ["a 100", ("a 1", dtypes.int64), "a 1"]),
    "scatter add": (
        lambda b, x, i, s: b.scatter_add(x, 1, i, b.mul(s, 2.0)),
        ["a 100", ("a b", dtypes.int64), "a b"],
    ),
    "scatter amax": (
        lambda b, x, i, s: b.scatter_reduce(x, 0, i, s, "amax"),
        ["100 b", ("a b", dtypes.int64), "a b"],
    ),
    "scatter amin": (
        lambda b, x, i, s: b.scatter_reduce(x, 0, i, s, "amin"),
        [("100 b", dtypes.float64), ("a b", dtypes.int64), ("a b", dtypes.float64)],
    ),
    "index add": (
        lambda b, x, i, s: b.index_add(x, 0, i, s),
        ["100 b", ("a", dtypes.int64), "a b"],
    ),
    "index put": (
        lambda b, x, i, s: b.index_put(x, (i, None), s, True),
        ["100 b", ("a", dtypes.int64), "a b"],
    ),
    "index put of one": (
        lambda b, x, i, s: b.index_put(b.exp(x), (None, i), s, True),
        ["b 100", ("a", dtypes.int64), "1"],
    ),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_writes_where_data_says(name):
    make, inputs = SCATTERS[name]
    compiled = compile_sketch(make, *normal(inputs))
    assert not calls(compiled.program, EagerCall)
    for a, b in SIZES:
        same_as_reference(compiled, *tensors(normal(inputs), a, b), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
def test_what_is_read_where_data_says_is_made_again_of_what_is_in_memory(dtype):
    """The difference of a tensor and its rows' maxima is read once a row: no matrix is kept."""
    case = normal([("a b", dtype, ()), ("a", dtypes.int64, ())])
    compiled = compile_sketch(
        lambda b, x, y: cross_entropy(b, b.to_dtype(x, dtypes.float32), y), *case
    )
    buffers = compiled.program.buffers.values()
    assert [b.role for b in buffers if len(b.shape) == 2 and b.shape[1] != 1] == ["input"]
    same_as_reference(
        compiled, torch.randn(3, 7).to(getattr(torch, dtype.name)), torch.tensor([6, 0, 2])
    )


def test_zero_and_minus_zero_are_two_numbers_in_one_kernel():
    def program(x):
        both = torch.where(x > 0, 0.0, -0.0), x * (x.shape[0] * 0.0), x * (x.shape[0] * -0.0)
        return [torch.copysign(torch.ones_like(x), each) for each in both]

    fast = anyshape.compile(program)
    for size in (3, 0, 1, 17):
        x = torch.randn(size)
        for ours, theirs in zip(fast(x), program(x), strict=True):
            assert torch.equal(ours, theirs)


def test_elements_may_lie_at_any_address():
    """As memory of a file or of a bytearray does; `make test-sanitized` sees what C leaves undefined."""

    def program(x):
        return x * 2 + x.sum(0), x.cumsum(0), x.T.exp() + x, x.softmax(1).to(torch.bfloat16)

    fast = anyshape.compile(program)
    for size in (3, 1, 2, 33):
        for offset in (0, 1, 2, 3):
            memory = bytearray(4 * size * size + offset + 1)
            x = torch.frombuffer(memory, dtype=torch.float32, offset=offset, count=size * size)
            x = x.view(size, size).copy_(torch.randn(size, size))
            for ours, theirs in zip(fast(x), program(x), strict=True):
                torch.testing.assert_close(ours, theirs)


def test_a_load_outside_of_a_loop_asks_whether_the_loop_turns():
    """What does not vary along a row is loaded before it; of an empty row there may be nothing to load."""

    def make(b, x, y):
        row = b.expand(x, (y.shape[0],))
        return b.sum(row, 0), b.add(b.sum(b.mul(row, y), 0), b.reshape(x, ()))

    one, two = launches(compile_sketch(make, *normal(["1", "a"])).program)
    only_of_the_row, needed_anyway = sorted((one.kernel, two.kernel), key=lambda k: len(k.elements))
    assert "(n0 > 0 ? p0[0] : 0)" in emit_c(only_of_the_row, "k")
    assert "mask=(rtotal > 0)" in emit_triton(only_of_the_row, "k")
    assert " = p0[0];" in emit_c(needed_anyway, "k")
    assert "tl.load(p0 + (0))" in emit_triton(needed_anyway, "k")
