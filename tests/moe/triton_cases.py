"""The Triton kernels in Triton's interpreter against the reference.

Run by `test_kernels_triton.py` in a process of its own (TRITON_INTERPRET=1 must be set before triton is imported).
bfloat16 is left to the GPU: the interpreter's is broken.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anyshape.moe import (
    reference,
    tma_gemm,
    triton_activation,
    triton_few,
    triton_gather,
    triton_gemm,
    triton_routing,
    triton_shuffling,
)
from anyshape.moe.gemm_tiles import Tall, Tile
from tests.triton_interpreter import mend

mend()
FLOATS = (torch.float32, torch.float16)


def scores_with_ties(tokens: int, experts: int, dtype: torch.dtype) -> Tensor:
    """Few different values, both zeros, infinities and NaN."""
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 0.5])
    return values[torch.randint(0, len(values), (tokens, experts))].to(dtype)


def assert_same(actual: object, expected: object, **tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)


def assert_same_fp8(actual: Tensor, expected: Tensor) -> None:
    """Equal but for one step of fp8. The interpreter loses a carry into the exponent, and makes a number of NaN."""
    known = ~expected.float().isnan()
    mine, theirs = actual.float()[known], expected.float()[known]
    assert_same(torch.where(mine * 2 == theirs, theirs, mine), theirs, rtol=0.13, atol=2.0**-9)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers every time, and few programs: the interpreter runs them one by one."""
    torch.manual_seed(0)
    monkeypatch.setattr(triton_shuffling, "MOVE_PROGRAMS", 6)
    monkeypatch.setattr(triton_shuffling, "TAIL_PROGRAMS", 2)
    monkeypatch.setattr(triton_shuffling, "ONE_LAUNCH_SCORES", 512)
    monkeypatch.setattr(triton_shuffling, "EXPERT_CHOICES", 128)
    monkeypatch.setattr(triton_shuffling, "BLOCK_SCORES", 64)
    monkeypatch.setattr(triton_shuffling, "SUMMED_BLOCKS", 4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("tokens", "experts", "top_k"),
    [(1, 1, 1), (7, 16, 1), (9, 12, 8), (5, 3, 3), (70, 6, 2), (0, 4, 1)],
)
def test_index_shuffling_is_the_reference(
    tokens: int, experts: int, top_k: int, dtype: torch.dtype
) -> None:
    for scores in (
        torch.randn(tokens, experts).to(dtype),
        scores_with_ties(tokens, experts, dtype),
        torch.randn(experts, tokens).to(dtype).T,
    ):
        arguments = (scores, top_k, None, None, True)
        assert_same(
            triton_shuffling.index_shuffling(*arguments), reference.index_shuffling(*arguments)
        )


@pytest.mark.parametrize("tokens", [9, 100])
@pytest.mark.parametrize("valid", [None, 0, 5])
@pytest.mark.parametrize("expert_range", [None, (0, 0), (2, 5), (0, 12)])
def test_index_shuffling_keeps_to_its_range_and_valid_tokens(
    tokens: int, valid: int | None, expert_range: tuple[int, int] | None
) -> None:
    count = None if valid is None else torch.tensor(valid)
    arguments = (torch.randn(tokens, 12), 3, expert_range, count, True)
    assert_same(triton_shuffling.index_shuffling(*arguments), reference.index_shuffling(*arguments))


def test_index_shuffling_of_many_choices_scans_block_by_block() -> None:
    arguments = (torch.randn(300, 8), 3, (1, 7), torch.tensor([290]), True)
    assert_same(triton_shuffling.index_shuffling(*arguments), reference.index_shuffling(*arguments))


