"""Integer arguments of operators, wherever the integer comes from: handed in, a size, computed of
sizes, read from data. One compiled function serves them all, right or with a graph break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

Program = Callable[[Tensor, Any], Any]

# fmt: off
PROGRAMS: dict[str, Program] = {
    "group_norm": lambda x, k: F.group_norm(x, k),
    "group_norm of channels": lambda x, k: F.group_norm(x[:, :k], k),
    "channel_shuffle": lambda x, k: F.channel_shuffle(x, k),
    "pixel_shuffle": lambda x, k: F.pixel_shuffle(x.repeat(1, k, 1, 1)[:, : k * k], k),
    "pixel_unshuffle": lambda x, k: F.pixel_unshuffle(x.repeat(1, 1, k, k), k),
    "chunk": lambda x, k: torch.cat(x.chunk(k, 1)),
    "tensor_split": lambda x, k: x.tensor_split(k, 1)[0],
    "unflatten": lambda x, k: x.unflatten(1, (k, -1)),
    "view": lambda x, k: x.view(2, k, x.shape[1] // k, -1),
    "repeat_interleave": lambda x, k: x.repeat_interleave(k, 1),
    "topk": lambda x, k: x.topk(k, 1)[0],
    "unfold": lambda x, k: x.unfold(1, k, k),
    "F.unfold": lambda x, k: F.unfold(x, k),
    "avg_pool": lambda x, k: F.avg_pool2d(x, k),
    "max_pool": lambda x, k: F.max_pool2d(x, 2, stride=k),
    "adaptive_pool": lambda x, k: F.adaptive_avg_pool2d(x, k),
    "interpolate": lambda x, k: F.interpolate(x, scale_factor=k, mode="bilinear"),
    "groups": lambda x, k: F.conv2d(x, torch.ones(12, 12 // k, 1, 1), groups=k),
    "dilation": lambda x, k: F.conv2d(x, torch.ones(3, 12, 2, 2), dilation=k),
    "stride": lambda x, k: F.conv_transpose2d(x, torch.ones(12, 3, 2, 2), stride=k),
    "one_hot": lambda x, k: F.one_hot(torch.arange(2), k + 2),
    "rot90": lambda x, k: x.rot90(k, (2, 3)),
    "tril": lambda x, k: x.tril(k),
    "diagonal": lambda x, k: x.diagonal(k, 2, 3) + x.diagonal(-k, 2, 3).flip(0),
    "diag": lambda x, k: (torch.diag(x[0, 0], k), torch.diag(x[0, 0, 0], -k), torch.diagflat(x[0, 0], k)),
    "diag_embed": lambda x, k: x[0, 0].diag_embed(k),
    "linalg.diagonal": lambda x, k: torch.linalg.diagonal(x, offset=k),
    "diagonal_scatter": lambda x, k: torch.diagonal_scatter(x, x.diagonal(k, 2, 3) + 1, k, 2, 3),
    "diff": lambda x, k: x.diff(n=k),
    "dim": lambda x, k: x.cumsum(k % 4).transpose(k % 4, 0).unsqueeze(k % 4).softmax(k % 4),
    "correction": lambda x, k: (x.var(1, correction=k), x.std(1, correction=k), *torch.var_mean(x, 1, correction=k)),
    "norm": lambda x, k: (x.norm(k, dim=1), x.norm(k / 2, dim=1), torch.linalg.vector_norm(x, k, 1)),
    "normalize": lambda x, k: (F.normalize(x, k), F.normalize(x, k + 0.5)),
    "distances": lambda x, k: (F.pairwise_distance(x, x + 1, k), torch.cdist(x, x, k), torch.dist(x, x + 1, k)),
    "matrix_power": lambda x, k: x[0, 0].matrix_power(k),
    "combinations": lambda x, k: torch.combinations(torch.arange(4), k),
    "lp_pool": lambda x, k: (F.lp_pool2d(x.abs(), 2, k), F.lp_pool2d(x.abs(), k, 2)),
    "bits": lambda x, k: (torch.arange(4) << k, torch.arange(4) & k, torch.arange(4).half() % k),
    "bits of floats": lambda x, k: x & k,
    "shifts of floats": lambda x, k: x.half() << k,
    "gather": lambda x, k: x.half().gather(1, torch.zeros(1, 1, 1, k, dtype=torch.int64)) % k,
}
# fmt: on

SOURCES: dict[str, Callable[[Tensor], Any]] = {
    "a size": lambda s: s.shape[0],
    "of a size": lambda s: (2 * s.shape[0] + 1) // 2,
    "a quotient": lambda s: 12 // s.shape[0],
    "data": lambda s: s.sum().item(),
    "a size from data": lambda s: s.nonzero().shape[0],
}
NUMBERS = (2, 3, 1, 4)


def agrees(program: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    """One compiled function does what eager does: results and exceptions."""
    fast = anyshape.compile(program)
    for call in calls:
        expected, got = outcome(program, call), outcome(fast, call)
        if isinstance(expected, type) or isinstance(got, type):
            assert got is expected, call
        else:
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def outcome(program: Callable[..., Any], call: tuple[Any, ...]) -> Any:
    try:
        return program(*call)
    except Exception as error:
        return type(error)


@torch.no_grad()
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_is_handed_in(name: str) -> None:
    x = torch.randn(2, 12, 4, 4)
    agrees(PROGRAMS[name], [(x, k) for k in NUMBERS])


@torch.no_grad()
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_the_program_has(name: str, source: str) -> None:
    def program(x: Tensor, s: Tensor) -> Any:
        return PROGRAMS[name](x, SOURCES[source](s))

    x = torch.randn(2, 12, 4, 4)
    agrees(program, [(x, torch.ones(k, dtype=torch.int64)) for k in NUMBERS])


@pytest.mark.parametrize("extreme", (torch.max, torch.min))
def test_a_tensor_alone_behind_the_first_is_no_dimension_of_an_extreme(extreme: Any) -> None:
    x, one = torch.tensor([[3, 0, 1], [0, 2, 5]]), torch.tensor(1)
    fast = anyshape.compile(lambda x, y: extreme(x, y), fullgraph=True)
    assert torch.equal(fast(x, one), extreme(x, one))
    assert torch.equal(fast(x[0, 0], one), extreme(x[0, 0], one))
    along = anyshape.compile(lambda x: (extreme(x, torch.tensor(1), False), extreme(x, dim=one)))
    for found, expected in zip(along(x), (extreme(x, 1), extreme(x, 1)), strict=True):
        assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
