"""What decides what a function does besides its arguments: its code, its defaults and what is in
them, the class of a module, names of torch and of the standard library. Any of it may change
between two calls, and the next call is right."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import anyshape

X = torch.linspace(-1, 2, 12).reshape(3, 4)
Change = Callable[[], object]


def follows(fn: Callable[..., Any], *changes: Change) -> None:
    """The compiled function does as the function does, after each change; calls that follow no
    change need no further specialization."""
    fast = anyshape.compile(fn, fullgraph=True)
    for change in (lambda: None, *changes):
        change()
        for x in (X, X[:2], X[:0]):
            torch.testing.assert_close(fast(x), fn(x), rtol=0, atol=0)
        count = fast.stats().specializations
        fast(X[:1])
        assert fast.stats().specializations == count


class Kept:
    """Sets attributes; `back` restores what was there."""

    def __init__(self) -> None:
        self.before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Change:
        def change() -> None:
            own = vars(owner).get(name, self)
            self.before.append((owner, name, owner.__code__ if name == "__code__" else own))
            setattr(owner, name, value)

        return change

    def back(self) -> None:
        for owner, name, value in reversed(self.before):
            if value is self:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self.before.clear()


@pytest.fixture
def kept() -> Iterator[Kept]:
    changes = Kept()
    yield changes
    changes.back()


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def plus_two(x: torch.Tensor) -> torch.Tensor:
    return x + 2


def calls_another(x: torch.Tensor) -> torch.Tensor:
    return plus_one(x) * 2


@pytest.mark.parametrize("fn", [plus_one, calls_another])
def test_another_code(fn: Callable[..., Any], kept: Kept) -> None:
    """As notebooks do that load a module again."""
    follows(fn, kept.set(plus_one, "__code__", plus_two.__code__))


def with_defaults() -> tuple[Callable[..., Any], list[float], dict[str, Any]]:
    values, named = [1.0], {"scale": 1.0, "shift": torch.zeros(4)}

    def scaled(x: torch.Tensor, by: Any = values, *, more: Any = named) -> torch.Tensor:
        return x * by[0] * more["scale"] + more["shift"]

    return scaled, values, named


@pytest.mark.parametrize("inner", [False, True])
def test_what_is_in_a_default_changes(inner: bool) -> None:
    scaled, values, named = with_defaults()

    def calls(x: torch.Tensor) -> torch.Tensor:
        return scaled(x)  # type: ignore[no-any-return]

    follows(
        calls if inner else scaled,
        lambda: values.__setitem__(0, 3.0),
        lambda: values.insert(0, 5.0),
        lambda: named.update(scale=7.0),
        lambda: named.update(shift=torch.ones(4)),
        lambda: named["shift"].mul_(9),
    )


@pytest.mark.parametrize("inner", [False, True])
def test_other_defaults(inner: bool) -> None:
    scaled, _, named = with_defaults()

    def calls(x: torch.Tensor) -> torch.Tensor:
        return scaled(x)  # type: ignore[no-any-return]

    other = {"scale": 2.0, "shift": 3.0}
    follows(
        calls if inner else scaled,
        lambda: setattr(scaled, "__defaults__", ([11.0],)),
        lambda: scaled.__kwdefaults__.__setitem__("more", other),
        lambda: setattr(scaled, "__kwdefaults__", {"more": named}),
    )


def test_a_default_that_remembers() -> None:
    """A list as default keeps what earlier calls put there."""

    def counted(x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:
        seen.append(1)
        return x + len(seen)

    fast = anyshape.compile(counted, fullgraph=True)
    assert [fast(torch.zeros(())).item() for _ in range(4)] == [1, 2, 3, 4]


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Thrice(Twice):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 1.5


def test_another_class() -> None:
    follows(twice := Twice(), lambda: setattr(twice, "__class__", Thrice))
    outer = nn.Sequential(Twice(), nn.ReLU())
    follows(outer, lambda: setattr(outer[0], "__class__", Thrice))


def test_another_class_of_one_module_among_many() -> None:
    """So many guards are tested in C."""
    deep = nn.Sequential(*(Twice() if i % 2 else nn.Hardtanh() for i in range(80)))
    follows(
        deep,
        lambda: setattr(deep[41], "__class__", Thrice),
        lambda: setattr(Twice, "forward", lambda self, x: x - 1),
        lambda: delattr(deep[41], "training"),
    )


def through_torch(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x) + torch.abs(x) + x.neg() + math.sqrt(4)


def test_names_of_torch_and_of_the_standard_library(kept: Kept) -> None:
    """Some programs put kernels of their own there."""
    follows(
        through_torch,
        kept.set(F, "relu", lambda x: x * 0),
        kept.set(torch, "abs", torch.square),
        kept.set(torch.Tensor, "neg", lambda x: x + 5),
        kept.set(math, "sqrt", lambda x: 100.0),
        kept.back,
    )


def test_a_method_of_a_library_class(kept: Kept) -> None:
    layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).requires_grad_(False)
    follows(layer, kept.set(nn.ReLU, "forward", lambda self, x: x * 7), kept.back)


def test_another_module_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = types.ModuleType("anyshape_imported"), types.ModuleType("anyshape_imported")
    first.VALUE, second.VALUE = 2.0, 50.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "anyshape_imported", first)

    def imports(x: torch.Tensor) -> torch.Tensor:
        import anyshape_imported  # type: ignore[import-not-found]

        return x * anyshape_imported.VALUE  # type: ignore[no-any-return]

    follows(
        imports,
        lambda: setattr(first, "VALUE", 3.0),
        lambda: sys.modules.__setitem__("anyshape_imported", second),
    )


def test_libraries_are_told_as_one_line() -> None:
    fast = anyshape.compile(through_torch, fullgraph=True)
    fast(X)
    told = [
        line for line in fast.guards().splitlines() if "of torch and the standard library" in line
    ]
    assert len(told) == 1 and "relu" not in fast.guards()
