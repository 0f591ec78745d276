"""Methods of descriptors that a program calls by name, and `module.__getattribute__`."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor, "Kept"], Any]
NAMESPACE_OF = type.__dict__["__dict__"].__get__


class Kept:
    __slots__ = ("__dict__", "slot")

    def __init__(self) -> None:
        self.slot = 2

    @property
    def doubled(self) -> Any:
        return self.slot * 2

    @doubled.setter
    def doubled(self, value: Any) -> None:
        self.slot = value // 2

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    @staticmethod
    def next(value: int) -> int:
        return value + 1


OWN: Any = Kept.__dict__


def slots(x: Tensor, kept: Kept) -> Any:
    kept.count = 1  # type: ignore[attr-defined]
    made = Kept()
    OWN["slot"].__set__(made, 9)
    OWN["slot"].__set__(kept, OWN["slot"].__get__(kept) + made.slot)
    OWN["slot"].__delete__(made)
    return x * kept.slot, hasattr(made, "slot"), dict(OWN["__dict__"].__get__(kept))


def properties(x: Tensor, kept: Kept) -> Any:
    doubled = OWN["doubled"]
    doubled.__set__(kept, doubled.__get__(kept) + 2)
    return x * kept.slot, doubled.__get__(None, Kept) is doubled


def methods(x: Tensor, kept: Kept) -> Any:
    names = OWN["name"].__get__(None, Kept)(), OWN["name"].__get__(kept)()
    texts = str.__dict__["upper"].__get__("a")(), str.upper.__get__("b", str)()
    return x + OWN["next"].__get__(None, Kept)(3), names, texts


def classes(x: Tensor, kept: Kept) -> Any:
    @dataclass
    class Made:
        a: int
        b: int = 2

    namespace = NAMESPACE_OF(Made)
    made = namespace["__init__"], type.__dict__["__mro__"].__get__(Made)
    return x * Made(1).b, made == (Made.__init__, Made.__mro__), str(inspect.signature(Made))


def objects_of_c(x: Tensor, kept: Kept) -> Any:
    code = types.FunctionType.__dict__["__code__"].__get__(slots)
    error = BaseException.__dict__["args"].__get__(ValueError(1, x))
    return x + error[0], code is slots.__code__, complex.__dict__["imag"].__get__(3 + 4j)


def tensors(x: Tensor, kept: Kept) -> Any:
    shape = torch.Tensor.shape.__get__(x)  # type: ignore[attr-defined]
    return x * shape[0], shape


def refused(x: Tensor, kept: Kept) -> Any:
    texts = []
    for wrong in (3, "text"):
        try:
            OWN["slot"].__get__(wrong)
        except TypeError as error:
            texts.append(str(error))
    del kept.slot
    try:
        OWN["slot"].__get__(kept)
    except AttributeError as error:
        texts.append(str(error))
    return x + 1, texts


def modules(x: Tensor, kept: Kept) -> Any:
    return x * math.__getattribute__("pi"), types.ModuleType.__getattribute__(math, "e")


@pytest.mark.parametrize(
    "program",
    [slots, properties, methods, classes, objects_of_c, tensors, refused, modules],
    ids=lambda program: program.__name__,
)
def test_descriptors_that_are_called_are_one_graph(program: Program) -> None:
    compiled = anyshape.compile(program, fullgraph=True)
    for rows, number in ((3, 2), (5, 2), (4, 6)):
        sides = Kept(), Kept()
        for kept in sides:
            kept.slot = number
        x = torch.arange(float(rows))
        assert str(compiled(x, sides[0])) == str(program(x, sides[1]))
        assert getattr(sides[0], "slot", None) == getattr(sides[1], "slot", None)


class Hiding(Kept):
    slot: Any = 8  # type: ignore[misc]

    def __init__(self) -> None:
        pass


def behind_another(x: Tensor, kept: Kept) -> Any:
    hiding = Hiding()
    OWN["slot"].__set__(hiding, 5)
    return x + OWN["slot"].__get__(hiding), Hiding.__dict__["slot"]


def test_what_is_no_attribute_of_that_name_is_left_to_cpython() -> None:
    compiled = anyshape.compile(behind_another)
    x = torch.ones(3)
    assert str(compiled(x, Kept())) == str(behind_another(x, Kept()))
    assert compiled.stats().graph_breaks  # type: ignore[attr-defined]


def said_of_modules(x: Tensor) -> Any:
    def missing(module: Any) -> Any:
        try:
            return module.__getattribute__("nothing_of_that_name")
        except AttributeError as error:
            return str(error), error.name, error.obj

    found = getattr(torch.backends.cudnn, "nothing_of_that_name", 3)  # asks another module
    return x + 1, missing(math), found, hasattr(torch.classes, "__warningregistry__")


def test_a_module_says_what_it_has_not() -> None:
    x = torch.ones(2)
    fast = anyshape.compile(said_of_modules, fullgraph=True)
    assert fast(x)[1:] == said_of_modules(x)[1:] == fast(x)[1:]
