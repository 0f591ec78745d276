"""Results on the way whose gradients eager torch takes: differentiable ones, of what was written
since, of many cotangents at once. Each part adds what is its own."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.autograd.beside_eager import assert_same

Results = tuple[Tensor, ...]


def twice_by_the_weight(x: Tensor, w: Tensor) -> Results:
    h = (x * w).tanh()
    return h, (h * w).sum()


def added_to(x: Tensor, w: Tensor) -> Results:
    h = x * w
    return h, (h + w).sum()


def joined(x: Tensor, w: Tensor) -> Results:
    h = x * w
    return h, torch.cat([h, w[None]]).exp().sum()


def three(x: Tensor, w: Tensor) -> Results:
    h = x.sin()
    g = h * w
    return h, g, (g * h * x).sum()


PROGRAMS = [twice_by_the_weight, added_to, joined, three]


def differentiated_twice(results: Results, leaves: list[Tensor]) -> Any:
    first = torch.autograd.grad(results[-1], leaves, create_graph=True)
    again = torch.autograd.grad(sum(g.square().sum() for g in first), leaves, allow_unused=True)
    return [g.detach() for g in first], again


def of_results_and_leaves(results: Results, leaves: list[Tensor]) -> Any:
    return torch.autograd.grad(results[-1], [*results[:-1], *leaves])


def ended_at_leaves(results: Results, leaves: list[Tensor]) -> Any:
    results[-1].backward(inputs=leaves)
    return [leaf.grad for leaf in leaves]


def of_many_at_once(results: Results, leaves: list[Tensor]) -> Any:
    rows = torch.stack([torch.ones_like(results[-1]), torch.full_like(results[-1], 3.0)])
    return torch.autograd.grad(results[-1], leaves, rows, is_grads_batched=True)


USES = [differentiated_twice, of_results_and_leaves, ended_at_leaves, of_many_at_once]


def used(function: Callable[..., Results], use: Callable[..., Any], rows: int) -> Any:
    torch.manual_seed(rows)
    leaves = [torch.randn(rows, 3, requires_grad=True), torch.randn(3, requires_grad=True)]
    return use(function(*leaves), leaves)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_lies_on_the_way_is_counted_once(
    program: Callable[..., Results], use: Callable[..., Any]
) -> None:
    fast = anyshape.compile(program)
    for rows in (2, 4, 1):
        assert_same(used(fast, use, rows), used(program, use, rows))


def viewed(x: Tensor) -> Results:
    h = (x * 3).view(-1)
    return h, h.sum() * 2, h * h


def test_a_result_that_is_a_view_and_was_written_has_its_gradient() -> None:
    fast, made = anyshape.compile(viewed), []
    for function in (fast, viewed):
        x = torch.ones(2, 2, requires_grad=True)
        h, y, _ = function(x)
        with torch.no_grad():
            h.mul_(1.5)
        y.backward()
        made.append(x.grad)
    assert_same(*made)


def dropped(x: Tensor, w: Tensor) -> Results:
    h = (x * w).tanh()
    return h, h.exp()


@pytest.mark.parametrize("retained", [False, True])
def test_results_that_are_dropped_let_go_of_what_was_saved(retained: bool) -> None:
    fast = anyshape.compile(dropped)
    w = torch.randn(3, requires_grad=True)
    for rows in (2, 5):
        x = torch.randn(rows, 3, requires_grad=True)
        results = fast(x, w)
        if retained:
            results[1].sum().backward(retain_graph=True)
        held = [weakref.ref(made) for made in (*results, x)]
        del results, x
        gc.collect()
        assert [ref() for ref in held] == [None, None, None]


def not_kept(x: Tensor, w: Tensor) -> Results:
    h = x * w
    return h, (h + 2).cos(), ((h + 1).sin() * w).sum()


def one_by_way_of_another(x: Tensor, w: Tensor) -> Results:
    h = x + w
    k = (h + 1).square()
    return h, k, ((k + 1).sin() * (h + 2).square()).sum()


def beside_one_that_is_kept(x: Tensor, w: Tensor) -> Results:
    h = x * w
    k = (h + 1).square()
    return h, k, k.sin().sum()


def kept(x: Tensor, w: Tensor) -> Results:
    h = x * w
    return h, (h * h).sum()


def kept_where_it_is_made(x: Tensor, w: Tensor) -> Results:
    h = (x * w).tanh()
    return h, (h + 1).exp().sum()


def under_no_grad(h: Tensor) -> None:
    with torch.no_grad():
        h.add_(1)


WRITES: list[Callable[[Tensor], Any]] = [
    under_no_grad,
    lambda h: h.detach().mul_(2),
    lambda h: h.mul_(2),
]
KEEPS_NO_RESULT = [not_kept, one_by_way_of_another, beside_one_that_is_kept]


def differentiated_beside_a_write(
    run: Callable[..., Results], rows: int, write: Callable[[Tensor], Any], moment: int
) -> Any:
    """Three gradients, each of the one before, of a result that is written before one of them."""
    torch.manual_seed(rows)
    leaves = [torch.randn(rows, 3, requires_grad=True), torch.randn(3, requires_grad=True)]
    results = run(*leaves)
    seen: list[Any] = []
    total = torch.stack([result.sum() for result in results]).sum()
    try:
        for number in range(3):
            if number == moment:
                write(results[0])
            ends = [each for each in (*results[:-1], *leaves) if each.requires_grad]
            found = torch.autograd.grad(total, ends, create_graph=True, allow_unused=True)
            seen += [None if g is None else g.detach() for g in found]
            total = torch.stack([g.square().sum() for g in found if g is not None]).sum()
    except RuntimeError as error:
        seen.append(str(error)[:40])
    return seen, [result._version for result in results]


@pytest.mark.parametrize("program", [*KEEPS_NO_RESULT, kept, kept_where_it_is_made])
def test_gradients_of_gradients_of_a_result_that_was_written(
    program: Callable[..., Results],
) -> None:
    """It keeps its place in the graph, or is refused where a formula keeps it."""
    fast = anyshape.compile(program)
    writes = [*WRITES, Tensor.detach_] if program in KEEPS_NO_RESULT else WRITES
    for rows in (2, 4):
        for write in writes:
            for moment in range(3):
                runs = [
                    differentiated_beside_a_write(f, rows, write, moment) for f in (fast, program)
                ]
                assert_same(*runs)
    assert (fast.stats().specializations, fast.stats().eager_graphs) == (1, ())


def beside_each_other(x: Tensor, w: Tensor) -> Results:
    return x.sin() * 2, w.exp()


def test_a_write_to_what_lies_elsewhere_is_not_refused() -> None:
    fast = anyshape.compile(beside_each_other)
    for run in (fast, beside_each_other):
        x, w = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
        results = run(x, w)
        under_no_grad(w)
        (g,) = torch.autograd.grad(results[0].sum(), x, create_graph=True)
        under_no_grad(w)
        (again,) = torch.autograd.grad(g.sum(), x)
        torch.testing.assert_close(again, -2 * x.detach().sin())
