"""Attributes that turn out to be missing only after a break inside ``__getattr__``."""

from __future__ import annotations

import itertools
import types

import pytest
import torch

import anyshape


class Lacking:
    """Asks native code before it says that it has no such attribute."""

    def __getattr__(self, name: str) -> object:
        torch.ones(2).numpy().tobytes()
        raise AttributeError(name)


def test_the_default_of_getattr_outlives_a_break_inside_the_lookup() -> None:
    def program(x: torch.Tensor, obj: object, default: float) -> torch.Tensor:
        return (x + 1) * getattr(obj, "missing", default)

    found = anyshape.compile(program)(torch.ones(3), Lacking(), 5.0)
    assert found.tolist() == [10.0, 10.0, 10.0]


def test_a_module_without_a_name_lacks_attributes_as_in_c() -> None:
    def program(x: torch.Tensor) -> tuple[object, ...]:
        nameless, named = types.ModuleType("m"), types.ModuleType("n")
        del nameless.__name__
        found: list[object] = [getattr(nameless, "other", 3)]
        for module in (nameless, named):
            try:
                found.append(module.missing)
            except AttributeError as error:
                found += [str(error), error.name, error.__context__]
        return x + 1, found

    for fullgraph in (True, False):
        fast = anyshape.compile(program, fullgraph=fullgraph)
        assert fast(torch.ones(3))[1] == program(torch.ones(3))[1]


class Mapping(dict):
    """Its class has the attribute access of `dict`, in C."""


@pytest.mark.parametrize("every", (0, 1, 2))
def test_an_absent_attribute_is_no_cause_of_its_own_error(every: int) -> None:
    def program(x: torch.Tensor, mapping: Mapping) -> tuple[torch.Tensor, object, object]:
        try:
            return x + 1, mapping.absent, None
        except AttributeError as error:
            return x + 1, error.__context__, error.__cause__

    fast = anyshape.compile(program, options={"break_every": every} if every else {})
    assert fast(torch.ones(2), Mapping())[1:] == (None, None)


def test_generators_and_what_they_stand_for_lack_attributes_under_their_own_names() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
        said = []
        for made in (itertools.islice(iter([]), 1), (n for n in [1])):
            try:
                made.absent
            except AttributeError as error:
                said.append(str(error))
        return x + 1, said

    fast = anyshape.compile(program, fullgraph=True)
    assert fast(torch.ones(2))[1] == program(torch.ones(2))[1]


class Slotted:
    __slots__ = ("a", "b")


OUTSIDE = Slotted()


@pytest.mark.parametrize("fullgraph", (True, False))
def test_an_attribute_deleted_outside_is_absent_in_the_words_of_c(fullgraph: bool) -> None:
    def program(x: torch.Tensor, plain: Lacking) -> tuple[torch.Tensor, list[object]]:
        plain.v, OUTSIDE.b = 1, 2
        del plain.v, OUTSIDE.b
        found: list[object] = []
        for read in (lambda: OUTSIDE.b, lambda: delattr(OUTSIDE, "b"), lambda: delattr(plain, "v")):
            try:
                found.append(read())
            except AttributeError as error:
                found += [str(error), error.name, error.obj is OUTSIDE]
        return x + 1, found

    fast = anyshape.compile(program, fullgraph=fullgraph)
    expected = program(torch.ones(3), Lacking())[1]
    assert [fast(torch.ones(n), Lacking())[1] for n in (3, 4)] == [expected] * 2


class Emptied:
    __slots__ = ("empty",)
    shared = 5


HANDED = Emptied()
REFUSED = {
    "deleted": lambda: delattr(Emptied(), "empty"),
    "deleted outside": lambda: delattr(HANDED, "empty"),
    "of no object": lambda: Emptied.__getattribute__("shared"),  # type: ignore[call-arg, arg-type]
    "of nothing": lambda: object.__getattribute__(),  # type: ignore[call-arg]
    "no name": lambda: object.__getattribute__(Emptied(), 1),  # type: ignore[arg-type]
    "two names": lambda: object.__getattribute__(Emptied(), "a", "b"),  # type: ignore[call-arg]
    "of another": lambda: list.__getattribute__(Emptied(), "shared"),  # type: ignore[arg-type]
    "of no super": lambda: super.__getattribute__(Emptied(), "shared"),  # type: ignore[arg-type]
    "of a class": lambda: object.__getattribute__(Emptied, "shared"),
    "a slot of a class": lambda: type(object.__getattribute__(Emptied, "empty")),
    "of an object": lambda: object.__getattribute__(Emptied(), "shared"),
}


@pytest.mark.parametrize("use", REFUSED)
def test_an_attribute_is_refused_as_in_c(use: str) -> None:
    def program(x: torch.Tensor) -> tuple[object, ...]:
        try:
            return x + 1, REFUSED[use]()
        except (AttributeError, TypeError) as error:
            return x + 1, type(error), str(error), error.__context__, error.__cause__

    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(torch.ones(3))[1:] == program(torch.ones(3))[1:]
    assert fast.stats().internal_errors == 0
