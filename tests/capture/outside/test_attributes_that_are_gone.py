"""An attribute that an object has lost since capture: CPython asks the `__getattr__` of its class, or
the descriptor that stood behind the entry, once; guards ask neither."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

ASKED: list[str] = []
X = torch.arange(3.0)


def _answer(self: Any, name: str = "v") -> float:
    ASKED.append(name)
    return 5.0


class Hooked:
    v: Any
    __getattr__ = _answer


class Slotted:
    __slots__ = ("v",)
    __getattr__ = _answer


class Cached:
    v = functools.cached_property(lambda self: _answer(self))


class Getter:
    def __get__(self, obj: Any, kind: Any = None) -> float:
        return _answer(obj)


class Described:
    v: Any = Getter()


class DescribedForClass:
    v: Any = classmethod(Getter())  # type: ignore[arg-type]


class HookedChild(Hooked):
    other = 1


CLASSES = (Hooked, Slotted, Cached, Described, DescribedForClass, HookedChild)
HOLDER: Any = None


def of_argument(x: Tensor, obj: Any) -> Tensor:
    return (x + 1) * obj.v


def of_global(x: Tensor, obj: Any) -> Tensor:
    return (x + 1) * HOLDER.v


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("read", [of_argument, of_global])
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_answers_for_a_lost_attribute_is_asked_once(
    kind: type, read: Callable[..., Tensor], fullgraph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    obj: Any = kind()
    monkeypatch.setitem(globals(), "HOLDER", obj)
    obj.v = 2.0
    fast = anyshape.compile(read, fullgraph=fullgraph)
    assert torch.equal(fast(X, obj), (X + 1) * 2)
    del obj.v
    ASKED.clear()
    assert torch.equal(fast(X, obj), (X + 1) * 5)
    assert ASKED == ["v"]
    if kind is not Slotted:
        assert vars(obj) == ({"v": 5.0} if kind is Cached else {})


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_another_object_that_never_had_it_is_asked_once(kind: type) -> None:
    first, second = kind(), kind()
    first.v = 2.0
    fast = anyshape.compile(of_argument, fullgraph=True)
    fast(X, first)
    ASKED.clear()
    assert torch.equal(fast(X, second), (X + 1) * 5)
    assert ASKED == ["v"]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_another_value_is_seen(kind: type) -> None:
    """The guard is still one on the value."""
    obj: Any = kind()
    obj.v = 2.0
    fast = anyshape.compile(of_argument, fullgraph=True)
    fast(X, obj)
    obj.v = 3.0
    assert torch.equal(fast(X, obj), (X + 1) * 3)
    obj.v = X
    assert torch.equal(fast(X, obj), (X + 1) * X)
    obj.v = X + 1
    assert torch.equal(fast(X, obj), (X + 1) * (X + 1))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_is_written_behind_the_read_is_there(kind: type) -> None:
    def counted(x: Tensor, obj: Any) -> Any:
        obj.v = obj.v + 1
        return x * obj.v, obj.v

    objects: tuple[Any, Any] = (kind(), kind())
    for obj in objects:
        obj.v = 2.0
    fast = anyshape.compile(counted, fullgraph=True)
    for _ in range(3):
        expected, got = counted(X, objects[0]), fast(X, objects[1])
        assert torch.equal(got[0], expected[0])
        assert got[1] == expected[1] == objects[1].v
