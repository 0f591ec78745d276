"""`pytest -p conformance.plugins.each_test_compiled PATHS`: each test method of `unittest` and each
test function is compiled, and called. What is right is said by the tests' own assertions; a test
counts that fails here and passes without the plugin.

The environment variable `EVERY=N` keeps every N-th test, by its name.
"""

from __future__ import annotations

import hashlib
import os
import unittest
from collections.abc import Callable
from typing import Any

import pytest

import anyshape

EVERY = int(os.environ.get("EVERY", "1"))


def _call_compiled(self: unittest.TestCase, method: Callable[[], object]) -> object:
    return anyshape.compile(method)()


def pytest_configure(config: pytest.Config) -> None:
    unittest.TestCase._callTestMethod = _call_compiled  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> None:
    """Functions are called by pytest, with their fixtures; methods of `unittest` are not."""
    if not issubclass(pyfuncitem.cls or object, unittest.TestCase):
        pyfuncitem.obj = anyshape.compile(pyfuncitem.obj)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _number(item.nodeid) % EVERY == 0]


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
