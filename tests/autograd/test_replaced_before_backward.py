"""`x.data = new` between a compiled call and its backward: eager's formulas that keep `x` itself read
what lies there then, those that keep a view of it, or what was made of it, what lay there before."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same

pytestmark = pytest.mark.usefixtures("doubles")

Program = Callable[[Tensor, Tensor, Tensor], Any]


def sine_of_a_product(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return (x * v).sin()


def merged_with_what_is_computed(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return x.sin() * x.cos() * v


def linear(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.linear(x, w, v).exp()


def kept_both_ways(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return (F.linear(x, w) * x).sin() * v.sum() + x @ w


def layer_norm(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.layer_norm(x * w.mean(0), (4,), v, v.sin())


def rms_norm(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.rms_norm(x, (4,), v) * w.sum()


def attention(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return ((x @ w).softmax(-1) * x).sum(1)


def cross_entropy(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.cross_entropy(x @ w, x.argmax(1))


def gated(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.gelu(x) @ F.gelu(w)


def power(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    made: Tensor = (v.abs() + 1) ** x
    return made


def squares(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return (x * x).relu() @ (w * w)


def on_the_way(x: Tensor, w: Tensor, v: Tensor) -> Any:
    h = (x * w.mean(0)).sin()
    return h, (h.sin() * v).cos()


PROGRAMS = [
    *(sine_of_a_product, merged_with_what_is_computed, linear, kept_both_ways, layer_norm),
    *(rms_norm, attention, cross_entropy, gated, power, squares, on_the_way),
]


def others(t: Tensor) -> Tensor:
    return torch.randn(t.shape, generator=torch.Generator().manual_seed(5))


def turned(t: Tensor) -> Tensor:
    """The same memory, where it is square."""
    return t.data.t() if t.dim() == 2 and t.shape[0] == t.shape[1] else t.data.flip(0)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "others": others,
    "turned": turned,
    "moved": lambda t: t.data.clone(),
    "float32": lambda t: t.data.float() * 2,
    "of another size": lambda t: torch.ones(2, 2),
}


def backward(made: Tensor, leaves: list[Tensor]) -> Any:
    made.sum().backward()
    return [leaf.grad for leaf in leaves]


def grad(made: Tensor, leaves: list[Tensor]) -> Any:
    return torch.autograd.grad(made.sum(), leaves, allow_unused=True)


def twice(made: Tensor, leaves: list[Tensor]) -> Any:
    first = torch.autograd.grad(made.sum(), leaves, create_graph=True, allow_unused=True)
    total = sum(g.sin().sum() for g in first if g is not None)
    return torch.autograd.grad(total, leaves, allow_unused=True)  # type: ignore[arg-type]


def outcome(
    run: Program, use: Callable[..., Any], change: str, changed: str, rows: int
) -> list[Tensor | None] | type:
    torch.manual_seed(rows)
    leaves = [torch.randn(*size).requires_grad_() for size in ((rows, 4), (4, 4), (4,))]
    made = run(*leaves)
    made = made if isinstance(made, tuple) else (made,)
    named = dict(zip("xwvh", (*leaves, made[0])))
    for name in changed:
        named[name].data = CHANGES[change](named[name])
    try:
        return [t if t is None else t.detach() for t in use(made[-1], leaves)]
    except RuntimeError as error:
        return type(error)


@pytest.mark.parametrize("use", [backward, grad, twice])
@pytest.mark.parametrize("program", PROGRAMS)
def test_formulas_read_what_eagers_read(program: Program, use: Callable[..., Any]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for rows in (4, 3, 1):
        for change in CHANGES:
            if use is not backward and change in ("float32", "of another size"):
                continue  # with all leaves, refused by one or both
            for changed in ("x", "wv", "xwv"):
                ours, theirs = (
                    outcome(each, use, change, changed, rows) for each in (fast, program)
                )
                assert_same(ours, theirs, 1e-7)
    assert not fast.stats().eager_graphs


def test_gradients_of_gradients_of_two_dtypes_are_refused() -> None:
    fast = anyshape.compile(sine_of_a_product, fullgraph=True)
    assert outcome(fast, twice, "float32", "x", 3) is RuntimeError


def test_a_weight_whose_data_are_given_away_until_backward() -> None:
    """As programs do that move weights out of the way: eager's formula keeps the memory."""
    layer, x = nn.Linear(3, 4), torch.randn(5, 3, requires_grad=True)
    weight = layer.weight.data.clone()
    y = anyshape.compile(layer, fullgraph=True)(x)
    layer.weight.data = torch.empty(0)
    layer.weight.data = torch.full((4, 3), torch.nan)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_same(gradient, weight.sum(0).expand(5, 3))


def test_memory_that_is_let_go_of_and_given_out_again_is_not_taken_for_what_it_was() -> None:
    def outcomes(run: Callable[..., Tensor]) -> Tensor:
        torch.manual_seed(0)
        x, v = torch.randn(2, 3, requires_grad=True), torch.randn(3, requires_grad=True)
        made = run(x, v)
        for _ in range(4):
            v.data = torch.randn(3)
        made.sum().backward()
        assert x.grad is not None
        return x.grad

    def program(x: Tensor, v: Tensor) -> Tensor:
        return (x * v).sin()

    assert_same(outcomes(anyshape.compile(program)), outcomes(program))


