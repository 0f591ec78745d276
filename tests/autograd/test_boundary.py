"""Compiled gradients behave as autograd's do: each program runs beside eager, and whatever one of
them does (a gradient, None, an error) the other does too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape

SIZES = (3, 0, 1, 7, 64)


def leaf(*shape: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=stream, dtype=torch.float64).requires_grad_()


def beside(
    program: Callable[[Callable[..., Any]], Any], fn: Callable[..., Any], *, gradients: int = 1
) -> None:
    """``program(fn)`` with the function and with its compiled form; the second must have compiled
    ``gradients`` backward halves."""
    expected = outcome(program, fn)
    fast = anyshape.compile(fn)
    found = outcome(program, fast)
    assert type(found) is type(expected), (found, expected)
    torch.testing.assert_close(
        found, expected, equal_nan=True, rtol=1e-7, atol=1e-9
    ) if not isinstance(expected, str) else None
    assert (found == expected) if isinstance(expected, str) else True
    stats = fast.stats()
    assert stats.gradients == gradients, stats.eager_graphs
    assert stats.internal_errors == 0


def outcome(program: Callable[[Callable[..., Any]], Any], fn: Callable[..., Any]) -> Any:
    try:
        return program(fn)
    except RuntimeError as error:
        return str(error)[:60]


def mixed(x: Tensor, y: Tensor) -> Tensor:
    return (torch.exp(x) * y + torch.sigmoid(y)).sum()


def test_one_compile_serves_all_sizes() -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)).double()

    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(net(x), target, reduction="sum")

    fast = anyshape.compile(loss)
    for size in SIZES:
        x, target = leaf(size, 5), torch.arange(size) % 4
        wanted = [x, *net.parameters()]
        expected = torch.autograd.grad(loss(x, target), wanted)
        torch.testing.assert_close(torch.autograd.grad(fast(x, target), wanted), expected)
    stats = fast.stats()
    assert (stats.specializations, stats.gradients, stats.eager_graphs) == (1, 1, ())


def test_gradients_accumulate() -> None:
    def program(fn: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1)
        fn(x, y).backward()
        fn(x, y).backward()
        return x.grad, y.grad

    beside(program, mixed)


def test_backward_twice_needs_the_graph_to_be_retained() -> None:
    def once(fn: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1)
        made = fn(x, y)
        made.backward()
        made.backward()

    def retained(fn: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1)
        made = fn(x, y)
        made.backward(retain_graph=True)
        made.backward()
        return x.grad, y.grad

    beside(once, mixed)
    beside(retained, mixed)


def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.log() * 2, (y * y).sum(0)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_an_output_that_is_not_used_gives_no_gradient(which: tuple[int, ...]) -> None:
    def program(fn: Any) -> Any:
        x, y = leaf(3, 2), leaf(3, 2, seed=1)
        outs = fn(x, y)
        sum(outs[i].sum() for i in which).backward()
        return [x.grad is None, y.grad is None], [g for g in (x.grad, y.grad) if g is not None]

    beside(program, two)


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.exp(x)
    return y * 2, torch.log(y - y)


def test_what_is_not_used_spoils_nothing() -> None:
    """The gradient of the second output is not a number; its cotangent is absent, not zero."""

    def program(fn: Any) -> Any:
        x = leaf(3)
        fn(x)[0].sum().backward()
        return x.grad

    beside(program, both)


COTANGENTS: dict[str, Callable[[], Tensor]] = {
    "expanded": lambda: torch.ones((), dtype=torch.float64).expand(3, 4),
    "permuted": lambda: leaf(4, 3).detach().t(),
    "every other": lambda: leaf(3, 8).detach()[:, ::2],
}


@pytest.mark.parametrize("name", COTANGENTS)
def test_a_cotangent_may_lie_in_any_way(name: str) -> None:
    def program(fn: Any) -> Any:
        x, y = leaf(3, 4), leaf(4, seed=1)
        fn(x, y).backward(COTANGENTS[name]())
        return x.grad, y.grad

    beside(program, lambda x, y: torch.tanh(x * y))


def test_an_input_without_gradients_gets_none_and_costs_none() -> None:
    def program(fn: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1).detach()
        fn(x, y).backward()
        assert y.grad is None
        return x.grad

    beside(program, mixed)


def test_each_pattern_of_required_gradients_is_one_specialization() -> None:
    fast = anyshape.compile(mixed)
    for first, second in ((True, True), (True, False), (False, True), (True, True)):
        for size in SIZES:
            x = leaf(size).detach().requires_grad_(first)
            y = leaf(size, seed=1).detach().requires_grad_(second)
            fast(x, y).backward()
            assert (x.grad is not None, y.grad is not None) == (first, second)
    assert fast.stats().specializations == 3


def detached(x: Tensor) -> Tensor:
    y = x.sin()
    with torch.no_grad():
        factor = y * 2
    return (y * y.detach() + factor * x).sum()


def test_detach_and_no_grad_cut() -> None:
    def program(fn: Any) -> Any:
        x = leaf(5)
        fn(x).backward()
        return x.grad

    beside(program, detached)


def enabled(x: Tensor) -> Tensor:
    with torch.enable_grad():
        return (x * x).sum()


def test_gradients_turned_on_inside() -> None:
    def program(fn: Any) -> Any:
        x = leaf(5)
        with torch.no_grad():
            made = fn(x)
        made.backward()
        return x.grad

    beside(program, enabled)


# --- writes after the call: an error where eager has one, and nowhere else ---

WRITTEN: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[..., Any]]] = {
    "a factor": (lambda x, y: (x * 1.0) * y, lambda x, y, out: y.data.mul_(2)),
    "a factor, counted": (lambda x, y: (x * 1.0) * (y + 0), lambda x, y, out: y.detach().mul_(2)),
    "a factor as it is": (lambda x, y: x * y, lambda x, y, out: y.detach().mul_(2)),
    "a view of a factor": (lambda x, y: x * y[None, :], lambda x, y, out: y.detach()[0].mul_(2)),
    "a term": (lambda x, y: torch.exp(x + y) * 2, lambda x, y, out: y.detach().mul_(2)),
    "scaled before exp": (lambda x, y: torch.exp(x * 2) + y, lambda x, y, out: x.detach().mul_(2)),
    "the result of exp": (lambda x, y: torch.exp(x + y), lambda x, y, out: out.detach().mul_(2)),
    "the argument of sin": (lambda x, y: torch.sin(x) + y, lambda x, y, out: x.detach().mul_(2)),
    "the result of sin": (lambda x, y: torch.sin(x) + y, lambda x, y, out: out.detach().mul_(2)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_write_to_what_eager_saves_raises_and_no_other(name: str) -> None:
    fn, write = WRITTEN[name]

    def program(call: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1)
        out = call(x, y)
        write(x, y, out)
        out.sum().backward()
        return (x.grad,) if "data" in name else (x.grad.shape,)

    beside(program, fn)


def test_gradients_are_written_without_touching_each_other() -> None:
    def program(fn: Any) -> Any:
        x, y = leaf(3, 2), leaf(3, 2, seed=1)
        fn(x, y).backward(leaf(3, 2, seed=2).detach())
        x.grad.mul_(3)
        return x.grad, y.grad

    beside(program, lambda x, y: x + y)


# --- double backward, hooks ---


def test_a_gradient_may_be_differentiated_again() -> None:
    def program(fn: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1)
        first = torch.autograd.grad(fn(x, y), (x, y), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, y))

    beside(program, mixed)


def test_a_gradient_of_what_depends_on_another_input_is_differentiated_again() -> None:
    def program(fn: Any) -> Any:
        x = leaf(3)
        y = x.cos()
        first = torch.autograd.grad(fn(x, y), (x, y), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), x)

    beside(program, mixed)


def test_hooks_run_as_in_eager() -> None:
    def program(fn: Any) -> Any:
        x, y, seen = leaf(3), leaf(3, seed=1), []
        x.register_hook(lambda g: g * 2)
        y.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        made = fn(x, y)
        made.register_hook(lambda g: g * 5)
        made.backward()
        return x.grad, y.grad, seen

    beside(program, mixed)


# --- state ---


def test_running_statistics_move_as_in_eager() -> None:
    def program(wrap: Any) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)).double()
        found = []
        call = wrap(net)
        for size in (5, 3, 8):
            call(leaf(size, 4)).sum().backward()
            found.append([b.clone() for b in net.buffers()])
        return found, [p.grad for p in net.parameters()]

    found, expected = program(anyshape.compile), program(lambda net: net)
    torch.testing.assert_close(found, expected)


def test_dropout_draws_as_eager_does() -> None:
    net = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 3)).double()

    def program(fn: Any) -> Any:
        torch.manual_seed(7)
        net.zero_grad()
        x = leaf(6, 4)
        fn(x).sum().backward()
        return x.grad, [p.grad.clone() for p in net.parameters()]

    fast = anyshape.compile(net)
    torch.testing.assert_close(program(fast), program(net))
    assert fast.stats().gradients == 1


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads = [t.reshape(q.shape[0], 4, q.shape[2], 6) for t in (q, k, v)]
    return F.scaled_dot_product_attention(heads[0], *(t[:, :2] for t in heads[1:]), enable_gqa=True)


ATTENTION: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "plain": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "scaled": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
    "a mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, (q @ k.mT).detach() > 0),
    "a learned mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, (q @ k.mT).sin()),
    "groups": grouped,
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_differentiated_at_every_length(name: str) -> None:
    def program(fn: Any) -> Any:
        found = []
        for length in (5, 1, 8):
            q, k, v = (leaf(2, 4, length, 6, seed=seed) for seed in range(3))
            found.append(torch.autograd.grad(fn(q, k, v).square().sum(), (q, k, v)))
        return found

    beside(program, ATTENTION[name])


def test_attention_with_dropout_draws_as_eager_does() -> None:
    def program(fn: Any) -> Any:
        torch.manual_seed(7)
        x = leaf(2, 3, 5, 4)
        fn(x).sum().backward()
        return x.grad

    beside(program, lambda x: F.scaled_dot_product_attention(x, x * 2, x.sin(), dropout_p=0.3))


def test_shared_and_frozen_parameters() -> None:
    def program(wrap: Any) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 2)).double()
        net[2].weight = net[0].weight
        net[3].bias.requires_grad_(False)
        call = wrap(net)
        found = []
        for flip in (False, True):
            net[3].bias.requires_grad_(flip)
            net.zero_grad()
            call(leaf(3, 4)).sum().backward()
            found.append([None if p.grad is None else p.grad.clone() for p in net.parameters()])
        return [[g is None for g in grads] for grads in found], [
            [g for g in grads if g is not None] for grads in found
        ]

    torch.testing.assert_close(program(anyshape.compile), program(lambda net: net))


def test_sizes_that_data_decides() -> None:
    def program(fn: Any) -> Any:
        found = []
        for size in (6, 1, 9):
            x = leaf(size, 3)
            fn(x).backward()
            found.append(x.grad)
        return found

    def chosen(x: Tensor) -> Tensor:
        rows = x[x.detach().sum(1) > 0]
        return (rows.exp() / rows.shape[0]).sum() + x.sum()

    beside(program, chosen)


# --- writes of the program itself ---


def windows(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], 3, dtype=x.dtype)
    out[:, 0] = x.sin()
    out[:, 1:] += x[:, None] * 2
    out[:, 2].mul_(x)
    return out.exp()


INSIDE: dict[str, Callable[[Tensor], Any]] = {
    "of a result": lambda x: (x * 2).add_(x).exp(),
    "of an activation": lambda x: F.relu(x * 2, inplace=True) * x,
    "through views": windows,
    "of what is seen later": lambda x: (y := x * 3, z := y[1:], y.add_(x), z * x[1:])[3],
    "of constants": lambda x: (
        torch.ones(x.shape[0], dtype=x.dtype).masked_fill_(x.detach() > 0, 2.0) * x
    ),
    "by a mask": lambda x: (x * 2).masked_fill_(x.detach() > 0, 1.0) * x,
    "copied": lambda x: torch.empty_like(x).copy_(x.sin()) * 2,
}


@pytest.mark.parametrize("name", INSIDE)
def test_writes_to_memory_of_its_own_are_differentiated(name: str) -> None:
    def program(fn: Any) -> Any:
        found = []
        for size in (4, 1, 7):
            x = leaf(size)
            fn(x).sum().backward()
            found.append(x.grad)
        return found

    beside(program, INSIDE[name])


# --- what is not covered says so ---


def behind_its_back(x: Tensor) -> Tensor:
    y = x * 2
    y.detach().mul_(3)
    return y * x


def unrecorded(x: Tensor) -> Tensor:
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y * 2


REFUSED: dict[Callable[[Tensor], Any], str] = {
    behind_its_back: "writes in place what requires gradients",
    unrecorded: "writes in place what requires gradients",
    lambda x: (x * 2, x[1:]): "an output that requires gradients is an input, or views one",
    lambda x: (y := x * 2, y[1:]): "outputs that require gradients share memory",
}


@pytest.mark.parametrize("fn", REFUSED)
def test_what_is_not_compiled_runs_eagerly_and_is_counted(fn: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(fn)
    x, y = leaf(4), leaf(4)
    for call, given in ((fast, x), (fn, y)):
        made = call(given)
        sum(t.sum() for t in (made if isinstance(made, tuple) else (made,))).backward()
    torch.testing.assert_close(x.grad, y.grad)
    (reason,) = fast.stats().eager_graphs
    assert REFUSED[fn] in reason


def test_the_halves_are_shown_as_python_that_gives_the_gradients() -> None:
    weight = torch.randn(4, 3, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ weight).sum(1)

    fast = anyshape.compile(program)
    x = torch.randn(5, 4)
    fast(x).sum().backward()
    captured, forward, backward = fast.graphs()
    scope: dict = {}
    for text in (captured, forward, backward):
        exec(text, scope)
    values = dict(zip(inspect.signature(scope["forward"]).parameters, (x, weight)))
    with torch.no_grad():
        made = scope["forward"](x, weight)
        values |= zip(re.findall(r"return \((.*?),?\)", forward)[-1].split(", "), made)
        wanted = inspect.signature(scope["backward"]).parameters
        values |= {name: torch.ones(5) for name in wanted if name.startswith("cotangent")}
        gradients = scope["backward"](*[values[name] for name in wanted])
    torch.testing.assert_close(made[:1], scope["graph"](x, weight))
    torch.testing.assert_close(gradients, (weight.grad,))


def test_explain_says_what_is_saved_and_what_is_computed_again() -> None:
    weight = torch.randn(4, 3, requires_grad=True)
    explained = anyshape.explain(lambda x: (torch.tanh(x @ weight).exp() * 2.0).sum(1))
    (told,) = explained(torch.randn(5, 4)).saved
    first, *kept, again = told.split("\n")
    assert first == f"saved for the backward half: {len(kept)} tensors"
    assert any("(input)" in line for line in kept)
    assert any("(extra, " in line and "test_boundary.py" in line for line in kept)
    assert again.startswith("computed again: ")


FACTORIES: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": lambda x: torch.zeros(x.shape, requires_grad=True),
    "zeros_like": lambda x: torch.zeros_like(x, requires_grad=True),
    "rand_like": lambda x: torch.rand_like(x, requires_grad=True),
    "new_full": lambda x: x.new_full(x.shape, 2, requires_grad=True),
    "new_ones": lambda x: x.new_ones(x.shape, requires_grad=True),
    "new_tensor": lambda x: x.new_tensor([1.0, 2.0], requires_grad=True),
    "new_empty_strided": lambda x: x.new_empty_strided((2,), (1,), requires_grad=True),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_a_new_tensor_that_requires_gradients_is_a_leaf(name: str) -> None:
    x = torch.ones(3, 2, requires_grad=True)
    made = anyshape.compile(FACTORIES[name])(x)
    assert made.is_leaf and made.requires_grad
    assert torch.autograd.grad(made.sum(), x, allow_unused=True) == (None,)


TWO_LOSSES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "nothing in common": lambda x, v, w: ((x @ v).relu().sum(), (x @ w).exp().sum()),
    "a beginning in common": lambda x, v, w: ((x.exp() @ v).sum(), (x.exp() @ w).exp().sum()),
    "one of the other": lambda x, v, w: ((y := x * v), (y * y * w).sum()),
    "a result that is saved": lambda x, v, w: ((y := (x * v).exp()), (y * y * w).sum()),
}


@pytest.mark.parametrize("written", ["v", "w", "the first result"])
@pytest.mark.parametrize("name", TWO_LOSSES)
def test_what_is_written_between_two_backwards_is_refused_as_in_eager(
    name: str, written: str
) -> None:
    """As where the weights of one network are updated, and then another one's loss goes back."""

    def outcomes(run: Callable[..., Any]) -> list[object]:
        found: list[object] = []
        for second in (False, True):
            x, v, w = (torch.full((3, 3), n / 2, requires_grad=True) for n in (1.0, 2.0, 3.0))
            losses = run(x, v, w)
            with torch.no_grad():
                {"v": v, "w": w, "the first result": losses[0]}[written].add_(1)
            try:
                loss = losses[second].sum()
                gradients = torch.autograd.grad(loss, (x, v, w), allow_unused=True)
                found += [None if g is None else g.tolist() for g in gradients]
            except RuntimeError as refused:
                found.append(str(refused)[:60])
        return found

    ours, theirs = (outcomes(run) for run in (anyshape.compile(TWO_LOSSES[name]), TWO_LOSSES[name]))
    assert ours == theirs


