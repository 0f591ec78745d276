"""Equal numbers have equal results, wherever in a tensor they stand and however many stand beside them.

The C library's functions differ in the last bit between vectors and single numbers. What breaks ties
(`unique`, `topk`, `argmax`) shows it.
"""

from __future__ import annotations

import pytest
import torch

import anyshape

UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
    *(
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
        "erfinv",
        "sigmoid",
    ),
    *("digamma", "lgamma", "rsqrt", "sqrt", "reciprocal"),
)
OF_LAYERS = ("gelu", "silu", "softplus", "mish", "elu", "logsigmoid")
BINARY = ("pow", "atan2", "hypot", "fmod", "remainder", "logaddexp")
LENGTHS = (2, 5, 8, 13, 27, 75)


def numbers(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return list(torch.rand(12, dtype=torch.float64).mul(0.9).add(0.05).to(dtype))


def bits(x: torch.Tensor) -> set[float]:
    return set(x.reshape(-1).tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_of_one_argument(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        outside = [getattr(torch, name)(x + (name == "acosh")) for name in UNARY]
        return outside + [getattr(torch.nn.functional, name)(x) for name in OF_LAYERS]

    fast = anyshape.compile(program, fullgraph=True)
    for number in numbers(dtype):
        alone = [bits(y) for y in fast(number)]
        for length in LENGTHS:
            found = [bits(y) for y in fast(number.repeat(length))]
            differ = [
                n for n, *each in zip((*UNARY, *OF_LAYERS), alone, found) if each[0] != each[1]
            ]
            assert not differ, (differ, length, number)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_of_two_arguments(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(torch, name)(x, y) for name in BINARY]

    fast = anyshape.compile(program, fullgraph=True)
    for x, y in zip(numbers(dtype), reversed(numbers(dtype)), strict=True):
        alone = [bits(each) for each in fast(x, y)]
        for length in LENGTHS:
            assert [bits(each) for each in fast(x.repeat(length), y)] == alone
            assert [bits(each) for each in fast(x.repeat(length), y.repeat(length))] == alone


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_in_every_kernel(dtype: torch.dtype) -> None:
    """In rows, columns, transposed, of every second number, below a sum, at an index."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.T.sin() + x.T.log1p()
        rows = (x.sin() + x.log1p()) - x.sum(1, keepdim=True) * 0
        columns = (x.sin() + x.log1p()) - x.sum(0, keepdim=True) * 0
        return (
            *(y, rows, columns, x[:, ::2].sin() + x[:, ::2].log1p()),
            *(x.flip(0).sin() + x.flip(0).log1p(), x[x > 0].sin() + x[x > 0].log1p()),
        )

    fast = anyshape.compile(program, fullgraph=True)
    for number in numbers(dtype):
        for shape in ((1, 1), (3, 7), (16, 16), (5, 33), (40, 2)):
            found = [bits(y) for y in fast(number.expand(shape).clone())]
            assert all(each == found[0] and len(each) == 1 for each in found)


def test_what_breaks_ties_finds_what_eager_finds() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.unique(x.cos()), x.sin().topk(3).indices

    fast = anyshape.compile(program, fullgraph=True)
    for number in numbers(torch.float64):
        different, indices = fast(number.repeat(27))
        assert different.numel() == 1
        assert indices.tolist() == program(number.repeat(27))[1].tolist()
