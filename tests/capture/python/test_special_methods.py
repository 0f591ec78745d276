"""The grid of `special_methods.py`: the program's methods are called when CPython calls them, no more
and no less, and nothing else of the result differs."""

from __future__ import annotations

import zlib

import pytest

from tests.capture.python.special_methods import ANSWERS, BUILTINS, METHODS, differences

ROWS = [
    (base, method)
    for base in BUILTINS
    for method in METHODS
    if getattr(base, method, None) is not None or method in ANSWERS
]
PART = 24
"""One row of so many is taken by `make test`."""


def _marked(base: type, method: str) -> object:
    name = f"{base.__name__}-{method}"
    slow = () if zlib.crc32(name.encode()) % PART == 0 else (pytest.mark.slow,)
    return pytest.param(base, method, marks=slow, id=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("base", "method"), [_marked(*row) for row in ROWS])
def test_methods_are_called_as_cpython_calls_them(base: type, method: str) -> None:
    assert not list(differences(base, method))
