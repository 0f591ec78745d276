"""Results that gradients go through on their way from other results: whoever hooks one, retains its
gradient, asks for it or lets gradients end there, sees what he does in eager torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same

pytestmark = pytest.mark.usefixtures("doubles")

Results = tuple[Tensor, ...]


class Net(nn.Module):
    """Parameters that the programs share."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm, self.scale = nn.LayerNorm(4), nn.Parameter(torch.rand(4))


def in_a_row(net: Net, x: Tensor) -> Results:
    h = net.first(x).tanh()
    k = net.second(h).sin()
    return h, k, (k * net.scale).sum()


def scores_and_loss(net: Net, x: Tensor) -> Results:
    scores = net.second(net.norm(net.first(x)).relu())
    return nn.functional.cross_entropy(scores, x.argmax(1)), scores


def beside_each_other(net: Net, x: Tensor) -> Results:
    trunk = net.first(x).tanh()
    return trunk.sin(), (trunk.sin() * net.scale).sum(1), net.second(trunk).cos()


def two_heads(net: Net, x: Tensor) -> Results:
    trunk = net.first(x).tanh()
    return trunk, net.second(trunk).sin(), (trunk * net.scale).exp()


def past_what_is_handed_out(net: Net, x: Tensor) -> Results:
    """Something lies in front of a result and of what comes of that."""
    trunk = net.norm(net.first(x))
    scores = (trunk * net.scale).sum(1)
    weighed = trunk * scores.softmax(0).unsqueeze(1)
    return scores, weighed, net.second(weighed + trunk).relu()


def recurrent(net: Net, x: Tensor) -> Results:
    state, states = x, []
    for _ in range(3):
        state = net.first(state).tanh() + net.second(x)
        states.append(state)
    return torch.stack(states), state


def shared_weights(net: Net, x: Tensor) -> Results:
    turned = net.first.weight.t()
    h = x @ turned
    return h, (h.exp() @ turned @ turned).tanh()


def two_rows(net: Net, x: Tensor) -> Results:
    """Two groups of results that have nothing in common."""
    a, b = net.first(x), x * net.scale
    return a, b, a.sin(), b.cos().sum(0)


def parts(net: Net, x: Tensor) -> Results:
    """Of the results of one operator, one is handed out."""
    left, right = net.first(x).split([1, 3], 1)
    top = left.exp() * 1.0
    return top, (top * right).sum(1), right.sum()


def states_of_layers(net: Net, x: Tensor) -> Results:
    states = [net.first(x)]
    for _ in range(3):
        states.append(states[-1] + net.second(net.norm(states[-1])).relu())
    return *states, states[-1].square().mean()


def written_before(net: Net, x: Tensor) -> Results:
    """What was read of a result before it was written does not lead to that."""
    h = net.first(x)
    read = h.sin()
    made = torch.zeros_like(h)
    made[:, 0] = read[:, 1]
    return read, made, made.sum(0) * net.scale


def beside_what_is_written(net: Net, x: Tensor) -> Results:
    """As what a distribution draws is, into new memory that has no gradients."""
    mean, scale = net.first(x).split(2, 1)
    noise = torch.empty(mean.shape).copy_(x[:, 2:]).mul_(2)
    action = (mean + noise * scale.exp()).tanh()
    return action, mean, scale, ((action - mean) * noise).sum(1)


def written_on_the_way(net: Net, x: Tensor) -> Results:
    """As a router's scores are that return what they are made of: shares of the best, in place."""
    logits = net.first(x)
    shares = logits.softmax(1).topk(2)[0]
    shares /= shares.sum(1, keepdim=True)
    mixed = torch.zeros_like(x)
    mixed[:, 1:3] += shares
    loss = net.second(mixed.sin() + logits).sum(1)
    loss += logits.square().sum(1)
    return logits, mixed + logits, loss


def dropped_on_the_way(net: Net, x: Tensor) -> Results:
    """What dropout gives is read by a later stage, and nobody is handed it."""
    trunk = nn.functional.dropout(net.first(x), 0.3)
    keys = net.second(trunk)
    return keys, (keys.softmax(1) * trunk).sum(1), keys.sin() + trunk


PROGRAMS = [
    *(in_a_row, scores_and_loss, beside_each_other, two_heads, past_what_is_handed_out, recurrent),
    *(shared_weights, two_rows, parts, states_of_layers, written_before),
    *(beside_what_is_written, written_on_the_way, dropped_on_the_way),
]


def loss_of(results: Results) -> Tensor:
    return sum((r * (i + 1)).sin().sum() for i, r in enumerate(results))  # type: ignore[return-value]


def retained(net: Net, results: Results) -> Any:
    for each in results:
        each.retain_grad()
    loss_of(results).backward()
    return [each.grad for each in results]


def retained_of_the_last(net: Net, results: Results) -> Any:
    for each in results:
        each.retain_grad()
    results[-1].sum().backward()
    return [each.grad for each in results]