@pytest.mark.parametrize("function", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(
    ("experts", "top_k", "groups", "top_groups", "group_best"),
    [(5, 2, 1, 1, 1), (40, 8, 1, 1, 1), (20, 3, 5, 2, 2), (24, 4, 3, 2, 1), (1, 1, 1, 1, 1)],
)
def test_routing_scores_are_the_reference(
    *,
    function: str,
    renormalize: bool,
    experts: int,
    top_k: int,
    groups: int,
    top_groups: int,
    group_best: int,
) -> None:
    x, w = torch.randn(5, 32), torch.randn(32, experts)
    for bias, logit_bias in ((None, None), (torch.randn(experts), torch.randn(experts))):
        arguments = (
            x,
            w,
            bias,
            logit_bias,
            function,
            top_k,
            renormalize,
            groups,
            top_groups,
            group_best,
            2.5,
        )
        assert_same(
            triton_routing.routing_scores(*arguments),
            reference.routing_scores(*arguments),
            rtol=1e-5,
            atol=1e-6,
        )


def gather_arguments(
    dtype: torch.dtype, columns: int, rows: int, valid: Tensor | None
) -> tuple[object, ...]:
    x = torch.randn(6, 2 * columns).to(dtype)[:, :columns]
    token, expert = torch.randint(0, 6, (rows,)), torch.randint(0, 3, (rows,))
    return x, token.int(), expert.int(), torch.rand(3, 6).T, valid, True


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [1, 6, 1024, 2880])
@pytest.mark.parametrize(
    "valid", [None, torch.tensor(5), torch.tensor([1, 0, 3], dtype=torch.int32)]
)
def test_gathers_are_the_reference(dtype: torch.dtype, columns: int, valid: Tensor | None) -> None:
    arguments = gather_arguments(dtype, columns, 9, valid)
    assert_same(triton_gather.gather_mul(*arguments), reference.gather_mul(*arguments))
    unscaled = (*arguments[:2], None, None, *arguments[4:])
    assert_same(triton_gather.gather_mul(*unscaled), reference.gather_mul(*unscaled))
    values, scales = triton_gather.gather_mul_quantize(*arguments)
    expected, expected_scales = reference.gather_mul_quantize(*arguments)
    assert_same(scales, expected_scales)
    assert_same_fp8(values, expected)


def test_gather_takes_whole_rows_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_gather, "ENOUGH_PROGRAMS", 20)
    arguments = gather_arguments(torch.float32, 40, 30, torch.tensor(25))
    assert_same(triton_gather.gather_mul(*arguments), reference.gather_mul(*arguments))


def test_quantizing_long_rows_takes_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_gather, "QUANTIZE_BLOCK", 16)
    arguments = gather_arguments(torch.float32, 45, 9, torch.tensor(7))
    values, scales = triton_gather.gather_mul_quantize(*arguments)
    expected, expected_scales = reference.gather_mul_quantize(*arguments)
    assert_same(scales, expected_scales)
    assert_same_fp8(values, expected)
    activation = (torch.randn(5, 45), torch.randn(5, 45), torch.tensor(4), "silu", 1.0, 1.0, True)
    values, scales = triton_activation.silu_mul_quantize(*activation)
    expected, expected_scales = reference.silu_mul_quantize(*activation)
    assert_same(scales, expected_scales, rtol=1e-5, atol=0.0)
    assert_same_fp8(values, expected)


def test_quantizing_keeps_nan_where_it_is_and_zero_rows_zero() -> None:
    x = torch.randn(3, 20)
    x[0, 3], x[1] = float("nan"), 0.0
    arguments = (x, torch.arange(3), None, None, None, True)
    values, scales = triton_gather.gather_mul_quantize(*arguments)
    expected, expected_scales = reference.gather_mul_quantize(*arguments)
    assert_same_fp8(values, expected)
    assert_same(scales, expected_scales)
    assert expected[0].float().isnan().sum() == 1
    assert (values[1].float() == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [1, 24, 1500])
@pytest.mark.parametrize("valid", [None, torch.tensor([2, 3])])
def test_scatter_add_is_the_reference(
    dtype: torch.dtype, columns: int, valid: Tensor | None
) -> None:
    rows = torch.randint(-4, 4, (9, columns)).to(dtype)
    token = torch.randint(0, 6, (9,)).int()
    mine = torch.randint(-4, 4, (6, columns)).to(dtype)
    theirs = mine.clone()
    triton_gather.scatter_add(mine, rows, token, valid, False)
    reference.scatter_add(theirs, rows, token, valid, False)
    assert_same(mine, theirs)
    once = torch.randperm(6).int()
    triton_gather.scatter_add(mine, rows[:6], once, valid, True)
    reference.scatter_add(theirs, rows[:6], once, valid, True)
    assert_same(mine, theirs)


def test_scatter_add_counts_first_which_tokens_have_one_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton_gather, "COUNTED_ROWS", 6)
    rows, token = torch.randint(-4, 4, (9, 24)).float(), torch.tensor([3, 1, 3, 7, 0, 8, 3, 2, 2])
    for valid in (None, torch.tensor(8)):
        mine = torch.randint(-4, 4, (9, 24)).float()
        theirs = mine.clone()
        triton_gather.scatter_add(mine, rows, token, valid, False)
        reference.scatter_add(theirs, rows, token, valid, False)
        assert_same(mine, theirs)


