"""What a program writes to functions and modules from outside is seen by C code that reads them."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

pytestmark = pytest.mark.filterwarnings("ignore")
WORTH = compile("worth * 2", "<test>", "eval")


def function() -> Any:
    def made(a: int = 1) -> int:
        """A text."""
        return a

    return made


def module() -> Any:
    return types.ModuleType("made")


READS: dict[str, Callable[[Any], Any]] = {
    "dir": lambda o: "worth" in dir(o),
    "members": lambda o: dict(inspect.getmembers(o)).get("worth"),
    "names": lambda o: o.__dict__.copy().get("worth"),
    "attribute": lambda o: getattr(o, "worth", None),
    "static": lambda o: inspect.getattr_static(o, "worth"),
    "shown": lambda o: repr(o).partition(" at ")[0],
    "copied": lambda o: copy.copy(o).worth if isinstance(o, types.FunctionType) else None,
    "globals": lambda o: types.FunctionType(WORTH, o.__dict__)(),
    "evaluated": lambda o: eval("worth", o.__dict__),
}


@pytest.mark.parametrize("make", [function, module])
@pytest.mark.parametrize("name", READS)
def test_c_code_sees_what_was_written(name: str, make: Callable[[], Any]) -> None:
    read = READS[name]

    def program(x: Tensor, owner: Any) -> tuple[Tensor, Any]:
        y = x + 1
        owner.worth = 7
        owner.__name__ = "renamed"
        return y * 2, read(owner)

    def natively(x: Tensor) -> tuple[Tensor, Any]:
        return program(x, natively_written)

    def compiled(x: Tensor) -> tuple[Tensor, Any]:
        return program(x, written)

    natively_written, written = make(), make()
    fast = anyshape.compile(compiled)
    for _ in range(2):
        made, wanted = fast(torch.ones(2)), natively(torch.ones(2))
        assert torch.equal(made[0], wanted[0])
        assert made[1] == wanted[1]
    assert written.worth == 7
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("name", ["__doc__", "__module__", "__defaults__", "__kwdefaults__"])
def test_what_is_deleted_of_a_function_is_none(name: str) -> None:
    owner = function()

    def program(x: Tensor) -> tuple[Tensor, Any]:
        y = x + 1
        delattr(owner, name)
        return y * 2, getattr(owner, name)

    fast = anyshape.compile(program)
    for _ in range(2):
        made, wanted = fast(torch.ones(2)), program(torch.ones(2))
        assert torch.equal(made[0], wanted[0])
        assert made[1] is wanted[1] is None
    assert fast.stats().internal_errors == 0


def test_a_read_only_proxy_shows_what_was_written_after_it_was_made() -> None:
    def program(x: Tensor, outside: dict[str, Any]) -> Any:
        proxy = types.MappingProxyType(outside)
        outside["new"] = x
        outside["a"] += 1
        return x + 1, proxy["new"] is x, proxy["a"], len(proxy), list(proxy), "new" in proxy

    fast = anyshape.compile(program, fullgraph=True)
    for outside in ({"a": 1}, {"a": 2}, {"b": 0, "a": 3}):
        x, other = torch.ones(2), dict(outside)
        assert fast(x, outside)[1:] == program(x, other)[1:]
        assert outside == other


LOOKS: dict[str, Callable[[dict[Any, Any], Any], Any]] = {
    "in": lambda d, key: key in d,
    "get": lambda d, key: d.get(key, 0),
    "item": lambda d, key: d[key],
    "setdefault": lambda d, key: d.setdefault(key, 4),
    "pop": lambda d, key: d.pop(key, None),
    "stored": lambda d, key: d.__setitem__(key, 4),
    "deleted": lambda d, key: d.__delitem__(key),
}


@pytest.mark.parametrize("name", LOOKS)
def test_what_has_no_hash_is_no_key_of_what_was_written(name: str) -> None:
    """C says so, and so do keys that hold some; others that are equal are found."""
    look = LOOKS[name]
    written: dict[Any, Any] = {}

    def program(x: Tensor, key: Any) -> tuple[Tensor, Any, list[Any]]:
        written["a"] = written[1] = 2
        try:
            found = look(written, key)
        except (TypeError, KeyError) as error:
            found = type(error), str(error)
        return x * 2, found, list(written.items())

    fast = anyshape.compile(program, fullgraph=True)
    for key in ({}, ([],), {1}, 1.0, True, "b"):
        written.clear()
        wanted = program(torch.ones(2), key)[1:]
        written.clear()
        assert fast(torch.ones(2), key)[1:] == wanted