def hooked(net: Net, results: Results) -> Any:
    seen: list[Tensor] = []
    for each in results:
        each.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    loss_of(results).backward()
    return sorted(seen, key=lambda g: float(g.sum()))


def asked_for(net: Net, results: Results) -> Any:
    return [
        torch.autograd.grad(loss_of(results), each, retain_graph=True, allow_unused=True)
        for each in results
    ]


def asked_for_one_of_another(net: Net, results: Results) -> Any:
    return [
        torch.autograd.grad(one.sum(), other, retain_graph=True, allow_unused=True)
        for one in results
        for other in results
    ]


def asked_for_at_once(net: Net, results: Results) -> Any:
    wanted = (*results, *net.parameters())
    return torch.autograd.grad(loss_of(results), wanted, allow_unused=True)


def one_by_one(net: Net, results: Results) -> Any:
    for each in results:
        each.sum().backward(retain_graph=True)


def ended_there(net: Net, results: Results) -> Any:
    """Gradients that end at a result let go of nothing behind it."""
    for each in reversed(results):
        own = torch.autograd.grad(each.sum(), each)
        each.backward(own, retain_graph=True)


def gone_on_from_there(net: Net, results: Results) -> Any:
    """By hand: from a result to those in front of it, and from these on."""
    loss_of(results).backward(inputs=[net.second.weight], retain_graph=True)
    loss_of(results).backward(inputs=list(results), retain_graph=True)
    return [each.grad for each in results]


def differentiated_again(net: Net, results: Results) -> Any:
    gradients = torch.autograd.grad(loss_of(results), results, create_graph=True, allow_unused=True)
    sum(g.square().sum() for g in gradients if g is not None).backward()  # type: ignore[union-attr]


def differentiated_three_times(net: Net, results: Results) -> Any:
    """Of each result, with respect to all: what formulas keep is the very result."""
    seen: list[Any] = []
    leaves = [*results, *net.parameters()]
    for each in results:
        total = each.square().sum() + loss_of(results)
        for _ in range(2):
            found = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
            squares = [g.square().sum() for g in found if g is not None]
            total = torch.stack(squares).sum() * 0.01 + results[0].sum()
        seen.append(torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True))
    return seen


def differentiated_behind_hooks(net: Net, results: Results) -> Any:
    for each in results:
        each.register_hook(lambda g: g * 2)
    differentiated_again(net, results)


def of_some_that_are_kept(net: Net, results: Results) -> Any:
    last, leaves = results[-1], [results[0], *net.parameters()]
    del results
    found = torch.autograd.grad(last.sin().sum(), leaves, create_graph=True, allow_unused=True)
    total = torch.stack([g.square().sum() for g in found if g is not None]).sum()
    return torch.autograd.grad(total, leaves, allow_unused=True)


def each_gone_through_once(net: Net, results: Results) -> Any:
    """Backwards: what two results share keeps nothing, or is not gone through twice."""
    seen: list[Any] = []
    for each in reversed(results):
        try:
            seen.append(torch.autograd.grad(each.sum(), results, allow_unused=True))
        except RuntimeError as error:
            seen.append(str(error)[:40])
    return seen


def twice(net: Net, results: Results) -> Any:
    loss_of(results).backward()
    try:
        results[-1].sum().backward()
    except RuntimeError as error:
        return str(error)[:40]
    return "gone through"