def test_a_write_to_a_detached_result_is_seen_by_what_has_saved_another() -> None:
    def program(h: Callable[..., Any]) -> Any:
        x = leaf(3, 4)
        rows, detached = h(x)
        loss = (rows * rows).sum()
        detached.mul_(2)
        loss.backward()
        return x.grad

    beside(program, lambda x: (lambda h: (h.view(-1), h.detach()[1:]))(x * 2))


def test_a_write_to_data_of_a_result_is_not_seen() -> None:
    def program(h: Callable[..., Any]) -> Any:
        x = leaf(3, 4)
        made, data = h(x)
        loss = (made * made).sum()
        data.mul_(2)
        loss.backward()
        return x.grad

    beside(program, lambda x: (lambda h: (h, h.data[1:]))(x * 2))


def test_what_is_kept_for_what_nobody_is_handed_may_be_written() -> None:
    def program(h: Callable[..., Any]) -> Any:
        x = leaf(3, 4)
        y = x * 1
        (made,) = h(y)
        loss = (made * made).sum()
        y.detach().mul_(2)
        loss.backward()
        return x.grad

    def squares_unread(y: Tensor) -> tuple[Tensor]:
        return (y.softmax(0) * F.mse_loss(y, y + 1, reduction="none").shape[0],)

    beside(program, squares_unread)
