"""What the program does not find is relied on too: a name that appears later shadows another."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape

Case = tuple[Callable[[Tensor], Tensor], Callable[[], object]]


class Base:
    scale = 2.0

    def factor(self) -> float:
        return 3.0


class Slotted:
    __slots__ = ("late",)


class Hooked:
    def __getattr__(self, name: str) -> float:
        return 2.0


class Net(nn.Module):
    scale = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def activate(self, x: Tensor) -> Tensor:
        return x.sigmoid()  # never 0, which no factor changes

    def forward(self, x: Tensor) -> Tensor:
        return self.activate(self.inner(x)) * self.scale * getattr(self, "extra", 1.0)


def class_attribute() -> Case:
    thing = Base()
    return lambda x: x * thing.scale, lambda: setattr(thing, "scale", 8.0)


def method() -> Case:
    thing = Base()
    return lambda x: x * thing.factor(), lambda: setattr(thing, "factor", lambda: 8.0)


def inherited_attribute() -> Case:
    derived = type("Derived", (Base,), {})
    thing = derived()
    return lambda x: x * thing.scale, lambda: setattr(derived, "scale", 8.0)


def inherited_method() -> Case:
    derived = type("Derived", (Base,), {})
    thing = derived()
    return lambda x: x * thing.factor(), lambda: setattr(derived, "factor", lambda self: 8.0)


def hasattr_of_nothing() -> Case:
    thing = Base()
    return (
        lambda x: x * (2.0 if hasattr(thing, "late") else 1.0),
        lambda: setattr(thing, "late", 1),
    )


def default_of_getattr() -> Case:
    thing = types.SimpleNamespace()
    return lambda x: x * getattr(thing, "late", 1.0), lambda: setattr(thing, "late", 8.0)


def empty_slot() -> Case:
    thing = Slotted()
    return lambda x: x * getattr(thing, "late", 1.0), lambda: setattr(thing, "late", 8.0)


def getattr_hook() -> Case:
    thing: Any = Hooked()
    return lambda x: x * thing.late, lambda: setattr(thing, "late", 8.0)


def attribute_of_function() -> Case:
    def thing() -> None: ...

    return lambda x: x * getattr(thing, "late", 1.0), lambda: setattr(thing, "late", 8.0)


def attribute_of_module() -> Case:
    thing: Any = types.ModuleType("a_module_of_the_test")
    sys.modules[thing.__name__] = thing
    return lambda x: x * getattr(thing, "late", 1.0), lambda: setattr(thing, "late", 8.0)


def builtin_name() -> Case:
    space: dict[str, Any] = {"__name__": "a_program", "__builtins__": builtins}
    exec("def program(x):\n    return x * max(2.0, 1.0)", space)
    return space["program"], lambda: space.__setitem__("max", min)


def module_attribute() -> Case:
    net = Net()
    return net, lambda: setattr(net, "scale", 8.0)


def module_default() -> Case:
    net = Net()
    return net, lambda: setattr(net, "extra", 8.0)


def module_method() -> Case:
    net = Net()
    return net, lambda: setattr(net, "activate", lambda x: x * 8.0)


def inner_forward() -> Case:
    net = Net()
    return net, lambda: setattr(net.inner, "forward", lambda x: x * 8.0)


CASES = (
    class_attribute,
    method,
    inherited_attribute,
    inherited_method,
    hasattr_of_nothing,
    default_of_getattr,
    empty_slot,
    getattr_hook,
    attribute_of_function,
    attribute_of_module,
    builtin_name,
    module_attribute,
    module_default,
    module_method,
    inner_forward,
)


@torch.no_grad()
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_name_that_appears_later_is_seen(case: Callable[[], Case]) -> None:
    program, change = case()
    fast = anyshape.compile(program)
    x = torch.randn(3, 4)
    before = program(x)
    for _ in range(2):
        torch.testing.assert_close(fast(x), before)
    change()
    after = program(x)
    assert not torch.equal(after, before)
    torch.testing.assert_close(fast(x), after)


def test_an_instance_of_another_kind_has_its_own_value() -> None:
    plain, special = Base(), Base()
    special.scale = 9.0
    fast = anyshape.compile(lambda thing, x: x * thing.scale)
    x = torch.ones(3)
    for thing in (plain, special, plain, special):
        torch.testing.assert_close(fast(thing, x), x * thing.scale)


def test_an_unchanged_program_has_one_specialization() -> None:
    net = Net()
    fast = anyshape.compile(net, fullgraph=True)
    with torch.no_grad():
        for rows in (3, 1, 0, 5):
            fast(torch.randn(rows, 4))
    assert fast.stats().specializations == 1
