"""The grid of `special_methods.py`: the program's methods are called when CPython calls them, no more
and no less, and nothing else of the result differs."""

from __future__ import annotations

import zlib

import pytest

from tests.capture.python.special_methods import (
    ANSWERS,
    BUILTINS,
    METHODS,
    OPERATIONS,
    differences,
)

ROWS = [
    (base, method)
    for base in BUILTINS
    for method in METHODS
    if getattr(base, method, None) is not None or method in ANSWERS
    if not (method == "__del__" and issubclass(base, (tuple, frozenset)))
]
"""But for keys of the program's classes that die by its code: guards behind the break that they make
hold those of the first call (docs/python.md, "Known, and not mended")."""
PART = 24
"""One row of so many is taken by `make test`."""
THIRDS = 3
"""And of its operations a third: another one for each row that follows."""
TAKEN = [row for row in ROWS if zlib.crc32(f"{row[0].__name__}-{row[1]}".encode()) % PART == 0]


def _name(row: tuple[type, str]) -> str:
    return f"{row[0].__name__}-{row[1]}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", TAKEN, ids=_name)
def test_some_operations_call_methods_as_in_cpython(row: tuple[type, str]) -> None:
    operations = [*OPERATIONS][TAKEN.index(row) % THIRDS :: THIRDS]
    assert not list(differences(*row, operations))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("base", "method"), [pytest.param(*row, id=_name(row)) for row in ROWS])
def test_methods_are_called_as_cpython_calls_them(base: type, method: str) -> None:
    assert not list(differences(base, method))
