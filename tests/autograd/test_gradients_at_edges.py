"""Gradients where a formula changes, overflows or has no value. Eager's own differ there between a
row that it computes in vectors and a single element, for NaN; ours is one of the two."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

EDGES = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 2.0, 100.0, -100.0, 1e30, -1e30, 1e-30]
EDGES += [float("inf"), float("-inf"), float("nan")]
NAMES = """relu relu6 hardtanh hardsigmoid hardswish leaky_relu elu celu selu gelu silu mish softplus
softsign tanhshrink hardshrink softshrink logsigmoid sigmoid tanh"""
OF_TORCH = """abs sign exp exp2 log log2 log1p expm1 sqrt rsqrt square reciprocal sin cos tan asin
acos atan sinh cosh asinh acosh atanh erf erfinv lgamma digamma sinc logit nan_to_num frac round"""
LOSSES = """smooth_l1_loss huber_loss l1_loss mse_loss binary_cross_entropy_with_logits kl_div
soft_margin_loss hinge_embedding_loss poisson_nll_loss"""


def of_loss(name: str) -> Callable[[Tensor], Tensor]:
    return lambda x: getattr(F, name)(x, torch.ones_like(x), reduction="none")


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(F, name) for name in NAMES.split()},
    **{name: getattr(torch, name) for name in OF_TORCH.split()},
    **{name: of_loss(name) for name in LOSSES.split()},
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "maximum": lambda x: torch.maximum(x, torch.ones_like(x)),
    "fmin": lambda x: torch.fmin(x, torch.ones_like(x)),
    "power": lambda x: x**3,
    "root": lambda x: x**0.5,
    "logit of what is clamped": lambda x: torch.logit(x, 0.1),
    "logit with less than none": lambda x: torch.logit(x, -0.1),
    "angle": torch.angle,
    "direction from": lambda x: torch.atan2(x, torch.zeros_like(x)),
    "direction to": lambda x: torch.atan2(torch.zeros_like(x), x),
}


def slope(program: Callable[[Tensor], Tensor], value: float, count: int) -> Tensor:
    x = torch.full((count,), value, requires_grad=True)
    return torch.autograd.grad(program(x).sum(), x)[0][:1]


OF_ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "logit": torch.logit,
    "logit of what is not clamped": lambda x: torch.logit(x, 0.0),
    "celu without an end": lambda x: F.celu(x, alpha=float("inf")),
    "max": torch.max,
    "min": torch.min,
}


def test_a_gradient_of_a_row_beside_what_is_no_number_is_eagers() -> None:
    """A row as eager computes it in vectors, and each of what is in it in another row."""
    for name, program in OF_ROWS.items():
        fast = anyshape.compile(program, fullgraph=True)
        for row in (EDGES, [float("nan"), 1.0, 1.0], [1.0, 0.0, 1.0, 0.0], [float("inf"), 2.0]):
            x = torch.tensor(row, requires_grad=True)
            found, wanted = (torch.autograd.grad(f(x).sum(), x)[0] for f in (fast, program))
            torch.testing.assert_close(
                found, wanted, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("program", [F.relu6, F.hardtanh])
def test_a_gradient_of_no_number_is_that_of_eagers_vectors(
    program: Callable[[Tensor], Tensor],
) -> None:
    """Of the few elements behind the last vector eager makes another one."""
    fast = anyshape.compile(program, fullgraph=True)
    found, wanted = (slope(f, float("nan"), 64) for f in (fast, program))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_at_an_edge_is_one_of_eagers(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for value in EDGES:
        found = slope(fast, value, 64)
        allowed = [slope(program, value, count) for count in (64, 1)]
        close = [torch.allclose(found, e, rtol=1e-4, atol=1e-6, equal_nan=True) for e in allowed]
        assert any(close), (value, found, allowed)


def lengths_of(program: Callable[..., Tensor], scale: float, *given: object) -> list[Tensor]:
    torch.manual_seed(0)
    x = (torch.ones(3, 4) * scale * torch.randn(3, 4)).requires_grad_()
    made = program(x, *given)
    cotangents = (torch.full_like(made, value) for value in (1.0, 1e9, float("inf"), float("nan")))
    return [made, *(torch.autograd.grad(made, x, g, retain_graph=True)[0] for g in cotangents)]


@pytest.mark.parametrize("scale", [1.0, 0.0, 1e-30, 1e30, float("inf"), float("nan")])
def test_the_slope_of_a_length_times_what_comes_back_is_eagers(scale: float) -> None:
    """Of nothing it is 0, which times infinity is NaN; of what is small no quotient overflows."""

    def program(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x, dim=1)

    fast = anyshape.compile(program, fullgraph=True)
    found, wanted = (lengths_of(f, scale) for f in (fast, program))
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("eps", [1e-8, 5.0, 0.0])
@pytest.mark.parametrize("scale", [1.0, 0.0, 1e-12, 1e30, float("inf"), float("nan")])
def test_an_angle_of_what_is_short_has_eagers_gradient(scale: float, eps: float) -> None:
    """Eager raises the length to ``eps`` unseen by autograd."""

    def program(x: Tensor, eps: float) -> Tensor:
        return F.cosine_similarity(x, torch.arange(12.0).reshape(3, 4) + 1, eps=eps)

    fast = anyshape.compile(program, fullgraph=True)
    found, wanted = (lengths_of(f, scale, eps) for f in (fast, program))
    torch.testing.assert_close(found, wanted, equal_nan=True)
