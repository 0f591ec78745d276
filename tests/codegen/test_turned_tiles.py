"""Tiles of transposed operands whose sizes are constants below a vector: the C compiler sees both
what writes the tile, word by word, and what reads it as elements."""

from __future__ import annotations

import platform
import subprocess

import pytest
import torch

import anyshape
from anyshape.targets.cpu.prelude import standing_before, texts

SIZES = [(4, 3), (2, 2), (1, 5), (7, 15), (8, 8), (9, 17)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tile_of_constant_size_is_read_as_it_was_written(
    size: tuple[int, int], dtype: torch.dtype
) -> None:
    rows, columns = size

    def program(x: torch.Tensor) -> torch.Tensor:
        count = torch.arange(rows * columns).reshape(columns, rows)
        known = (count % 50).to(dtype) + x.sum().to(dtype)
        held = known.clone()
        torch.sort(held)  # a library call: what is before it and behind it are two kernels
        return torch.zeros(rows, columns, dtype=dtype) + held.T

    fast = anyshape.compile(program, options={"fallback": "error"})
    for n in (1, 4):
        x = torch.ones(n, 2)
        torch.testing.assert_close(fast(x), program(x))


def test_orthogonal_matrices_of_constant_size() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.init.orthogonal_(torch.zeros(4, 3)) + x

    fast = anyshape.compile(program)
    for _ in range(2):
        x = torch.zeros(())
        torch.manual_seed(1)
        wanted = program(x)
        torch.manual_seed(1)
        torch.testing.assert_close(fast(x), wanted)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of x86")
@pytest.mark.parametrize("processor", ("x86-64", "x86-64-v3", "x86-64-v4"))
def test_the_c_compiler_takes_no_vector_of_a_turn_apart(processor: str) -> None:
    """It can, word by word: four to seven times slower than vectors of half the length."""
    turns = "".join(
        f"void turn{bits}(const void *p, i64 step, i64 ts, i64 ls, void *w)"
        f" {{ as_turn_u{bits}(p, step, ts, ls, w); }}\n"
        for bits in (8, 16, 32, 64)
    )
    flags = (
        "-O3",
        f"-march={processor}",
        "-Wvector-operation-performance",
        "-S",
        "-o",
        "/dev/null",
    )
    said = subprocess.run(
        ("gcc", *flags, "-x", "c", "-"),
        input=standing_before(turns, texts()) + turns,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stderr == ""
