"""What holds of every row, and of the rules that many share: spellings, in-place twins, sizes, values."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch

from anyshape import reference, torch_names
from anyshape.ir.dtypes import DTYPES, bool_, float32, int64
from anyshape.ir.graph import TensorType
from anyshape.ops import OPS, SPELLINGS
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext, Undecided
from anyshape.ops.layout import contiguous_strides, pointwise_strides
from anyshape.ops.table import REQUIRED, Extern, Pointwise, Signature
from anyshape.symbolic import Facts, Space, broadcast, eq, evaluate, ge, le, ne
from tests.ops import harness

# --- the table ---

CHECKS = ("check_false", "trap_if")
"""Rows whose functions are the runtime's own and have no name in torch."""


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_every_spelling_names_something_callable(spelling) -> None:
    assert callable(torch_names.resolve(spelling))


def test_every_row_can_be_typed() -> None:
    assert [r.name for r in OPS.values() if r.type is None and r.expand is None] == []


def test_every_extern_names_something_callable() -> None:
    for row in OPS.values():
        if isinstance(row.lower, Extern) and row.name not in CHECKS:
            assert callable(torch_names.resolve(row.lower.function))


def test_in_place_rows_write_what_a_functional_row_computes() -> None:
    rows = [row for row in OPS.values() if row.mutates]
    assert len(rows) > 100
    for row in rows:
        assert row.name.endswith("_")
        assert row.functional in OPS
        assert row.mutates == (row.signature.names[0],)


def test_core_rows_are_no_longer_expanded() -> None:
    assert [r.name for r in OPS.values() if isinstance(r.lower, Pointwise) and r.expand] == []


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        ((1, 2), {}, {"x": 1, "y": 2, "alpha": 1}),
        ((1,), {"y": 2, "alpha": 3}, {"x": 1, "y": 2, "alpha": 3}),
    ],
)
def test_signatures_bind_as_calls_do(args, kwargs, bound) -> None:
    assert Signature.parse("x, y, *, alpha=1").bind(args, kwargs) == bound


@pytest.mark.parametrize(
    "text",
    (
        "",
        "x",
        "x, y=None, ",
        "x, /, y = -1, *, z",
        "x, dims=(-2, -1), *, pad=[0, (1, 2)], mode='fro'",
        "*, p=1e-05",
    ),
)
def test_signatures_are_read_as_python_reads_them(text: str) -> None:
    wanted = inspect.signature(eval(f"lambda {text}: None")).parameters.values()
    assert [(p.name, p.default, p.keyword_only) for p in Signature.parse(text).parameters] == [
        (p.name, REQUIRED if p.default is p.empty else p.default, p.kind is p.KEYWORD_ONLY)
        for p in wanted
    ]


@pytest.mark.parametrize("text", ("*args", "x, **rest", "x: int", "x=y"))
def test_what_no_row_may_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Signature.parse(text)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1, 2), {"z": 1})]
)
def test_signatures_refuse_what_calls_refuse(args, kwargs) -> None:
    with pytest.raises(TypeError):
        Signature.parse("x, y, *, alpha=1").bind(args, kwargs)


# --- in-place twins ---

