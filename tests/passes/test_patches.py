"""Convolutions of patches are products, where the library's are slower; the numbers are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.ir.dtypes import float32
from anyshape.passes import patches

torch.manual_seed(0)
WEIGHT = torch.randn(8, 3, 4, 4) / 7
BIAS = torch.randn(8)
LINE, CUBE = torch.randn(8, 3, 5) / 4, torch.randn(8, 3, 2, 4, 4) / 10
SIZES = ((2, 8, 12), (1, 4, 4), (3, 9, 15), (2, 7, 4), (5, 16, 16))


@pytest.fixture
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(patches, "HOST", "elsewhere")
    monkeypatch.setattr(patches, "DTYPES", patches.DTYPES | {float32})


def embedded(x: Tensor) -> Tensor:
    """As a vision transformer's entry."""
    return F.conv2d(x, WEIGHT, BIAS, 4).flatten(2).transpose(1, 2) * 2


def returned(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, None, (4, 4), "valid")


def channels_last(x: Tensor) -> Tensor:
    return F.conv2d(x.contiguous(memory_format=torch.channels_last), WEIGHT, BIAS, 4, 0)


def of_lines(x: Tensor) -> Tensor:
    return F.conv1d(x.flatten(2), LINE, BIAS, 5) if x.shape[2] * x.shape[3] > 4 else x


def of_cubes(x: Tensor) -> Tensor:
    return F.conv3d(torch.stack((x, x * 2, x + 1, x - 1, x), 2), CUBE, BIAS, (2, 4, 4))


PROGRAMS = (embedded, returned, channels_last, of_lines, of_cubes)


def overlapping(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, BIAS, 2)


def with_gaps(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, BIAS, 5)


def padded(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, BIAS, 4, 1)


def of_groups(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT[:6, :1], BIAS[:6], 4, 0, 1, 3)


def of_points(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT[:, :, :1, :1], BIAS)


def of_weights_turned(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT.transpose(2, 3), BIAS, 4)


def convolutions(fast) -> int:
    (made,) = fast._lazy.machinery._specializations()
    nodes = made.compiled.stages[-1][1].nodes
    return sum(node.op.startswith("conv") for node in nodes)


def check(program, count: int) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for shape in SIZES:
        x = torch.randn(shape[0], 3, *shape[1:])
        try:
            wanted = program(x)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                fast(x)
            continue
        found = fast(x)
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
    assert convolutions(fast) == count


@pytest.mark.parametrize("program", PROGRAMS)
def test_windows_side_by_side_are_a_product(program, on_the_cpu):
    check(program, 0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_cpu_convolves(program):
    check(program, 1)


OTHERS = (overlapping, with_gaps, padded, of_groups, of_points, of_weights_turned)


@pytest.mark.parametrize("program", OTHERS)
def test_other_windows_are_convolved(program, on_the_cpu):
    check(program, 1)


def test_what_follows_reads_the_product_in_its_own_order(on_the_cpu):
    fast = anyshape.compile(embedded, fullgraph=True)
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(fast(x), embedded(x))
    stats = fast.stats()
    assert (stats.externs, stats.launches) == (1, 2)  # of patches, and what follows
