"""`x.unsqueeze_(0)` and its like: the very object is a view of what it was, in one graph where it
was made inside, with its version counter and whoever else lies in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor], Any]


def seen_by_an_alias(x: Tensor) -> Any:
    y = x * 2
    z = y
    y.t_().mul_(3)
    z.unsqueeze_(0)
    row = y[:1]
    row.add_(1)
    return y is z, y, row, z.shape


def kept_in_containers(x: Tensor) -> Any:
    y = x + 1
    kept, names = [y], {y: "y"}
    y.unsqueeze_(-1).squeeze_(-1)
    return kept[0].shape, names[y], y in names, kept[0] is y, y


def padded(rows: list[Tensor]) -> Tensor:
    width = max(row.shape[-1] for row in rows)
    made = [torch.nn.functional.pad(row, (0, width - row.shape[-1])) for row in rows]
    for row in made:
        row.unsqueeze_(0)
    return torch.cat(made)


def with_gradients_beside_it(x: Tensor) -> Any:
    weight = torch.ones(x.shape[-1], requires_grad=True)
    mask = x > 0
    mask.unsqueeze_(1)
    loss = ((x * weight).unsqueeze(1) * mask).sum()
    return torch.autograd.grad(loss, weight)[0].clone(), mask


PROGRAMS: dict[str, Program] = {
    "unsqueeze_": lambda x: (x * 2).unsqueeze_(1),
    "squeeze_": lambda x: (x * 2).unsqueeze_(0).squeeze_(0),
    "squeeze_ of several": lambda x: x.new_ones(1, 3, 1).squeeze_((0, 2)),
    "t_": lambda x: (x + 1).t_(),
    "transpose_": lambda x: (x + 1).transpose_(-1, 0),
    "swapaxes_": lambda x: (x + 1).swapaxes_(0, 1),
    "swapdims_": lambda x: (x + 1).swapdims_(0, 1),
    "as_strided_": lambda x: x.new_ones(x.shape[0] + 2, 4).as_strided_((2, 2), (1, 2), 1),
    "torch.as_strided_": lambda x: torch.as_strided_(x.new_ones(6), (2, 2), (1, 2), 1),
    "seen by an alias": seen_by_an_alias,
    "kept in containers": kept_in_containers,
    "padded": lambda x: padded([x.new_ones(2), x.reshape(-1)]),
    "beside gradients": with_gradients_beside_it,
    "not a view": lambda x: [y := x * 2, y.unsqueeze_(0), y._is_view(), y._base is None],
}


def described(made: Any) -> Any:
    if isinstance(made, (list, tuple)):
        return [described(part) for part in made]
    if not isinstance(made, Tensor):
        return made
    strides = [s for n, s in zip(made.shape, made.stride(), strict=True) if n > 1]
    facts = made.dtype, made.shape, strides * bool(made.numel()), made._version, made._is_view()
    return *facts, made.requires_grad, made.tolist()


def in_one_memory(made: Any) -> list[bool]:
    tensors = [part for part in made if isinstance(part, Tensor)] if isinstance(made, tuple) else []
    return [torch._C._is_alias_of(a, b) for a in tensors for b in tensors]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tensor_made_inside_becomes_the_view_in_one_graph(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 2, 0, 7):
        x = torch.randn(rows, 4)
        made, expected = fast(x), program(x)
        assert described(made) == described(expected)
        assert in_one_memory(made) == in_one_memory(expected)
    assert fast.stats().specializations == 1


@pytest.mark.parametrize("mode", (torch.no_grad, torch.inference_mode))
def test_modes_without_gradients(mode: Any) -> None:
    def program(x: Tensor) -> Tensor:
        return (x * 2).unsqueeze_(0).add_(1)

    fast = anyshape.compile(program, fullgraph=True)
    with mode():
        for rows in (3, 1, 0):
            x = torch.randn(rows, 4)
            assert torch.equal(fast(x), program(x))


def of_an_argument(x: Tensor) -> Any:
    y = x
    x.unsqueeze_(0)
    return y.shape, y * 2


def of_a_view_of_an_argument(x: Tensor) -> Any:
    y = x[:2]
    y.t_()
    return y.shape, y * 2, x * 2


def of_a_view(x: Tensor) -> Any:
    y = x * 2
    part = y[..., 1:]
    part.transpose_(0, 1).add_(1)
    return y, part, part._is_view()


def beside_a_view(x: Tensor) -> Any:
    y = x * 2
    row = y[:1]
    y.t_().mul_(3)
    row.add_(1)
    return y, row, row._base is y


def that_is_a_leaf_beside_a_view(x: Tensor) -> Any:
    y = x * 2
    row = y[:1]
    y.unsqueeze_(0)
    y.requires_grad_()
    try:
        row.add_(1)
    except RuntimeError as error:
        return str(error), row._base is y
    return y


def of_windows(x: Tensor) -> Any:
    return (x * 2).unfold(1, 2, 1).transpose_(0, 2)


def of_what_is_broadcast(x: Tensor) -> Any:
    y = (x.sum(0) * 2).expand(3, 4)
    return y.t_(), y.stride()


def on_one_side(x: Tensor) -> Any:
    y = x * 2
    if x.shape[0] > 2:
        y.unsqueeze_(0)
    return y


def on_a_side_that_data_decides(x: Tensor) -> Any:
    y = x * 2
    if x.sum() > 0:
        y.t_()
    return y


def with_gradients(x: Tensor) -> Any:
    weight = torch.ones(4, requires_grad=True)
    y = x * weight
    y.unsqueeze_(0)
    return y, y.sum().backward(), weight.grad


def saved_before(x: Tensor) -> Any:
    weight = torch.ones(4, requires_grad=True)
    y = x + 1
    z = y * weight
    y.unsqueeze_(0)
    try:
        z.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return weight.grad


LEFT = {
    f.__name__: f
    for f in (
        of_an_argument,
        of_a_view_of_an_argument,
        of_a_view,
        beside_a_view,
        that_is_a_leaf_beside_a_view,
        of_windows,
        of_what_is_broadcast,
        on_one_side,
        on_a_side_that_data_decides,
        with_gradients,
        saved_before,
    )
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.filterwarnings("ignore")
def test_what_is_left_to_eager_or_guarded_is_as_in_eager(name: str) -> None:
    program = LEFT[name]
    fast = anyshape.compile(program)
    for rows in (3, 1, 2, 0, 7):
        for sign in (1, -1):
            x = torch.rand(rows, 4) * sign
            given, beside = x.clone(), x.clone()
            assert described(fast(given)) == described(program(beside))
            assert described(given) == described(beside)
    assert not fast.stats().internal_errors


def test_the_count_of_a_write_costs_no_kernel() -> None:
    fast = anyshape.compile(lambda x: (x * 2).unsqueeze_(0).transpose_(1, 2) + 1)
    plain = anyshape.compile(lambda x: (x * 2).unsqueeze(0).transpose(1, 2) + 1)
    x = torch.randn(5, 4)
    assert torch.equal(fast(x), plain(x))
    assert fast.stats().launches == plain.stats().launches