IN_PLACE = [
    "add_",
    "mul_",
    "sub_",
    "div_",
    "clamp_",
    "exp_",
    "relu_",
    "masked_fill_",
    "lerp_",
    "copy_",
    "zero_",
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_rows_run_natively_and_functionally_alike(name) -> None:
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    args = {
        "clamp_": (x, 0.2, 0.7), "exp_": (x,), "relu_": (x - 0.5,), "zero_": (x,), "lerp_": (x, y, 0.3),
        "masked_fill_": (x, y > 0.5, 2.0),
    }.get(name, (x, y))  # fmt: skip
    row = OPS[name]
    pure = torch_names.resolve(OPS[row.functional].torch)(*harness.clone(args))
    written = harness.clone(args)
    positional, keywords = row.signature.split(written, {})  # as nodes have them
    result = torch_names.resolve(row.torch)(*positional, **keywords)
    assert result is written[0]
    torch.testing.assert_close(written[0], pure)


def test_in_place_results_keep_the_dtype_of_what_is_written() -> None:
    case = harness.Case.new()
    made = case.call(
        "add_", (torch.zeros(3, dtype=torch.int32), torch.ones(3, dtype=torch.int64)), {}
    )
    assert made.dtype.name == "int32"


def test_in_place_results_must_fit() -> None:
    case = harness.Case.new()
    with pytest.raises(OpError, match="can't be cast"):
        case.call("add_", (torch.zeros(3, dtype=torch.int64), torch.ones(3)), {})
    with pytest.raises(OpError, match="broadcast"):
        case.call("add_", (torch.zeros(3), torch.ones(2, 3)), {})


# --- promotion ---

NUMBERS = [True, 2, 2.5]
TENSOR_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("a", TENSOR_DTYPES)
def test_promotion_is_torchs(a) -> None:
    operands = [*NUMBERS, *(torch.ones(s, dtype=d) for d in TENSOR_DTYPES for s in ((), (2,)))]
    for shape, b in itertools.product(((), (2,)), operands):
        x = torch.ones(shape, dtype=a)
        case = harness.Case.new()
        made = case.call("mul", (x, b), {})
        assert made.dtype is DTYPES[str((x * b).dtype)[6:]], (x, b)


# --- sizes ---


def context(**rest):
    space = Space()
    guards = []
    return TypeContext(
        space, Facts(space), {}, guards.append if rest.get("guard", True) else None
    ), guards


def of(cx, *shape, dtype=float32):
    return TensorType(dtype, "cpu", shape, contiguous_strides(cx, shape))


def size(cx, hint=None, **kind):
    made = cx.space.fresh("s", **kind)
    if hint is not None:
        cx.hints[made.symbol] = hint
    return made


def test_equal_sizes_ask_nothing() -> None:
    cx, guards = context()
    b = Builder(cx)
    n = size(cx, 7)
    x = b.input(of(cx, n, 4), "argument", "x")
    for name in ("add", "mul", "maximum"):
        assert b.call(name, x, x).shape == (n, 4)
    assert guards == []


def test_backed_sizes_are_guarded_equal_by_their_hints() -> None:
    cx, guards = context()
    b = Builder(cx)
    n, m = size(cx, 7), size(cx, 7)
    made = b.add(b.input(of(cx, n), "argument", "x"), b.input(of(cx, m), "argument", "y"))
    assert guards == [eq(n, m)]
    assert cx.same(made.shape[0], m)


def test_a_backed_size_of_one_is_guarded_to_be_one() -> None:
    cx, guards = context()
    b = Builder(cx)
    n, m = size(cx, 7), size(cx, 1)
    made = b.add(b.input(of(cx, n), "argument", "x"), b.input(of(cx, m), "argument", "y"))
    assert guards == [eq(m, 1)]
    assert made.shape == (n,)


def test_unbacked_sizes_broadcast_under_a_check() -> None:
    space = Space()
    checks = []
    cx = TypeContext(
        space, Facts(space), {}, None, lambda condition, message: checks.append(condition)
    )
    b = Builder(cx)
    n, m = (space.fresh("u", policy="unbacked") for _ in range(2))
    made = b.add(b.input(of(cx, n), "argument", "x"), b.input(of(cx, m), "argument", "y"))
    assert made.shape == (broadcast(n, m),)
    (check,) = checks
    for i, j in itertools.product(range(4), repeat=2):
        fits = i == j or 1 in (i, j)
        assert evaluate(check, {n.symbol: i, m.symbol: j}) == fits
        if fits:
            shape = (torch.empty(i) + torch.empty(j)).shape[0]
            assert evaluate(made.shape[0], {n.symbol: i, m.symbol: j}) == shape


def test_padding_by_no_less_than_nothing_asks_nothing() -> None:
    cx, checks = context(guard=False)
    n, m = (cx.space.fresh("u", policy="unbacked") for _ in range(2))
    b = Builder(cx)
    x = b.input(of(cx, n - m), "argument", "x")
    assert b.pad(x, ((0, 1),), 0).shape == (n - m + 1,)
    with pytest.raises(Undecided):
        b.pad(x, ((0, -1),), 0)


def test_unbacked_sizes_that_nobody_may_check_are_undecided() -> None:
    cx, _ = context(guard=False)
    n, m = (cx.space.fresh("u", policy="unbacked") for _ in range(2))
    with pytest.raises(Undecided):
        cx.broadcast_shapes(((n,), (m,)))


def test_squeeze_of_an_unknown_size_is_decided_by_its_hint_or_not_at_all() -> None:
    for hint, rank in ((1, 1), (5, 2)):
        cx, guards = context()
        b = Builder(cx)
        n = size(cx, hint)
        assert len(b.squeeze(b.input(of(cx, n, 3), "argument", "x"), 0).shape) == rank
        assert len(guards) == 1
    cx, _ = context()
    b = Builder(cx)
    x = b.input(of(cx, cx.space.fresh("u", policy="unbacked"), 3), "argument", "x")
    with pytest.raises(Undecided):
        b.squeeze(x, 0)


def test_views_and_reductions_of_unknown_sizes_guard_only_what_eager_refuses() -> None:
    cx, guards = context()
    b = Builder(cx)
    n, m = size(cx, 6), size(cx, 1)
    x = b.input(of(cx, n, m, 8), "argument", "x")
    y = b.reshape(b.transpose(b.view(x, (n, m, 2, 4)), 1, 2), (n, 2, -1))
    b.softmax(b.sum(b.cat((y, y), -1), -1), 0)
    b.layer_norm(x, (8,))
    b.mean(x)
    b.clone(b.permute(x, (2, 0, 1)))
    assert guards == [ne(n, 0)]  # -1 beside a size of 0 could be anything
    assert y.shape == (n, 2, 4 * m)


def test_minus_one_in_a_shape_is_what_is_left() -> None:
    cx, guards = context()
    b = Builder(cx)
    n, m = size(cx, 2), size(cx, 3)
    x = b.input(of(cx, n, m, 64), "argument", "x")
    assert b.view(x, (n, m, -1, 16)).shape == (n, m, 4, 16)
    assert b.view(x, (-1, 64)).shape == (n * m, 64)
    assert b.reshape(x, (n, -1)).shape == (n, 64 * m)
    assert guards == [ne(n * m, 0)]  # -1 beside a size of 0 could be anything


def test_data_sized_results_have_bounds() -> None:
    cx, _ = context()
    b = Builder(cx)
    n = size(cx, 6)
    x = b.input(of(cx, n, 4), "argument", "x")
    rows = b.nonzero(x).shape[0]
    assert cx.known(le(rows, 4 * n)) and cx.known(ge(rows, 0))
    picked = b.masked_select(x, b.gt(x, 0))
    assert cx.known(le(picked.shape[0], 4 * n))


def test_split_counts_are_guarded_and_not_the_size() -> None:
    cx, guards = context()
    b = Builder(cx)
    n = size(cx, 10)
    pieces = b.split(b.input(of(cx, n), "argument", "x"), 4)
    assert len(pieces) == 3
    (guard,) = guards
    for value in range(1, 20):
        count = len(torch.empty(value).split(4))
        assert evaluate(guard, {n.symbol: value}) == (count == 3)


def test_reshape_of_a_transposed_tensor_does_not_depend_on_a_size_of_one() -> None:
    cx, guards = context()
    b = Builder(cx)
    n, m = size(cx, 2), size(cx, 1)
    x = b.transpose(b.input(of(cx, n, m, 2, 4), "argument", "x"), 1, 2)
    assert b.reshape(x, (n, 2, m * 4)).type.strides == (8 * m, 4 * m, 1)
    assert guards == []


def test_strides_follow_the_operands_whatever_the_sizes() -> None:
    cx, _ = context()
    a, c, d = (size(cx) for _ in range(3))
    shape = (a, c, d)
    plain = of(cx, *shape)
    turned = TensorType(float32, "cpu", shape, (d, a * d, 1))
    row = of(cx, d)
    for operands in itertools.product((plain, turned, row), repeat=2):
        strides = pointwise_strides(cx, shape, operands)
        for sizes in itertools.product((2, 3), repeat=3):
            env = dict(zip((e.symbol for e in shape), sizes, strict=True))
            real = [as_tensor(t, env) for t in operands]
            if sum(real).shape != torch.Size(sizes):
                continue
            found = [s if isinstance(s, int) else evaluate(s, env) for s in strides]
            assert list((real[0] + real[1]).stride()) == found


def as_tensor(t, env):
    number = lambda dim: dim if isinstance(dim, int) else evaluate(dim, env)
    return torch.empty_strided([number(n) for n in t.shape], [number(n) for n in t.strides])


# --- values at the edges ---

EDGES = [
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-40, -1e-40, 1e-7, 3.0, -3.0,
    19.9, 20.1, -20.1, 88.0, -88.0, 89.0, 104.0, -104.0, 1e30, -1e30, 2.5, 3.5, -2.5, 0.9999999, 7.25,
]  # fmt: skip

UNARY = sorted(
    name for name, row in OPS.items()
    if isinstance(row.lower, Pointwise) and row.torch.startswith("torch.")
    and not any(p.name == "other" for p in row.signature.parameters)
    and sum(p.default is Signature.parse("x").parameters[0].default for p in row.signature.parameters) == 1
)  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bodies_at_infinities_nan_and_signed_zero(name, dtype) -> None:
    x = torch.tensor(EDGES, dtype=dtype)
    if name in ("digamma", "lgamma", "gelu"):
        x = x[x.abs() < 1e20]  # eager's own kernels disagree there, vector and scalar
    try:
        eager = torch_names.resolve(OPS[name].torch)(x.clone())
    except (RuntimeError, TypeError):
        pytest.skip("eager refuses")
    problem = harness.body_problem(name, (x,), {}, eager)
    assert problem is None, problem


BINARY = ["add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum", "fmax", "fmin",
          "atan2", "copysign", "hypot", "logaddexp", "eq", "lt", "ge", "xlogy", "heaviside"]  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary_bodies_at_the_edges(name) -> None:
    values = torch.tensor(EDGES)
    x, y = (v.flatten() for v in torch.meshgrid(values, values, indexing="ij"))
    eager = torch_names.resolve(OPS[name].torch)(x, y)
    problem = harness.body_problem(name, (x, y), {}, eager)
    assert problem is None, problem


INTEGERS = [
    "add",
    "sub",
    "mul",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "bitwise_and",
    "bitwise_xor",
    "lt",
]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
def test_integer_bodies_wrap_and_floor_as_torchs(name, dtype) -> None:
    info = torch.iinfo(dtype)
    values = torch.tensor([info.min, info.max, 0, 1, 2, 3, 7, 100, 5], dtype=dtype)
    divisors = torch.tensor([1, 2, 3, 5, 7, 100, info.max], dtype=dtype)
    x, y = (v.flatten() for v in torch.meshgrid(values, divisors, indexing="ij"))
    eager = torch_names.resolve(OPS[name].torch)(x, y)
    problem = harness.body_problem(name, (x, y), {}, eager)
    assert problem is None, problem


# --- reductions over nothing, one and odd sizes ---

REDUCTIONS = [
    "sum",
    "prod",
    "mean",
    "any",
    "all",
    "logsumexp",
    "var",
    "std",
    "softmax",
    "log_softmax",
    "cumsum",
]
SHAPES = [(0, 3), (3, 0), (1, 1), (2, 1), (1, 5), (7, 13), (33, 65)]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bool, torch.uint8, torch.int8, torch.bfloat16]
)
def test_reductions_at_every_size_and_small_dtype(name, shape, dtype) -> None:
    torch.manual_seed(0)
    x = (
        torch.randint(0, 3, shape).to(dtype)
        if not dtype.is_floating_point
        else torch.randn(shape, dtype=dtype)
    )
    function = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}.get(name) or getattr(
        torch, name
    )
    for dim in (0, 1):
        try:
            eager = function(x, dim)
        except (RuntimeError, IndexError):
            continue
        if name in ("softmax", "log_softmax") and not dtype.is_floating_point:
            continue  # eager refuses unless there is nothing to do
        for problem in (
            harness.type_problems(name, (x, dim), {}, eager),
            harness.expansion_problem(name, (x, dim), {}, eager),
        ):
            assert problem is None, problem


def test_argmax_of_several_dims_counts_row_major() -> None:
    x = torch.tensor([[1.0, 5.0, 2.0], [5.0, 0.0, 5.0]])
    case = harness.Case.new()
    made = case.call("argmax", (x,), {})
    (result,) = reference.run(case.graph(made), case.tensors)
    assert result.item() == 1 and made.dtype is int64 and case.builder.nodes[-1].args[1] == (0, 1)


def test_masks_index_through_their_positions() -> None:
    x, mask = torch.randn(4, 3), torch.tensor([True, False, True, True])
    case = harness.Case.new()
    made = case.call("index", (x, (mask,)), {})
    (result,) = reference.run(case.graph(made), case.tensors, case.hints, check_types=True)
    assert torch.equal(result, x[mask])
    assert [n.op for n in case.builder.nodes] == ["nonzero", "select", "index"]
    assert case.call("gt", (x, 0), {}).dtype is bool_
