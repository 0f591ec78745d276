"""What abstract classes answer may change by `register`; keys that compare by a function of the
program's are Python."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


def asked_of_instance(cls: type, other: type) -> Callable[[Tensor], Tensor]:
    thing = other()
    return lambda x: x * 2 if isinstance(thing, (int, cls)) else x


def asked_of_class(cls: type, other: type) -> Callable[[Tensor], Tensor]:
    return lambda x: x * 2 if issubclass(other, cls) else x


def test_a_class_that_is_registered_later_is_seen() -> None:
    for make in (asked_of_instance, asked_of_class):
        cls: Any = abc.ABCMeta("Abstract", (), {})
        other: type = type("Other", (), {})
        program = make(cls, other)
        fast = anyshape.compile(program, fullgraph=True)
        for length in (3, 0, 1):
            assert torch.equal(fast(torch.ones(length)), torch.ones(length))
        assert fast.stats().specializations == 1
        cls.register(other)
        for length in (3, 0, 1):
            assert torch.equal(fast(torch.ones(length)), torch.full((length,), 2.0))
        assert fast.stats().specializations == 2


def by_length(a: Tensor, b: Tensor) -> int:
    return a.ndim - b.ndim


def ordered(x: Tensor) -> Any:
    parts = [x * 2, x.sum(), x[None]]
    key = functools.cmp_to_key(by_length)
    parts.sort(key=key, reverse=True)
    backwards = sorted(parts, key=functools.cmp_to_key(lambda a, b: by_length(b, a)))
    return *parts, *backwards, max(parts, key=key), min(parts, key=key), key(x) == key(x + 1)


def test_keys_that_compare_by_a_function_are_no_break() -> None:
    fast = anyshape.compile(ordered, fullgraph=True)
    for length in (3, 2, 1, 0, 17):
        x = torch.rand(length)
        for made, wanted in zip(fast(x), ordered(x), strict=True):
            assert made is wanted if isinstance(wanted, bool) else torch.allclose(made, wanted)
    assert fast.stats().specializations == 1


class Named:
    """A key whose hash follows its name."""

    def __init__(self, name: int) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name


def test_a_key_whose_hash_has_changed_is_found_as_in_eager() -> None:
    key = Named(1)
    factors = {key: 2.0}
    program = lambda x: x * factors.get(key, 5.0)
    for name in (1, 4, 1):
        key.name = name
        fast = anyshape.compile(program)
        for length in (3, 0, 1):
            assert torch.equal(fast(torch.ones(length)), program(torch.ones(length)))
        assert not fast._lazy.machinery.warned


class OwnSuper:
    text = "own"

    def __init__(self, *args: Any) -> None:
        self.args = args


def test_a_super_of_the_program_is_called_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        def without(self) -> Any:
            return super().text, super().args  # type: ignore[misc]

        def handed(self) -> Any:
            return super(1, 2).text, super(1, 2).args  # type: ignore

    def program(x: Any) -> Any:
        return x + 1, Asked().without(), Asked().handed()

    monkeypatch.setitem(globals(), "super", OwnSuper)
    _, *found = anyshape.compile(program, fullgraph=True)(torch.ones(2))
    assert found == [("own", ()), ("own", (1, 2))]


class Meta(type):
    def __new__(cls, *parts: Any) -> Any:
        return type.__new__(cls, *parts)

    @staticmethod
    def fixed() -> int:
        return 4

    @classmethod
    def named(cls) -> str:
        return cls.__name__


def made_by_a_metaclass(x: Tensor) -> Any:
    y = x + 1

    class Made(metaclass=Meta):
        pass

    return y * 2, Made.__name__, type(Made), Meta.fixed(), Meta.named(), Made.named()


def test_what_lies_in_the_dictionary_of_a_metaclass_is_relied_on() -> None:
    fast = anyshape.compile(made_by_a_metaclass, fullgraph=True)
    for length in (3, 0, 1):
        assert fast(torch.ones(length))[1:] == ("Made", Meta, 4, "Meta", "Meta")
    assert fast.stats().specializations == 1
    Meta.fixed = staticmethod(lambda: 5)  # type: ignore[method-assign]
    assert fast(torch.ones(3))[1:] == ("Made", Meta, 5, "Meta", "Meta")


def set_through_the_class(x: Tensor, cls: Any, obj: Any) -> Any:
    y = x + 1
    cls.method.__doc__ = "after"
    cls.method.__name__ = cls.method.__name__  # what it is; another is a break
    cls.method.known = [len(cls.method.__doc__)]
    bound = obj.method
    return y * 2, bound.__doc__, bound.__name__, bound.known, bound.__dict__.keys() == {"known"}


def read_of_the_method(x: Tensor, obj: Any) -> Any:
    y = x + 1
    return y * 2, obj.method.__doc__, getattr(obj.method, "known", None)


def test_a_bound_method_has_the_attributes_of_its_function() -> None:
    cls: Any = type("Copy", (), {"method": lambda self: None})
    fast = anyshape.compile(read_of_the_method, fullgraph=True)
    assert fast(torch.ones(2), cls())[1:] == (None, None)
    setting = anyshape.compile(set_through_the_class, fullgraph=True)
    assert setting(torch.ones(2), cls, cls())[1:] == ("after", "<lambda>", [5], True)
    assert fast(torch.ones(2), cls())[1:] == ("after", [5])
    cls.method.__doc__, cls.method.known = "later", 6
    assert fast(torch.ones(2), cls())[1:] == ("later", 6)


class Registering(abc.ABC):
    pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"break_every": 1}], ids=str)
def test_how_often_classes_were_registered_is_asked_in_each_call(options: dict[str, Any]) -> None:
    """`functools.singledispatch` forgets by it what it has found."""

    def told(x: torch.Tensor) -> Any:
        before = abc.get_cache_token()
        made = type("Made", (), {})
        Registering.register(made)
        return x + 1, before, abc.get_cache_token(), issubclass(made, Registering)

    fast = Compiled(told, Options(**options), ByReference)
    for _ in range(3):
        Registering.register(type("Other", (), {}))
        before = abc.get_cache_token()
        assert fast(torch.ones(1))[1:] == (before, before + 1, True)
