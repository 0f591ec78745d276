"""Attributes that turn out to be missing only after a break inside ``__getattr__``."""

from __future__ import annotations

import types

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