def few_operands(dtype: torch.dtype, tokens: int, hidden: int, size: int, experts: int) -> tuple:
    """(x, router, gate_up, down), small enough for float16."""
    return (
        torch.randn(tokens, hidden).to(dtype),
        (torch.randn(experts, hidden) / hidden**0.5).to(dtype),
        (torch.randn(experts, 2 * size, hidden) / hidden**0.5).to(dtype),
        (torch.randn(experts, hidden, size) / size**0.5).to(dtype),
    )


def in_float8(weights: Tensor) -> tuple[Tensor, Tensor]:
    """weights [E, N, K] rounded to float8, and a scale for each row."""
    values, scales = reference.quantize(weights.float().flatten(0, 1))
    return values.view(weights.shape), scales


def assert_few_agree(choice: tuple, rest: tuple, second: tuple, **close: float) -> None:
    """Both operators against the reference; the second from the reference's first."""
    made, experts, weights = reference.gate_few(*choice, *rest)
    mine = triton_few.gate_few(*choice, *rest)
    assert_same(mine[1], experts)
    assert_same(mine[2], weights, rtol=1e-3, atol=1e-3)
    assert_same(mine[0], made, **close)
    second = (made, experts, weights, *second)
    assert_same(triton_few.down_few(*second), reference.down_few(*second), **close)


@pytest.mark.parametrize(
    ("dtype", "function", "tokens", "hidden", "size", "experts", "top_k", "groups", "biased"),
    [
        (torch.float32, "softmax", 1, 64, 20, 16, 2, (1, 1, 1), False),
        (torch.float16, "softmax", 2, 300, 36, 24, 3, (1, 1, 1), True),
        (torch.float16, "sigmoid", 1, 256, 16, 32, 4, (4, 2, 2), True),
        (torch.float32, "sigmoid", 3, 520, 17, 5, 1, (1, 1, 1), True),
    ],
)
def test_few_tokens_are_the_reference(
    dtype: torch.dtype,
    function: str,
    tokens: int,
    hidden: int,
    size: int,
    experts: int,
    top_k: int,
    groups: tuple[int, int, int],
    *,
    biased: bool,
) -> None:
    x, router, gate_up, down = few_operands(dtype, tokens, hidden, size, experts)
    on_input = function == "sigmoid"
    ranking = torch.randn(experts) * 0.1 if biased else None
    bias = torch.randn(experts, 2 * size) if biased else None
    choice = (x, router.t(), ranking, ranking, function, top_k, True, *groups, 1.5)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 4e-3, "atol": 4e-3}
    rest = (gate_up, None, bias, None, on_input, "silu", 1.7, 7.0, biased)
    last = torch.randn(experts, hidden) if biased else None
    second = (down, None, last, x if biased else None, None, on_input, top_k)
    assert_few_agree(choice, rest, second, **close)


@pytest.mark.parametrize(("hidden", "size"), [(512, 16), (300, 33)])
def test_few_tokens_read_weights_in_float8(hidden: int, size: int) -> None:
    x, router, gate_up, down = few_operands(torch.float32, 2, hidden, size, 6)
    choice = (x, router.t(), None, None, "softmax", 2, True, 1, 1, 1, 1.0)
    rest = (*in_float8(gate_up), None, None, False, "silu", 1.0, 1.0, False)
    second = (*in_float8(down), None, None, None, False, 2)
    assert_few_agree(choice, rest, second, rtol=1e-4, atol=1e-4)


def test_few_tokens_take_transposed_weights() -> None:
    x, router, gate_up, down = few_operands(torch.float32, 2, 70, 8, 7)
    choice = (x, router.t(), None, None, "softmax", 2, True, 1, 1, 1, 1.0)
    turned = gate_up.mT.contiguous().mT, down.mT.contiguous().mT
    rest = (turned[0], None, None, None, False, "silu", 1.0, 1.0, False)
    second = (turned[1], None, None, None, None, False, 2)
    assert_few_agree(choice, rest, second, rtol=1e-4, atol=1e-4)


