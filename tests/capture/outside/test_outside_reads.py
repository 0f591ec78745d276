"""What lies outside and is reached in an unusual way: weak references, dicts with an own lookup."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import anyshape
from tests.capture.by_reference import compiled, same

STRICT = {"fullgraph": True, "options": {"fallback": "error"}}


def test_a_weak_reference_is_read_and_guarded_by_its_target() -> None:
    class Owner:
        def __init__(self, factor: float) -> None:
            self.factor = factor

    owners = [Owner(2.0), Owner(3.0)]

    def program(x: torch.Tensor, ref: object) -> torch.Tensor:
        owner = ref()
        return x if owner is None else x * owner.factor

    fast = anyshape.compile(program, **STRICT)
    refs = [weakref.ref(owner) for owner in owners]
    assert fast(torch.ones(2), refs[0]).tolist() == [2.0, 2.0]
    assert fast(torch.ones(3), refs[1]).tolist() == [3.0, 3.0, 3.0]
    owners.clear()
    assert fast(torch.ones(1), refs[0]).tolist() == [1.0]


def test_a_weak_reference_to_what_has_no_hash_is_read() -> None:
    numbers = OrderedDict(a=2.0)
    ref = weakref.ref(numbers)
    fast = anyshape.compile(lambda x: x * ref()["a"], **STRICT)
    assert fast(torch.ones(2)).tolist() == [2.0, 2.0]
    numbers["a"] = 3.0
    assert fast(torch.ones(1)).tolist() == [3.0]


@pytest.mark.filterwarnings("error::anyshape.errors.AnyshapeWarning")
def test_constants_and_methods_of_pybind11_classes_are_read() -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        key = torch.DispatchKey.PreDispatch
        return x + 1, key.name, key == torch.DispatchKey.CPU, hasattr(torch.DispatchKey, "nothing")

    fast = anyshape.compile(program)
    for size in (3, 1, 0):
        same(fast(torch.ones(size)), program(torch.ones(size)))


def test_recurrent_layers_are_one_graph() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(8, 4, batch_first=True, bidirectional=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0]

    tagger = Tagger()
    fast = anyshape.compile(tagger, fullgraph=True)
    with torch.no_grad():
        for batch, length in ((2, 7), (1, 1), (3, 17), (1, 3)):
            x = torch.randn(batch, length, 8)
            torch.testing.assert_close(fast(x), tagger(x))
    assert fast.stats().specializations == 1


class Maker(OrderedDict):
    """Makes an object of the class that lies under the key."""

    def __getitem__(self, key: str) -> object:
        return super().__getitem__(key)()


MAKERS = Maker(gelu=nn.GELU, relu=nn.ReLU)


def test_a_dict_with_an_own_lookup_is_guarded_by_what_lies_in_it() -> None:
    def program(x: torch.Tensor, name: str) -> torch.Tensor:
        return MAKERS[name](x)

    fast = anyshape.compile(program, **STRICT)
    x = torch.tensor([-1.0, 2.0])
    torch.testing.assert_close(fast(x, "gelu"), nn.functional.gelu(x))
    torch.testing.assert_close(fast(x, "relu"), x.relu())
    MAKERS["gelu"] = nn.Sigmoid
    try:
        torch.testing.assert_close(fast(x, "gelu"), x.sigmoid())
    finally:
        MAKERS["gelu"] = nn.GELU


def test_label_smoothing_knows_no_number_of_classes() -> None:
    fast = anyshape.compile(
        lambda x, y: nn.functional.cross_entropy(x, y, label_smoothing=0.1), **STRICT
    )
    for rows, classes in ((3, 5), (1, 1), (17, 2)):
        x, y = torch.randn(rows, classes), torch.randint(0, classes, (rows,))
        torch.testing.assert_close(
            fast(x, y), nn.functional.cross_entropy(x, y, label_smoothing=0.1)
        )
    assert fast.stats().specializations == 1


def by_items(x: torch.Tensor, table: dict[str, Any]) -> Any:
    return {key: value for key, value in table.items()}, list(table.values())


def by_a_view_across_a_break(x: torch.Tensor, table: dict[str, Any]) -> Any:
    view = table.items()
    total = float(x.sum().numpy())
    table["c"] = x + 1
    return list(view), total


def by_a_view_on_the_stack(x: torch.Tensor, table: dict[str, Any]) -> Any:
    return [value for value in (table.values(), x.sum().numpy())[0]]


def by_a_view_of_what_was_made_here(x: torch.Tensor, table: dict[str, Any]) -> Any:
    made = {"x": x * 2}
    view = made.keys()
    total = float(x.sum().numpy())
    made["y"] = x
    return list(view), made, total


def by_copies(x: torch.Tensor, table: dict[str, Any]) -> Any:
    nested = table["b"]
    return nested.copy(), nested + [1], [*nested], nested[::-1], list(reversed(nested)), table | {}


@pytest.mark.parametrize(
    "program",
    [
        by_items,
        by_a_view_across_a_break,
        by_a_view_on_the_stack,
        by_a_view_of_what_was_made_here,
        by_copies,
    ],
)
def test_tensors_in_containers_in_containers_are_those_of_this_call(
    program: Callable[..., Any],
) -> None:
    fast = compiled(program, fullgraph=False)
    for count in (3, 1, 2, 0, 5):
        x = torch.arange(float(count))
        found, expected = ({"a": x, "b": [x, (x * 2, 2)]} for _ in range(2))
        same(fast(x, found), program(x, expected))
        same(found, expected)
