"""A tensor without dimensions where an operator takes a number: torch's argument parser reads the
number, so does capture, for every parameter of the kind; and a size where it takes a float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor], Tensor]
CAPTURED: Mapping[str, Program] = MappingProxyType(
    {
        "full": lambda x, t: torch.full((x.shape[0], 2), t, dtype=torch.int64),
        "new_full": lambda x, t: x.new_full((x.shape[0], 2), t),
        "full_like": lambda x, t: torch.full_like(x, t),
        "pad": lambda x, t: F.pad(x, (1, 1), value=t),
        "constant_pad_nd": lambda x, t: torch.constant_pad_nd(x, (1, 1), t),
        "alpha": lambda x, t: torch.add(x, x, alpha=t),
        "beta": lambda x, t: torch.addmm(x @ x.T, x, x.T, beta=t),
        "slope": lambda x, t: F.leaky_relu(x, t),
        "eps": lambda x, t: F.layer_norm(x, (3,), eps=t),
        "value": lambda x, t: torch.addcmul(x, x, x, value=t),
        "masked_fill": lambda x, t: x.masked_fill(x > 0, t),
    }
)
RIGHT: Mapping[str, Program] = MappingProxyType(
    {
        **CAPTURED,
        "var": lambda x, t: torch.var(x, correction=(t * 0).long()),
        "full without a dtype": lambda x, t: torch.full((x.shape[0], 2), t),
        "norm": lambda x, t: x.norm(t + 1),
        "vector_norm": lambda x, t: torch.linalg.vector_norm(x, t + 1),
        "huber_loss": lambda x, t: F.huber_loss(x, x * 2, delta=t),
        "renorm": lambda x, t: torch.renorm(x, 2, 0, t),
    }
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("name", RIGHT)
def test_numbers_in_tensors_are_read(name: str, dtype: torch.dtype) -> None:
    def program(x: Tensor, t: Tensor) -> Tensor:
        return RIGHT[name](x, t * 2)

    fast = anyshape.compile(program, fullgraph=name in CAPTURED)
    for rows in (3, 5, 1):
        x, t = torch.randn(rows, 3), torch.tensor(0.7 * rows + 1, dtype=dtype)
        torch.testing.assert_close(fast(x, t), program(x, t), equal_nan=True)
    assert fast.stats().internal_errors == 0


SIZES: Mapping[str, Callable[[Tensor, int], Tensor]] = MappingProxyType(
    {
        "huber_loss": lambda x, n: F.huber_loss(x, x * 2, delta=n),
        "smooth_l1_loss": lambda x, n: F.smooth_l1_loss(x, x * 2, beta=n),
        "rrelu": lambda x, n: F.rrelu(x, n, n),
        "cross_entropy": lambda x, n: F.cross_entropy(
            x, torch.zeros(n, dtype=torch.int64), label_smoothing=1 / (n + 1)
        ),
    }
)


@pytest.mark.parametrize("name", SIZES)
def test_numbers_made_of_sizes_are_computed_in_each_call(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        return SIZES[name](x, x.shape[0])

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 5, 1):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1
