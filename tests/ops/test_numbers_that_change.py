"""Numbers of a program that differ from call to call: a formula that is another one for 0, 1, 2,
a half or infinity is so where the number came to be that, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor, Any], Tensor]
FLOATS = 5.0, 3.5, 0.7, 0.0, 1.0, 2.0, -1.0, 0.5, -0.5, 3.0, -0.0
INTEGERS = 5, 4, 3, 0, 1, 2, -1

PROGRAMS: dict[str, Program] = {
    "smooth_l1_loss": lambda x, y, p: F.smooth_l1_loss(x, y, beta=p),
    "huber_loss": lambda x, y, p: F.huber_loss(x, y, delta=p),
    "norm": lambda x, y, p: torch.norm(x, p, 1),
    "vector_norm": lambda x, y, p: torch.linalg.vector_norm(x, p, 1),
    "renorm": lambda x, y, p: torch.renorm(x, p, 0, 1.0),
    "dist": lambda x, y, p: torch.dist(x, y, p),
    "cdist": lambda x, y, p: torch.cdist(x, y, p),
    "pairwise_distance": lambda x, y, p: F.pairwise_distance(x, y, p),
    "normalize": lambda x, y, p: F.normalize(x, p),
    "pow": lambda x, y, p: x**p,
    "pow of a square": lambda x, y, p: (x * x) ** p,
    "float_power": lambda x, y, p: torch.float_power(x, p),
    "base": lambda x, y, p: p**y,
    "var": lambda x, y, p: torch.var(x, 1, correction=p),
    "std": lambda x, y, p: torch.std(x, 1, correction=p),
    "add": lambda x, y, p: torch.add(x, y, alpha=p),
    "sub": lambda x, y, p: torch.sub(x, y, alpha=p),
    "addmm beta": lambda x, y, p: torch.addmm(x[:, :1], x, y.t(), beta=p),
    "addmm alpha": lambda x, y, p: torch.addmm(y[:, :1], x, y.t(), alpha=p),
    "baddbmm beta": lambda x, y, p: torch.baddbmm(x[None, :, :1], x[None], y.t()[None], beta=p),
    "addmv beta": lambda x, y, p: torch.addmv(x[:, 0], x, y[0], beta=p),
    "addr beta": lambda x, y, p: torch.addr(x, y[:, 0], y[0], beta=p),
    "addcmul": lambda x, y, p: torch.addcmul(x, x, y, value=p),
    "addcdiv": lambda x, y, p: torch.addcdiv(x, y, y, value=p),
    "lerp": lambda x, y, p: torch.lerp(x, y, p),
    "clamp": lambda x, y, p: x.clamp(p, 1.0),
    "elu": lambda x, y, p: F.elu(x, p),
    "celu": lambda x, y, p: F.celu(x, p),
    "softplus": lambda x, y, p: F.softplus(y, p),
    "leaky_relu": lambda x, y, p: F.leaky_relu(x, p),
    "hardtanh": lambda x, y, p: F.hardtanh(x, -1.0, p),
    "hardshrink": lambda x, y, p: F.hardshrink(x, p),
    "softshrink": lambda x, y, p: F.softshrink(x, p),
    "threshold": lambda x, y, p: F.threshold(x, p, 2.0),
    "xlogy": lambda x, y, p: torch.xlogy(p, y),
    "rsub": lambda x, y, p: p - x,
    "remainder": lambda x, y, p: x % p,
    "fmod": lambda x, y, p: torch.fmod(x, p),
    "floor_divide": lambda x, y, p: x // p,
    "true_divide": lambda x, y, p: x / p,
    "reciprocal": lambda x, y, p: p / y,
    "multiplied": lambda x, y, p: x * p,
    "label_smoothing": lambda x, y, p: F.cross_entropy(y, y.softmax(1), label_smoothing=p),
    "triplet margin": lambda x, y, p: F.triplet_margin_loss(y, y * 2, y + 1, margin=p),
    "mvlgamma order": lambda x, y, p: torch.mvlgamma(y + 9, int(p)),
    "dropout": lambda x, y, p: F.dropout(y * 0, p),
    "round": lambda x, y, p: torch.round(x, decimals=p),
    "isclose": lambda x, y, p: torch.isclose(x, y, p, p).float(),
    "nan_to_num": lambda x, y, p: torch.nan_to_num(x, p),
    "poisson": lambda x, y, p: F.poisson_nll_loss(y, y, eps=p, log_input=False),
    "margin": lambda x, y, p: F.margin_ranking_loss(x, y, y.sign(), p),
    "layer_norm": lambda x, y, p: F.layer_norm(y, y.shape[1:], eps=p),
    "mvlgamma": lambda x, y, p: torch.mvlgamma(y + 9, p),
    "logit": lambda x, y, p: torch.logit(y.sigmoid(), p),
    "quantile": lambda x, y, p: torch.quantile(y, p),
    "tril": lambda x, y, p: torch.tril(x, p),
    "glu": lambda x, y, p: F.glu(y, p),
}


def outcome(program: Program, x: Tensor, y: Tensor, p: Any) -> Any:
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    try:
        made = program(x, y, p)
        if not made.requires_grad:
            return (made,)
        return made, *torch.autograd.grad(made.sum(), (x, y), allow_unused=True)
    except (RuntimeError, ValueError, IndexError, ZeroDivisionError, TypeError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("numbers", (FLOATS, INTEGERS), ids=("floats", "integers"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_became_special_is_special(name: str, numbers: tuple[Any, ...]) -> None:
    program, fast = PROGRAMS[name], anyshape.compile(PROGRAMS[name])
    x = torch.tensor([[-0.0, 0.5, -2.0, torch.inf], [0.0, 1.5, 7.0, -torch.inf], [1, 2, 3, 4]])
    y = torch.tensor([[0.5, 1.5, 2.5, 1.0], [3.0, 0.25, 2.0, 1.0], [1.0, 2.0, 0.75, 4.0]])
    for p in numbers:
        for values in (x, y + 0.125):
            ours, eager = outcome(fast, values, y, p), outcome(program, values, y, p)
            if not isinstance(eager, tuple):
                assert ours is eager, p
                continue
            for one, other in zip(ours, eager, strict=True):
                if other is None:
                    assert one is None
                else:
                    torch.testing.assert_close(
                        one, other, equal_nan=True, msg=lambda m: f"{p}: {m}"
                    )
    assert fast.stats().internal_errors == 0
