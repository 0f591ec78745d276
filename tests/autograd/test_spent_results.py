"""Results whose gradients the program has taken itself are handed out as eager hands them out:
views or not, and a caller may write to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.autograd.beside_eager import assert_same


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x


def one(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.sum().backward()
    return (y,)


def of_a_function(x: Tensor) -> tuple[Tensor, ...]:
    y = Doubled.apply(x)
    y.sum().backward()
    return (y,)


def with_its_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.sum().backward()
    return y, y.view(-1), y[0]


def a_view_alone(x: Tensor) -> tuple[Tensor, ...]:
    z = (x * 2).t()
    z.sum().backward()
    return (z,)


def written_inside(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.sum().backward()
    y.add_(1)
    return (y,)


def twice(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x * 2, x * 3
    (y.sum() + z.sum()).backward()
    return y, z, y


PROGRAMS = [one, of_a_function, with_its_views, a_view_alone, written_inside, twice]


def described(results: tuple[Tensor, ...]) -> list[Any]:
    first = results[0]
    return [
        (y._is_view(), y._base is first, y is first, y.requires_grad, y.is_leaf, y._version)
        for y in results
    ]


def written_by_the_caller(program: Callable[..., Any]) -> list[Any]:
    found = []
    for shape in ((2, 3), (4, 5), (1, 6)):
        x = torch.ones(shape, requires_grad=True)
        results = program(x)
        found += [described(results), x.grad.tolist()]
        with pytest.raises(RuntimeError, match="a second time"):
            results[-1].sum().backward()
        for y in results:
            y.add_(1)
        found += [described(results), [y.tolist() for y in results]]
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_caller_may_write_to_what_is_spent(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    assert written_by_the_caller(fast) == written_by_the_caller(program)


def made_of_what_is_spent(x: Tensor) -> tuple[Tensor, ...]:
    """As steps return probabilities, of logits whose loss they have gone through."""
    logits = x * x
    logits.exp().sum().backward()
    return logits.softmax(-1), (logits * logits.detach()).sum(), logits


@pytest.mark.parametrize("gone_through", [0, 1, 2])
def test_what_is_made_of_spent_results_is_compiled_and_refused_as_eager_refuses_it(
    gone_through: int,
) -> None:
    fast = anyshape.compile(made_of_what_is_spent)
    for shape in ((2, 3), (4, 5), (1, 6)):
        made = []
        for program in (fast, made_of_what_is_spent):
            x = torch.linspace(0.5, 1, shape[0] * shape[1]).reshape(shape).requires_grad_()
            results = program(x)
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                results[gone_through].sum().backward()
            made.append([*results, x.grad])
        torch.testing.assert_close(*made)
        assert [y.requires_grad for y in made[0][:3]] == [True] * 3
    assert (fast.stats().eager_graphs, fast.stats().graph_breaks) == ((), 0)


def test_what_is_made_of_leaves_as_well_is_differentiated() -> None:
    """Some of it comes from nothing that was gone through: eager torch runs the graph."""

    def step(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * x
        y.sum().backward()
        return w.exp() * y.detach(), (w * w).sum()

    fast = anyshape.compile(step)
    for rows in (2, 4, 1):
        made = []
        for program in (fast, step):
            x, w = (torch.full((rows, 3), v, requires_grad=True) for v in (0.5, 2.0))
            first, second = program(x, w)
            (first.sum() + second).backward()
            made.append([first, second, x.grad, w.grad])
        torch.testing.assert_close(*made)


def a_second_head(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """As a step of one head returns what another one makes of the same trunk."""
    trunk = (x @ x.t()).tanh()
    loss = trunk.sum()
    loss.backward()
    return loss, trunk @ w.t(), (trunk @ w.t()).softmax(-1).max() + loss.exp()


def a_head_on_what_kept_nothing(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Eager goes through sums once more."""
    trunk = x + x.flip(0)
    trunk.sum().backward()
    return trunk, (trunk * 2).sum(), (trunk + w).sum()


@pytest.mark.parametrize("program", [a_second_head, a_head_on_what_kept_nothing])
@pytest.mark.parametrize("gone_through", [1, 2])
def test_a_head_on_a_trunk_that_was_gone_through(
    program: Callable[..., Any], gone_through: int
) -> None:
    fast = anyshape.compile(program)
    for rows in (2, 4, 3):
        made: list[Any] = []
        for function in (fast, program):
            x = torch.linspace(0.5, 1, rows * rows).reshape(rows, rows).requires_grad_()
            w = torch.full((rows, rows), 0.3, requires_grad=True)
            results = function(x, w)
            refused = ""
            try:
                results[gone_through].sum().backward()
            except RuntimeError as error:
                refused = str(error)[:50]
            made.append([[r.detach() for r in results], x.grad, [r.requires_grad for r in results]])
            made[-1].append(refused)
        assert_same(*made)
        assert made[0][3].startswith("Trying to backward") or program is not a_second_head
    assert fast.stats().graph_breaks == 0


def test_a_second_head_has_gradients_that_end_in_front_of_the_trunk() -> None:
    fast = anyshape.compile(a_second_head)
    for rows in (2, 3):
        made: list[Any] = []
        for function in (fast, a_second_head):
            x = torch.linspace(0.5, 1, rows * rows).reshape(rows, rows).requires_grad_()
            w = torch.full((rows, rows), 0.3, requires_grad=True)
            function(x, w)[1].sum().backward(inputs=[w])
            made.append((x.grad, w.grad))
        assert_same(*made)


def behind_a_gradient_of_weights(x: Tensor, w: Tensor) -> Tensor:
    made = x * x
    torch.autograd.grad((made * w).sum(), w)
    return made.exp()


def behind_a_gradient_that_is_differentiated(x: Tensor, w: Tensor) -> Tensor:
    made = x * w
    (gradient,) = torch.autograd.grad(made.sum(), x, create_graph=True)
    (gradient * gradient).sum().backward()
    return made.exp()


@pytest.mark.parametrize(
    "program", [behind_a_gradient_of_weights, behind_a_gradient_that_is_differentiated]
)
def test_what_a_gradient_has_not_gone_through_is_not_spent(
    program: Callable[[Tensor, Tensor], Tensor],
) -> None:
    found = []
    fast = anyshape.compile(program)
    for run in (program, fast, program, fast):
        size = 3 if len(found) < 2 else 5
        x, w = torch.arange(float(size)).requires_grad_(), torch.ones(size, requires_grad=True)
        run(x, w).sum().backward()
        found.append((x.grad, w.grad))
    for eager, ours in (found[:2], found[2:]):
        for a, b in zip(eager, ours, strict=True):
            torch.testing.assert_close(a, b)
