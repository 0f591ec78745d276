"""Norms of numbers whose squares or cubes overflow: NaN, infinite, zero or else where eager's are.

Of those that normalize by moments, eager's own answer depends on where the numbers stand in a row: its kernels join
partial moments. Rows near whose moments squares overflow are summed again in that order (``targets/cpu/moments.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.ir.dtypes import float32
from anyshape.ir.loops import Axis, Kernel, Load, Moment, PointerParam, Reduce, Store, operands
from anyshape.ir.verify import Malformed, verify_kernel

LENGTHS = 3, 17, 64, 1000
LARGE = 3e18, 1e19, 1e20, 3e37
NORMS = {
    "of two": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "of three": lambda x: torch.linalg.vector_norm(x, 3, dim=-1),
    "of all": lambda x: torch.linalg.vector_norm(x),
    "a variance": lambda x: x.var(-1),
    "normalized": lambda x: F.normalize(x, dim=-1),
    "by the root of the mean square": lambda x: F.rms_norm(x, x.shape[-1:]),
    "an angle": lambda x: F.cosine_similarity(x, x + 1, dim=-1),
}


def rows(length: int, large: float, *, all_large: bool) -> Tensor:
    x = torch.randn(3, length, generator=torch.Generator().manual_seed(length))
    if all_large:
        return x * large
    x[:, length // 2] = large
    return x


def kinds(x: Tensor) -> list[str]:
    """Of each number: NaN, infinite, zero or else."""
    return [
        "nan" if v != v else str(abs(v)) if abs(v) in (0.0, torch.inf) else "finite"
        for v in x.flatten().tolist()
    ]


@pytest.mark.parametrize("name", NORMS)
def test_norms_whose_powers_overflow_are_what_eager_has(name: str) -> None:
    fast = anyshape.compile(NORMS[name])
    for length in LENGTHS:
        for large in LARGE:
            for all_large in (True, False):
                x = rows(length, large, all_large=all_large)
                assert kinds(fast(x)) == kinds(NORMS[name](x)), (length, large, all_large)


def images(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


MOMENTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int], tuple[int, ...]]]] = {
    "rows": (lambda x: F.layer_norm(x, x.shape[-1:]), lambda n: (3, n)),
    "columns": (lambda x: F.layer_norm(x.t(), x.shape[:1]), lambda n: (n, 5)),
    "one row": (lambda x: F.layer_norm(x, x.shape), lambda n: (n, 3)),
    "rows of what is fused": (lambda x: F.layer_norm(x * 2, x.shape[-1:]) + 1, lambda n: (3, n)),
    "rows of sums": (lambda x: F.layer_norm(x - x.sum(-1, True), x.shape[-1:]), lambda n: (3, n)),
    "rows of running sums": (lambda x: F.layer_norm(x.cumsum(-1), x.shape[-1:]), lambda n: (3, n)),
    "rows twice": (
        lambda x: F.layer_norm(F.layer_norm(x, x.shape[-1:]) * x, x.shape[-1:]),
        lambda n: (3, n),
    ),
    "groups": (lambda x: F.group_norm(x, 2), lambda n: (2, 4, n)),
    "groups of images": (lambda x: F.group_norm(images(x), 2), lambda n: (2, 4, n, 3)),
    "instances": (F.instance_norm, lambda n: (2, 3, n)),
    "a batch": (lambda x: F.batch_norm(x, None, None, training=True), lambda n: (2, 3, n, 2)),
    "a batch of few channels": (
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda n: (n, 3),
    ),
    "a batch of images": (
        lambda x: F.batch_norm(images(x), None, None, training=True),
        lambda n: (2, 3, n, 2),
    ),
}


def spread_rows(shape: tuple[int, ...], large: float, kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(shape[0] * shape[-1])
    x = torch.randn(shape, generator=generator)
    if kind == "all":
        return x * large
    if kind == "half":
        return torch.where(torch.rand(shape, generator=generator) < 0.5, x * large, x)
    return (
        x.flatten()
        .index_fill(0, torch.randint(x.numel(), (1 + x.numel() // 40,), generator=generator), large)
        .view(shape)
    )


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_whose_squares_overflow_are_what_eager_joins(name: str) -> None:
    norm, shape = MOMENTS[name]
    fast = anyshape.compile(norm, fullgraph=True)
    for length in (3, 17, 130, 2049, *([9001] if name == "a batch of few channels" else [])):
        for large in (1.0, 2e18, 2e19, 1e20, 3e37, 2e38):
            for kind in ("all", "half", "few"):
                x = spread_rows(shape(length), large, kind)
                assert kinds(fast(x)) == kinds(norm(x)), (length, large, kind)


@pytest.mark.parametrize("name", ["rows", "groups", "groups of images"])
@pytest.mark.parametrize(
    "dtype, large", [(torch.bfloat16, 1e20), (torch.float64, 1e155), (torch.float64, 1e300)]
)
def test_moments_of_other_dtypes_overflow_as_eagers(
    name: str, dtype: torch.dtype, large: float
) -> None:
    norm, shape = MOMENTS[name]
    fast = anyshape.compile(norm, fullgraph=True)
    for length in (3, 17, 130, 2049):
        for kind in ("all", "half", "few"):
            x = spread_rows(shape(length), 1.0, kind).to(dtype) * large
            assert kinds(fast(x)) == kinds(norm(x)), (length, kind)


@pytest.mark.parametrize("large", [2e19, 1e20])
@pytest.mark.parametrize("name", ["rows", "groups"])
def test_their_gradients_are_nan_where_eagers_are(name: str, large: float) -> None:
    norm, shape = MOMENTS[name]

    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        norm(x).sin().sum().backward()
        return x.grad

    fast = anyshape.compile(gradient)
    for length in (17, 130):
        x = spread_rows(shape(length), large, "few")
        assert [k == "nan" for k in kinds(fast(x))] == [k == "nan" for k in kinds(gradient(x))], (
            length
        )


def test_every_order_of_a_row_has_eagers_answer_and_they_differ() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    x[0], x[1] = 3e37, -1.5e37
    rows = torch.stack(
        [x[torch.randperm(64, generator=torch.Generator().manual_seed(n))] for n in range(200)]
    )
    expected = F.layer_norm(rows, (64,))
    assert 0 < expected.isnan().any(1).sum() < 200
    assert kinds(anyshape.compile(lambda x: F.layer_norm(x, (64,)))(rows)) == kinds(expected)


def test_the_graph_after_each_pass_means_the_same_there() -> None:
    fast = anyshape.compile(lambda x: F.layer_norm(x, x.shape[-1:]), options={"verify": True})
    x = spread_rows((3, 130), 1e20, "few")
    assert kinds(fast(x)) == kinds(F.layer_norm(x, (130,)))


def test_a_row_is_tested_once_for_each_moment_and_no_cell_is() -> None:
    fast = anyshape.compile(lambda x: F.layer_norm(x, x.shape[-1:]), fullgraph=True)
    fast(torch.randn(8, 100))
    kernel = fast.code()
    assert kernel.count("as_fits") == 2  # of the mean and of the squares
    depth = {len(line) - len(line.lstrip()) for line in kernel.splitlines() if "as_fits" in line}
    assert depth == {4}  # in the loop over rows alone


def test_one_function_sums_all_moments_of_a_row_again() -> None:
    fast = anyshape.compile(lambda x: F.layer_norm(x, x.shape[-1:]), fullgraph=True)
    x = spread_rows((3, 130), 1e20, "few")
    assert kinds(fast(x)) == kinds(F.layer_norm(x, (130,)))
    text = fast.code()
    assert text.count("int squares)") == 1 and text.count("as_joined_start_f32(&s") == 1
    assert {text.count(f", {asked})") for asked in (0, 1)} == {1}  # the mean, and the squares
    assert text.index('optimize("O0")') < text.index("int squares)") < text.index("pop_options")


def test_group_norm_is_one_kernel_whatever_the_number_of_channels() -> None:
    fast = anyshape.compile(lambda x, w: F.group_norm(x, 2, w), fullgraph=True)
    for channels in (8, 12, 2):
        x, weight = torch.randn(3, channels, 5, 2), torch.randn(channels)
        torch.testing.assert_close(fast(x, weight), F.group_norm(x, 2, weight))
    assert fast.stats().kernels == 1


def test_a_kernel_says_which_moments_it_sums_again() -> None:
    mean, squares = (Moment("joined", part, 0, (1, 1), float32) for part in ("mean", "squares"))
    elements = (Load("p0", 0, float32), Reduce("sum", 0, float32), mean, squares)
    params = (PointerParam("p0", float32, "read"), PointerParam("p1", float32, "write"))
    kernel = Kernel(params, (), (Axis("r0", 3),), elements, (Store("p1", 0, 3, "fiber"),))
    verify_kernel(kernel)
    assert "moment joined squares v0 near v1, v1" in str(kernel)
    assert [e.usual for e in (mean, squares)] == [1, 1] and operands(squares) == (0, 1, 1)
    with pytest.raises(Malformed, match="squares near 1 numbers"):
        verify_kernel(replace(kernel, elements=(*elements[:3], replace(squares, given=(1,)))))
    with pytest.raises(Malformed, match="without rows"):
        verify_kernel(replace(kernel, reduction_axes=(), elements=(elements[0], elements[0], mean)))


OF_NO_DENSE_IMAGE: dict[
    str, tuple[Callable[[Tensor], Tensor], Callable[[int], tuple[int, ...]]]
] = {
    "a batch with gaps": (
        lambda x: F.batch_norm(x[:, ::2], None, None, training=True),
        lambda n: (2, 6, n, 2),
    ),
    "a batch of columns": (
        lambda x: F.batch_norm(x.mT, None, None, training=True),
        lambda n: (3, n, 4),
    ),
    "a turned batch": (
        lambda x: F.batch_norm(x.t(), None, None, training=True),
        lambda n: (3, n),
    ),
}


@pytest.mark.parametrize("name", OF_NO_DENSE_IMAGE)
def test_a_batch_that_is_not_dense_has_float64_squares(name: str) -> None:
    """Its mean is a sum in float32, which overflows by the order of its parts past 1e35."""
    norm, shape = OF_NO_DENSE_IMAGE[name]
    fast = anyshape.compile(norm, fullgraph=True)
    for length in (3, 17, 130, 2049):
        for large in (1.0, 2e18, 2e19, 1e20, 1e30):
            for kind in ("all", "half", "few"):
                x = spread_rows(shape(length), large, kind)
                given, expected = fast(x), norm(x)
                assert kinds(given) == kinds(expected), (length, large, kind)
                torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("large", [1.0, 1e18, 1e19, 1e20])
def test_a_batch_with_gaps_has_eagers_running_statistics(large: float) -> None:
    """Eager sums it up in float64, one number after another."""

    def step(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return F.batch_norm(x[:, ::2], mean, var, training=True)

    fast = anyshape.compile(step, fullgraph=True)
    for length in (3, 17, 130):
        x = spread_rows((2, 6, length, 2), large, "few")
        given, expected = ([torch.zeros(3), torch.ones(3)] for _ in range(2))
        torch.testing.assert_close(fast(x, *given), step(x, *expected))
        torch.testing.assert_close(given, expected)
    assert fast.stats().specializations == 1