def test_few_tokens_rank_equal_scores_by_expert_and_nan_last() -> None:
    x, router = torch.ones(1, 4), torch.zeros(6, 4)
    router[4, 0], router[0, 0] = 1.0, float("nan")
    choice = (x, router.t(), None, None, "sigmoid", 3, False, 1, 1, 1, 1.0)
    rest = (torch.randn(6, 8, 4), None, None, None, False, "silu", 1.0, 1.0, False)
    assert triton_few.gate_few(*choice, *rest)[1].tolist() == [4, 1, 2]


@pytest.mark.parametrize("counts", [[0, 0, 0, 0], [1, 0, 3, 2], [0, 4, 0, 4], [8, 0, 0, 0]])
def test_scatter_add_padded_is_the_reference(counts: list[int]) -> None:
    rows = torch.randint(-4, 4, (2, 8, 20)).float()
    token = torch.randint(0, 5, (8,)).int()
    mine = torch.zeros(5, 20)
    theirs = mine.clone()
    number = torch.tensor(counts, dtype=torch.int32)
    triton_gather.scatter_add_padded(mine, rows, number, token)
    reference.scatter_add_padded(theirs, rows, number, token)
    assert_same(mine, theirs)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", list(reference.ACTIVATIONS))
@pytest.mark.parametrize("interleaved", [False, True])
def test_activations_are_the_reference(dtype: torch.dtype, kind: str, interleaved: bool) -> None:
    both = (torch.randn(5, 2 * 130) * 5).to(dtype)
    both[1, 7] = float("nan")
    gate, up = (both[:, ::2], both[:, 1::2]) if interleaved else both.chunk(2, 1)
    for valid in (None, torch.tensor(3)):
        arguments = (gate, up, valid, kind, 1.702, 7.0, True)
        tolerance = (
            {"rtol": 2e-3, "atol": 2e-3} if dtype == torch.float16 else {"rtol": 1e-5, "atol": 1e-5}
        )
        assert_same(
            triton_activation.silu_mul(*arguments), reference.silu_mul(*arguments), **tolerance
        )
        values, scales = triton_activation.silu_mul_quantize(*arguments)
        expected, expected_scales = reference.silu_mul_quantize(*arguments)
        assert_same(scales, expected_scales, rtol=1e-5, atol=0.0)
        assert_same_fp8(values, expected)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("experts", [(None, None), (1, 3), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn])
def test_row_moves_are_the_reference(
    is_padded: bool, experts: tuple[int | None, int | None], dtype: torch.dtype
) -> None:
    counts = torch.tensor([[2, 0, 3, 1], [0, 0, 0, 0], [1, 4, 0, 0]], dtype=torch.int32)
    first, last = experts[0] or 0, 4 if experts[1] is None else experts[1]
    tokens = torch.randn(21 if is_padded else 13, 37).to(dtype)
    arguments = (tokens, counts, first, last, is_padded, True)
    mine, mine_counts = triton_shuffling.combine_shuffling(*arguments)
    theirs, their_counts = reference.combine_shuffling(*arguments)
    assert_same(mine.float(), theirs.float())
    assert_same(mine_counts, their_counts)
    assert_same(
        triton_shuffling.split_shuffling(*arguments).float(),
        reference.split_shuffling(*arguments).float(),
    )


