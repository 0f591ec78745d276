"""Results that are pieces of one tensor (a mean and a variance out of one layer, queries and keys out
of one product) are compiled where they do not overlap, and behave as eager's views do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import PerformanceWarning

pytestmark = pytest.mark.usefixtures("doubles")

Program = Callable[[Tensor, Tensor], Any]


def halves(x: Tensor, w: Tensor) -> Any:
    return (x @ w).chunk(2, -1)


def variational(x: Tensor, w: Tensor) -> Any:
    mean, deviation = (x @ w).chunk(2, -1)
    z = mean + deviation.exp() * x[:, :2]
    return (z @ w[:2]).sin(), mean, deviation


def views_of_parts(x: Tensor, w: Tensor) -> Any:
    a, b, c = (x @ w).tanh().split((1, 2, 1), -1)
    return a.squeeze(-1), b.mT, c


def unbound(x: Tensor, w: Tensor) -> Any:
    return torch.unbind((x * w.sum(0)).sigmoid(), -1)


def parts_of_a_part(x: Tensor, w: Tensor) -> Any:
    a, b = (x @ w).split(2, -1)
    c, d = b.split(1, -1)
    return a, c, d, (a * b).sum()


def parts_and_their_sum(x: Tensor, w: Tensor) -> Any:
    h = (x @ w).exp()
    a, b = h.chunk(2, -1)
    return a, b, h.sum()


def slices(x: Tensor, w: Tensor) -> Any:
    h = (x @ w).tanh()
    mean, scale = h[..., :1], h[..., 1:]
    return mean + scale.exp() * x[:, :3], mean, scale


def columns(x: Tensor, w: Tensor) -> Any:
    h = (x @ w).exp()
    return h[:, 0], h[:, 1], h[:, 2:].sum(), h[:, 3]


def at_a_size(x: Tensor, w: Tensor) -> Any:
    h = x * w[0]
    n = x.shape[1] // 2
    return h[:, :n], h[:, n:].exp(), h[:, n:]


def columns_of_a_part(x: Tensor, w: Tensor) -> Any:
    a, b = (x * w[0]).chunk(2, -1)
    return a[:, 0], a[:, 1], b


PROGRAMS = [
    *(halves, variational, views_of_parts, unbound, parts_of_a_part, parts_and_their_sum),
    columns_of_a_part,
]


def total(made: Sequence[Tensor]) -> Tensor:
    return sum((out.sin().sum() for out in made), torch.zeros(()))


def backward(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    total(made).backward()
    return [leaf.grad for leaf in leaves]


def one_by_one(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    each = (torch.autograd.grad(out.cos().sum(), leaves, retain_graph=True) for out in made)
    return [gradient for gradients in each for gradient in gradients]


def of_each_other(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    return [*torch.autograd.grad(made[0].sin().sum(), made[1:], allow_unused=True)]


def twice(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    gradients = torch.autograd.grad(total(made), leaves, create_graph=True)
    again = torch.autograd.grad(total(gradients), leaves)
    return [gradient.contiguous() for gradient in again]


def written(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    made[-1].mul_(2)
    return backward(made, leaves)


def first_written(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    made[0].add_(1)
    return backward(made, leaves)


def written_unseen(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    with torch.no_grad():
        made[-1].mul_(2)
    return [[out._version for out in made], *backward(made, leaves)]


def written_since(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    kept = (made[1] * made[1]).sum()
    with torch.no_grad():
        made[0].zero_()
    kept.backward()
    return [leaf.grad for leaf in leaves]


def retained(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    seen: list[Tensor] = []
    for out in made:
        out.register_hook(lambda g: seen.append(g.sum()))
        out.retain_grad()
    found = backward(made, leaves)
    return [torch.stack(seen).sort().values, *(out.grad for out in made), *found]


def in_one_memory(made: Sequence[Tensor], leaves: list[Tensor]) -> list[Any]:
    memory = [out.untyped_storage().data_ptr() for out in made]
    return [[one == other for other in memory] for one in memory]


USES = [
    *(backward, one_by_one, of_each_other, twice, written, first_written, written_unseen),
    *(written_since, retained, in_one_memory),
]


def outcome(run: Program, use: Callable[..., list[Any]], rows: int) -> list[Any]:
    torch.manual_seed(rows)
    leaves = [torch.randn(rows, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)]
    made = run(*leaves)
    told = [(out.stride(), out.requires_grad, out._version, out.is_leaf) for out in made]
    try:
        return [*told, *(out.detach().clone() for out in made), *use(made, leaves)]
    except RuntimeError as error:
        return [*told, str(error)[-50:]]


@pytest.mark.parametrize("program", PROGRAMS)
def test_pieces_are_eagers(program: Program) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for use in USES:
        for rows in (3, 1, 5):
            ours, theirs = (outcome(run, use, rows) for run in (fast, program))
            for one, other in zip(ours, theirs, strict=True):
                if isinstance(one, Tensor) and isinstance(other, Tensor):
                    assert one.stride() == other.stride(), use
                    torch.testing.assert_close(one, other)
                else:
                    assert one == other, use
    assert not fast.stats().eager_graphs and fast.stats().gradients


def beside_what_they_are_pieces_of(x: Tensor, w: Tensor) -> Any:
    h = x @ w
    return h, *h.chunk(2, -1)


def overlapping(x: Tensor, w: Tensor) -> Any:
    h = x * w[0]
    return h[:, :3], h[:, 2:]


def twice_the_same(x: Tensor, w: Tensor) -> Any:
    a, b = (x * w[0]).chunk(2, -1)
    return a, a.unsqueeze(0), b


@pytest.mark.parametrize("program", [slices, columns, at_a_size])
def test_slices_are_left_to_eager(program: Program) -> None:
    """Each knows its base alone, and has hooks and a node of its own."""
    fast = anyshape.compile(program)
    for f in (program, fast):
        x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformanceWarning)
            first, second = f(x, w)[:2]
        first.register_hook(lambda gradient: gradient * 2)
        second.sum().backward()
        with pytest.raises(RuntimeError, match="detach views"):
            f(x, w)[-1].detach_()


@pytest.mark.parametrize("program", [beside_what_they_are_pieces_of, overlapping, twice_the_same])
def test_what_overlaps_is_left_to_eager(program: Program) -> None:
    fast = anyshape.compile(program)
    with pytest.warns(PerformanceWarning, match="share memory"):
        outcome(fast, backward, 3)
    for use in USES:
        ours, theirs = (outcome(run, use, 3) for run in (fast, program))
        assert str(ours) == str(theirs), use


def test_other_data_of_a_piece_that_a_later_result_is_made_of_are_refused() -> None:
    """Eager's product reads what was put there; what is compiled reads the product's own memory."""

    def put(run: Program) -> None:
        leaves = [torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)]
        made = run(*leaves)
        made[0].data = torch.ones(3, 2)
        total(made).backward()

    put(parts_of_a_part)
    with pytest.raises(RuntimeError, match="replaced"):
        put(anyshape.compile(parts_of_a_part, fullgraph=True))
