"""Which of two tensors there is, where data decides: both are computed, one is chosen, and what is
handed out is the tensor that eager has there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.capture.by_reference import agree, compiled

LOW, HIGH = torch.full((2, 3), -0.5), torch.full((4, 5), 0.5)
MIXED = torch.linspace(-1, 2, 12).reshape(3, 4)
CALLS = [(LOW,), (HIGH,), (MIXED,), (-MIXED,)]


def scaled_where_large(x: Tensor) -> Tensor:
    norm = x.norm()
    if norm > 1:
        x = x * (1 / norm)
    return x + 1


def of_each_side(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x.relu()
    return x.tanh() - 1


def in_a_dict(x: Tensor) -> dict[str, Any]:
    found = {"loss": x.sum()}
    if x.max() > 1:
        found = {"loss": x.mean(), "kept": x * 2}
    else:
        found = {"loss": x.sum() * 0, "kept": x}
    return list(found.values())


def nested(x: Tensor) -> Tensor:
    a, b = x.sum() > 0, x.max() > 1
    if a and b:
        return x + 1
    if a or b:
        return x * 2
    return x - 1


def written_behind(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.relu() if x.sum() > 0 else x.tanh() - 1
    y.add_(1)
    return y, y.view(-1)


def none_of_it(x: Tensor) -> Tensor:
    found = x[x > 0]
    if found.numel() == 0:
        loss = x.sum() * 0
    else:
        loss = found.mean() - 1
    return loss


def stored_on_each_side(x: Tensor) -> list[Any]:
    losses: dict[str, Any] = {"all": x.amax()}
    found = x[x > 0]
    if found.numel() == 0:
        losses["kept"] = x.amax() * 0
    else:
        losses["kept"] = found.sum() - 1
    return [*losses, *losses.values()]


def stored_on_one_side(x: Tensor) -> list[Any]:
    kept, shown = {"a": x, "b": 1}, [x, x + 1]
    both = [kept, shown]
    if x.sum() > 0:
        kept["a"] = x * 2
    else:
        shown[1] = x
    if x.max() > 1:
        kept["b"] += 1
    assert both[0] is kept and both[1] is shown
    return [*kept.values(), *shown]


class State:
    def __init__(self, x: Tensor) -> None:
        self.x, self.count = x, 0


def stored_in_an_object(x: Tensor) -> list[Any]:
    state = State(x)
    if x.sum() > 0:
        state.x = x * 2
        state.count += 1
    return [state.x + 1, state.count]


ONE_GRAPH = [
    *(scaled_where_large, of_each_side, in_a_dict, nested, written_behind, none_of_it),
    *(stored_on_each_side, stored_on_one_side, stored_in_an_object),
]


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda program: program.__name__)
def test_one_of_two_tensors_is_chosen_in_one_graph(program: Callable[..., Any]) -> None:
    agree(program, *CALLS)


# ---- what is handed out --------------------------------------------------------------------------
def itself_or_new(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    return x


def one_of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    return y, x if x.sum() > 0 else y


def view_or_new(x: Tensor) -> Tensor:
    flat = x.view(-1)
    if x.sum() > 0:
        flat = flat + 1
    return flat


def test_what_was_handed_in_is_handed_out_as_the_object_that_it_is() -> None:
    fast = compiled(itself_or_new)
    for given in (LOW, HIGH, -MIXED):
        made = fast(given)
        assert (made is given) == (given.sum() <= 0)
        assert torch.equal(made, itself_or_new(given))
    fast = compiled(one_of_two)
    for given in (LOW, HIGH, -MIXED):
        y, chosen = fast(given)
        assert chosen is (given if given.sum() > 0 else y)


def test_a_view_is_a_view_where_its_side_is_taken() -> None:
    fast = compiled(view_or_new)
    assert fast(LOW)._base is LOW
    assert fast(HIGH)._base is None


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.last = x
        return x + self.last


def test_an_attribute_holds_the_object_of_the_side_that_is_taken() -> None:
    module = Cache()
    first, fast = module.last, anyshape.compile(module, fullgraph=True)
    fast(LOW)
    assert module.last is first
    given = -LOW
    assert torch.equal(fast(given), given * 2)
    assert module.last is given


# ---- what would be seen --------------------------------------------------------------------------
def compared(x: Tensor) -> tuple[bool, Tensor]:
    y = x
    if x.sum() > 0:
        y = x * 2
    return y is x, y


def as_a_key(x: Tensor) -> int:
    y = x
    if x.sum() > 0:
        y = x * 2
    return {x: 1, y: 2}[x]


def written_through(x: Tensor) -> Tensor:
    x = x.clone()
    y = x
    if x.sum() > 0:
        y = x * 2
    y.add_(1)
    return x


def written_under(x: Tensor) -> Tensor:
    x = x.clone()
    y = x
    if x.sum() > 0:
        y = x * 2
    x.add_(1)
    return y * 1


def view_of_what_may_be_an_argument(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    return x.view(-1)


def both_visible(x: Tensor) -> tuple[Tensor, Tensor]:
    old = x + 1
    y = old if x.sum() > 0 else x * 2
    return old, y[0]


def counted(x: Tensor) -> int:
    y = x.clone().mul_(2) if x.sum() > 0 else x * 3
    return y


def older_or_new(x: Tensor) -> tuple[Tensor, Tensor]:
    old = x.clone()
    return old, old if x.sum() > 0 else x * 2


def marked_as_a_leaf(x: Tensor) -> bool:
    old, chosen = older_or_new(x)
    old.requires_grad_()
    return chosen.requires_grad


def leaf_of_two(x: Tensor) -> bool:
    old, chosen = older_or_new(x)
    chosen.requires_grad_()
    return old.requires_grad


def named(x: Tensor) -> str:
    old, chosen = older_or_new(x)
    old.tag = "old"
    return getattr(chosen, "tag", "new")


def names_of_two(x: Tensor) -> str:
    old, chosen = older_or_new(x)
    chosen.tag = "chosen"
    return getattr(old, "tag", "")


def address(x: Tensor) -> tuple[int, bool]:
    row = x[1]
    chosen = row if x.sum() > 0 else row * 2
    return chosen.storage_offset(), chosen._base is None


def viewing(x: Tensor) -> bool:
    row = x[1]
    chosen = row if x.sum() > 0 else row * 2
    return chosen._is_view()


def base_of_a_view(x: Tensor) -> tuple[bool, bool]:
    row = x * 1
    chosen = row if x.sum() > 0 else row[:1]
    part = chosen[:1]
    return part._base is row, part._is_view()


MARKED = [marked_as_a_leaf, leaf_of_two, named, names_of_two, address]

SEEN = [
    *(*MARKED, viewing, base_of_a_view, compared, as_a_key),
    *(written_through, written_under, both_visible),
]


@pytest.mark.parametrize("program", SEEN, ids=lambda program: program.__name__)
def test_what_could_be_told_from_the_tensor_itself_is_not_joined(
    program: Callable[..., Any],
) -> None:
    agree(program, *CALLS, *CALLS, fullgraph=False)


def test_views_and_versions_of_what_is_chosen_are_eagers() -> None:
    fast = compiled(view_of_what_may_be_an_argument, fullgraph=False)
    for given in (LOW, HIGH, LOW):
        assert fast(given)._base is view_of_what_may_be_an_argument(given)._base or given is HIGH
    fast = compiled(both_visible, fullgraph=False)
    for given in (LOW, HIGH):
        old, row = fast(given)
        assert (row._base is old) == (given is HIGH)
    fast = compiled(counted, fullgraph=False)
    for given in (LOW, HIGH):
        assert fast(given)._version == counted(given)._version


# ---- what is not chosen --------------------------------------------------------------------------
def other_shapes(x: Tensor) -> Tensor:
    return x[:1] if x.sum() > 0 else x + 1


def other_dtypes(x: Tensor) -> Tensor:
    return x > 0 if x.sum() > 0 else x + 1


def other_strides(x: Tensor) -> Tensor:
    return (x + 1).t() if x.sum() > 0 else x.t().contiguous()


def with_gradients(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    y = x * 2 if x.sum() > 0 else x.exp()
    y.sum().backward()
    return x.grad


def products(x: Tensor) -> Tensor:
    return x @ x.t() if x.sum() > 0 else x @ x.t() + 1


def other_keys(x: Tensor) -> list[Any]:
    found = {"a": x}
    if x.sum() > 0:
        found["b"] = x * 2
    return [*found, *found.values()]


def other_lengths(x: Tensor) -> list[Any]:
    found = [x]
    if x.sum() > 0:
        found.append(x * 2)
    return found


OTHERS = [
    other_keys,
    other_lengths,
    other_shapes,
    other_dtypes,
    other_strides,
    with_gradients,
    products,
]


@pytest.mark.parametrize("program", OTHERS, ids=lambda program: program.__name__)
def test_tensors_of_other_kinds_are_those_of_the_side_that_is_taken(
    program: Callable[..., Any],
) -> None:
    agree(program, *CALLS, *CALLS, fullgraph=False)