USES = [
    *(retained, retained_of_the_last, hooked, asked_for, asked_for_one_of_another),
    *(asked_for_at_once, one_by_one, ended_there, gone_on_from_there),
    *(differentiated_again, differentiated_three_times, differentiated_behind_hooks),
    *(of_some_that_are_kept, each_gone_through_once, twice),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_result_on_the_way_is_eagers(program: Callable[[Net, Tensor], Results]) -> None:
    torch.manual_seed(0)
    net = Net()

    def function(x: Tensor) -> Results:
        return program(net, x)

    fast = anyshape.compile(function)
    for count in (3, 5, 2):
        x = torch.randn(count, 4)
        for use in USES:
            runs = []
            for each in (fast, function):
                net.zero_grad()
                torch.manual_seed(count)
                seen = use(net, each(x))
                runs.append([seen, [p.grad for p in net.parameters()]])
            assert_same(*runs, 1e-7)
    stats = fast.stats()
    assert (stats.specializations, stats.eager_graphs, stats.gradients) == (1, (), 1)


def kept_by_its_formula(x: Tensor) -> Tensor:
    return (x * 2).tanh()


def differentiated_to_itself(run: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    y = run(x)
    (g,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum() + y.sum(), [x, y])


def test_second_gradients_are_of_the_result_that_a_formula_keeps() -> None:
    fast = anyshape.compile(kept_by_its_formula)
    for count in (3, 1, 0):
        x = torch.randn(count, 4, requires_grad=True)
        found, expected = (differentiated_to_itself(f, x) for f in (fast, kept_by_its_formula))
        assert_same(found, expected, 1e-9)


def narrowed(x: Tensor, w: Tensor) -> Results:
    """No formula of eager's keeps the result in between."""
    h = x * w
    top = h.softmax(1).topk(2)[0]
    mixed = nn.functional.pad(top, (1, 1))
    return h, top, (mixed.sin() + h).sum(1)


def past_what_is_hidden(x: Tensor, w: Tensor) -> Results:
    """What the program is not handed lies behind a result that is read besides."""
    h = x * w
    square = h * h
    k = square + 1
    return h, k, (k + 2).sin() + (square + 3).cos() * h


def one_behind_the_other(x: Tensor, w: Tensor) -> Results:
    h = x * w
    k = h * h + x
    m = k * h + k.sin()
    return h, k, m, (m + 1) * (k + 1) * (h + x)


def differentiated_thrice(run: Callable[..., Results], x: Tensor, kept: tuple[int, ...]) -> Any:
    """Of the last result, with respect to those that are kept and to the inputs: the first,
    second and third gradients."""
    leaves = [x.clone().requires_grad_(), torch.linspace(1, 2, 4).requires_grad_()]
    results = run(*leaves)
    found, ends = [results[-1].sin()], [*(results[position] for position in kept), *leaves]
    del results
    seen = []
    for _ in range(3):
        total = torch.stack([g.square().sum() for g in found if g is not None]).sum() * 0.1
        found = [*torch.autograd.grad(total, ends, create_graph=True, allow_unused=True)]
        seen += found
    return seen


@pytest.mark.parametrize("program", [narrowed, past_what_is_hidden, one_behind_the_other])
def test_gradients_of_gradients_go_through_what_is_kept(program: Callable[..., Results]) -> None:
    """Not past it, by way of a result that the program has dropped or was never handed."""
    fast = anyshape.compile(program)
    for count in (3, 2):
        x = torch.randn(count, 4)
        for kept in ((), (0,), (1,), (0, 1), (0, 1, 2)):
            runs = [differentiated_thrice(run, x, kept) for run in (fast, program)]
            assert_same(*runs, 1e-7)
    assert (fast.stats().specializations, fast.stats().eager_graphs) == (1, ())


class GivesNone(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        return None


def test_a_function_behind_it_that_gives_no_gradient() -> None:
    fast = anyshape.compile(kept_by_its_formula)
    for count in (3, 5):
        x = torch.randn(count, 4, requires_grad=True)
        y: Tensor = GivesNone.apply(fast(x))  # type: ignore[no-untyped-call]
        assert torch.autograd.grad(y.sum(), x, allow_unused=True) == (None,)


def read_by_the_next(x: Tensor) -> Results:
    h = x * 2
    return h, h.sin()


def test_other_data_of_a_result_that_is_read_are_refused() -> None:
    fast = anyshape.compile(read_by_the_next)
    h, y = fast(torch.randn(3, requires_grad=True))
    h.data = torch.randn(3)
    with pytest.raises(RuntimeError, match="has been replaced"):
        y.sum().backward()


def normed(x: Tensor) -> Results:
    """The gradient needs no more of `x` than the result that lies in memory."""
    h = nn.functional.layer_norm(x, x.shape[1:])
    return h, h.sin()


def test_what_eagers_formula_alone_keeps_may_not_be_written() -> None:
    fast = anyshape.compile(normed)
    for run in (fast, normed):
        x = torch.randn(3, 4, requires_grad=True)
        h, _ = run(x)
        with torch.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            h.sum().backward()


def overwritten(x: Tensor) -> Results:
    """What the pure operator makes of zeros requires no gradients."""
    h = x * 2
    made = h * 1.0
    made.zero_()
    k = made + h
    return h, k, (made * k).sin()


def test_zeros_written_on_the_way_have_gradients_as_what_they_replace() -> None:
    fast = anyshape.compile(overwritten)
    found = []
    for run in (fast, overwritten):
        x = torch.linspace(0, 1, 3).requires_grad_()
        found.append(torch.autograd.grad(sum(r.sum() for r in run(x)), x))
    assert_same(*found)


def test_a_write_to_what_lies_in_front_of_a_result_is_refused_where_its_own_formulas_keep_it() -> (
    None
):
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = x @ w
        k = h * 2
        k.mul_(w.sum())
        loss = (k + 1).pow(2).sum()
        loss.add_(h.sum())
        return h, k, loss

    def gradient(run: Callable[..., Any], rows: int, of: int) -> Any:
        x = torch.arange(3.0 * rows).view(rows, 3).div(5).requires_grad_()
        w = torch.arange(9.0).view(3, 3).sub(4).requires_grad_()
        _, k, loss = run(x, w)
        with torch.no_grad():
            w.add_(1)
        try:
            (found,) = torch.autograd.grad(loss, ((x, k)[of],), create_graph=True)
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return found.detach()

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (2, 3):
        for of in range(2):
            found, wanted = gradient(fast, rows, of), gradient(program, rows, of)
            assert found is wanted if wanted is True else torch.allclose(found, wanted)
    assert not fast.stats().eager_graphs