def product_arguments(
    dtype: torch.dtype, sizes: list[int], rows: int, columns: int, inner: int
) -> dict[str, object]:
    fp8 = dtype == torch.float8_e4m3fn
    groups = len(sizes)
    return {
        "x": torch.randint(-4, 5, (rows, inner)).to(dtype),
        "w": torch.randint(-4, 5, (groups, columns, inner)).to(dtype),
        "m_sizes": torch.tensor(sizes, dtype=torch.int32),
        "x_scales": torch.rand(rows) if fp8 else None,
        "w_scales": torch.rand(groups, columns) if fp8 else None,
        "bias": None,
        "row_weights": None,
        "gather_indices": None,
    }


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn])
@pytest.mark.parametrize(
    ("sizes", "rows", "columns", "inner"),
    [
        ([3], 3, 5, 7),
        ([0, 5, 0, 20, 1], 30, 130, 70),
        ([0, 0], 4, 16, 16),
        ([40, 0, 2], 42, 1, 1),
        ([1] * 20, 20, 24, 8),
    ],
)
def test_grouped_gemm_is_the_reference(
    dtype: torch.dtype, sizes: list[int], rows: int, columns: int, inner: int
) -> None:
    arguments = product_arguments(dtype, sizes, rows, columns, inner)
    out_dtype = torch.float32 if dtype == torch.float8_e4m3fn else dtype
    ending = {"out_dtype": out_dtype, "init_tail": True}
    assert_same(
        triton_gemm.grouped_gemm(**arguments, **ending),
        reference.grouped_gemm(**arguments, **ending),
    )
    arguments["bias"] = torch.randint(-3, 4, (len(sizes), columns)).float()
    arguments["row_weights"] = torch.randint(-3, 4, (rows,)).float()
    assert_same(
        triton_gemm.grouped_gemm(**arguments, **ending),
        reference.grouped_gemm(**arguments, **ending),
    )


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("tall", [None, Tall(32, 16, 3)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_the_kernel_on_descriptors_is_the_reference(
    dtype: torch.dtype, tall: Tall | None, *, swap: bool, gathers: bool
) -> None:
    tile = Tile(1, 1, 16, 32, 32, 2, swap=swap, band=2, tall=tall)
    for sizes, rows, columns, inner in (([0, 5, 0, 20, 1], 30, 40, 48), ([3, 70], 100, 16, 80)):
        arguments = product_arguments(dtype, sizes, rows, columns, inner)
        arguments["bias"] = torch.randint(-3, 4, (len(sizes), columns)).float()
        arguments["row_weights"] = torch.randint(-3, 4, (rows,)).float()
        if gathers:
            arguments["gather_indices"] = torch.randint(0, rows, (rows,)).int()
        expected = reference.grouped_gemm(**arguments, out_dtype=torch.float32, init_tail=True)
        out = torch.full_like(expected, float("nan"))
        tma_gemm.launch(tile, **arguments, out=out, scatter_indices=None, init_tail=True)
        assert_same(out, expected)


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("swap", [False, True])
def test_the_gated_kernel_is_the_reference(*, swap: bool, interleaved: bool, gathers: bool) -> None:
    tile = Tile(1, 1, 16, 16, 32, 2, swap=swap, band=2, tall=Tall(32, 16, 2))
    arguments = product_arguments(torch.float16, [0, 5, 0, 20, 1], 30, 80, 48)
    x, w, sizes = (arguments[name] for name in ("x", "w", "m_sizes"))
    bias = torch.randint(-3, 4, (5, 80)).float()
    index = torch.randint(0, 30, (30,)).int() if gathers else None
    ending = ("gpt_oss", 1.7, 7.0, interleaved, True)
    for factors in (None, torch.randint(-2, 3, (5, 30)).float().T):
        out = torch.full((30, 40), float("nan"), dtype=torch.float16)
        tma_gemm.launch_gated(tile, x, w, sizes, out, bias, index, factors, *ending)
        expected = reference.grouped_gemm_gated(x, w, sizes, bias, index, factors, *ending)
        assert_same(out, expected, rtol=2e-3, atol=2e-3)


def test_grouped_gemm_takes_weights_of_any_strides_and_gathered_rows() -> None:
    arguments = product_arguments(torch.float32, [2, 0, 7], 5, 33, 20)
    arguments["w"] = torch.randint(-4, 5, (3, 20, 33)).float().transpose(1, 2)
    arguments["x"] = torch.randint(-4, 5, (20, 5)).float().T
    arguments["gather_indices"] = torch.randint(0, 5, (9,)).int()
    ending = {"out_dtype": torch.float32, "init_tail": True}
    assert_same(
        triton_gemm.grouped_gemm(**arguments, **ending),
        reference.grouped_gemm(**arguments, **ending),
    )


def test_grouped_gemm_adds_its_rows_at_their_tokens() -> None:
    arguments = product_arguments(torch.float16, [2, 0, 6], 10, 40, 24)
    positions = {"scatter_indices": torch.randint(0, 4, (10,)).int()}
    for weights in (torch.randint(-3, 4, (10,)).float(), torch.randint(-3, 4, (3, 4)).float().T):
        arguments["row_weights"] = weights
        mine, theirs = torch.ones(4, 40), torch.ones(4, 40)
        triton_gemm.grouped_gemm_scatter(**arguments, **positions, scatter_out=mine)
        reference.grouped_gemm_scatter(**arguments, **positions, scatter_out=theirs)
        assert_same(mine, theirs)
        tile, other = Tile(1, 1, 16, 32, 32, 2, swap=True), torch.ones(4, 40)
        tma_gemm.launch(tile, **arguments, **positions, out=other, init_tail=False)
        assert_same(other, theirs)
