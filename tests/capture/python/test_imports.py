"""Imports inside a compiled function, where the program has written to what importing looks at, or
to the module; and modules with a `__getattr__` of the program's own."""

from __future__ import annotations

import colorsys
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

ASKED: list[str] = []


def _answer(name: str) -> int:
    ASKED.append(name)
    if name == "dynamic":
        return 7
    raise AttributeError(name)


_answer.__name__ = _answer.__qualname__ = "__getattr__"


@pytest.fixture(autouse=True)
def lazy() -> Iterator[ModuleType]:
    """A module that is asked for what it has not."""
    module = ModuleType("lazy_module_of_tests")
    module.__getattr__ = _answer  # type: ignore[method-assign]
    module.fixed = 3  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def taken_out(x: Tensor) -> tuple[Tensor, bool]:
    y, old = x + 1, sys.modules.pop("colorsys")
    import colorsys as again

    sys.modules["colorsys"] = old
    return y * 2, again is old


def put_in_place(x: Tensor) -> tuple[Tensor, bool]:
    y = x + 1
    sys.modules["colorsys"] = sys
    import colorsys as again

    sys.modules["colorsys"] = colorsys
    return y * 2, again is sys


def made_inside(x: Tensor) -> Tensor:
    colorsys.made_inside = 5  # type: ignore[attr-defined]
    from colorsys import made_inside as found  # type: ignore[attr-defined]

    del colorsys.made_inside  # type: ignore[attr-defined]
    return x + found


def deleted(x: Tensor) -> tuple[Tensor, Any]:
    y, module = x + 1, sys.modules["lazy_module_of_tests"]
    del module.fixed  # type: ignore[attr-defined]
    try:
        from lazy_module_of_tests import fixed  # type: ignore[import-not-found]
    except ImportError as error:
        fixed = (error.args, error.name, error.path, error.__context__)
    module.fixed = 3  # type: ignore[attr-defined]
    return y, fixed


def dynamic(x: Tensor) -> Tensor:
    y = x + 1
    from lazy_module_of_tests import dynamic as found

    return y * found


def missing(x: Tensor) -> tuple[Tensor, Any]:
    y = x + 1
    try:
        from lazy_module_of_tests import missing as found
    except ImportError as error:
        found = error.args, error.name, error.path, error.__context__
    return y, found


def default(x: Tensor) -> Tensor:
    return x + getattr(sys.modules["lazy_module_of_tests"], "missing", 3)


def has(x: Tensor) -> Tensor:
    return x + hasattr(sys.modules["lazy_module_of_tests"], "dynamic")


PROGRAMS = [taken_out, put_in_place, made_inside, deleted, dynamic, missing, default, has]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_module_is_what_the_program_has_made_of_it(program: Callable[[Tensor], Any]) -> None:
    """Each call asks as often as CPython does, later ones too."""
    fast = anyshape.compile(program)
    for size in (2, 3, 2):
        ASKED.clear()
        expected, asked = program(torch.ones(size)), [*ASKED]
        ASKED.clear()
        result = fast(torch.ones(size))
        assert ASKED == asked
        if isinstance(expected, tuple):
            torch.testing.assert_close(result[0], expected[0])
            assert result[1] == expected[1]
        else:
            torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("program", [made_inside, deleted, dynamic, missing, default, has])
def test_that_is_one_graph(program: Callable[[Tensor], Any]) -> None:
    anyshape.compile(program, fullgraph=True)(torch.ones(2))


def test_what_a_module_reads_where_it_is_loaded_was_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code runs at the import, behind what the function did before it."""
    (tmp_path / "reads_where_it_is_loaded.py").write_text("import colorsys\nSEEN = colorsys.NOTE\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(colorsys, "NOTE", 1, raising=False)
    importlib.invalidate_caches()

    def program(x: Tensor) -> Tensor:
        colorsys.NOTE = 2  # type: ignore[attr-defined]
        import reads_where_it_is_loaded as loaded  # type: ignore[import-not-found]

        return x + loaded.SEEN

    try:
        result = anyshape.compile(program)(torch.zeros(2))
    finally:
        sys.modules.pop("reads_where_it_is_loaded", None)
    torch.testing.assert_close(result, torch.full((2,), 2.0))
