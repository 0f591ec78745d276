"""An AttributeError that the program raises without a `name` and an `obj` gets them where CPython's
`PyObject_GetAttr` fills them in, and only there: what looks for a method to call leaves it as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import anyshape


class Refused(AttributeError):
    pass


class Properties:
    __slots__ = ("slot",)

    @property
    def bare(self) -> Any:
        raise AttributeError("bare")

    @property
    def of_its_own(self) -> Any:
        raise Refused("of a class of its own")

    @property
    def of_another(self) -> Any:
        return self.absent  # type: ignore[attr-defined]

    @property
    def named(self) -> Any:
        raise AttributeError("named", name="n", obj=3)

    @property
    def of_value(self) -> Any:
        raise ValueError("another error")


class Hooked(Properties):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError("asked last")


class Answered(Properties):
    def __getattr__(self, name: str) -> Any:
        return name


class First:
    def __getattribute__(self, name: str) -> Any:
        raise AttributeError("asked first")


class Descriptor:
    def __get__(self, obj: Any, cls: Any) -> Any:
        raise AttributeError("of a descriptor")


class Described:
    bare = Descriptor()


class Meta(type):
    @property
    def bare(cls) -> Any:
        raise AttributeError("of a metaclass")


class HookedMeta(Meta):
    def __getattr__(cls, name: str) -> Any:
        raise AttributeError("asked of a metaclass last")


class AnsweringMeta(Meta):
    def __getattr__(cls, name: str) -> Any:
        return name


OF_META = {made.__name__: made("Of" + made.__name__, (), {}) for made in (Meta, HookedMeta)}
OF_META["answering"] = AnsweringMeta("OfAnswering", (), {})
MODULE = ModuleType("asked")


def of_module(name: str) -> Any:
    raise AttributeError("of a module")


MODULE.__getattr__ = of_module  # type: ignore[method-assign]
OBJECTS: dict[str, Callable[[], Any]] = {
    **{kind.__name__: kind for kind in (Properties, Hooked, Answered, First, Described)},
    **{name: lambda cls=cls: cls for name, cls in OF_META.items()},  # type: ignore[misc]
    "module": lambda: MODULE,
}
WAYS: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "read": lambda name: eval(f"lambda o: o.{name}"),
    "called": lambda name: eval(f"lambda o: o.{name}()"),
    "by super": lambda name: eval(f"lambda o: super(type(o), o).{name}"),
    "getattr": lambda name: lambda o: getattr(o, name),
    "getattr with a default": lambda name: lambda o: getattr(o, name, 5),
    "hasattr": lambda name: lambda o: hasattr(o, name),
    "past the class": lambda name: lambda o: object.__getattribute__(o, name),
    "past the metaclass": lambda name: lambda o: type.__getattribute__(o, name),
    "attrgetter": lambda name: lambda o: operator.attrgetter(name)(o),
    "methodcaller": lambda name: lambda o: operator.methodcaller(name)(o),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OBJECTS)
def test_an_error_says_what_cpythons_says(kind: str, way: str) -> None:
    obj = OBJECTS[kind]()
    for name in ("bare", "of_its_own", "of_another", "named", "of_value", "slot", "nothing"):
        take = WAYS[way](name)

        def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
            try:
                found = take(obj)
            except Exception as error:
                of = getattr(error, "obj", None)
                found = repr(error), getattr(error, "name", None), of is obj, type(of)
            return x + 1, found

        fast = anyshape.compile(program)
        assert fast(torch.ones(2))[1] == program(torch.ones(2))[1], name
        assert fast.stats().internal_errors == 0


def _of_tensor(x: torch.Tensor) -> Any:
    return x.foo


def _of_result(x: torch.Tensor) -> Any:
    return (x + 1).foo


def _of_method(x: torch.Tensor) -> Any:
    return x.foo()


def _of_shape(x: torch.Tensor) -> Any:
    return x.shape.foo


def _of_size(x: torch.Tensor) -> Any:
    return x.shape[0].foo


def _of_number(x: torch.Tensor) -> Any:
    return x.sum().item().foo


def _by_getattr(x: torch.Tensor) -> Any:
    return getattr(x, "".join(["f", "oo"]))


def _of_module(x: torch.Tensor) -> Any:
    return torch.foo


def _of_module_called(x: torch.Tensor) -> Any:
    return torch.foo()


def _of_module_by_getattr(x: torch.Tensor) -> Any:
    return getattr(torch, "".join(["f", "oo"]))


OF_VALUES = (_of_tensor, _of_result, _of_method, _of_shape, _of_size, _of_number, _by_getattr)
OF_MODULES = (_of_module, _of_module_called, _of_module_by_getattr)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("read", OF_VALUES + OF_MODULES, ids=lambda read: read.__name__)
def test_errors_of_tensors_and_sizes_say_of_what(
    read: Callable[[Any], Any], fullgraph: bool
) -> None:
    def what_is_said(x: torch.Tensor) -> Any:
        try:
            return read(x)
        except AttributeError as error:
            return str(error), error.name, error.obj, error.obj is x

    fast = anyshape.compile(what_is_said, fullgraph=fullgraph)
    for rows in (3, 5):
        x = torch.ones(rows)
        (text, name, obj, same), expected = fast(x), what_is_said(x)
        assert (text, name, same) == (expected[0], expected[1], expected[3])
        assert type(obj) is type(expected[2])
        if isinstance(obj, torch.Tensor):
            assert torch.equal(obj, expected[2])
        else:
            assert obj == expected[2]