def test_weights_that_are_rounded_for_a_step_have_its_gradients() -> None:
    """As programs do that train with rounded weights: the weights are back before the backward."""

    def step(run: Callable[[Tensor], Tensor], net: nn.Module, x: Tensor) -> None:
        whole = [p.data for p in net.parameters()]
        for p in net.parameters():
            p.data = (p.data * 4).round() / 4
        loss = run(x).square().mean()
        for p, data in zip(net.parameters(), whole):
            p.data = data
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad  # type: ignore[operator]
                p.grad = None

    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
        run = anyshape.compile(net) if compiled else net
        for rows in (3, 1, 5, 2):
            step(run, net, torch.randn(rows, 4))
        found.append([p.detach() for p in net.parameters()])
    assert_same(*found, 1e-7)


def test_gradients_of_gradients_behind_data_of_another_size_are_refused() -> None:
    fast = anyshape.compile(lambda x, v: (x * v).sin(), fullgraph=True)
    x, v = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    y = fast(x, v)
    x.data = torch.ones(1)
    with pytest.raises(RuntimeError, match="replaced"):
        torch.autograd.grad(y.sum(), [v], create_graph=True)


@pytest.mark.parametrize("name", ["x", "w"])
@pytest.mark.parametrize("program", [sine_of_a_product, squares, linear])
def test_other_data_between_a_gradient_and_its_gradient_are_refused_or_eagers(
    program: Program, name: str
) -> None:
    """What ran again for the first one has kept views, where eager's formulas keep the tensor."""

    def gradients(run: Program, replaced: bool) -> Any:
        torch.manual_seed(0)
        leaves = [torch.randn(*size).requires_grad_() for size in ((3, 4), (4, 4), (4,))]
        made = run(*leaves).sum()
        first = torch.autograd.grad(made, leaves, create_graph=True, allow_unused=True)
        if replaced:
            dict(zip("xwv", leaves))[name].data = torch.ones(dict(x=(3, 4), w=(4, 4))[name])
        total = sum(g.sin().sum() for g in first if g is not None)
        try:
            return torch.autograd.grad(total, leaves, allow_unused=True)  # type: ignore[arg-type]
        except RuntimeError as error:
            return str(error)

    fast = anyshape.compile(program, fullgraph=True)
    assert_same(gradients(fast, False), gradients(program, False), 1e-7)
    ours, theirs = (gradients(run, True) for run in (fast, program))
    if isinstance(ours, str):
        assert "replaced" in ours
    else:
        assert_same(ours, theirs, 1e-7)


@pytest.mark.parametrize("use", ["dropped", "between two gradients"])
def test_other_data_of_a_result_on_the_way_are_refused(use: str) -> None:
    """Eager's formula of the second sine keeps the result, whoever has dropped it."""

    def gradient(run: Program, replaced: bool) -> Any:
        leaves = [torch.ones(*size).requires_grad_() for size in ((3, 4), (4, 4), (4,))]
        h, y = run(*leaves)
        again = use != "dropped"
        if again:
            (g,) = torch.autograd.grad(y.sum(), leaves[0], create_graph=True)
        if replaced:
            h.data = torch.full_like(h, 2.0)
        del h
        (made,) = torch.autograd.grad((g * g).sum() if again else y.sum(), leaves[0])
        return made

    fast = anyshape.compile(on_the_way, fullgraph=True)
    assert_same(gradient(fast, False), gradient(on_the_way, False), 1e-7)
    assert not torch.allclose(gradient(on_the_way, True), gradient(on_the_way, False))
    with pytest.raises(RuntimeError, match="replaced"):
        gradient(fast, True)


def test_a_result_that_another_result_alone_keeps_is_let_go_of_and_may_get_other_data() -> None:
    """The second result's formula keeps itself, and not the first one, as the third one's does."""

    def three(x: Tensor) -> Any:
        y = x.sin()
        z = y.exp()
        return y, z, (y * z).cos()

    def gradient(run: Callable[..., Any], replaced: bool, retain: bool) -> Any:
        x = torch.linspace(-1, 1, 6, requires_grad=True)
        y, z, _ = run(x)
        if replaced:
            y.data = torch.full_like(y, 2.0)
        seen = weakref.ref(y)
        del y, _
        held = seen() is not None
        z.sum().backward(retain_graph=retain)
        return x.grad, held, seen() is not None

    fast = anyshape.compile(three, fullgraph=True)
    for replaced, retain in ((False, False), (True, False), (False, True)):
        ours, theirs = (gradient(run, replaced, retain) for run in (fast, three))
        assert ours[1:] == theirs[1:] == (False, False)
        assert_same(ours[0], theirs[0], 1e-7)
    for position in (0, 1):  # the third one's formula keeps both
        results = list(fast(torch.ones(2, requires_grad=True)))
        results[position].data = torch.zeros(2)
        last = results.pop()
        del results
        with pytest.raises(RuntimeError, match="replaced"):
            last.sum().backward()
