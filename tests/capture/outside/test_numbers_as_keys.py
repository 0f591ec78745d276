"""What lies in an outside container at a number that each call reads is read anew with it: one
specialization for all numbers, and what eager gives for each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape

pytestmark = pytest.mark.filterwarnings("ignore")
ENOUGH = 3  # specializations: of the first value, of any number, of any numbers beside it


class Box:
    def __init__(self, value: float) -> None:
        self.value = value
        self.reads = 0
        self.tensor = torch.full((3,), value)


def boxes(count: int = 6) -> list[Box]:
    return [Box(float(i + 1)) for i in range(count)]


def use(x: Tensor, container: Any, key: int) -> Tensor:
    box = container[key]
    box.reads = box.reads + 1
    return x * box.tensor + box.value


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (LookupError, TypeError) as error:
        return type(error), str(error)


def agrees(fast: Any, function: Callable[..., Any], container: Any, key: Any) -> None:
    """Same result or error, and the same counts in the container afterwards."""
    x, twin = torch.randn(3), copy.deepcopy(container)
    found, wanted = outcome(fast, x, container, key), outcome(function, x, twin, key)
    if isinstance(wanted, Tensor):
        torch.testing.assert_close(found, wanted)
    else:
        assert found == wanted
    pairs = zip(values(container), values(twin), strict=True)
    assert all(vars(a).get("reads") == vars(b).get("reads") for a, b in pairs)


def values(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


@pytest.mark.parametrize("make", [list, tuple, lambda b: dict(enumerate(b))])
def test_one_specialization_reads_every_element(make: Callable[[list[Box]], Any]) -> None:
    fast, container = anyshape.compile(use), make(boxes())
    for key in (0, 1, 2, 3, 4, 5, 2, 0):
        agrees(fast, use, container, key)
    assert fast.stats().specializations <= ENOUGH


@pytest.mark.parametrize("make", [list, tuple, lambda b: dict(enumerate(b))])
def test_keys_that_lie_elsewhere_or_nowhere(make: Callable[[list[Box]], Any]) -> None:
    fast, container = anyshape.compile(use), make(boxes())
    for key in (0, 1, 2, 3, -1, -6, -7, 6, 100, True, 3, 1.5, None):
        agrees(fast, use, container, key)


def test_a_container_that_changes_between_calls() -> None:
    class Other(Box):
        def __init__(self, value: float) -> None:
            super().__init__(value)
            self.tensor = self.tensor * 7

    fast, container = anyshape.compile(use), boxes()
    for key in (0, 1, 2, 3):
        agrees(fast, use, container, key)
    container[2] = Box(50.0)
    agrees(fast, use, container, 2)
    container[2] = Other(60.0)
    agrees(fast, use, container, 2)
    agrees(fast, use, container, 1)
    container.insert(0, Box(70.0))
    agrees(fast, use, container, 2)
    del container[3:]
    for key in (2, 3, -3):
        agrees(fast, use, container, key)


def test_one_object_under_two_keys() -> None:
    def both(x: Tensor, container: Any, key: int) -> Tensor:
        first, found = container[0], container[key]
        first.reads = first.reads + 10
        found.reads = found.reads + 1
        return x * found.reads + first.reads

    fast, container = anyshape.compile(both), boxes()
    for key in (1, 2, 3, 0, 4, 0, 2):
        agrees(fast, both, container, key)
    container[5] = container[0]
    agrees(fast, both, container, 5)


def test_two_numbers_that_are_one() -> None:
    def both(x: Tensor, container: Any, keys: tuple[int, int]) -> Tensor:
        one, other = container[keys[0]], container[keys[1]]
        one.reads = one.reads + 10
        other.reads = other.reads + 1
        return x * one.reads + other.reads

    fast, container = anyshape.compile(both), boxes()
    for keys in ((0, 1), (1, 2), (2, 3), (3, 3), (4, 1), (2, 2)):
        agrees(fast, both, container, keys)


def test_a_container_that_was_written_to_before() -> None:
    def stored(x: Tensor, container: Any, key: int) -> Tensor:
        container[1] = container[2]
        return use(x, container, key)

    def appended(x: Tensor, container: Any, key: int) -> Tensor:
        container.append(container[0])
        return use(x, container, key)

    for function in (stored, appended):
        fast = anyshape.compile(function)
        for key in (0, 1, 2, 3, 6, -1, 1):
            agrees(fast, function, boxes(), key)


class Picks(nn.Module):
    """Takes its weight by a number of its own, which it counts on."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = [nn.Parameter(torch.full((3,), i + 1.0)) for i in range(count)]
        self.boxes = boxes(count)
        self.at = 0

    def forward(self, x: Tensor) -> Tensor:
        box = self.boxes[self.at]
        y = x * self.weights[self.at] + box.value
        self.at = (self.at + 1) % 5
        box.reads = self.at
        return y


def test_a_number_that_the_program_counts_on() -> None:
    model, twin = Picks(6), Picks(6)
    fast, x = anyshape.compile(model), torch.randn(3)
    with torch.no_grad():
        for _ in range(12):
            torch.testing.assert_close(fast(x), twin(x))
            assert model.at == twin.at
            assert [b.reads for b in model.boxes] == [b.reads for b in twin.boxes]
    before = fast.stats().specializations
    assert before <= 2, fast.recompiles()
    model.at = twin.at = 4
    model.boxes[4], twin.boxes[4] = Box(80.0), Box(80.0)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), twin(x))
    assert fast.stats().specializations <= before + 1


class Looks(nn.Module):
    """Reads a number in a table, beside so many others that guards go by dictionaries' versions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {i: float(i * i) for i in range(6)}
        self.at = 0
        for i in range(90):
            setattr(self, f"number{i}", i)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table[self.at] + sum(getattr(self, f"number{i}") for i in range(90))


def test_an_entry_that_a_number_chooses_is_not_told_by_the_version_of_its_dictionary() -> None:
    model = Looks()
    fast, x = anyshape.compile(model), torch.randn(3)
    for at in (0, 1, 2, 3, 4, 5, 3, 1, 0):
        model.at = at
        torch.testing.assert_close(fast(x), model(x))


def test_what_is_given_back_is_what_lies_there() -> None:
    def given(x: Tensor, container: Any, key: int) -> tuple[Tensor, Any]:
        return x + 1, container[key]

    for container in (boxes(), [f"text {i // 2}" for i in range(6)], [[i] for i in range(6)]):
        fast = anyshape.compile(given)
        for key in (0, 1, 2, 3, 4, 5, 1):
            assert fast(torch.ones(2), container, key)[1] is container[key]


def test_modules_by_number() -> None:
    def call(x: Tensor, layers: list[nn.Module], key: int) -> Tensor:
        return layers[key](x).relu()

    layers = [nn.Linear(3, 3) for _ in range(4)]
    layers.append(nn.Tanh())
    fast = anyshape.compile(call)
    with torch.no_grad():
        for key in (0, 1, 2, 3, 4, 0, 2):
            x = torch.randn(2, 3)
            torch.testing.assert_close(fast(x, layers, key), call(x, layers, key))
