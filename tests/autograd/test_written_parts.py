"""A view of many (`split`, `chunk`, `unbind`) is written by an operator without a derivative, or
without gradients. Autograd refuses to record it from then on; eager still reads its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

TAKEN: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "split": lambda x: torch.split(x.flatten(), 2),
    "chunk": lambda x: x.chunk(2),
    "unbind": lambda x: x.unbind(),
    "of what is made": lambda x: torch.split((x * 2).flatten(), 2),
    "a view of one": lambda x: (x.flatten()[:2],) * 2,
    "a leaf": lambda x: (x, x),
}


def _without_gradients(t: Tensor) -> None:
    with torch.no_grad():
        t.zero_()


WRITTEN: dict[str, Callable[[Tensor], Any]] = {
    "logical_not_": lambda t: t.logical_not_(),
    "logical_and_": lambda t: t.logical_and_(t),
    "eq_": lambda t: t.eq_(0.0),
    "lt_": lambda t: t.lt_(0.5),
    "sign_": lambda t: t.sign_(),
    "detached": lambda t: t.detach().logical_not_(),
    "without gradients": _without_gradients,
}
READ: dict[str, Callable[[Tensor], Any]] = {
    "tolist": lambda t: t.tolist(),
    "largest": lambda t: max(t.detach().flatten().tolist()),
    "tensor": torch.tensor,
    "argmax": torch.argmax,
    "item": lambda t: t[:1].sum().item(),
    "a comparison": lambda t: t > 0,
    "any": lambda t: bool(t.any()),
    "a sum": torch.sum,
    "nonzero": torch.nonzero,
    "long": lambda t: t.long(),
    "zeros_like": torch.zeros_like,
    "equal": lambda t: torch.equal(t, t),
    "version": lambda t: (t._version, t.shape, t.stride()),
}
REFUSED = re.compile(r"modified inplace|leaf Variable that requires grad")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("taken", TAKEN)
def test_what_was_written_is_read_or_refused_as_in_eager(
    taken: str, written: str, read: str
) -> None:
    def function(x: Tensor) -> Any:
        parts = TAKEN[taken](x)
        WRITTEN[written](parts[0])
        return READ[read](parts[0]), READ[read](parts[1])

    fast = anyshape.compile(function)
    for shape in ((2, 5), (4, 2)):
        assert _outcome(fast, shape) == _outcome(function, shape)


def _outcome(function: Callable[[Tensor], Any], shape: tuple[int, int]) -> str:
    x = torch.linspace(-1, 2, 10)[: shape[0] * shape[1]].view(shape).clone().requires_grad_()
    try:
        read = function(x)
    except RuntimeError as error:
        assert REFUSED.search(str(error))
        return f"refused {x.tolist()} {x._version > 0}"
    kept = re.sub(r"grad_fn=<\w+>", "grad_fn", repr(read))
    return f"{kept} {x.tolist()} {x._version > 0}"


def _cross_attention() -> tuple[torch.nn.Module, Callable[[Tensor], Tensor]]:
    """Its weights are split where keys and values are one tensor, and queries another one."""
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    optimizer = torch.optim.AdamW(layer.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        made = layer(x[:, :1], x, x)[0]
        loss: Tensor = (made - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return layer, step


def _split_anew() -> tuple[torch.nn.Module, Callable[[Tensor], Tensor]]:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 6, bias=False, dtype=torch.float64)

    def step(x: Tensor) -> Tensor:
        losses = []
        for _ in range(2):
            a, b = layer.weight.split([2, 4])
            losses.append((x @ a.t()).sum() * (x @ b.t()).sin().sum())
            (g,) = torch.autograd.grad(losses[-1], layer.weight)
            with torch.no_grad():
                layer.weight.sub_(0.01 * g)
        return torch.stack([loss.detach() for loss in losses])

    return layer, step


@pytest.mark.parametrize("make", [_cross_attention, _split_anew])
def test_a_step_writes_what_it_has_divided_and_does_not_use_any_more(
    make: Callable[[], tuple[torch.nn.Module, Callable[[Tensor], Tensor]]],
) -> None:
    found = []
    for compiled in (True, False):
        layer, step = make()
        run = anyshape.compile(step, fullgraph=True) if compiled else step
        batches = (torch.randn(n, n, 4, dtype=torch.float64) for n in (3, 2, 5, 4))
        torch.manual_seed(1)
        found.append([run(x).clone() for x in batches])
        found[-1] += [t for p in layer.parameters() for t in (p.detach(), torch.tensor(p._version))]
        if compiled:
            assert not run.stats().eager_graphs  # type: ignore[attr-defined]
    torch.testing.assert_close(*found)


def added(x: Tensor) -> Tensor:
    y = x * 2
    y.split(2)[1].add_(1)
    return y


def emptied(x: Tensor) -> Tensor:
    y = x * 2
    y.chunk(2)[0].zero_()
    return y.detach()


def written_deeper(x: Tensor) -> Tensor:
    y = x * 2
    y.unbind(0)[0][0].zero_()
    return y


def made_without_gradients(x: Tensor) -> Tensor:
    y = x.detach() * 2
    y.split(2)[0].mul_(x[:2])
    return y


def iterated(x: Tensor) -> Tensor:
    y = x * 2
    for row in y:
        row.add_(1)
    return y


def unpacked(x: Tensor) -> Tensor:
    y = x * 2
    first, *_ = y
    return first.mul_(3)


WRITES = [added, emptied, written_deeper, made_without_gradients, iterated, unpacked]


@pytest.mark.parametrize("program", WRITES)
def test_a_write_to_a_part_is_refused_at_once(program: Any) -> None:
    """Whether anybody uses the part behind it or not."""
    fast = anyshape.compile(program)
    for rows in (4, 6):
        x = torch.ones(rows, 3, requires_grad=True)
        with pytest.raises(RuntimeError) as expected:
            program(x)
        with pytest.raises(RuntimeError, match="being modified inplace") as raised:
            fast(x)
        assert str(raised.value) == str(expected.value)


def test_zeros_without_memory_are_cotangents() -> None:
    """Of `abs` and `sign` autograd makes such: they ended the process."""
    fast = anyshape.compile(lambda x: x.exp())
    x = torch.randn(4, requires_grad=True)
    y = fast(x)
    (gradient,) = torch.autograd.grad(y.abs().sum(), y, create_graph=True)
    gradient.sum().backward()
    assert torch.equal(x.grad, torch.zeros(4))


def test_a_gradient_of_zeros_without_memory_is_read() -> None:
    """Eager puts such into `.grad`, where a compiled step finds it."""

    @anyshape.compile
    def step(x: Tensor, gradient: Tensor) -> Tensor:
        return x - gradient * 0.1

    x = torch.randn(4, requires_grad=True)
    for turn in range(3):
        x.grad = torch.ones(4) if turn == 0 else None
        if turn:
            (gradient,) = torch.autograd.grad(x.abs().sum(), x, create_graph=True)
            gradient.sum().backward()
            assert x.grad._is_zerotensor()
        with torch.no_grad():
            assert torch.equal(step(x.detach(), x.grad), x - x.grad * 0.1)


def test_what_is_written_through_a_piece_that_autograd_does_not_know() -> None:
    """Of `unsafe_split`: the gradient of what was split is that of what was there before."""

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        first, second = y.unsafe_split(2)
        first.mul_(3)
        return first * second, y * y

    fast = anyshape.compile(program)
    x = torch.arange(12.0).reshape(4, 3).requires_grad_()
    found, wanted = (
        torch.autograd.grad([made.sum() for made in f(x)], x)[0] for f in (fast, program)
    )
    torch.testing.assert_close(found, wanted)


UNKNOWN_WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "to what was split": lambda b, p, w: b.mul_(2),
    "to a view of it": lambda b, p, w: b[0].mul_(w[0]),
    "not recorded, through the piece": lambda b, p, w: p.detach().mul_(3),
}


@pytest.mark.parametrize("own", [False, True], ids=["", "its own backward"])
@pytest.mark.parametrize("differentiated", [True, False])
@pytest.mark.parametrize("write", UNKNOWN_WRITES)
def test_what_unsafe_split_divided_is_written_by_another_name(
    write: str, differentiated: bool, own: bool
) -> None:
    """Autograd takes pieces for new memory: their gradients, and what formulas that keep one read,
    are eager's."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        b = x * 1 if differentiated else x.detach() * 1
        p, _ = torch.unsafe_split(b, 2) if own else torch.unsafe_chunk(b, 2)
        before = 0 if own else (p * w).sum()
        UNKNOWN_WRITES[write](b, p, w)
        loss = before + (p * p * w).sum() + (x * b).sum()
        if own:
            loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def gradients(run: Any) -> Any:
        x = torch.arange(1.0, 13.0).reshape(4, 3).requires_grad_()
        w = torch.ones(3, requires_grad=True)
        try:
            loss = run(x, w)
            if not own:
                loss.backward()
        except RuntimeError as error:
            return str(error)[:60]
        return loss.detach(), x.grad, w.grad

    ours, theirs = gradients(anyshape.compile(program)), gradients(program)
    assert isinstance(ours, str) == isinstance(theirs, str)
    if isinstance(theirs, str):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, theirs)
