"""The random stream is eager's: under one seed, the same numbers and the same state afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape

SHAPES = ((3, 4), (1, 1), (0, 3), (5, 33), (2, 8), (17, 1))
COIN = torch.tensor(0.5)


def branching(x: Tensor) -> Tensor:
    if x.shape[0] > 2:
        return x + torch.rand(x.shape[0], 1)
    return x * torch.randn(x.shape)


def across_a_break(x: Tensor) -> Tensor:
    y = x + torch.rand_like(x)
    if float(y.sum()) > 1:
        y = F.dropout(y, 0.25)
    return y * torch.randn(1)


def in_a_loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = F.dropout(x + 1, 0.5)
    return x


def into_another_shape(x: Tensor) -> Tensor:
    return torch.randn(x.shape, out=torch.empty(0)) + torch.rand(1)


def unused(x: Tensor) -> Tensor:
    torch.rand(3)
    torch.randn_like(x)
    return x + torch.rand(1)


def seeded_within(x: Tensor) -> Tensor:
    torch.manual_seed(7)
    return x + torch.rand(x.shape)


DRAWS: dict[str, Callable[[Tensor], object]] = {
    "rand": lambda x: x + torch.rand(x.shape),
    "randn": lambda x: (torch.randn(x.shape[1]) * x).sum(0),
    "rand_like and randn_like": lambda x: torch.rand_like(x) - torch.randn_like(x),
    "randint": lambda x: torch.randint(0, 10, (x.shape[1],)) + torch.randint_like(x, 3, 9),
    "randperm": lambda x: x[torch.randperm(x.shape[0])] + 1,
    "dropout": lambda x: F.dropout(torch.relu(x), 0.5) * 2,
    "two dropouts of one tensor": lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5),
    "dropout of columns": lambda x: F.dropout(x.t(), 0.5),
    "feature dropout": lambda x: F.dropout1d(x[None], 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "bernoulli": lambda x: torch.bernoulli(x.abs().clamp(0, 1)) + x.bernoulli(0.3),
    "multinomial": lambda x: torch.multinomial(torch.ones(x.shape[1] + 2) / 3, 2) * 2,
    "normal": lambda x: torch.normal(x, 0.5) + torch.normal(0.0, 1.0, (x.shape[1],)),
    "in place": lambda x: x.clone().normal_() + x.clone().uniform_(-1, 1) + x.clone().random_(5),
    "in place, with holes": lambda x: x.repeat(9, 2)[:, ::2].normal_(),
    "exponential": lambda x: x.clone().exponential_() + 1,
    "rrelu": lambda x: F.rrelu(x, training=True) * 2,
    "rrelu of columns": lambda x: F.rrelu(x.t(), training=True),
    "rrelu when not training": lambda x: F.rrelu(x.t()),
    "gamma of columns": lambda x: torch._standard_gamma(x.t().abs() + 0.1),
    "poisson of columns": lambda x: torch.poisson(x.t().abs()),
    "binomial of columns": lambda x: torch.binomial(x.t().abs().ceil(), x.t().sigmoid()),
    "gumbel": lambda x: F.gumbel_softmax(x, dim=-1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
    "after a branch on a size": branching,
    "across a break": across_a_break,
    "in a loop": in_a_loop,
    "into another shape": into_another_shape,
    "numbers that nobody reads": unused,
    "a seed set within": seeded_within,
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("recorded", [False, True], ids=["", "gradients are recorded"])
def test_numbers_and_state_are_eagers(name: str, recorded: bool) -> None:
    weight = torch.ones((), requires_grad=recorded)

    def program(x: Tensor) -> Tensor:
        return DRAWS[name](x * weight)

    fast = anyshape.compile(program)
    for shape in SHAPES:
        x = torch.linspace(-1, 2, shape[0] * shape[1]).reshape(shape)
        found = []
        for run in (program, fast, fast):
            torch.manual_seed(3)
            found.append((run(x), torch.get_rng_state(), torch.rand(2)))
        for result, state, after in found[1:]:
            wanted = found[0][0]
            torch.testing.assert_close(result, wanted, equal_nan=True, check_stride=min(shape) > 1)
            assert torch.equal(state, found[0][1]), shape
            assert torch.equal(after, found[0][2]), shape


@torch.no_grad()
@pytest.mark.parametrize("draw", ["randn", "rand", "normal", "bernoulli", "randint"])
def test_numbers_are_drawn_in_the_order_of_out(draw: str) -> None:
    def program(x: Tensor, out: Tensor) -> Any:
        if draw == "randint":
            return torch.randint(0, 99, x.shape, out=out)
        given = {"normal": (x, 2.0), "bernoulli": (x,)}.get(draw, (x.shape,))
        return getattr(torch, draw)(*given, out=out)

    fast = anyshape.compile(program)
    dtype = torch.int64 if draw == "randint" else torch.float32
    for rows, columns in ((5, 4), (4, 4), (1, 20), (0, 3)):
        x = torch.full((rows, columns), 0.5)
        whole, spaced = (
            torch.zeros(2, rows, columns, dtype=dtype)[1:],
            torch.zeros(rows, 2, columns),
        )
        turned = torch.zeros(columns, rows, dtype=dtype).t()
        for out in (whole[0], turned, spaced.to(dtype)[:, 1]):
            found = []
            for run in (program, fast):
                torch.manual_seed(3)
                made = run(x, out.zero_())
                found.append((made.clone(), torch.rand(2)))
            assert all(map(torch.equal, *found)), (x.shape, out.stride())


@torch.no_grad()
def test_a_generator_that_is_handed_in_is_drawn_from() -> None:
    def program(x: Tensor, generator: torch.Generator) -> Tensor:
        return x + torch.rand(x.shape, generator=generator)

    fast = anyshape.compile(program)
    for shape in SHAPES:
        x, ours, theirs = torch.ones(shape), torch.Generator(), torch.Generator()
        ours.manual_seed(5), theirs.manual_seed(5)
        before = torch.get_rng_state()
        torch.testing.assert_close(fast(x, ours), program(x, theirs))
        assert torch.equal(ours.get_state(), theirs.get_state())
        assert torch.equal(torch.get_rng_state(), before)


def test_dropout_with_gradients_is_eagers() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2)).train()
    fast = anyshape.compile(module)
    for rows in (3, 1, 6):
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))
        gradients = []
        for run in (module, fast):
            module.zero_grad()
            torch.manual_seed(3)
            run(x).square().sum().backward()
            gradients.append([p.grad.clone() for p in module.parameters()])
        torch.testing.assert_close(*gradients)


def _indexes(x: Tensor, m: Tensor) -> Any:
    drawn = torch.rand(3)
    return drawn, x[m.long()]


def _factors(x: Tensor, m: Tensor) -> Any:
    drawn = torch.rand(3)
    return drawn, torch.linalg.cholesky(m.reshape(1, 1)), x


def _asserts(x: Tensor, m: Tensor) -> Any:
    drawn = nn.functional.dropout(x, 0.5)
    assert m.sum() > 0
    return drawn


def _factors_after_a_write(x: Tensor, m: Tensor) -> Any:
    drawn = torch.rand(3)
    m.add_(0)
    return drawn, torch.linalg.cholesky(m.reshape(1, 1))


def _draws_in_place(x: Tensor, m: Tensor) -> Any:
    drawn = x.detach().clone().uniform_()
    torch.bincount((drawn + m).long())
    return x + 1


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "program", [_indexes, _factors, _asserts, _factors_after_a_write, _draws_in_place]
)
@pytest.mark.filterwarnings("ignore")
def test_what_raises_after_it_has_drawn_draws_once(program: Any, gradients: bool) -> None:
    fast = anyshape.compile(program)
    for number in (1.0, -9.0, 2.0):
        after = []
        for run in (program, fast):
            torch.manual_seed(3)
            x, m = torch.ones(4, requires_grad=gradients), torch.tensor(number)
            try:
                drawn = re.sub("grad_fn=<[A-Za-z0-9]+>", "grad_fn", str(run(x, m)))
            except (IndexError, AssertionError, RuntimeError) as error:
                drawn = type(error).__name__
            after.append((drawn, torch.rand(())))
        assert after[0] == after[1], number
